//! `bornite eval`: evaluates a model on data.

use std::path::PathBuf;
use std::process::ExitCode;

use bornite_nn::data::TokenDataset;
use bornite_nn::train::TrainedModel;
use clap::ValueEnum;
use serde_json::json;

use crate::demo::{self, layout::PromptLayout, score::SamplingBudget};
use crate::images;
use crate::preparation_display::PreparationDisplay;
use crate::scratch::ScratchFolder;
use crate::{Failure, note, parse_device, print, print_json};

/// Evaluation metric.
#[derive(Clone, Copy, ValueEnum)]
pub enum Metric {
    /// Mean cross-entropy of the next token, in nats
    Loss,
    /// Share of held-out kernels that the model writes correctly: parsed, compiled, executed
    Kernels,
}

/// Options of `bornite eval`.
#[derive(clap::Args)]
pub struct EvalOptions {
    /// Folder of a run or of a Hugging Face model
    #[arg(value_name = "RUN")]
    pub from: PathBuf,
    /// Metric
    #[arg(long, value_enum, default_value = "loss")]
    metric: Metric,
    /// Files or folders [default: the run's validation split]; for image models, a folder of images
    /// as for training
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// JSONL field or Parquet column of the documents
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
    /// Write a page with the confusion matrix and the images that were classified wrongly (image
    /// models)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Sequences or images per batch
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub batch: usize,
    /// Tokens per sequence (context length) [default: that of training]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Maximum number of batches [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Number of kernels to generate (metric kernels)
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    prompts: u64,
    /// Answers per kernel; the best counts
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    samples: u64,
    /// Dataset split to take kernels from
    #[arg(long, value_name = "NAME", default_value = "test")]
    split: String,
    /// Tokenizer to use instead of the folder's: bytes, gpt2 or a path to tokenizer.json
    #[arg(long, value_name = "NAME")]
    tokenizer: Option<String>,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Write JSON to stdout
    #[arg(long)]
    pub json: bool,
}

pub fn run(options: &EvalOptions) -> Result<ExitCode, Failure> {
    let device = parse_device(&options.device)?;
    if images::is_image_run(&options.from) {
        return images::evaluate(options, device);
    }
    if options.report.is_some() {
        return Err(bornite_nn::Error::config("--report has no effect for models of text; remove it").into());
    }
    let trained = TrainedModel::open(&options.from, options.tokenizer.as_deref(), device)?;
    if let Some(text) = &trained.note {
        note(text);
    }
    match options.metric {
        Metric::Loss => loss(options, &trained),
        Metric::Kernels => kernels(options, &trained, device),
    }
}

/// Scores the kernels that the model writes for held-out pairs.
fn kernels(options: &EvalOptions, trained: &TrainedModel, device: bornite::Device) -> Result<ExitCode, Failure> {
    let [folder] = &options.data[..] else {
        let what = "--data must name one folder, created by `bornite demo` or `bornite data make`";
        return Err(bornite_nn::Error::config(what).into());
    };
    let pairs = demo::pairs::held_out_pairs(folder, options.prompts as usize, &options.split)?;
    let effort = SamplingBudget { samples: options.samples as usize, rows: demo::batch_rows(device), seed: 0 };
    let layout = PromptLayout::of(&options.from, &trained.tokenizer)?;
    let scores = demo::score::score(trained, &layout, pairs, effort)?;
    if options.json {
        print_json(&scores.json())?;
    } else {
        print(&scores.formatted())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes the mean loss.
fn loss(options: &EvalOptions, trained: &TrainedModel) -> Result<ExitCode, Failure> {
    let mut config = trained.config.clone().unwrap_or_default();
    if !options.data.is_empty() {
        config.data.path = Some(options.data.clone());
    }
    if let Some(field) = &options.field {
        config.data.field = Some(field.clone());
    }
    let cache = config.data.cache.clone().unwrap_or_else(|| options.from.join("data"));
    let scratch = ScratchFolder::new("eval");
    // Tokens of other data are cached for this evaluation only.
    let cache = if options.data.is_empty() { cache } else { scratch.path().to_owned() };
    let mut progress = PreparationDisplay::default();
    let mut data =
        TokenDataset::open(&config.sources()?, &trained.tokenizer, &cache, &mut |report| progress.update(report))?;
    drop(progress);
    if options.data.is_empty() {
        let (all, validation) = data.split(config.data.validation_fraction.unwrap_or(0.0))?;
        if validation.is_empty() {
            note("the run has no validation split: evaluating on its training data");
        }
        data = if validation.is_empty() { all } else { validation };
    }
    let max_context = trained.gpt.config().context;
    let context = options.context.map_or(config.train.context.unwrap_or(max_context), |context| context as usize);
    if context > max_context {
        let what =
            format!("--context is {context}, but the model's context is {max_context} tokens; use a smaller value");
        return Err(bornite_nn::Error::config(what).into());
    }
    let (loss, batches) = trained.loss(&data, options.batch, context, options.batches.unwrap_or(u64::MAX))?;
    let perplexity = loss.exp();
    if options.json {
        print_json(&json!({
            "loss": loss, "perplexity": perplexity, "batches": batches, "context": context, "tokens": data.len(),
            "step": trained.step,
        }))?;
    } else {
        print(&format!(
            "loss {loss:.4}, perplexity {perplexity:.2}, over {batches} batches, after step {}\n",
            trained.step
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
