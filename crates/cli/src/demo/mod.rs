//! `bornite demo`: a race found without a GPU, verified kernels made, a GPT trained on them, and what it writes, judged.

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

use crate::{Failure, chosen_device, note, print, print_json};
use layout::Layout;
use learn::Plan;
use score::Effort;

/// Options of `bornite demo`.
#[derive(clap::Args)]
pub struct DemoOptions {
    /// One of cpu, cpu:N, cuda, cuda:N, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Pairs to train on; more on a GPU unless it is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=20_000_000))]
    pairs: Option<u64>,
    /// Bytes of the longest pair; the shorter, the easier
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(120..=300))]
    longest: Option<u64>,
    /// 1m, 2m, 8m, 30m or 85m parameters; 30m on a GPU unless it is said
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Steps of training; as many as the seconds allow unless it is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Seconds of training
    #[arg(long, value_name = "N", default_value_t = 170, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Held-out kernels that the model is asked for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    prompts: Option<u64>,
    /// Answers to each of them, of which the best is kept
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    samples: u64,
    /// What fixes kernels, parameters and choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where pairs and the run are kept; a folder for temporary files unless it is said
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
}

/// Answers that are written at once.
pub fn rows(device: Device) -> usize {
    if matches!(device, Device::Cuda(_)) { 512 } else { 64 }
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
    tell("1. A CUDA kernel with a mistake, checked without a GPU")?;
    let race = race::find()?;
    tell(&format!("{}found in {:.2} s\n", race.shown(), began.elapsed().as_secs_f64()))?;

    let device = chosen_device(&options.device)?;
    let gpu = matches!(device, Device::Cuda(_));
    let model = options.model.as_deref().unwrap_or(if gpu { "30m" } else { "1m" });
    learn::check(model)?;
    let wanted = options.pairs.unwrap_or(if gpu { 300_000 } else { 10_000 });
    let longest = options.longest.unwrap_or(if gpu { 300 } else { 190 }) as usize;
    let prompts = options.prompts.unwrap_or(if gpu { 512 } else { 64 }) as usize;
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("bornite-demo-{}", std::process::id())));
    let (data, folder) = (out.join("pairs"), out.join("run"));
    if folder.exists() {
        return Err(format!("{} holds a run already; choose another folder with --out", out.display()).into());
    }

    tell("2. Short kernels: Python source and CUDA body, each executed and compared with an independent evaluation")?;
    let made = pairs::make(&data, options.seed, wanted, longest)?;
    tell(&format!(
        "{} pairs to train on, {} held out by structure, in {:.1} s ({:.0} a second)\n",
        made.train,
        made.held_out,
        made.seconds,
        (made.train + made.held_out) as f64 / made.seconds,
    ))?;

    tell(&format!("3. A vocabulary and a GPT, trained on {device}"))?;
    let plan = Plan { model, steps: options.steps, seconds: options.seconds as f64, seed: options.seed };
    let (learned, trained) = learn::learn(&data, &folder, device, &plan)?;
    tell(&format!(
        "{:.1} M parameters, {} steps over {} pairs of at most {} tokens, loss {:.3} a token of the body, in {:.1} s\n",
        learned.parameters as f64 / 1e6,
        learned.steps,
        learned.pairs,
        learned.row,
        learned.loss,
        learned.seconds,
    ))?;

    tell("4. It writes CUDA for sources whose structure it never saw")?;
    let held = pairs::unseen(&data, prompts, "test")?;
    let effort = Effort { samples: options.samples as usize, rows: rows(device), seed: options.seed };
    let layout = Layout::of(&folder, &trained.tokenizer)?;
    let scores = score::score(&trained, &layout, held, effort)?;
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
        "{}\nAll in {seconds:.0} s. What to try next:\n  \
         bornite demo --seconds 600 --model 2m          train for longer, or a larger model; on a GPU --pairs 1000000\n  \
         bornite eval {folder} --metric kernels --data {data}\n  \
         bornite kernel run docs/kernels/racy_dot.cu …  check kernels of your own; docs/kernels.md shows how\n  \
         rm -r {out}\n",
        scores.shown()
    ))?;
    Ok(ExitCode::SUCCESS)
}
