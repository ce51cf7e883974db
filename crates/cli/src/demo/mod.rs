//! `bornite demo`: finds a race without a GPU, generates verified kernels, trains a GPT on them and
//! checks its output.

pub mod layout;
mod learn;
pub mod pairs;
mod race;
pub mod score;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use bornite::Device;
use serde_json::json;

use crate::{Failure, note, parse_device, print, print_json};
use layout::PromptLayout;
use learn::TrainingBudget;
use score::SamplingBudget;

/// Options of `bornite demo`.
#[derive(clap::Args)]
pub struct DemoOptions {
    /// One of cpu, cpu:N, cuda, cuda:N, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Number of training pairs [default: 10000 on a CPU, 300000 on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=20_000_000))]
    pairs: Option<u64>,
    /// Maximum length of a pair in bytes; shorter pairs are easier [default: 190 on a CPU, 300 on a
    /// GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(120..=300))]
    longest: Option<u64>,
    /// Model size: 1m, 2m, 8m, 30m or 85m parameters [default: 1m on a CPU, 30m on a GPU]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Training steps [default: as many as --seconds allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Training time in seconds
    #[arg(long, value_name = "N", default_value_t = 170, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Number of held-out kernels to generate [default: 64 on a CPU, 512 on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    prompts: Option<u64>,
    /// Answers per kernel; the best counts
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    samples: u64,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder for the pairs and the run [default: a temporary folder]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
}

/// Answers generated per batch.
pub fn batch_rows(device: Device) -> usize {
    if device.is_cuda() { 512 } else { 64 }
}

pub fn run(options: &DemoOptions) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let tell = |text: &str| {
        if !options.json {
            return print(&format!("{text}\n"));
        }
        note(text);
        Ok(())
    };
    tell("1. Check a CUDA kernel with a bug, without a GPU")?;
    let race = race::find()?;
    tell(&format!("{}found in {:.2} s\n", race.formatted(), began.elapsed().as_secs_f64()))?;

    let device = parse_device(&options.device)?;
    let gpu = device.is_cuda();
    let model = options.model.as_deref().unwrap_or(if gpu { "30m" } else { "1m" });
    learn::check(model)?;
    let pair_count = options.pairs.unwrap_or(if gpu { 300_000 } else { 10_000 });
    let max_bytes = options.longest.unwrap_or(if gpu { 300 } else { 190 }) as usize;
    let prompts = options.prompts.unwrap_or(if gpu { 512 } else { 64 }) as usize;
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("bornite-demo-{}", std::process::id())));
    let (data, folder) = (out.join("pairs"), out.join("run"));
    if folder.exists() {
        return Err(format!("{} already contains a run; choose another folder with --out", out.display()).into());
    }

    tell(
        "2. Generate short kernels: Python source and CUDA body, each executed and compared with an independent evaluator",
    )?;
    let made = pairs::make(&data, options.seed, pair_count, max_bytes)?;
    tell(&format!(
        "{} training pairs, {} held out by structure, in {:.1} s ({:.0} pairs/s)\n",
        made.train,
        made.held_out,
        made.seconds,
        (made.train + made.held_out) as f64 / made.seconds,
    ))?;

    tell(&format!("3. Train a vocabulary and a GPT on {device}"))?;
    let plan = TrainingBudget { model, steps: options.steps, seconds: options.seconds as f64, seed: options.seed };
    let (learned, trained) = learn::train(&data, &folder, device, &plan)?;
    tell(&format!(
        "{:.1} M parameters, {} steps over {} pairs of at most {} tokens, loss {:.3} per token of the body, in {:.1} s\n",
        learned.parameters as f64 / 1e6,
        learned.steps,
        learned.pairs,
        learned.row,
        learned.loss,
        learned.seconds,
    ))?;

    tell("4. Generate CUDA for sources whose structure was not in the training data")?;
    let held_out = pairs::held_out_pairs(&data, prompts, "test")?;
    let effort = SamplingBudget { samples: options.samples as usize, rows: batch_rows(device), seed: options.seed };
    let layout = PromptLayout::of(&folder, &trained.tokenizer)?;
    let scores = score::score(&trained, &layout, held_out, effort)?;
    let seconds = began.elapsed().as_secs_f64();
    if options.json {
        print_json(&json!({
            "device": device.to_string(), "folder": out, "seconds": seconds, "race": race.json(), "pairs": made.json(),
            "training": learned.json(model), "kernels": scores.json(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (out, data, folder) = (out.display(), data.display(), folder.display());
    print(&format!(
        "{}\nTotal time {seconds:.0} s. Next steps:\n  \
         bornite demo --seconds 600 --model 2m          train longer or a larger model; on a GPU --pairs 1000000\n  \
         bornite eval {folder} --metric kernels --data {data}\n  \
         bornite kernel run docs/kernels/racy_dot.cu …  check your own kernels; see docs/kernels.md\n  \
         rm -r {out}\n",
        scores.formatted()
    ))?;
    Ok(ExitCode::SUCCESS)
}
