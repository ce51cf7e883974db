//! Cost of training, computed before anything is allocated: parameters, memory, flops.
//!
//! Memory is a lower bound: a run that is rejected could not have worked.

use bornite::Device;
use bornite_support::profile::ComputeUnit;

use super::precision::Precision;
use crate::error::located;
use crate::model::{GptConfig, MlpKind, NormKind, PositionKind};
use crate::optimizer::OptimizerKind;
use crate::{Error, Result};

/// Sizes that determine the memory of a training step.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The model.
    pub model: GptConfig,
    /// Sequences per batch of one rank.
    pub batch: usize,
    /// Tokens per sequence.
    pub context: usize,
    /// Batches per optimizer step of one rank.
    pub accumulate: usize,
    /// Ranks that share the batches of a step: 1 without data parallelism.
    pub ranks: usize,
    /// Each rank holds its part of the optimizer state only.
    pub shard_optimizer: bool,
    /// Precision.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: OptimizerKind,
    /// Recomputes blocks in the backward pass.
    pub activation_checkpointing: bool,
    /// Device. A CPU computes 16-bit types in f32 and stores many activations as f32.
    pub device: Device,
}

/// Lower bound of the bytes that training needs. In 128 bits, so that absurd sizes do not overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryEstimate {
    /// Parameters, their 16-bit copy, gradients and optimizer state.
    pub model: u128,
    /// Activations saved for the backward pass.
    pub activations: u128,
}

impl MemoryEstimate {
    /// Sum of both.
    pub fn total(self) -> u128 {
        self.model + self.activations
    }
}

/// Number of parameters of a model.
pub fn parameter_count(model: &GptConfig) -> u128 {
    let of = |n: usize| n as u128;
    let (width, mlp_hidden) = (of(model.width), of(model.mlp_hidden));
    let bias = |n: u128| if model.bias { n } else { 0 };
    let norm = match model.norm {
        NormKind::Layer => 2 * width,
        NormKind::Rms => width,
    };
    let columns = of(model.heads + 2 * model.kv_heads) * of(model.head_width());
    let attention = width * columns + of(model.heads_width()) * width;
    let attention_bias = if model.attention_bias() { columns + width } else { 0 };
    let mlp = match model.mlp {
        MlpKind::Gelu | MlpKind::GeluErf => 2 * width * mlp_hidden + bias(mlp_hidden) + bias(width),
        MlpKind::Swiglu => 3 * width * mlp_hidden + 2 * bias(mlp_hidden) + bias(width),
    };
    let positions = if model.position == PositionKind::Learned { of(model.context) * width } else { 0 };
    let table = of(model.vocabulary) * width;
    let head = if model.tied_embeddings { 0 } else { table };
    table + positions + of(model.layers) * (2 * norm + attention + attention_bias + mlp) + norm + head
}

/// Floating-point operations of training per token, in sequences of `context` tokens: six per
/// multiplied parameter, plus attention over half of the sequence.
pub fn flops_per_token(model: &GptConfig, context: usize) -> f64 {
    let table = model.vocabulary as f64 * model.width as f64;
    let positions = if model.position == PositionKind::Learned { (model.context * model.width) as f64 } else { 0.0 };
    // A tied embedding is multiplied with as the output head; an untied one is only looked up.
    let multiplied = parameter_count(model) as f64 - positions - if model.tied_embeddings { 0.0 } else { table };
    6.0 * multiplied + 6.0 * model.layers as f64 * model.heads_width() as f64 * context as f64
}

