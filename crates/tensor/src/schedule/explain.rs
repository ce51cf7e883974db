//! Summary of a plan: its steps, their costs and memory, as data and as text.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use bornite_codegen::cpu::pool;
use bornite_ir::Kernel;
use bornite_support::profile::Roofline;

use super::memory::LiveRange;
use super::plan::{MemoryRegion, Plan, Slot, Step};
use super::steps::Call;
use super::{ExistingResults, plan};
use crate::fused::attention::cuda::{AttentionKernels, KERNELS};
use crate::{Device, Result, SourceLocation, Tensor};

/// The steps that compute some tensors, with their costs: see [`explain`]. Its `Display` prints one
/// line per step, then the totals and the values in scratch memory at its peak.
///
/// ```
/// use bornite::{Device, Tensor, plan::summarize};
/// # fn main() -> bornite::Result<()> {
/// let x = Tensor::from_slice(&[1.0f32; 1000], &[10, 100], Device::cpu());
/// let plan = summarize(&[x.exp().sum(-1)])?;
/// assert_eq!((plan.steps.len(), plan.bytes()), (1, 4 * 1000 + 4 * 10));
/// println!("{plan}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSummary {
    /// The device that it runs on.
    pub device: Device,
    /// The launches, in order.
    pub steps: Vec<StepSummary>,
    /// Names of the distinct generated kernels, sorted. Kernels for other shapes may have the same
    /// name.
    pub kernels: Vec<String>,
    /// Size of the memory for intermediate values.
    pub scratch_bytes: usize,
    /// The step at which scratch memory use peaks.
    pub peak: PeakMemory,
    /// Peak throughput of the device, if known.
    pub roof: Option<Roofline>,
}

/// One launch of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    /// Name of the kernel, or description of the library call or host routine.
    pub description: String,
    /// Memory written, as text: `result 0`, `input 1`, `scratch 256` (the byte offset).
    pub writes: Vec<String>,
    /// Memory read, as text.
    pub reads: Vec<String>,
    /// Bytes read and written.
    pub bytes: u64,
    /// Floating-point operations: one per scalar op and per term of a sum, two per term of a matrix
    /// product.
    pub flops: u64,
    /// Minimum time at the device's peak throughput.
    pub min_us: Option<f64>,
    /// Source location of the operation.
    pub location: Option<SourceLocation>,
}

/// Peak of scratch memory use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeakMemory {
    /// Index of the step.
    pub step: usize,
    /// Bytes in use at that step.
    pub bytes: usize,
    /// Live values, largest first.
    pub values: Vec<LiveValue>,
}

/// A live value in scratch memory.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveValue {
    /// The operation that computed it.
    pub op: &'static str,
    /// Source location of the operation.
    pub location: Option<SourceLocation>,
    /// Size in bytes.
    pub bytes: usize,
}

/// Peak throughput of a device.
fn roof(device: Device) -> Option<Roofline> {
    if let Some(gpu) = device.gpu().ok()? {
        let sheet = bornite_cuda::roofline(gpu.info());
        // Copies reach 90% of the data sheet's bandwidth (measured on an H200).
        return Some(Roofline { bytes_per_second: 0.9 * sheet.bytes_per_second, ..sheet });
    }
    // An assumption, not a measurement: a thread of a current server.
    let threads = pool::num_threads() as f64;
    (device != Device::Interpreter).then_some(Roofline::new(10e9 * threads, 30e9 * threads))
}

impl Step {
    /// The generated kernel, if the step runs one.
    pub(super) fn kernel(&self) -> Option<&Kernel> {
        if let Call::Kernel(program) = &self.call { Some(program.kernel()) } else { None }
    }

    fn summary(&self, roof: Option<Roofline>) -> StepSummary {
        let description = match &self.call {
            Call::Kernel(program) => program.name().to_owned(),
            Call::Matmul(product) => product.to_string(),
            Call::Routine(routine) => format!("{} (host routine)", routine.name),
            Call::Handwritten(source) => format!("{} (handwritten)", source.name()),
        };
        let passes = |n: usize| match &self.call {
            Call::Kernel(program) => program.memory_passes(n),
            _ => 1,
        };
        let moved = self.args.iter().enumerate().map(|(n, slot)| slot.bytes as u64 * passes(n)).sum();
        let (bytes, flops) = (self.cost.bytes.unwrap_or(moved), self.cost.flops);
        let min_us = roof.map(|roof| 1e6 * roof.min_seconds(bytes, flops, self.cost.unit));
        let words = |slots: &[Slot]| slots.iter().map(Slot::to_string).collect();
        let (writes, reads) = (words(&self.args[..self.output_count]), words(&self.args[self.output_count..]));
        StepSummary { description, writes, reads, bytes, flops, min_us, location: self.info.location() }
    }
}

impl Plan {
    /// Summary of the plan.
    pub fn summary(&self) -> PlanSummary {
        let roof = roof(self.device);
        PlanSummary {
            device: self.device,
            steps: self.steps.iter().map(|step| step.summary(roof)).collect(),
            kernels: self.kernels(),
            scratch_bytes: self.scratch_bytes,
            peak: self.peak(),
            roof,
        }
    }

