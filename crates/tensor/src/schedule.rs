//! From graph to work: which nodes get a kernel, in which order, in which memory.
//!
//! The passes, in order: `nodes_to_compute` finds what is not there yet; `matmul/` takes the products that a library
//! computes, and asks for copies of views that it cannot read; `place.rs` finds what is written into the place it has in
//! something larger; `fuse.rs` puts elementwise ops and reductions into groups, one kernel each, and decides what they
//! store; `tune.rs` asks how their work is best spread; `lower.rs` writes the kernels; `memory.rs` gives results their
//! memory, packed by `pack.rs`. The parts of a joint node (`joint.rs`) come from one launch. What the schedule promises is
//! that errors are found, code is compiled and memory is reserved before the first launch.

mod by_hand;
mod cost;
mod explain;
mod fuse;
mod memory;
mod pack;
mod place;
mod recent;
mod settle;
mod tune;
mod work;

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bornite_codegen::cpu::{Interrupt, discardable};
use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Kernel, Value};

use crate::buffer::Buffer;
use crate::execute::{Flavour, Program, program};
use crate::lower::{aligned, look_through, seen, with_gpu_kernels};
use crate::node::Op;
use crate::timing::About;
use crate::{Device, Error, Result, Tensor};
use cost::Cost;
pub use explain::{Explained, ExplainedStep, LiveValue, Peak, explain, explained};
use memory::{Assigned, Life, assign_memory};
use work::{Call, Operand, Planned, Work, work};

/// Where a kernel's argument is: some bytes of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    memory: Memory,
    offset: usize,
    bytes: usize,
}

/// What a plan runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// The n-th result asked for.
    Root(usize),
    /// Scratch memory, which all steps share.
    Scratch,
    /// A tensor that is there before the plan runs.
    Source(usize),
    /// The device's words for bad indices.
    Status,
}

/// One launch.
pub(crate) struct Step {
    call: Call,
    /// What it writes comes first, if it is one of our kernels.
    args: Vec<Slot>,
    outs: usize,
    values: Vec<Vec<Value>>,
    /// Threads a block on a GPU, where the kernel does not say.
    threads: u32,
    about: About,
    cost: Cost,
}

/// Everything needed to compute some tensors but the memory.
pub(crate) struct Plan {
    pub device: Device,
    pub steps: Vec<Step>,
    /// Distinct tensors to compute.
    pub roots: Vec<Tensor>,
    /// Tensors read.
    pub sources: Vec<Tensor>,
    /// Size of the scratch memory.
    pub scratch_bytes: usize,
    /// When each value lives, and where.
    lives: Vec<Life>,
    /// Roots that take the place of a source.
    pub in_place: HashSet<usize>,
    /// The device's words for bad indices, if a step reports them.
    status: Option<Buffer>,
}

/// What a plan should do with roots that are there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    /// Nothing.
    Skip,
    /// Copy them into memory of the plan's own.
    Copy,
}

/// True if a node is read from memory rather than computed.
fn is_source(tensor: &Tensor) -> bool {
    tensor.0.value().is_some() || matches!(tensor.0.op, Op::Input)
}

/// Plans the computation of `roots`, which must share a device.
pub(crate) fn plan(roots: &[Tensor], present: Present) -> Result<Plan> {
    plan_with_homes(roots, present, &[])
}

