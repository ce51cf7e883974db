//! A plan: launches in order with the memory of their arguments, and its execution.

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

/// Memory of a kernel argument: a byte range of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(super) region: MemoryRegion,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// Memory that a plan's launches access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryRegion {
    /// Buffer of the n-th result.
    Output(usize),
    /// Scratch memory, shared by all steps.
    Scratch,
    /// A tensor that has a value before the plan runs.
    Source(usize),
    /// The device's status words, which report out-of-range indices.
    Status,
}

/// One launch.
pub(crate) struct Step {
    pub(super) call: Call,
    /// Arguments, outputs first.
    pub(super) args: Vec<Slot>,
    pub(super) output_count: usize,
    /// If set, it writes to a source.
    pub(super) overwrites_source: bool,
    /// Scalar arguments, each as its components.
    pub(super) values: Vec<Vec<Value>>,
    /// Threads per block on a GPU, for kernels without a block size.
    pub(super) threads: u32,
    pub(super) info: LaunchInfo,
    pub(super) cost: Cost,
}

/// Compiled steps with the region and offset of every argument; `run` takes the buffers.
pub(crate) struct Plan {
    pub device: Device,
    pub steps: Vec<Step>,
    /// Distinct tensors to compute.
    pub results: Vec<Tensor>,
    /// Tensors that it reads.
    pub sources: Vec<Tensor>,
    /// Tensors that had no value when the plan was made: those it computes, and views.
    pub(super) unevaluated: Vec<Tensor>,
    /// Size of the scratch memory.
    pub scratch_bytes: usize,
    /// Live range and slot of each value.
    pub(super) live_ranges: Vec<LiveRange>,
    /// Roots that are written in place of a source.
    pub in_place: HashSet<usize>,
    /// The device's status words, if a step can report an out-of-range index.
    pub(super) status: Option<Buffer>,
}

impl Plan {
    /// Allocates buffers for the roots; in-place roots get empty ones.
    pub fn allocate_results(&self) -> Result<Vec<Buffer>> {
        let bytes = |(n, root): (usize, &Tensor)| if self.in_place.contains(&n) { 0 } else { root.0.bytes() };
        self.results.iter().enumerate().map(bytes).map(|bytes| Buffer::new(self.device, bytes)).collect()
    }

    /// Allocates scratch memory, if a step uses it.
    pub fn allocate_scratch(&self) -> Result<Option<Buffer>> {
        let used = self.steps.iter().any(|step| step.args.iter().any(|slot| slot.region == MemoryRegion::Scratch));
        used.then(|| Buffer::new(self.device, self.scratch_bytes)).transpose()
    }

    /// True if no other thread has computed a node of the plan since it was made. The device must
    /// be locked.
    pub fn is_current(&self) -> bool {
        !self.unevaluated.iter().any(|tensor| tensor.0.has_value_now())
    }

    /// Drops the graph's tensors, which would keep memory and old values of variables alive.
    pub fn drop_graph(&mut self) {
        (self.results, self.sources, self.unevaluated) = (vec![], vec![], vec![]);
    }

