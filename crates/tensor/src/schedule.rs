//! From a graph to launches: which nodes one kernel computes, in which order kernels run, in which memory.
//!
//! [`plan`] calls the passes in order, each a file of this folder. A pass reads what those before it have added to the [`Schedule`], adds
//! its own part, and says what holds afterwards; debug builds check that.
//!
//! | pass | adds |
//! |---|---|
//! | `collect.rs` | the nodes to compute |
//! | `select.rs` | products that a library computes (`matmul/`) |
//! | `concat.rs` | what is written directly into a concatenation or a variable |
//! | `fuse.rs` | groups of nodes, one kernel each, and what they store |
//! | `shape.rs` | elements per thread and threads per block, by measurement |
//! | `steps.rs` | the launches, with what each reads and writes |
//! | `in_place.rs` | results that overwrite a variable, or an input that is not read again |
//! | `kernels.rs` | the IR of every kernel (`lower/`) |
//! | `memory.rs` | the memory of every value, packed by `pack.rs` |
//! | `compile.rs` | code |
//!
//! No device is locked meanwhile: other threads launch. The schedule promises that errors are found, code is compiled and memory is
//! reserved before the first launch. `plan.rs` runs the result, `cached.rs` keeps plans of small graphs, `explain.rs` prints plans.

mod cached;
mod collect;
mod compile;
mod concat;
mod cost;
mod describe;
mod explain;
mod fuse;
mod handwritten;
mod ids;
mod in_place;
mod kernels;
mod memory;
mod pack;
mod plan;
mod select;
mod shape;
mod steps;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bornite_ir::Kernel;

use crate::graph::node::{NodeId, Op, with_snapshot};
use crate::lower::{Group, InPlaceOutputs, Overwrite, with_gpu_kernels};
use crate::matmul::LibraryCall;
use crate::runtime::buffer::Buffer;
use crate::{Device, Error, Result, Tensor};
pub(crate) use collect::nodes_to_compute;
use concat::DirectWrites;
pub use describe::explain_pass;
pub use explain::{LiveValue, PeakMemory, PlanSummary, StepSummary, explain, explained};
use fuse::Unit;
use ids::BufferId;
use memory::BufferAssignment;
pub(crate) use pack::ALIGNMENT;
pub(crate) use plan::Plan;
#[cfg(test)]
use plan::{MemoryRegion, Slot};
use steps::{PartialUpdate, PlannedStep};

/// The state of scheduling: what the passes have found so far.
pub(super) struct Schedule {
    device: Device,
    /// Whether nodes may share a kernel.
    fusion_enabled: bool,
    /// Distinct tensors that are asked for; for each, the root: the node that is computed into its memory.
    requested: Vec<Tensor>,
    roots: Vec<Tensor>,
    /// Ids of the roots.
    root_ids: HashSet<NodeId>,
    /// Roots that are new values of a variable, with the variable's old value.
    variable_updates: Vec<Overwrite>,
    /// Nodes to compute.
    nodes: BTreeMap<NodeId, Tensor>,
    /// Nodes without a value, views among them: another thread may compute one before the plan runs.
    pending: Vec<Tensor>,
    /// Calls of a library, by what they compute.
    calls: HashMap<NodeId, Arc<LibraryCall>>,
    /// Nodes that are written directly into another value.
    direct_writes: DirectWrites,
    /// Updates in place of a variable that turned out to be forbidden.
    rejected_updates: HashSet<NodeId>,
    units: Vec<Unit>,
    steps: Vec<PlannedStep>,
    /// The groups among the steps.
    groups: Vec<GroupStep>,
    /// Steps that update a part of a variable in place.
    partial_updates: Vec<PartialUpdate>,
    /// Values that overwrite a tensor in memory.
    overwrites: Vec<Overwrite>,
    /// Values that overwrite another value, which is read for the last time when they are written.
    reused_inputs: HashMap<BufferId, BufferId>,
    memory: BufferAssignment,
}

/// A group that is a step.
pub(super) struct GroupStep {
    group: Group,
    /// Inputs of which each element is read for the same element of the results alone.
    own_index_inputs: HashSet<NodeId>,
    in_place: InPlaceOutputs,
}

/// Plans the computation of `tensors`, which must share a device, and compiles its kernels. New values may overwrite the persistent
/// tensors that are named with them. No device is locked: other threads launch meanwhile, and what they compute does not change the plan
/// half-way, since all passes see one snapshot of what is in memory.
pub(crate) fn plan(tensors: &[Tensor], present: ExistingRoots, variable_updates: &[(Tensor, Tensor)]) -> Result<Plan> {
    Device::assert_unlocked();
    with_snapshot(|| run_passes(tensors, present, variable_updates))
}