/// As [`plan`], where new values may take the place of tensors in memory that are named with them.
pub(crate) fn plan_with_homes(roots: &[Tensor], present: Present, wanted_homes: &[(Tensor, Tensor)]) -> Result<Plan> {
    let mut distinct: Vec<Tensor> = vec![];
    for root in roots {
        let node = root.node()?;
        let wanted = present == Present::Copy || !is_source(root);
        if wanted && !distinct.iter().any(|t| t.0.id == node.id) {
            distinct.push(root.clone());
        }
    }
    let device = match distinct.first() {
        Some(root) => root.0.device,
        None => Device::cpu(),
    };
    if let Some(other) = distinct.iter().find(|t| t.0.device != device) {
        let what = format!("tensors of one step are on {device} and {}; make them on one device", other.0.device);
        return Err(Error::Op { op: other.0.op.name(), what, at: other.0.place });
    }

    let computed = in_place(&distinct);
    // Of a root that shows another tensor, what is computed is that.
    let position = |root: &Tensor| distinct.iter().position(|other| other.0.id == root.0.id);
    let homes: Vec<(u64, Tensor)> =
        (wanted_homes.iter()).filter_map(|(root, old)| Some((computed[position(root)?].0.id, old.clone()))).collect();
    let mut nodes = nodes_to_compute(&computed)?;
    let worked = work(device, &computed, &mut nodes, &homes)?;
    let reports = worked.work.iter().any(|w| w.operands.iter().any(|operand| matches!(operand, Operand::Status)));
    let status = if reports { Some(crate::status::buffer(device)?) } else { None };
    let at_home: HashMap<u64, usize> = worked.homes.iter().enumerate().map(|(n, (id, _))| (*id, n)).collect();
    let Assigned { of: slots, scratch_bytes, lives } = assign_memory(&computed, &nodes, &worked, &at_home);
    let in_place = (0..computed.len()).filter(|&n| at_home.contains_key(&computed[n].0.id)).collect();
    let mut sources: HashMap<u64, usize> = HashMap::new();
    let mut plan =
        Plan { device, steps: vec![], roots: distinct, sources: vec![], scratch_bytes, lives, in_place, status };
    for (_, old) in worked.homes {
        sources.insert(old.0.id, plan.sources.len());
        plan.sources.push(old);
    }
    let work = worked.work;
    let mut programs = compile(device, &work)?.into_iter();
    for Work { call, operands, values, about, cost } in work {
        let mut threads = BLOCK;
        let call = match call {
            // `compile` has one for each, in order.
            Planned::Kernel(kernel, flavour, spread) => {
                threads = spread;
                Call::Kernel(programs.next().map_or_else(|| program(device, &kernel, flavour), Ok)?)
            }
            Planned::Product(product) => Call::Product(product),
            Planned::Routine(routine, _) => Call::Routine(routine),
            Planned::Source(source) => Call::Source(source),
        };
        let outs = operands.iter().take_while(|operand| matches!(operand, Operand::Out(..))).count();
        let mut args = vec![];
        let mut whole = |input: Tensor| match slots.get(&input.0.id) {
            Some(slot) if !is_source(&input) => *slot,
            _ => {
                let number = *sources.entry(input.0.id).or_insert_with(|| {
                    plan.sources.push(input.clone());
                    plan.sources.len() - 1
                });
                Slot { memory: Memory::Source(number), offset: 0, bytes: input.0.bytes() }
            }
        };
        for operand in operands {
            args.push(match operand {
                Operand::Out(id, _) => slots[&id],
                Operand::Status | Operand::Guard => {
                    Slot { memory: Memory::Status, offset: 0, bytes: crate::status::WORDS as usize * 8 }
                }
                Operand::In(input) => whole(input),
                Operand::Part(input, start, bytes) => {
                    let slot = whole(input);
                    Slot { offset: slot.offset + start, bytes, ..slot }
                }
            });
        }
        plan.steps.push(Step { call, args, outs, values, threads, about, cost });
    }
    crate::observe::planned(&plan, || plan_with_homes(roots, present, wanted_homes));
    Ok(plan)
}

/// The code of all kernels, in order. On a GPU compiling takes tens of milliseconds each, so it is done side by side.
fn compile(device: Device, work: &[Work]) -> Result<Vec<Arc<Program>>> {
    let kernels: Vec<(&Kernel, Flavour)> = (work.iter())
        .filter_map(|work| {
            if let Planned::Kernel(kernel, flavour, _) = &work.call { Some((&**kernel, *flavour)) } else { None }
        })
        .collect();
    let threads = match device {
        Device::Cuda(_) => std::thread::available_parallelism().map_or(1, usize::from).min(16),
        _ => 1,
    };
    let distinct: Vec<(&Kernel, Flavour)> = kernels.iter().copied().collect::<HashSet<_>>().into_iter().collect();
    if threads > 1 && distinct.len() > 1 {
        let (next, interrupt) = (AtomicUsize::new(0), Interrupt::current());
        let run = || {
            // Errors and interrupts are found again below, in order.
            while !interrupt.as_ref().is_some_and(Interrupt::is_requested)
                && let Some((kernel, flavour)) = distinct.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let _ = program(device, kernel, *flavour);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(distinct.len()) {
                // Where no thread can be started, those that run compile everything.
                let _ = std::thread::Builder::new().spawn_scoped(scope, run);
            }
            run();
        });
    }
    kernels.into_iter().map(|(kernel, flavour)| program(device, kernel, flavour)).collect()
}

