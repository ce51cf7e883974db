//! `bornite train`: settings from a file and flags, a run, its progress, and signals.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite_nn::ErrorKind;
use bornite_nn::train::{RunInfo, Event, StepMetrics, Observer, RunConfig, run as train, size};
use bornite_support::progress::{DataProgress, Unit};
use serde_json::json;

use crate::preparation::Preparation;
use crate::signals::{STOPPED, Signals};
use crate::{Failure, chosen_device, note, print};

/// Printed if a run was stopped when every step was saved, or none was made.
const NOTHING_UNSAVED: &str = "stopped; there was nothing to save; go on with --resume";

/// Options of `bornite train`.
#[derive(clap::Args)]
pub struct Options {
    /// A file of settings; docs/training.md lists them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, such as train.steps=100; wins over the file
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Files or folders to train on: text, JSONL, Parquet, .bin shards
    #[arg(long, value_name = "PATH", num_args = 1..)]
    data: Vec<PathBuf>,
    /// One of tiny, small, medium, gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1558m, llama-tiny, …
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// bytes, gpt2, bpe:N or the path of a tokenizer.json
    #[arg(long, value_name = "NAME")]
    tokenizer: Option<String>,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE")]
    device: Option<String>,
    /// The run's folder
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Go on after the folder's latest checkpoint
    #[arg(long)]
    resume: bool,
    /// Steps of the optimiser
    #[arg(long, value_name = "N")]
    steps: Option<String>,
    /// Windows in a batch
    #[arg(long, value_name = "N")]
    batch: Option<String>,
    /// Tokens in a window
    #[arg(long, value_name = "N")]
    context: Option<String>,
    /// f32, tf32, bf16 or f16
    #[arg(long, value_name = "NAME")]
    precision: Option<String>,
    /// What fixes parameters, order and dropout
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Compute blocks again instead of keeping them: less memory, more time
    #[arg(long)]
    checkpointing: bool,
    /// Write events as lines of JSON to stdout
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Flags over `--set` over the file over what the run was begun with.
    fn config(&self) -> Result<RunConfig, Failure> {
        let begun = self.out.join("run.toml");
        let mut config = match self.resume && begun.is_file() {
            true => RunConfig::read(&begun)?,
            false => RunConfig::default(),
        };
        if let Some(path) = &self.config {
            config.merge(&RunConfig::read(path)?)?;
        }
        for text in &self.set {
            config.set(text)?;
        }
        let flags = [
            ("train.steps", &self.steps),
            ("train.batch", &self.batch),
            ("train.context", &self.context),
            ("train.seed", &self.seed),
            ("train.precision", &self.precision),
            ("model.name", &self.model),
            ("data.tokenizer", &self.tokenizer),
        ];
        for (name, value) in flags {
            if let Some(value) = value {
                config.set(&format!("{name}={value}"))?;
            }
        }
        if !self.data.is_empty() {
            config.data.path = Some(self.data.clone());
        }
        if self.checkpointing {
            config.train.checkpointing = Some(true);
        }
        if let Some(device) = self.device.as_ref().filter(|device| !device.is_empty()) {
            config.set_text("train.device", device)?;
        }
        Ok(config)
    }
}

pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let signals = Signals::watch(NOTHING_UNSAVED.into())?;
    let config = options.config()?;
    let device = chosen_device(config.train.device.as_deref().unwrap_or("auto"))?;
    let mut screen = Screen::new(options.json, signals);
    let finished = match train(&config, &options.out, device, options.resume, &mut screen) {
        Err(error) if matches!(error.kind(), ErrorKind::Stopped) => {
            drop(screen);
            note(NOTHING_UNSAVED);
            return Ok(ExitCode::from(STOPPED));
        }
        finished => finished?,
    };
    drop(screen);
    let folder = finished.folder.display();
    let last = finished.last.map_or(String::new(), |line| format!(", {}", losses(&line)));
    let words = if finished.stopped { "stopped and saved" } else { "done" };
    if options.json {
        let event = json!({
            "event": "end", "step": finished.step, "stopped": finished.stopped, "skipped": finished.skipped,
            "folder": finished.folder,
        });
        print(&format!("{event}\n"))?;
    }
    note(&format!("{words} after step {}{last}: {folder}", finished.step));
    if finished.skipped > 0 {
        note(&format!("{} of these steps were left out: gradients were not finite", finished.skipped));
    }
    if finished.stopped {
        note("go on with --resume");
        return Ok(ExitCode::from(STOPPED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Display of a run's events.
struct Screen {
    json: bool,
    signals: Signals,
    preparation: Preparation,
    /// The run's settings and the display of its steps.
    begun: Option<(RunInfo, DataProgress)>,
    /// Tokens per second, smoothed.
    speed: Option<f64>,
    announced: bool,
}

impl Screen {
    fn new(json: bool, signals: Signals) -> Screen {
        Screen { json, signals, preparation: Preparation::default(), begun: None, speed: None, announced: false }
    }

    fn step(&mut self, line: &StepMetrics) {
        let Some((begun, progress)) = &mut self.begun else { return };
        let speed = self.speed.map_or(line.tokens_per_second, |speed| 0.9 * speed + 0.1 * line.tokens_per_second);
        self.speed = Some(speed);
        let mut text = format!("{}  rate {:.2e}", losses(line), line.rate);
        text += &match line.norm {
            Some(norm) => format!("  norm {norm:.3}"),
            None => "  norm none, step left out".into(),
        };
        text += &format!("  {} tok/s", short(speed));
        if let Some(peak) = begun.peak_flops {
            text += &format!("  {:.0}% of peak", 100.0 * speed * begun.flops_per_token / peak);
        }
        text += &format!("  {}", size(line.memory.into()));
        if self.signals.stop.load(Ordering::Relaxed) && !std::mem::replace(&mut self.announced, true) {
            text += "  stopping";
        }
        let always = line.step == 1 || line.step == begun.steps || line.validation_loss.is_some();
        progress.update_line(line.step, begun.steps, &text, always);
    }

    fn json(&mut self, event: &Event<'_>) {
        let value = match event {
            Event::Note(text) => json!({"event": "note", "text": text}),
            Event::Data(p) => json!({"event": "data", "doing": p.doing, "done": p.done, "total": p.total}),
            Event::Begin(b) => json!({
                "event": "begin", "step": b.step, "steps": b.steps, "parameters": b.parameters, "tokens": b.tokens,
                "validation_tokens": b.validation_tokens, "tokens_a_step": b.tokens_per_step, "precision": b.precision,
                "needs_bytes": b.needs_bytes, "saved_bytes": b.saved_bytes,
            }),
            Event::Step(line) => {
                let mut value = serde_json::to_value(line).unwrap_or_default();
                value["event"] = "step".into();
                value
            }
            Event::Saved { step, path, best } => json!({"event": "saved", "step": step, "path": path, "best": best}),
            Event::Sample { step, text } => json!({"event": "sample", "step": step, "text": text}),
        };
        let _ = print(&format!("{value}\n"));
    }
}

impl Observer for Screen {
    fn tell(&mut self, event: Event<'_>) {
        if self.json {
            return self.json(&event);
        }
        match event {
            Event::Note(text) => note(text),
            Event::Data(report) => self.preparation.update(report),
            Event::Begin(b) => {
                note(&format!(
                    "{} parameters in {}, {} tokens to train on and {} to judge by, {} a step, at least {} of memory",
                    short(b.parameters as f64),
                    json!(b.precision).as_str().unwrap_or_default(),
                    short(b.tokens as f64),
                    short(b.validation_tokens as f64),
                    short(b.tokens_per_step as f64),
                    size(b.needs_bytes.into()),
                ));
                let mut progress = DataProgress::new(Unit::Steps);
                progress.update(b.step, b.steps, "");
                self.begun = Some((b.clone(), progress));
            }
            Event::Step(line) => self.step(line),
            Event::Saved { path, best, .. } => {
                note(&format!("saved {}{}", path.display(), if best { ", the best so far" } else { "" }));
            }
            Event::Sample { step, text } => note(&format!("--- step {step} writes:\n{text}\n---")),
        }
    }

    fn stop(&self) -> bool {
        self.signals.stop.load(Ordering::Relaxed)
    }

    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        Some(self.signals.stop.clone())
    }

    fn unsaved(&mut self, steps: u64) {
        self.signals.unsaved.store(steps > 0, Ordering::Relaxed);
    }
}

fn losses(line: &StepMetrics) -> String {
    let loss = line.loss.map_or("none".into(), |loss| format!("{loss:.4}"));
    let validation = line.validation_loss.map_or(String::new(), |loss| format!(" (validation {loss:.4})"));
    format!("loss {loss}{validation}")
}

/// A number in three digits.
fn short(number: f64) -> String {
    match number {
        n if n < 1e3 => format!("{n:.0}"),
        n if n < 1e6 => format!("{:.1}k", n / 1e3),
        n if n < 1e9 => format!("{:.1}M", n / 1e6),
        n => format!("{:.1}G", n / 1e9),
    }
}
