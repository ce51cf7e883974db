//! `bornite eval`: how good a model is on data.

use std::path::PathBuf;
use std::process::ExitCode;

use bornite_nn::data::Dataset;
use bornite_nn::train::Trained;
use clap::ValueEnum;
use serde_json::json;

use crate::demo::{self, layout::Layout, score::Effort};
use crate::preparation::Preparation;
use crate::{Failure, chosen_device, note, print, print_json};

/// What is measured.
#[derive(Clone, Copy, ValueEnum)]
pub enum Metric {
    /// The mean cross-entropy of the next token, in nats
    Loss,
    /// How many kernels that it has not seen it writes: understood, compiled, right
    Kernels,
}

/// Options of `bornite eval`.
#[derive(clap::Args)]
pub struct EvalOptions {
    /// The folder of a run, or of a Hugging Face model
    #[arg(value_name = "RUN")]
    from: PathBuf,
    /// What to measure
    #[arg(long, value_enum, default_value = "loss")]
    metric: Metric,
    /// Files or folders; the run's own validation part otherwise
    #[arg(long, value_name = "PATH", num_args = 1..)]
    data: Vec<PathBuf>,
    /// The JSONL field or Parquet column that holds documents
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
    /// Windows in a batch
    #[arg(long, value_name = "N", default_value_t = 8)]
    batch: usize,
    /// Tokens per sequence; those of training or the model's context otherwise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Most batches; all otherwise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Kernels that are asked for, by the metric kernels
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    prompts: u64,
    /// Answers to each of them, of which the best is kept
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    samples: u64,
    /// The split of a dataset that kernels are asked for from
    #[arg(long, value_name = "NAME", default_value = "test")]
    split: String,
    /// Another tokenizer than the folder's: bytes, gpt2 or the path of a tokenizer.json
    #[arg(long, value_name = "NAME")]
    tokenizer: Option<String>,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
}

pub fn run(options: &EvalOptions) -> Result<ExitCode, Failure> {
    let device = chosen_device(&options.device)?;
    let trained = Trained::open(&options.from, options.tokenizer.as_deref(), device)?;
    if let Some(text) = &trained.note {
        note(text);
    }
    match options.metric {
        Metric::Loss => loss(options, &trained),
        Metric::Kernels => kernels(options, &trained, device),
    }
}

/// What the model writes for held-out pairs.
fn kernels(options: &EvalOptions, trained: &Trained, device: bornite::Device) -> Result<ExitCode, Failure> {
    let [folder] = &options.data[..] else {
        let what = "name one folder as --data: one that `bornite demo` or `bornite data make` made";
        return Err(bornite_nn::Error::config(what).into());
    };
    let pairs = demo::pairs::unseen(folder, options.prompts as usize, &options.split)?;
    let effort = Effort { samples: options.samples as usize, rows: demo::rows(device), seed: 0 };
    let layout = Layout::of(&options.from, &trained.tokenizer)?;
    let scores = demo::score::score(trained, &layout, pairs, effort)?;
    if options.json {
        print_json(&scores.json())?;
    } else {
        print(&scores.shown())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The mean loss.
fn loss(options: &EvalOptions, trained: &Trained) -> Result<ExitCode, Failure> {
    let mut config = trained.config.clone().unwrap_or_default();
    if !options.data.is_empty() {
        config.data.path = Some(options.data.clone());
    }
    if let Some(field) = &options.field {
        config.data.field = Some(field.clone());
    }
    let cache = config.data.cache.clone().unwrap_or_else(|| options.from.join("data"));
    let own = Scratch::new();
    // Tokens of other data are kept no longer than this takes.
    let cache = if options.data.is_empty() { cache } else { own.0.clone() };
    let mut preparation = Preparation::default();
    let mut data =
        Dataset::open(&config.sources()?, &trained.tokenizer, &cache, &mut |report| preparation.update(report))?;
    drop(preparation);
    if options.data.is_empty() {
        let (all, validation) = data.split(config.data.validation.unwrap_or(0.0))?;
        if validation.is_empty() {
            note("the run has no validation part: this is the loss on what it was trained on");
        }
        data = if validation.is_empty() { all } else { validation };
    }
    let most = trained.gpt.config().context;
    let context = options.context.map_or(config.train.context.unwrap_or(most), |context| context as usize);
    if context > most {
        let what = format!("--context is {context}, but the model looks at {most} tokens; lower it");
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

/// A folder that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch(std::env::temp_dir().join(format!("bornite-eval-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