    /// Handles that keep the code of all steps alive.
    pub fn keep_alive(&self) -> impl Iterator<Item = Arc<dyn Any + Send + Sync>> + '_ {
        self.steps.iter().map(|step| match &step.call {
            Call::Kernel(program) => program.clone() as Arc<dyn Any + Send + Sync>,
            Call::Matmul(product) => product.clone() as Arc<dyn Any + Send + Sync>,
            Call::Routine(routine) => routine.clone() as Arc<dyn Any + Send + Sync>,
            Call::Handwritten(source) => source.clone() as Arc<dyn Any + Send + Sync>,
        })
    }

    /// The IR of the generated kernels, in the order of their launches.
    pub fn kernel_irs(&self) -> impl Iterator<Item = &Kernel> {
        self.steps.iter().filter_map(Step::kernel)
    }

    /// True if a step can report an out-of-range index.
    pub fn can_report_bad_index(&self) -> bool {
        self.status.is_some()
    }

    /// The status words, if a step can report an out-of-range index.
    pub fn status(&self) -> Option<&Buffer> {
        self.status.as_ref()
    }

    /// If a step can report an out-of-range index, waits for the steps and returns the error, if
    /// any. The device must be locked.
    pub fn check(&self) -> Result<()> {
        self.status.as_ref().map_or(Ok(()), |status| crate::runtime::status::check(self.device, status))
    }

    /// Launches every step. On the host, the run can be interrupted until the first step that
    /// overwrites a source.
    pub fn run(&self, results: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        self.run_observed(results, scratch, sources, &mut |_| Ok(()))
    }

    /// As [`run`](Plan::run), and calls `launched` with the number of launched steps after each.
    pub fn run_observed(
        &self,
        results: &[Buffer],
        scratch: Option<&Buffer>,
        sources: &[Buffer],
        launched: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let mut count = 0;
        let mut launch = |step: &Step| {
            self.launch(step, results, scratch, sources)?;
            count += 1;
            launched(count)
        };
        if self.device.is_cuda() {
            return self.steps.iter().try_for_each(launch);
        }
        let first_overwrite = self.steps.iter().position(|step| step.overwrites_source).unwrap_or(self.steps.len());
        let (before, after) = self.steps.split_at(first_overwrite);
        // The host is the device, so running counts as waiting for it.
        bornite_support::time_device_wait(|| {
            before.iter().try_for_each(|step| discardable(|| launch(step)).unwrap_or(Err(Error::Interrupted)))?;
            after.iter().try_for_each(launch)
        })
    }

    /// For each result, the number of launched steps from which on it is computed.
    pub fn completion_steps(&self) -> Vec<usize> {
        let writes = |step: &Step, n: usize| {
            step.args[..step.output_count].iter().any(|slot| slot.region == MemoryRegion::Output(n))
        };
        let last = |n: usize| self.steps.iter().rposition(|step| writes(step, n));
        (0..self.results.len()).map(|n| last(n).map_or(self.steps.len(), |step| step + 1)).collect()
    }

    /// Runs the library calls once, since the first run may load code, which a graph capture does
    /// not allow. The results are garbage; sources are not written.
    pub fn warm_up(&self, results: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        let calls = || self.steps.iter().filter(|step| matches!(step.call, Call::Matmul(_)));
        let mut sources = sources.to_vec();
        let outputs = calls().flat_map(|step| &step.args[..step.output_count]);
        let overwritten =
            outputs.filter_map(|slot| if let MemoryRegion::Source(n) = slot.region { Some(n) } else { None });
        for n in overwritten.collect::<HashSet<usize>>() {
            sources[n] = Buffer::new(self.device, sources[n].bytes())?;
        }
        calls().try_for_each(|step| self.launch(step, results, scratch, &sources))
    }

    fn launch(&self, step: &Step, results: &[Buffer], scratch: Option<&Buffer>, sources: &[Buffer]) -> Result<()> {
        let mut args = Vec::with_capacity(step.args.len());
        for Slot { region, offset, bytes } in &step.args {
            let buffer = match *region {
                MemoryRegion::Output(n) => results.get(n),
                MemoryRegion::Scratch => scratch,
                MemoryRegion::Source(n) => sources.get(n),
                MemoryRegion::Status => self.status.as_ref(),
            };
            let arg = buffer.and_then(|buffer| buffer.slice(*offset, *bytes));
            args.push(arg.ok_or(Error::OutOfMemory { bytes: offset + bytes })?);
        }
        let buffers: Vec<&Buffer> = args.iter().collect();
        match &step.call {
            Call::Kernel(program) => {
                let values: Vec<&[Value]> = step.values.iter().map(Vec::as_slice).collect();
                program.launch(&buffers, &values, step.threads, step.info)?;
                // On the host the kernel has finished. Check now, since later steps may overwrite
                // variables.
                let reports =
                    step.args.iter().any(|slot| slot.region == MemoryRegion::Status) && !self.device.is_cuda();
                if reports { self.check() } else { Ok(()) }
            }
            Call::Matmul(product) => product.launch(&buffers, step.info),
            Call::Routine(routine) => routine.launch(&buffers, step.info),
            Call::Handwritten(source) => source.launch(&buffers, step.info),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.region {
            MemoryRegion::Output(n) => write!(f, "result {n}")?,
            MemoryRegion::Scratch => return write!(f, "scratch {}", self.offset),
            MemoryRegion::Source(n) => write!(f, "input {n}")?,
            MemoryRegion::Status => write!(f, "status")?,
        }
        if self.offset == 0 { Ok(()) } else { write!(f, " from byte {}", self.offset) }
    }
}
