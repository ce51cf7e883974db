//! `bornite bench gpt2`: times training steps on the code path of `bornite train`, from random
//! tokens.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use bornite::Device;
use bornite_bench::{BenchRow, Measurement, StepPart, TrainingFigures};
use bornite_nn::data::SourceFormat;
use bornite_nn::train::{Observer, RunConfig, StepBenchmark, StepMetrics, benchmark_steps};
use bornite_support::random::{STEP, mix};

use crate::Failure;
use crate::scratch::ScratchFolder;

/// Vocabulary of GPT-2's tokenizer.
pub const GPT2_TOKENS: usize = 50_257;
/// Vocabulary of bytes.
const BYTE_TOKENS: usize = 257;
/// Maximum number of tokens in the data; longer measurements repeat them.
const MAX_TOKENS: u64 = 1 << 22;
/// Vocabulary that rows of peers do not name.
const PEER_VOCABULARY: usize = 50_304;

/// Options of the suite gpt2.
#[derive(clap::Args)]
#[command(next_help_heading = "Options of the suite gpt2")]
pub struct Gpt2Options {
    /// Model size, as for train [default: gpt2-124m]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Sequences per batch [default: 64 on a GPU, else 1]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Tokens per sequence [default: the model's context]
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Number of tokens in the vocabulary [default: 50257]
    #[arg(long, value_name = "N")]
    vocab: Option<usize>,
    /// f32, tf32, bf16 or f16 [default: bf16 on a GPU, else f32]
    #[arg(long, value_name = "NAME")]
    precision: Option<String>,
    /// Timed steps [default: 20, or 5 with --quick]
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
}

impl Gpt2Options {
    /// Returns true if any of them is set.
    pub fn is_set(&self) -> bool {
        let Gpt2Options { model, batch, context, vocab, precision, steps } = self;
        let numbers = [batch.is_some(), context.is_some(), vocab.is_some(), steps.is_some()];
        model.is_some() || precision.is_some() || numbers.contains(&true)
    }
}

/// Measures the row.
pub fn measure(
    options: &Gpt2Options,
    quick: bool,
    device: Device,
    observer: &mut dyn Observer,
) -> Result<BenchRow, Failure> {
    let vocabulary = options.vocab.unwrap_or(GPT2_TOKENS);
    let model_name = options.model.clone().unwrap_or("gpt2-124m".into());
    let (tokenizer, tokens) = match vocabulary {
        GPT2_TOKENS.. => ("gpt2", GPT2_TOKENS),
        BYTE_TOKENS.. => ("bytes", BYTE_TOKENS),
        _ => return Err(format!("--vocab is {vocabulary}; it must be at least {BYTE_TOKENS}").into()),
    };
    let warmup = if quick { 1 } else { 3 };
    let steps = options.steps.unwrap_or(if quick { 5 } else { 20 });
    if steps == 0 {
        return Err("--steps is 0; it must be at least 1".into());
    }
    let mut config = RunConfig::default();
    config.model.name = Some(model_name.clone());
    config.model.vocabulary = Some(vocabulary);
    config.model.context = options.context;
    config.data.tokenizer = Some(tokenizer.into());
    config.data.format = Some(SourceFormat::Bin32);
    config.data.validation_fraction = Some(0.0);
    config.train.batch = Some(options.batch.unwrap_or(if device.is_cuda() { 64 } else { 1 }));
    config.train.steps = Some(steps);
    config.train.eval_every = Some(0);
    config.train.save_every = Some(0);
    if let Some(precision) = &options.precision {
        config.set_text("train.precision", precision)?;
    }

    let scratch = ScratchFolder::new("bench");
    let data = scratch.path().join("tokens.bin");
    let model = config.gpt(vocabulary)?;
    let batch_tokens = config.train.batch.unwrap_or(1).saturating_mul(model.context) as u64;
    let count = batch_tokens.saturating_mul(steps.saturating_add(warmup + 1)).min(MAX_TOKENS);
    std::fs::create_dir_all(scratch.path())?;
    write_tokens(&data, count + 1, tokens as u64)
        .map_err(|error| format!("cannot write {}: {error}", data.display()))?;
    config.data.path = Some(vec![data]);
    let measured = benchmark_steps(&config, warmup, &scratch.path().join("run"), device, observer)?;
    let precision = serde_json::to_value(measured.info.precision)?;
    let precision = precision.as_str().unwrap_or_default();
    let name = row_name(&model_name, vocabulary, precision, config.train.batch.unwrap_or(1), model.context);
    Ok(row(name, device, &measured))
}

/// Name of the row in the output of `peers/torch_gpt2.py`, which trains in bf16.
fn row_name(model: &str, vocabulary: usize, precision: &str, batch: usize, context: usize) -> String {
    let mut name = model.replace('-', "_");
    if vocabulary != PEER_VOCABULARY {
        name += &format!("_v{vocabulary}");
    }
    if precision != "bf16" {
        name += &format!("_{precision}");
    }
    format!("{name}_train_compiled_{batch}x{context}")
}

fn row(name: String, device: Device, measured: &StepBenchmark) -> BenchRow {
    let StepBenchmark { info, first_step_seconds, steps, peak_bytes, profile } = measured;
    let measurement = Measurement::of_samples(measured.step_ms(), 1);
    let tokens_per_second = info.tokens_per_step as f64 / (measurement.median_ms / 1e3);
    let median_of = |value: fn(&StepMetrics) -> Option<f64>| {
        let values: Vec<f64> = steps.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| Measurement::of_samples(values, 1).median_ms)
    };
    let training = TrainingFigures {
        tokens_per_second,
        utilization: info.peak_flops.map(|peak| tokens_per_second * info.flops_per_token / peak),
        peak_bytes: *peak_bytes,
        first_step_seconds: *first_step_seconds,
        host_ms: median_of(|step| step.host_ms).unwrap_or(0.0),
        data_wait_ms: median_of(|step| step.data_wait_ms).unwrap_or(0.0),
        gpu_idle_share: median_of(|step| step.gpu_idle_share),
        parts: (profile.rows.iter())
            .map(|row| StepPart { name: row.name.clone(), calls: row.calls, total_ms: row.total_ms, share: row.share })
            .collect(),
    };
    let flops = info.flops_per_token * info.tokens_per_step as f64;
    let row = BenchRow::new(name, device.to_string(), measurement).with_flops(flops as u64);
    BenchRow { training: Some(training), ..row }
}

/// Writes random tokens as 32-bit integers.
fn write_tokens(path: &Path, count: u64, vocabulary: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for n in 0..count {
        let token = mix(n.wrapping_mul(STEP)) % vocabulary;
        file.write_all(&(token as u32).to_le_bytes())?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_names_of_the_peer() {
        assert_eq!(row_name("gpt2-124m", 50304, "bf16", 64, 1024), "gpt2_124m_train_compiled_64x1024");
        assert_eq!(row_name("gpt2-124m", 50257, "bf16", 64, 1024), "gpt2_124m_v50257_train_compiled_64x1024");
        assert_eq!(row_name("tiny", 257, "f32", 1, 64), "tiny_v257_f32_train_compiled_1x64");
    }
}
