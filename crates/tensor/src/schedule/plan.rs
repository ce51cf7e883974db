//! A plan: launches in order, with memory for all of their arguments; and how it runs.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bornite_codegen::cpu::discardable;
use bornite_ir::{Kernel, Value};

use super::cost::Cost;
use super::memory::LiveRange;
use super::steps::Call;
use crate::runtime::buffer::Buffer;
use crate::runtime::timing::LaunchInfo;
use crate::{Device, Error, Result, Tensor};

/// Where a kernel's argument is: some bytes of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(super) region: MemoryRegion,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// What a plan runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryRegion {
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
    pub(super) call: Call,
    /// What it writes comes first, if it is one of our kernels.
    pub(super) args: Vec<Slot>,
    pub(super) output_count: usize,
    /// Whether it writes to a source.
    pub(super) overwrites: bool,
    pub(super) values: Vec<Vec<Value>>,
    /// Threads a block on a GPU, where the kernel does not say.
    pub(super) threads: u32,
    pub(super) about: LaunchInfo,
    pub(super) cost: Cost,
}

/// Everything needed to compute some tensors but the memory.
pub(crate) struct Plan {
    pub device: Device,
    pub steps: Vec<Step>,
    /// Distinct tensors to compute.
    pub roots: Vec<Tensor>,
    /// Tensors read.
    pub sources: Vec<Tensor>,
    /// Tensors without a value when the plan was made, which it computes or looks through.
    pub(super) pending: Vec<Tensor>,
    /// Size of the scratch memory.
    pub scratch_bytes: usize,
    /// When each value lives, and where.
    pub(super) live_ranges: Vec<LiveRange>,
    /// Roots that take the place of a source.
    pub in_place: HashSet<usize>,
    /// The device's words for bad indices, if a step reports them.
    pub(super) status: Option<Buffer>,
}

impl Plan {
    /// Memory for the roots that have some of their own.
    pub fn allocate_roots(&self) -> Result<Vec<Buffer>> {
        let bytes = |(n, root): (usize, &Tensor)| if self.in_place.contains(&n) { 0 } else { root.0.bytes() };
        self.roots.iter().enumerate().map(bytes).map(|bytes| Buffer::new(self.device, bytes)).collect()
    }

    /// Scratch memory, if a step uses it.
    pub fn allocate_scratch(&self) -> Result<Option<Buffer>> {
        let used = self.steps.iter().any(|step| step.args.iter().any(|slot| slot.region == MemoryRegion::Scratch));
        used.then(|| Buffer::new(self.device, self.scratch_bytes)).transpose()
    }

    /// True while no other thread has computed any of this. The device's lock is held.
    pub fn is_current(&self) -> bool {
        !self.pending.iter().any(|tensor| tensor.0.has_value_now())
    }

    /// Lets go of the graph: it would keep memory, and old versions of variables, alive.
    pub fn drop_graph(&mut self) {
        (self.roots, self.sources, self.pending) = (vec![], vec![], vec![]);
    }

    /// Handles that keep the code of all steps alive.
    pub fn programs(&self) -> impl Iterator<Item = Arc<dyn Any + Send + Sync>> + '_ {
        self.steps.iter().map(|step| match &step.call {
            Call::Kernel(program) => program.clone() as Arc<dyn Any + Send + Sync>,
            Call::Matmul(product) => product.clone() as Arc<dyn Any + Send + Sync>,
            Call::Routine(routine) => routine.clone() as Arc<dyn Any + Send + Sync>,
            Call::Handwritten(source) => source.clone() as Arc<dyn Any + Send + Sync>,
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
        self.status.as_ref().map_or(Ok(()), |status| crate::runtime::status::check(self.device, status))
    }

    /// Launches every step. On the host it can be interrupted until a step overwrites a source.
    pub fn run(&self, roots: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        let launch = |step: &Step| self.launch(step, roots, scratch, sources);
        if self.device.is_cuda() {
            return self.steps.iter().try_for_each(launch);
        }
        let kept = self.steps.iter().position(|step| step.overwrites).unwrap_or(self.steps.len());
        let (before, after) = self.steps.split_at(kept);
        // The host is the device: it is busy for as long as others would wait.
        bornite_support::waiting(|| {
            before.iter().try_for_each(|step| discardable(|| launch(step)).unwrap_or(Err(Error::Interrupted)))?;
            after.iter().try_for_each(launch)
        })
    }

    /// Runs the library's calls, whose first run may load code: not possible in a capture. Results are of no use.
    /// Variables stay as they are.
    pub fn warm(&self, roots: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        let calls = || self.steps.iter().filter(|step| matches!(step.call, Call::Matmul(_)));
        let mut sources = sources.to_vec();
        let outputs = calls().flat_map(|step| &step.args[..step.output_count]);
        let overwritten =
            outputs.filter_map(|slot| if let MemoryRegion::Source(n) = slot.region { Some(n) } else { None });
        for n in overwritten.collect::<HashSet<usize>>() {
            sources[n] = Buffer::new(self.device, sources[n].bytes())?;
        }
        calls().try_for_each(|step| self.launch(step, roots, scratch, &sources))
    }

    fn launch(&self, step: &Step, roots: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        let mut parts = Vec::with_capacity(step.args.len());
        for Slot { region, offset, bytes } in &step.args {
            let whole = match *region {
                MemoryRegion::Root(n) => roots.get(n),
                MemoryRegion::Scratch => scratch,
                MemoryRegion::Source(n) => sources.get(n),
                MemoryRegion::Status => self.status.as_ref(),
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
                let reports =
                    step.args.iter().any(|slot| slot.region == MemoryRegion::Status) && !self.device.is_cuda();
                if reports { self.check() } else { Ok(()) }
            }
            Call::Matmul(product) => product.launch(&buffers, step.about),
            Call::Routine(routine) => routine.launch(&buffers, step.about),
            Call::Handwritten(source) => source.launch(&buffers, step.about),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.region {
            MemoryRegion::Root(n) => write!(f, "result {n}")?,
            MemoryRegion::Scratch => return write!(f, "scratch {}", self.offset),
            MemoryRegion::Source(n) => write!(f, "input {n}")?,
            MemoryRegion::Status => write!(f, "status")?,
        }
        if self.offset == 0 { Ok(()) } else { write!(f, " from byte {}", self.offset) }
    }
}
