//! What training costs, before anything is allocated: parameters, memory, arithmetic.
//!
//! Memory is counted from below: what surely is needed. So a run that is refused could not have worked.

use bornite::Device;

use super::precision::Precision;
use crate::error::located;
use crate::model::{GptConfig, MlpKind, NormKind, PositionKind};
use crate::optimiser::Rule;
use crate::{Error, Result};

/// What decides how much memory training takes.
#[derive(Clone, Debug)]
pub struct Load {
    /// The model.
    pub model: GptConfig,
    /// Windows in a batch.
    pub batch: usize,
    /// Tokens in a window.
    pub context: usize,
    /// Batches a step.
    pub accumulate: usize,
    /// Arithmetic.
    pub precision: Precision,
    /// What moves parameters.
    pub rule: Rule,
    /// Whether blocks are computed again in the gradient.
    pub checkpointing: bool,
    /// Where: a CPU computes 16-bit types in f32, and keeps much of it so.
    pub device: Device,
}

/// Bytes that training needs at least. Numbers are wide: absurd sizes must not wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Parameters, their copy in 16 bits, gradients and what the optimiser keeps.
    pub model: u128,
    /// What the forward pass keeps for the gradient.
    pub activations: u128,
}

impl Memory {
    /// All of it.
    pub fn total(self) -> u128 {
        self.model + self.activations
    }
}

/// Parameters of a model.
pub fn parameters(model: &GptConfig) -> u128 {
    let of = |n: usize| n as u128;
    let (width, hidden) = (of(model.width), of(model.hidden));
    let bias = |n: u128| if model.bias { n } else { 0 };
    let norm = match model.norm {
        NormKind::Layer => 2 * width,
        NormKind::Rms => width,
    };
    let columns = of(model.heads + 2 * model.kv_heads) * of(model.head_width());
    let attention = width * columns + of(model.heads_width()) * width;
    let attention_bias = if model.attention_bias() { columns + width } else { 0 };
    let mlp = match model.mlp {
        MlpKind::Gelu | MlpKind::GeluErf => 2 * width * hidden + bias(hidden) + bias(width),
        MlpKind::Swiglu => 3 * width * hidden + 2 * bias(hidden) + bias(width),
    };
    let places = if model.position == PositionKind::Learned { of(model.context) * width } else { 0 };
    let table = of(model.vocabulary) * width;
    let head = if model.tied { 0 } else { table };
    table + places + of(model.layers) * (2 * norm + attention + attention_bias + mlp) + norm + head
}

/// Floating-point operations of training on one token in windows of so many: six a parameter that is multiplied with, and
/// attention over half of the window.
pub fn flops_a_token(model: &GptConfig, context: usize) -> f64 {
    let table = model.vocabulary as f64 * model.width as f64;
    let places = if model.position == PositionKind::Learned { (model.context * model.width) as f64 } else { 0.0 };
    // A tied table is multiplied with as the head; one that is not tied is only looked up.
    let multiplied = parameters(model) as f64 - places - if model.tied { 0.0 } else { table };
    6.0 * multiplied + 6.0 * model.layers as f64 * model.heads_width() as f64 * context as f64
}

impl Load {
    /// Memory that is needed at least.
    pub fn memory(&self) -> Memory {
        let of = |n: usize| n as u128;
        let (count, model) = (parameters(&self.model), &self.model);
        let element = self.precision.dtype().bytes() as u128;
        let copy = if element < 4 { element } else { 0 };
        let sums = if self.accumulate > 1 { 4 } else { 0 };
        let state = count * (4 + copy + 4 * of(self.rule.moments()) + element + sums);
        let tokens = of(self.batch) * of(self.context);
        let gates = if model.mlp == MlpKind::Swiglu { 2 } else { 1 };
        let columns = of(model.heads + 2 * model.kv_heads) * of(model.head_width());
        let inside = of(model.width) + of(model.heads_width()) + columns + gates * of(model.hidden);
        let blocks = match self.checkpointing {
            false => of(model.layers) * (of(model.width) + inside),
            true => of(model.layers) * of(model.width) + inside,
        };
        let element = if matches!(self.device, Device::Cuda(_)) { element } else { 4 };
        Memory { model: state, activations: tokens * element * (blocks + of(model.vocabulary)) }
    }

    /// Refuses what does not fit into so many bytes, with what would.
    #[track_caller]
    pub fn check(&self, available: u64, place: &str) -> Result<()> {
        located(|| {
            let (need, have) = (self.memory(), u128::from(available));
            if need.total() <= have {
                return Ok(());
            }
            let (batch, context) = (self.batch, self.context);
            let what = format!(
                "training {} parameters with batches of {batch} windows of {context} tokens needs at least {} ({} for the model \
             and its optimiser, {} for a batch), and {place} has {}: {} too much",
                parameters(&self.model),
                size(need.total()),
                size(need.model),
                size(need.activations),
                size(have),
                size(need.total() - have),
            );
            Err(Error::config(format!("{what}; {}", self.advice(have))))
        })
    }

