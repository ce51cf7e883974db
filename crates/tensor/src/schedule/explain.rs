//! What a plan does and what that costs at least, in numbers and in words.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use bornite_codegen::cpu::pool;
use bornite_ir::Kernel;
use bornite_support::profile::Roof;

use super::memory::LiveRange;
use super::plan::{MemoryRegion, Plan, Slot, Step};
use super::steps::Call;
use super::{ExistingRoots, plan};
use crate::{Device, Result, SourceLocation, Tensor};

/// What will run to compute some tensors, and what it costs at least: see [`explain`]. Its `Display` is a line a step, then the
/// sums and what is in memory when most is.
///
/// ```
/// use bornite::{Device, Tensor, plan::explained};
/// # fn main() -> bornite::Result<()> {
/// let x = Tensor::from_slice(&[1.0f32; 1000], &[10, 100], Device::cpu());
/// let plan = explained(&[x.exp().sum(-1)])?;
/// assert_eq!((plan.steps.len(), plan.bytes()), (1, 4 * 1000 + 4 * 10));
/// println!("{plan}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSummary {
    /// Where it runs.
    pub device: Device,
    /// The launches, in order.
    pub steps: Vec<StepSummary>,
    /// The names of the different generated kernels among them, sorted. Kernels for other shapes may have the same name.
    pub kernels: Vec<String>,
    /// Memory that steps use between them, beside that of inputs and results.
    pub scratch_bytes: usize,
    /// The step at which most of the scratch memory is in use.
    pub peak: PeakMemory,
    /// What the device can do at best, where that is known.
    pub roof: Option<Roof>,
}

/// One launch of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    /// What runs: a kernel's name, or a product or routine in words.
    pub what: String,
    /// Where it writes and what it reads, in words: `result 0`, `input 1`, `scratch 256` (the byte at which that begins).
    pub writes: Vec<String>,
    /// What it reads.
    pub reads: Vec<String>,
    /// Bytes that it reads and writes, each once.
    pub bytes: u64,
    /// Operations on elements: one for each row of the op table and each term of a sum, two for each term of a product.
    pub flops: u64,
    /// The time that these take at the roof.
    pub min_us: Option<f64>,
    /// The line of the program that asked for it.
    pub place: Option<SourceLocation>,
}

/// When most scratch memory is in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeakMemory {
    /// The number of the step.
    pub step: usize,
    /// Bytes in use then.
    pub bytes: usize,
    /// What they hold, the largest first.
    pub values: Vec<LiveValue>,
}

/// A value that is kept in scratch memory.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveValue {
    /// The operation that it is the result of.
    pub op: &'static str,
    /// The line of the program that asked for it.
    pub place: Option<SourceLocation>,
    /// Its size.
    pub bytes: usize,
}

/// Operations on elements that products of 16-bit floats have for each one that others have, on GPUs.
fn tensor_cores(compute_capability: (u32, u32)) -> f64 {
    match compute_capability {
        (8, 0) | (9.., _) => 16.0,
        (7, _) => 8.0,
        _ => 2.0,
    }
}

/// What a device can do, and how many times that in products of 16-bit floats.
fn roof(device: Device) -> Option<(Roof, f64)> {
    if let Some(gpu) = device.gpu().ok()? {
        let sheet = bornite_cuda::roof(gpu.info());
        // Of what the data sheet says, copies reach nine tenths (measured on an H200).
        let roof = Roof { bytes_per_second: 0.9 * sheet.bytes_per_second, ..sheet };
        return Some((roof, tensor_cores(gpu.info().compute_capability)));
    }
    // Stated, not measured: what a thread of a server of these years has.
    let threads = pool::threads() as f64;
    let roof = Roof { bytes_per_second: 10e9 * threads, flops_per_second: 30e9 * threads };
    (device != Device::Interpreter).then_some((roof, 1.0))
}

impl Step {
    /// The generated kernel that runs, if it is one.
    pub(super) fn kernel(&self) -> Option<&Kernel> {
        if let Call::Kernel(program) = &self.call { Some(program.kernel()) } else { None }
    }

    fn explained(&self, roof: Option<(Roof, f64)>) -> StepSummary {
        let what = match &self.call {
            Call::Kernel(program) => program.name().to_owned(),
            Call::Matmul(product) => product.to_string(),
            Call::Routine(routine) => format!("{} by a routine of the host", routine.name),
            Call::Handwritten(source) => format!("{} by hand", source.name()),
        };
        let passes = |n: usize| match &self.call {
            Call::Kernel(program) => program.passes(n),
            _ => 1,
        };
        let moved = self.args.iter().enumerate().map(|(n, slot)| slot.bytes as u64 * passes(n)).sum();
        let (bytes, flops) = (self.cost.bytes.unwrap_or(moved), self.cost.flops);
        let min_us = roof.map(|(roof, cores)| {
            let peak = roof.flops_per_second * if self.cost.half_precision_matmul { cores } else { 1.0 };
            1e6 * (bytes as f64 / roof.bytes_per_second).max(flops as f64 / peak)
        });
        let words = |slots: &[Slot]| slots.iter().map(Slot::to_string).collect();
        let (writes, reads) = (words(&self.args[..self.output_count]), words(&self.args[self.output_count..]));
        StepSummary { what, writes, reads, bytes, flops, min_us, place: self.about.place() }
    }
}

