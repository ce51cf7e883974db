//! The scheduler: turns a graph into a [`Plan`], a list of kernel launches with the memory of every
//! argument.
//!
//! [`plan`] runs the passes below in order, each a file of this folder, over one [`Schedule`]. A
//! pass reads what earlier passes added, adds its own part and states its postcondition; debug
//! builds assert what is cheap to check.
//!
//! | pass | adds |
//! |---|---|
//! | `collect.rs` | the nodes to compute |
//! | `select.rs` | matrix products that a library computes (`matmul/`) |
//! | `direct_writes.rs` | values written directly into a slice of a concatenation or of a variable |
//! | `fuse.rs` | groups of nodes, one kernel each, and the values they store |
//! | `tune.rs` | elements per thread and threads per block, autotuned |
//! | `steps.rs` | the launches, with the buffers each reads and writes |
//! | `in_place.rs` | outputs that overwrite a variable or reuse a dead input's buffer |
//! | `lower.rs` | the IR of every group (`lower/`) |
//! | `memory.rs` | a slot for every buffer; scratch memory is packed by `pack.rs` |
//! | `compile.rs` | compiled code; returns the plan |
//!
//! Terms: *requested* tensors are those to evaluate. A *root* is the node computed for one of them
//! (the base of a requested reshape). A *source* is a tensor that is in memory before the plan
//! runs. A *group* is a set of nodes fused into one kernel; a *work item* is a group or an unfused
//! node; a *step* is one launch. An *overwrite* writes a new value over a source, a *reused input*
//! is the buffer of a temporary whose last reader is the step that writes into it.
//!
//! Planning does not lock the device, so other threads can launch meanwhile. Shape errors are found
//! and code is compiled before the first launch of any plan; a plan's memory is allocated before
//! its own first launch. Out-of-range indices are reported after the launches. `plan.rs` runs a
//! plan, `cached.rs` caches plans of small graphs, `explain.rs` prints plans.

mod cached;
mod collect;
mod compile;
mod cost;
mod describe;
mod direct_writes;
mod explain;
mod fuse;
mod handwritten;
mod ids;
mod in_place;
mod lower;
mod memory;
mod pack;
mod plan;
mod select;
mod steps;
mod tune;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bornite_ir::Kernel;

use crate::graph::node::{NodeId, Op, with_snapshot};
use crate::lower::{Group, InPlaceOutputs, Overwrite, with_gpu_kernels};
use crate::matmul::LibraryCall;
use crate::runtime::buffer::Buffer;
use crate::{Device, Error, Result, Tensor};
pub(crate) use collect::nodes_to_compute;
pub use describe::explain_pass;
use direct_writes::DirectWrites;
pub use explain::{LiveValue, PeakMemory, PlanSummary, StepSummary, explain, summarize};
use fuse::WorkItem;
use ids::BufferId;
use memory::BufferAssignment;
pub(crate) use pack::ALIGNMENT;
pub(crate) use plan::Plan;
#[cfg(test)]
use plan::{MemoryRegion, Slot};
use steps::{PartialUpdateStep, PlannedStep};

/// State shared by the passes.
pub(super) struct Schedule {
    device: Device,
    /// If unset, every node gets a kernel of its own.
    fusion_enabled: bool,
    /// Distinct requested tensors.
    requested: Vec<Tensor>,
    /// For each requested tensor, the node whose value is computed into its memory.
    roots: Vec<Tensor>,
    /// Ids of the roots.
    root_ids: HashSet<NodeId>,
    /// Roots that are new values of a variable, each with the variable's old value.
    variable_updates: Vec<Overwrite>,
    /// Nodes to compute.
    nodes: BTreeMap<NodeId, Tensor>,
    /// Nodes without a value, including views. Another thread may compute one before the plan runs.
    unevaluated: Vec<Tensor>,
    /// Library calls by the nodes that they compute.
    calls: HashMap<NodeId, Arc<LibraryCall>>,
    /// Values written directly into a slice of another buffer.
    direct_writes: DirectWrites,
    /// Partial updates of a variable that are not safe in place.
    rejected_updates: HashSet<NodeId>,
    units: Vec<WorkItem>,
    steps: Vec<PlannedStep>,
    /// Groups of the steps, by [`GroupId`](ids::GroupId).
    groups: Vec<GroupInfo>,
    /// Steps that overwrite a slice of a variable.
    partial_updates: Vec<PartialUpdateStep>,
    /// Values written over a tensor that is in memory before the plan runs.
    overwrites: Vec<Overwrite>,
    /// Outputs that reuse the buffer of an input whose last use is the step that writes them:
    /// output to input.
    reused_inputs: HashMap<BufferId, BufferId>,
    memory: BufferAssignment,
}

/// A group with its alias analysis.
pub(super) struct GroupInfo {
    group: Group,
    /// Inputs that the kernel reads only at the index of the output element it computes.
    own_index_inputs: HashSet<NodeId>,
    in_place: InPlaceOutputs,
}

/// Plans the computation of `tensors`, which must share a device, and compiles its kernels.
/// `variable_updates` are (new value, old value) pairs; a new value may overwrite the old one. The
/// device is not locked. All passes see one snapshot of the values in memory, so that other threads
/// cannot change the plan half-way.
pub(crate) fn plan(
    tensors: &[Tensor],
    existing: ExistingResults,
    variable_updates: &[(Tensor, Tensor)],
) -> Result<Plan> {
    Device::assert_unlocked();
    with_snapshot(|| run_passes(tensors, existing, variable_updates))
}