/// What is computed into the memory of each root: the root, or what it shows in another shape, to save a copy.
fn in_place(roots: &[Tensor]) -> Vec<Tensor> {
    let mut taken: HashSet<u64> = roots.iter().map(|root| root.0.id).collect();
    let mut shown = |root: &Tensor| {
        let (base, views) = look_through(root);
        let same = base.0.elements() == root.0.elements() && seen(base, &views).is_some_and(|place| aligned(&place));
        let computed = !is_source(base) && !matches!(base.0.op, Op::Full(_));
        (same && computed && taken.insert(base.0.id)).then(|| base.clone())
    };
    roots.iter().map(|root| shown(root).unwrap_or_else(|| root.clone())).collect()
}

/// The nodes that get a kernel, in order of id: the roots, and below them all that is neither source, view nor constant.
pub(crate) fn nodes_to_compute(roots: &[Tensor]) -> Result<BTreeMap<u64, Tensor>> {
    let mut kernels: BTreeMap<u64, Tensor> = roots.iter().map(|t| (t.0.id, t.clone())).collect();
    let mut seen = HashSet::new();
    let mut stack = roots.to_vec();
    while let Some(tensor) = stack.pop() {
        let node = tensor.node()?;
        if !seen.insert(node.id) || is_source(&tensor) {
            continue;
        }
        stack.extend(node.reads().iter().cloned());
        if !node.op.is_view() && !matches!(node.op, Op::Full(_)) {
            kernels.insert(node.id, tensor);
        }
    }
    Ok(kernels)
}

impl Plan {
    /// Memory for the roots that have some of their own.
    pub fn allocate_roots(&self) -> Result<Vec<Buffer>> {
        let bytes = |(n, root): (usize, &Tensor)| if self.in_place.contains(&n) { 0 } else { root.0.bytes() };
        self.roots.iter().enumerate().map(bytes).map(|bytes| Buffer::new(self.device, bytes)).collect()
    }

    /// Scratch memory, if a step uses it.
    pub fn allocate_scratch(&self) -> Result<Option<Buffer>> {
        let used = self.steps.iter().any(|step| step.args.iter().any(|slot| slot.memory == Memory::Scratch));
        used.then(|| Buffer::new(self.device, self.scratch_bytes)).transpose()
    }

    /// Handles that keep the code of all steps alive.
    pub fn programs(&self) -> impl Iterator<Item = Arc<dyn Any + Send + Sync>> + '_ {
        self.steps.iter().map(|step| match &step.call {
            Call::Kernel(program) => program.clone() as Arc<dyn Any + Send + Sync>,
            Call::Product(product) => product.clone() as Arc<dyn Any + Send + Sync>,
            Call::Routine(routine) => routine.clone() as Arc<dyn Any + Send + Sync>,
            Call::Source(source) => source.clone() as Arc<dyn Any + Send + Sync>,
        })
    }

    /// The IR of the generated kernels, in the order of their launches.
    pub fn kernel_sources(&self) -> impl Iterator<Item = &Kernel> {
        self.steps.iter().filter_map(Step::kernel)
    }

    /// True if a step can meet a bad index.
    pub fn reports(&self) -> bool {
        self.status.is_some()
    }

    /// The words in which it is reported then.
    pub fn status(&self) -> Option<&Buffer> {
        self.status.as_ref()
    }

    /// Waits for the steps, if one can meet a bad index, and says whether one did. The device's lock is held.
    pub fn check(&self) -> Result<()> {
        self.status.as_ref().map_or(Ok(()), |status| crate::status::check(self.device, status))
    }

    /// Launches every step. On the host it can be interrupted until a step overwrites a source.
    pub fn run(&self, roots: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        let launch = |step: &Step| self.launch(step, roots, scratch, sources);
        if let Device::Cuda(_) = self.device {
            return self.steps.iter().try_for_each(launch);
        }
        let overwrites =
            |step: &Step| step.args[..step.outs].iter().any(|slot| matches!(slot.memory, Memory::Source(_)));
        let kept = self.steps.iter().position(overwrites).unwrap_or(self.steps.len());
        let (before, after) = self.steps.split_at(kept);
        // The host is the device: it is busy for as long as others would wait.
        bornite_cuda::waiting(|| {
            before.iter().try_for_each(|step| discardable(|| launch(step)).unwrap_or(Err(Error::Interrupted)))?;
            after.iter().try_for_each(launch)
        })
    }

    /// Runs the library's calls, whose first run may load code: not possible in a capture. Results are of no use.
    pub fn warm(&self, roots: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        let mut calls = self.steps.iter().filter(|step| matches!(step.call, Call::Product(_)));
        calls.try_for_each(|step| self.launch(step, roots, scratch, sources))
    }

    fn launch(&self, step: &Step, roots: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        let mut parts = Vec::with_capacity(step.args.len());
        for Slot { memory, offset, bytes } in &step.args {
            let whole = match *memory {
                Memory::Root(n) => roots.get(n),
                Memory::Scratch => scratch,
                Memory::Source(n) => sources.get(n),
                Memory::Status => self.status.as_ref(),
            };
            let part = whole.and_then(|whole| whole.part(*offset, *bytes));
            parts.push(part.ok_or(Error::OutOfMemory { bytes: offset + bytes })?);
        }
        let buffers: Vec<&Buffer> = parts.iter().collect();
        match &step.call {
            Call::Kernel(program) => {
                let values: Vec<&[Value]> = step.values.iter().map(Vec::as_slice).collect();
                program.launch(&buffers, &values, step.threads, step.about)?;
                // The host is done by now; later steps may write over variables.
                let reports = step.args.iter().any(|slot| slot.memory == Memory::Status)
                    && !matches!(self.device, Device::Cuda(_));
                if reports { self.check() } else { Ok(()) }
            }
            Call::Product(product) => product.launch(&buffers, step.about),
            Call::Routine(routine) => routine.launch(&buffers, step.about),
            Call::Source(source) => source.launch(&buffers, step.about),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory {
            Memory::Root(n) => write!(f, "result {n}")?,
            Memory::Scratch => return write!(f, "scratch {}", self.offset),
            Memory::Source(n) => write!(f, "input {n}")?,
            Memory::Status => write!(f, "status")?,
        }
        if self.offset == 0 { Ok(()) } else { write!(f, " from byte {}", self.offset) }
    }
}