    fn kernels(&self) -> Vec<String> {
        let distinct: HashSet<&Kernel> = self.steps.iter().filter_map(Step::kernel).collect();
        let mut names: Vec<String> = distinct.iter().map(|kernel| kernel.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Peak of scratch memory use. Values that share memory at that step, as a slice or by reuse,
    /// count once.
    fn peak(&self) -> PeakMemory {
        let scratch: Vec<&LiveRange> =
            self.live_ranges.iter().filter(|life| life.slot.region == MemoryRegion::Scratch).collect();
        let live_at = |step: usize| {
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
        // Sums by step first, since listing the live values of every step would be slow for a large
        // plan.
        let mut changes: BTreeMap<usize, isize> = BTreeMap::new();
        for life in &scratch {
            *changes.entry(*life.steps.start()).or_default() += life.slot.bytes as isize;
            *changes.entry(life.steps.end() + 1).or_default() -= life.slot.bytes as isize;
        }
        let (mut sum, mut peak) = (0, (0, 0));
        for (step, change) in changes {
            sum += change;
            peak = if sum > peak.1 { (step, sum) } else { peak };
        }
        let mut values: Vec<LiveValue> = (live_at(peak.0).into_iter())
            .map(|life| LiveValue { op: life.op, location: life.location, bytes: life.slot.bytes })
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.bytes));
        PeakMemory { step: peak.0, bytes: values.iter().map(|value| value.bytes).sum(), values }
    }
}

impl PlanSummary {
    /// Bytes read and written by all steps.
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.bytes).sum()
    }

    /// Floating-point operations of all steps.
    pub fn flops(&self) -> u64 {
        self.steps.iter().map(|step| step.flops).sum()
    }

    /// Minimum time of all steps, one after the other, at the device's peak throughput.
    pub fn min_us(&self) -> Option<f64> {
        self.steps.iter().map(|step| step.min_us).sum()
    }
}

/// Displays a number with an SI prefix.
struct SiPrefix(f64);

impl fmt::Display for SiPrefix {
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
        write!(f, "{} = {} ({})", self.writes.join(", "), self.description, self.reads.join(", "))?;
        write!(f, "  {}B, {}flop", SiPrefix(self.bytes as f64), SiPrefix(self.flops as f64))?;
        if let Some(min_us) = self.min_us {
            write!(f, ", {min_us:.3} us")?;
        }
        self.location.map_or(Ok(()), |location| write!(f, "  at {location}"))
    }
}

impl fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanSummary { device, scratch_bytes, .. } = self;
        let (steps, kernels) = (self.steps.len(), self.kernels.len());
        let (s, k) = (if steps == 1 { "" } else { "s" }, if kernels == 1 { "" } else { "s" });
        writeln!(f, "{steps} step{s} on {device}, {kernels} kernel{k}, {scratch_bytes} bytes of scratch memory")?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        write!(f, "total {}B, {}flop", SiPrefix(self.bytes() as f64), SiPrefix(self.flops() as f64))?;
        if let (Some(min_us), Some(roof)) = (self.min_us(), self.roof) {
            let (bytes, flops) = (SiPrefix(roof.bytes_per_second), SiPrefix(roof.flops_per_second));
            write!(f, ", {min_us:.3} us at {bytes}B/s and {flops}flop/s")?;
        }
        writeln!(f)?;
        // Not for the host routine, which has the same name.
        let is_kernel = |name: &str| name.starts_with("attention_") && name.ends_with("(handwritten)");
        if self.steps.iter().any(|step| is_kernel(&step.description)) {
            writeln!(f, "attention kernels, of which the first that supports the inputs runs:")?;
            for AttentionKernels { forward_kernel, inputs, .. } in &KERNELS {
                writeln!(f, "  {forward_kernel}: f16 or bf16 without a mask, {inputs}")?;
            }
        }
        if self.peak.bytes > 0 {
            writeln!(f, "peak scratch memory at step {}: {}B", self.peak.step, SiPrefix(self.peak.bytes as f64))?;
        }
        // Values of one line, such as those of all layers, are added up.
        let mut lines: Vec<(&LiveValue, usize)> = vec![];
        for value in &self.peak.values {
            match lines.iter_mut().find(|(first, _)| *first == value) {
                Some((_, count)) => *count += 1,
                None => lines.push((value, 1)),
            }
        }
        lines.sort_by_key(|(value, count)| std::cmp::Reverse(value.bytes * count));
        for (LiveValue { op, location, bytes }, count) in lines {
            let location = location.map_or(String::new(), |location| format!("  at {location}"));
            let parts = if count == 1 { String::new() } else { format!(" ({count} of {}B)", SiPrefix(*bytes as f64)) };
            writeln!(f, "  {}B{parts} {op}{location}", SiPrefix((bytes * count) as f64))?;
        }
        Ok(())
    }
}

impl Tensor {
    /// Describes the steps that would compute this tensor: one line per step with its kernel or
    /// library call, bytes, flops and minimum time; then the values in scratch memory at its peak.
    /// Kernels are compiled; nothing runs. [`summarize`] returns the same as data.
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

/// Describes the steps that would compute tensors of one device: see [`Tensor::explain`].
#[track_caller]
pub fn explain(tensors: &[Tensor]) -> Result<String> {
    if tensors.is_empty() { Ok(String::new()) } else { Ok(summarize(tensors)?.to_string()) }
}

/// Returns the steps that would compute tensors of one device, with their costs.
#[track_caller]
pub fn summarize(tensors: &[Tensor]) -> Result<PlanSummary> {
    Ok(plan(tensors, ExistingResults::Skip, &[])?.summary())
}