impl Plan {
    /// What will run.
    pub fn explained(&self) -> PlanSummary {
        let roof = roof(self.device);
        PlanSummary {
            device: self.device,
            steps: self.steps.iter().map(|step| step.explained(roof)).collect(),
            kernels: self.kernels(),
            scratch_bytes: self.scratch_bytes,
            peak: self.peak(),
            roof: roof.map(|(roof, _)| roof),
        }
    }

    fn kernels(&self) -> Vec<String> {
        let distinct: HashSet<&Kernel> = self.steps.iter().filter_map(Step::kernel).collect();
        let mut names: Vec<String> = distinct.iter().map(|kernel| kernel.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// When most scratch memory is in use, and by what. What is a part of something larger, or replaced by something else at that
    /// step, counts once.
    fn peak(&self) -> PeakMemory {
        let scratch: Vec<&LiveRange> =
            self.live_ranges.iter().filter(|life| life.slot.region == MemoryRegion::Scratch).collect();
        let alive = |step: usize| {
            let mut values: Vec<&LiveRange> =
                scratch.iter().copied().filter(|life| life.steps.contains(&step) && life.slot.bytes > 0).collect();
            values.sort_by_key(|life| (life.slot.offset, std::cmp::Reverse(life.slot.bytes)));
            let mut end = 0;
            values.retain(|life| {
                let beyond = life.slot.offset + life.slot.bytes > end;
                end = end.max(life.slot.offset + life.slot.bytes);
                beyond
            });
            values
        };
        // Sums by step first: to list what lives at each would take long for a large plan.
        let mut changes: BTreeMap<usize, isize> = BTreeMap::new();
        for life in &scratch {
            *changes.entry(*life.steps.start()).or_default() += life.slot.bytes as isize;
            *changes.entry(life.steps.end() + 1).or_default() -= life.slot.bytes as isize;
        }
        let (mut sum, mut most) = (0, (0, 0));
        for (step, change) in changes {
            sum += change;
            most = if sum > most.1 { (step, sum) } else { most };
        }
        let mut values: Vec<LiveValue> = (alive(most.0).into_iter())
            .map(|life| LiveValue { op: life.op, place: life.place, bytes: life.slot.bytes })
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.bytes));
        PeakMemory { step: most.0, bytes: values.iter().map(|value| value.bytes).sum(), values }
    }
}

impl PlanSummary {
    /// Bytes that all steps read and write.
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.bytes).sum()
    }

    /// Operations on elements of all steps.
    pub fn flops(&self) -> u64 {
        self.steps.iter().map(|step| step.flops).sum()
    }

    /// The time that all steps take at the roof, one after the other.
    pub fn min_us(&self) -> Option<f64> {
        self.steps.iter().map(|step| step.min_us).sum()
    }
}

/// A number with a prefix that leaves it short.
struct Short(f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
        match steps.iter().find(|(scale, _)| self.0 >= *scale) {
            Some((scale, prefix)) => write!(f, "{:.1} {prefix}", self.0 / scale),
            None => write!(f, "{} ", (self.0 * 1e3).round() / 1e3),
        }
    }
}

impl fmt::Display for StepSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.writes.join(", "), self.what, self.reads.join(", "))?;
        write!(f, "  {}B, {}flop", Short(self.bytes as f64), Short(self.flops as f64))?;
        if let Some(least) = self.min_us {
            write!(f, ", {least:.3} us")?;
        }
        self.place.map_or(Ok(()), |place| write!(f, "  at {place}"))
    }
}

impl fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanSummary { device, scratch_bytes, .. } = self;
        let (steps, kernels) = (self.steps.len(), self.kernels.len());
        writeln!(f, "{steps} steps on {device} by {kernels} kernels, {scratch_bytes} bytes of scratch memory")?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        write!(f, "in all {}B, {}flop", Short(self.bytes() as f64), Short(self.flops() as f64))?;
        if let (Some(least), Some(roof)) = (self.min_us(), self.roof) {
            let (bytes, flops) = (Short(roof.bytes_per_second), Short(roof.flops_per_second));
            write!(f, ", {least:.3} us at {bytes}B/s and {flops}flop/s")?;
        }
        writeln!(f)?;
        if self.peak.bytes > 0 {
            writeln!(f, "most scratch memory at step {}: {}B", self.peak.step, Short(self.peak.bytes as f64))?;
        }
        for LiveValue { op, place, bytes } in &self.peak.values {
            let place = place.map_or(String::new(), |place| format!("  at {place}"));
            writeln!(f, "  {}B {op}{place}", Short(*bytes as f64))?;
        }
        Ok(())
    }
}

impl Tensor {
    /// What would run to compute this tensor: a line a step, with the matrix products that go through a library and the copies
    /// that they need, bytes and operations of each and the time that they take at least; then what is in memory when most is.
    /// Kernels are compiled for it; nothing runs. [`explained`] gives the numbers.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
    /// assert!(x.exp().sum(..).explain()?.contains("result 0 = exp_sum_f32 (input 0)  12 B, 4 flop"));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn explain(&self) -> Result<String> {
        explain(std::slice::from_ref(self))
    }
}

/// What would run to compute tensors of one device together: see [`Tensor::explain`].
#[track_caller]
pub fn explain(tensors: &[Tensor]) -> Result<String> {
    if tensors.is_empty() { Ok(String::new()) } else { Ok(explained(tensors)?.to_string()) }
}

/// What would run to compute tensors of one device together, in numbers.
#[track_caller]
pub fn explained(tensors: &[Tensor]) -> Result<PlanSummary> {
    Ok(plan(tensors, ExistingRoots::Skip, &[])?.explained())
}