impl Workload {
    /// Returns a lower bound of the memory.
    pub fn memory(&self) -> MemoryEstimate {
        let of = |n: usize| n as u128;
        let (count, model) = (parameter_count(&self.model), &self.model);
        let element = self.precision.dtype().bytes() as u128;
        let copy = if element < 4 { element } else { 0 };
        let sums = if self.accumulate > 1 || self.ranks > 1 { 4 } else { 0 };
        let moments = 4 * count * of(self.optimizer.moment_count());
        let moments = if self.shard_optimizer { moments / of(self.ranks.max(1)) } else { moments };
        let state = count * (4 + copy + element + sums) + moments;
        let tokens = of(self.batch) * of(self.context);
        let gates = if model.mlp == MlpKind::Swiglu { 2 } else { 1 };
        let columns = of(model.heads + 2 * model.kv_heads) * of(model.head_width());
        let block = of(model.width) + of(model.heads_width()) + columns + gates * of(model.mlp_hidden);
        let blocks = match self.activation_checkpointing {
            false => of(model.layers) * (of(model.width) + block),
            true => of(model.layers) * of(model.width) + block,
        };
        let element = if self.device.is_cuda() { element } else { 4 };
        MemoryEstimate { model: state, activations: tokens * element * (blocks + of(model.vocabulary)) }
    }

    /// Rejects a workload that does not fit into `available` bytes of `device`; the error suggests
    /// settings that fit.
    #[track_caller]
    pub fn check(&self, available: u64, device: &str) -> Result<()> {
        located(|| {
            let (needed, available) = (self.memory(), u128::from(available));
            if needed.total() <= available {
                return Ok(());
            }
            let (batch, context) = (self.batch, self.context);
            let what = format!(
                "training {} parameters with batches of {batch} × {context} tokens needs at least {} ({} for model and optimizer, {} \
                 for activations), but {device} has {}: {} too much",
                parameter_count(&self.model),
                format_bytes(needed.total()),
                format_bytes(needed.model),
                format_bytes(needed.activations),
                format_bytes(available),
                format_bytes(needed.total() - available),
            );
            Err(Error::config(format!("{what}; {}", self.suggestion(available))))
        })
    }

    /// Settings of the same model that would fit into `available` bytes.
    fn suggestion(&self, available: u128) -> String {
        let fits = |workload: &Workload| workload.memory().total() <= available;
        let recomputed = Workload { activation_checkpointing: true, ..self.clone() };
        if !self.activation_checkpointing && fits(&recomputed) {
            return "--activation-checkpointing would make it fit".into();
        }
        let sizes = || std::iter::successors(Some(self.batch / 2), |n| Some(n / 2)).take_while(|n| *n > 0);
        for (workload, flag) in [(self, ""), (&recomputed, " and --activation-checkpointing")] {
            let parts = |n: usize| (self.accumulate.saturating_mul(self.batch)).div_ceil(n);
            let small = |n: usize| Workload { batch: n, accumulate: parts(n), ..workload.clone() };
            if let Some(n) = sizes().find(|n| fits(&small(*n))) {
                let all = parts(n).saturating_mul(self.ranks);
                return format!("train.batch={n} with train.accumulate={all}{flag} would fit");
            }
        }
        let shorter = std::iter::successors(Some(self.context / 2), |n| Some(n / 2)).take_while(|n| *n > 0);
        for context in shorter {
            if fits(&Workload { batch: 1, context, ..recomputed.clone() }) {
                return format!("train.context={context} with train.batch=1 and --activation-checkpointing would fit");
            }
        }
        "the model itself does not fit; choose a smaller one".into()
    }

    /// Bytes that activation checkpointing saves.
    pub fn checkpointing_saved_bytes(&self) -> u128 {
        let bytes = |activation_checkpointing| Workload { activation_checkpointing, ..self.clone() }.memory().total();
        bytes(false) - bytes(true)
    }
}

/// Formats a number of bytes with a binary unit.
pub fn format_bytes(bytes: u128) -> String {
    match bytes as f64 {
        bytes if bytes < 1024.0 * 1024.0 => format!("{:.1} KiB", bytes / 1024.0),
        bytes if bytes < 1024f64.powi(3) => format!("{:.1} MiB", bytes / 1024f64.powi(2)),
        bytes => format!("{:.1} GiB", bytes / 1024f64.powi(3)),
    }
}