fn run_passes(tensors: &[Tensor], existing: ExistingResults, variable_updates: &[(Tensor, Tensor)]) -> Result<Plan> {
    let mut schedule = Schedule::new(tensors, existing, variable_updates)?;
    schedule.run("collect", collect::collect)?;
    schedule.run("select", select::select_library_calls)?;
    loop {
        schedule.run("direct_writes", direct_writes::plan_direct_writes)?;
        schedule.run("fuse", fuse::fuse)?;
        schedule.run("tune", tune::choose_launch_shapes)?;
        schedule.run("steps", steps::list_steps)?;
        // Unsafe partial updates are scheduled again as complete values.
        if !in_place::reject_unsafe_updates(&mut schedule) {
            break;
        }
    }
    schedule.run("in_place", in_place::assign_in_place)?;
    schedule.run("lower", lower::lower_groups)?;
    schedule.run("memory", memory::assign_memory)?;
    let plan = compile::compile(schedule)?;
    crate::runtime::observe::observe_plan(&plan, || run_passes(tensors, existing, variable_updates));
    Ok(plan)
}

/// Names of the passes in order, without the last, `compile`.
const PASSES: [&str; 9] =
    ["collect", "select", "direct_writes", "fuse", "tune", "steps", "in_place", "lower", "memory"];

impl Schedule {
    fn run(&mut self, name: &str, pass: fn(&mut Schedule) -> Result<()>) -> Result<()> {
        debug_assert!(PASSES.contains(&name));
        pass(self)?;
        describe::record_pass(name, self);
        Ok(())
    }

    /// Inputs of the library call or multi-output op that computes a tensor; `None` if a generated
    /// kernel computes it.
    fn opaque_inputs<'a>(&'a self, tensor: &'a Tensor) -> Option<&'a [Tensor]> {
        match self.calls.get(&tensor.0.id) {
            Some(call) => Some(&call.inputs),
            None => is_pending_output(tensor).then(|| tensor.0.reads()),
        }
    }
}

/// Treatment of requested tensors that already have a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingResults {
    Skip,
    /// Copy them into buffers of the plan.
    Copy,
}

/// True if a node is read from memory rather than computed.
fn is_source(tensor: &Tensor) -> bool {
    tensor.0.has_value() || matches!(tensor.0.op, Op::Input)
}

/// True if a node is an output of a multi-output op and has no value yet.
fn is_pending_output(tensor: &Tensor) -> bool {
    matches!(tensor.0.op, Op::GetOutput(_)) && !is_source(tensor)
}

/// Kernels that would be generated for a GPU to compute `tensors`, in launch order. Works without a
/// GPU.
#[doc(hidden)]
#[track_caller]
pub fn gpu_kernels(tensors: &[Tensor]) -> Result<Vec<Kernel>> {
    let plan = with_gpu_kernels(|| plan(tensors, ExistingResults::Skip, &[]))?;
    Ok(plan.kernel_irs().cloned().collect())
}

/// Value of a tensor; an error if it is not computed.
pub(crate) fn value_of(tensor: &Tensor) -> Result<Buffer> {
    let node = tensor.node()?;
    node.value().ok_or_else(|| {
        let what = "its value is not known while a function is being traced; return it from the function instead";
        Error::Op { op: node.op.name(), message: what.into(), location: node.location }
    })
}

/// Computes the values of `tensors` that have none. After an error, none of them is stored.
pub(crate) fn realize(tensors: &[Tensor]) -> Result<()> {
    if crate::runtime::check::enabled()? { crate::runtime::check::realize(tensors) } else { realize_unchecked(tensors) }
}

pub(crate) fn realize_unchecked(tensors: &[Tensor]) -> Result<()> {
    /// Planning attempts. Another thread that computes parts of the graph makes a plan out of date;
    /// the last plan runs anyway and recomputes those parts, with the same bits.
    const MAX_PLANS: usize = 3;
    if let [tensor] = tensors
        && (tensor.node()?.has_value_now() || cached::compute(tensor)?)
    {
        return Ok(());
    }
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut by_device: BTreeMap<Device, Vec<Tensor>> = BTreeMap::new();
        for tensor in tensors {
            let node = tensor.node()?;
            if !node.has_value_now() {
                by_device.entry(node.device).or_default().push(tensor.clone());
            }
        }
        let plans =
            by_device.values().map(|tensors| plan(tensors, ExistingResults::Skip, &[])).collect::<Result<Vec<_>>>()?;
        // All devices are locked, in order, so that all values appear at once.
        let _running: Vec<_> = by_device.keys().map(|device| device.lock()).collect();
        if attempt == MAX_PLANS || plans.iter().all(Plan::is_current) {
            return run_all(&plans);
        }
    }
}

/// Runs plans and stores their results; after an error, none. The devices are locked.
fn run_all(plans: &[Plan]) -> Result<()> {
    let mut computed = vec![];
    for plan in plans {
        let sources = plan.sources.iter().map(value_of).collect::<Result<Vec<_>>>()?;
        let (roots, scratch) = (plan.allocate_results()?, plan.allocate_scratch()?);
        plan.run(&roots, scratch.as_ref(), &sources)?;
        plan.check()?;
        computed.extend(plan.results.iter().zip(roots));
    }
    for (tensor, buffer) in computed {
        tensor.0.set_value_once(buffer);
    }
    Ok(())
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