/// The kernels of ours that a GPU would be given to compute tensors of one device together, in order of their launches:
/// what there is to say about them without one.
#[doc(hidden)]
pub fn gpu_kernels(tensors: &[Tensor]) -> Result<Vec<Kernel>> {
    let Some(first) = tensors.first() else { return Ok(vec![]) };
    let _running = first.node()?.device.lock();
    let plan = with_gpu_kernels(|| plan(tensors, Present::Skip))?;
    Ok(plan.kernel_sources().cloned().collect())
}

/// The value of a tensor that must have one by now.
pub(crate) fn value_of(tensor: &Tensor) -> Result<Buffer> {
    let node = tensor.node()?;
    node.value().ok_or_else(|| {
        let what = "its value is not known while a function is being traced; return it from the function instead";
        Error::Op { op: node.op.name(), what: what.into(), at: node.place }
    })
}

/// Computes the values of `tensors` that are not there yet: all of them, or none if anything fails.
pub(crate) fn realize(tensors: &[Tensor]) -> Result<()> {
    if crate::check::enabled()? { crate::check::realize(tensors) } else { realize_unchecked(tensors) }
}

pub(crate) fn realize_unchecked(tensors: &[Tensor]) -> Result<()> {
    if let [tensor] = tensors {
        let node = tensor.node()?;
        if node.value().is_some() {
            return Ok(());
        }
        let _running = node.device.lock();
        if recent::compute(tensor)? {
            return Ok(());
        }
    }
    let mut by_device: BTreeMap<Device, Vec<Tensor>> = BTreeMap::new();
    for tensor in tensors {
        let node = tensor.node()?;
        if node.value().is_none() {
            by_device.entry(node.device).or_default().push(tensor.clone());
        }
    }
    let mut done = vec![];
    for (device, tensors) in by_device {
        let _running = device.lock();
        let plan = plan(&tensors, Present::Skip)?;
        let sources = plan.sources.iter().map(value_of).collect::<Result<Vec<_>>>()?;
        let (roots, scratch) = (plan.allocate_roots()?, plan.allocate_scratch()?);
        plan.run(&roots, scratch.as_ref(), &sources)?;
        plan.check()?;
        done.extend(plan.roots.iter().cloned().zip(roots));
    }
    for (tensor, buffer) in done {
        tensor.0.set_value(buffer);
    }
    Ok(())
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