/// Free memory of a device; `None` if it is unknown.
pub fn available_bytes(device: Device) -> Option<u64> {
    if let Some(ordinal) = device.cuda_ordinal() {
        return bornite_cuda::Device::open(ordinal).ok()?.describe().ok()?.free_memory_bytes;
    }
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let free = proc_bytes(&text, "MemAvailable:")?;
    let used = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| proc_bytes(&text, "VmSize:"));
    let left = address_space_limit().map(|limit| limit.saturating_sub(used.unwrap_or(0)));
    Some(left.map_or(free, |left| left.min(free)))
}

/// Address space limit of this process (`ulimit -v`), if there is one.
pub fn address_space_limit() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    text.lines().find_map(|line| line.strip_prefix("Max address space"))?.split_whitespace().next()?.parse().ok()
}

/// Parses a `name: N kB` line of a file under `/proc`, in bytes.
fn proc_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Peak flops per second of a GPU in a precision, for its utilization.
pub fn peak_flops(device: Device, precision: Precision) -> Option<f64> {
    let ordinal = device.cuda_ordinal()?;
    let unit = match precision {
        Precision::F32 => ComputeUnit::Cores,
        Precision::Tf32 => ComputeUnit::TensorCoresTf32,
        Precision::Bf16 | Precision::F16 => ComputeUnit::TensorCores,
    };
    Some(bornite_cuda::roofline(&bornite_cuda::DeviceInfo::query(ordinal).ok()?).peak_flops(unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Gpt;
    use crate::{Module, Params};

    fn workload(model: GptConfig) -> Workload {
        let (batch, context) = (16, model.context);
        let precision = Precision::Bf16;
        let (optimizer, device) = (OptimizerKind::ADAMW, Device::Cuda(0));
        Workload {
            model,
            batch,
            context,
            accumulate: 1,
            ranks: 1,
            shard_optimizer: false,
            precision,
            optimizer,
            activation_checkpointing: false,
            device,
        }
    }

    #[test]
    fn parameter_count_matches_the_model() {
        let odd = GptConfig { bias: true, tied_embeddings: true, mlp_hidden: 70, ..GptConfig::llama(31, 17, 3, 4, 24) };
        let wide = GptConfig { attention_bias: Some(true), head_width: Some(14), ..GptConfig::llama(31, 17, 3, 4, 24) };
        let sizes = |model: &str, vocabulary| parameter_count(&GptConfig::named(model, vocabulary).unwrap());
        assert_eq!((sizes("gpt2-124m", 50_257), sizes("llama-1b", 128_256)), (124_439_808, 1_235_814_400));
        for model in [GptConfig::gpt2(257, 64, 2, 2, 64), GptConfig::llama(300, 32, 3, 6, 48), odd, wide] {
            let declared = Gpt::new(&Params::new(Device::cpu(), 0), model.clone()).unwrap().parameter_count();
            assert_eq!(parameter_count(&model), declared as u128, "{model:?}");
        }
    }

    #[test]
    fn workload_that_does_not_fit_suggests_settings_that_do() {
        let gpt2 = workload(GptConfig::named("gpt2-124m", 50257).unwrap());
        let needed = gpt2.memory();
        assert!(gpt2.check(needed.total() as u64, "cpu").is_ok());
        let state = needed.model as u64;
        let cases = [
            (needed.total() as u64 - 1, "--activation-checkpointing would make it fit"),
            (state + needed.activations as u64 / 4, "train.batch="),
            // Accumulated gradients need memory too.
            (state + 4 * 124_439_808 + needed.activations as u64 / 16, "train.batch=1 with train.accumulate=16"),
            (state + (20 << 20), "train.context="),
            (state / 2, "the model itself does not fit"),
        ];
        for (available, expected) in cases {
            let error = gpt2.check(available, "cpu").unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("too much"), "{available}: {error}");
        }
        assert!(gpt2.checkpointing_saved_bytes() > 0);
        let absurd = GptConfig { layers: i32::MAX as usize, mlp_hidden: i32::MAX as usize, ..gpt2.model.clone() };
        assert!(workload(absurd).check(1 << 40, "cpu").is_err());
    }
}