fn run_passes(tensors: &[Tensor], present: ExistingRoots, variable_updates: &[(Tensor, Tensor)]) -> Result<Plan> {
    let mut schedule = Schedule::new(tensors, present, variable_updates)?;
    schedule.run("collect", collect::collect)?;
    schedule.run("select", select::select_calls)?;
    loop {
        schedule.run("concat", concat::plan_direct_writes)?;
        schedule.run("fuse", fuse::fuse)?;
        schedule.run("shape", shape::choose_launch_shapes)?;
        schedule.run("steps", steps::list_steps)?;
        // What may not be updated in place is scheduled again.
        if !in_place::reject_unsafe_updates(&mut schedule) {
            break;
        }
    }
    schedule.run("in_place", in_place::assign_in_place)?;
    schedule.run("kernels", kernels::lower_groups)?;
    schedule.run("memory", memory::assign_memory)?;
    let plan = compile::compile(schedule)?;
    crate::runtime::observe::planned(&plan, || run_passes(tensors, present, variable_updates));
    Ok(plan)
}

/// Names of the passes, in order; `compile` follows.
const PASSES: [&str; 9] = ["collect", "select", "concat", "fuse", "shape", "steps", "in_place", "kernels", "memory"];

impl Schedule {
    fn run(&mut self, name: &str, pass: fn(&mut Schedule) -> Result<()>) -> Result<()> {
        debug_assert!(PASSES.contains(&name));
        pass(self)?;
        describe::passed(name, self);
        Ok(())
    }

    /// Inputs of the call that computes a tensor; `None` if a generated kernel computes it.
    fn reads_of_call<'a>(&'a self, tensor: &'a Tensor) -> Option<&'a [Tensor]> {
        match self.calls.get(&tensor.0.id) {
            Some(call) => Some(&call.inputs),
            None => is_output(tensor).then(|| tensor.0.reads()),
        }
    }
}

/// What a plan should do with roots that are there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingRoots {
    /// Nothing.
    Skip,
    /// Copy them into memory of the plan's own.
    Copy,
}

/// True if a node is read from memory rather than computed.
fn is_source(tensor: &Tensor) -> bool {
    tensor.0.has_value() || matches!(tensor.0.op, Op::Input)
}

/// True if a node is an output of a multi-output op that has to be computed.
fn is_output(tensor: &Tensor) -> bool {
    matches!(tensor.0.op, Op::GetOutput(_)) && !is_source(tensor)
}

/// The kernels of ours that a GPU would be given to compute tensors of one device together, in order of their launches:
/// what there is to say about them without one.
#[doc(hidden)]
#[track_caller]
pub fn gpu_kernels(tensors: &[Tensor]) -> Result<Vec<Kernel>> {
    let plan = with_gpu_kernels(|| plan(tensors, ExistingRoots::Skip, &[]))?;
    Ok(plan.kernel_sources().cloned().collect())
}

/// The value of a tensor that must have one by now.
pub(crate) fn value_of(tensor: &Tensor) -> Result<Buffer> {
    let node = tensor.node()?;
    node.value().ok_or_else(|| {
        let what = "its value is not known while a function is being traced; return it from the function instead";
        Error::Op { op: node.op.name(), message: what.into(), location: node.location }
    })
}

/// Computes the values of `tensors` that are not there yet: all of them, or none if anything fails.
pub(crate) fn realize(tensors: &[Tensor]) -> Result<()> {
    if crate::runtime::check::enabled()? { crate::runtime::check::realize(tensors) } else { realize_unchecked(tensors) }
}

pub(crate) fn realize_unchecked(tensors: &[Tensor]) -> Result<()> {
    /// Plans that are made at most: another thread that computes parts of the graph one by one makes each of them out of date. The last
    /// one runs all the same and computes again what is there by then, with the same bits.
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
            by_device.values().map(|tensors| plan(tensors, ExistingRoots::Skip, &[])).collect::<Result<Vec<_>>>()?;
        // Of all devices, in order: the values of all appear together.
        let _running: Vec<_> = by_device.keys().map(|device| device.lock()).collect();
        if attempt == MAX_PLANS || plans.iter().all(Plan::is_current) {
            return run_all(&plans);
        }
    }
}

/// Runs plans and stores what they compute, all of it or, after an error, nothing. The devices are locked.
fn run_all(plans: &[Plan]) -> Result<()> {
    let mut computed = vec![];
    for plan in plans {
        let sources = plan.sources.iter().map(value_of).collect::<Result<Vec<_>>>()?;
        let (roots, scratch) = (plan.allocate_roots()?, plan.allocate_scratch()?);
        plan.run(&roots, scratch.as_ref(), &sources)?;
        plan.check()?;
        computed.extend(plan.roots.iter().zip(roots));
    }
    for (tensor, buffer) in computed {
        tensor.0.set_value_once(buffer);
    }
    Ok(())
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