    /// What of the same model would fit.
    fn advice(&self, have: u128) -> String {
        let fits = |load: &Load| load.memory().total() <= have;
        let again = Load { checkpointing: true, ..self.clone() };
        if !self.checkpointing && fits(&again) {
            return "--checkpointing would make it fit".into();
        }
        let sizes = || std::iter::successors(Some(self.batch / 2), |n| Some(n / 2)).take_while(|n| *n > 0);
        for (load, words) in [(self, ""), (&again, " and --checkpointing")] {
            let parts = |n: usize| (self.accumulate.saturating_mul(self.batch)).div_ceil(n);
            let small = |n: usize| Load { batch: n, accumulate: parts(n), ..load.clone() };
            if let Some(n) = sizes().find(|n| fits(&small(*n))) {
                return format!("train.batch={n} with train.accumulate={}{words} would fit", parts(n));
            }
        }
        let shorter = std::iter::successors(Some(self.context / 2), |n| Some(n / 2)).take_while(|n| *n > 0);
        for context in shorter {
            if fits(&Load { batch: 1, context, ..again.clone() }) {
                return format!("train.context={context} with train.batch=1 and --checkpointing would fit");
            }
        }
        "the model itself does not fit; choose a smaller one".into()
    }

    /// Memory that computing blocks again saves.
    pub fn saved(&self) -> u128 {
        let kept = Load { checkpointing: false, ..self.clone() };
        kept.memory().total() - Load { checkpointing: true, ..self.clone() }.memory().total()
    }
}

/// A number of bytes in words.
pub fn size(bytes: u128) -> String {
    match bytes as f64 {
        small if small < 1024.0 * 1024.0 => format!("{:.1} KiB", small / 1024.0),
        some if some < 1024f64.powi(3) => format!("{:.1} MiB", some / 1024f64.powi(2)),
        much => format!("{:.1} GiB", much / 1024f64.powi(3)),
    }
}

/// Bytes that a device could give now; none where that cannot be known.
pub fn available(device: Device) -> Option<u64> {
    match device {
        Device::Cuda(ordinal) => bornite_cuda::Device::open(ordinal).ok()?.describe().ok()?.free_memory_bytes,
        Device::Cpu(_) | Device::Interpreter => {
            let text = std::fs::read_to_string("/proc/meminfo").ok()?;
            let free = kilobytes(&text, "MemAvailable:")?;
            let used = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| kilobytes(&text, "VmSize:"));
            let left = address_space().map(|limit| limit.saturating_sub(used.unwrap_or(0)));
            Some(left.map_or(free, |left| left.min(free)))
        }
    }
}

/// Bytes of address space that this process may have (`ulimit -v`), where that is limited.
pub fn address_space() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    text.lines().find_map(|line| line.strip_prefix("Max address space"))?.split_whitespace().next()?.parse().ok()
}

/// The bytes in a line of a file under `/proc`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The most floating-point operations a second, without sparsity, of GPUs whose makers say so: a part of the name, then
/// for f32, tf32 and 16 bits, in 10^12.
const PEAKS: [(&str, [f64; 3]); 9] = [
    ("GB200", [80.0, 1250.0, 2500.0]),
    ("B200", [75.0, 1125.0, 2250.0]),
    ("H200", [67.0, 494.7, 989.4]),
    ("H100 PCIe", [51.0, 378.0, 756.0]),
    ("H100", [67.0, 494.7, 989.4]),
    ("A100", [19.5, 156.0, 312.0]),
    ("L40S", [91.6, 183.0, 362.0]),
    ("RTX 4090", [82.6, 82.6, 165.2]),
    ("A10", [31.2, 62.5, 125.0]),
];

/// The most floating-point operations a second of a device, where they are known.
pub fn peak_flops(device: Device, precision: Precision) -> Option<f64> {
    let Device::Cuda(ordinal) = device else { return None };
    let name = bornite_cuda::DeviceInfo::of(ordinal).ok()?.name;
    let (_, peaks) = PEAKS.iter().find(|(part, _)| name.contains(part))?;
    let peak = match precision {
        Precision::F32 => peaks[0],
        Precision::Tf32 => peaks[1],
        Precision::Bf16 | Precision::F16 => peaks[2],
    };
    Some(peak * 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Gpt;

    fn load(model: GptConfig) -> Load {
        let (batch, context) = (16, model.context);
        let precision = Precision::Bf16;
        let (rule, device) = (Rule::ADAMW, Device::Cuda(0));
        Load { model, batch, context, accumulate: 1, precision, rule, checkpointing: false, device }
    }

    #[test]
    fn parameters_are_those_that_models_declare() {
        let odd = GptConfig { bias: true, tied: true, hidden: 70, ..GptConfig::llama(31, 17, 3, 4, 24) };
        let wide = GptConfig { attention_bias: Some(true), head_width: Some(14), ..GptConfig::llama(31, 17, 3, 4, 24) };
        for model in [GptConfig::gpt2(257, 64, 2, 2, 64), GptConfig::llama(300, 32, 3, 6, 48), odd, wide] {
            let declared = Gpt::new(model.clone()).unwrap().parameters().elements();
            assert_eq!(parameters(&model), declared as u128, "{model:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told_what_would() {
        let gpt2 = load(GptConfig::named("gpt2-124m", 50257).unwrap());
        let need = gpt2.memory();
        assert!(gpt2.check(need.total() as u64, "cpu").is_ok());
        let state = need.model as u64;
        let cases = [
            (need.total() as u64 - 1, "--checkpointing would make it fit"),
            (state + need.activations as u64 / 4, "train.batch="),
            // Sums of gradients take room as well.
            (state + 4 * 124_439_808 + need.activations as u64 / 16, "train.batch=1 with train.accumulate=16"),
            (state + (20 << 20), "train.context="),
            (state / 2, "the model itself does not fit"),
        ];
        for (available, said) in cases {
            let error = gpt2.check(available, "cpu").unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("too much"), "{available}: {error}");
        }
        assert!(gpt2.saved() > 0);
        let absurd = GptConfig { layers: i32::MAX as usize, hidden: i32::MAX as usize, ..gpt2.model.clone() };
        assert!(load(absurd).check(1 << 40, "cpu").is_err());
    }
}
