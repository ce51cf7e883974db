//! `bornite train`: reads settings from a file and flags, runs the training, shows progress and
//! handles signals.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite_nn::train::{ImageRunInfo, Observer, RunConfig, RunSummary, StepMetrics, TrainEvent, format_bytes};
use bornite_support::progress::{ProgressDisplay, Unit};
use serde_json::json;

use crate::dashboard::Dashboard;
use crate::images;
use crate::preparation_display::PreparationDisplay;
use crate::ranks::{self, Trained};
use crate::signals::{STOPPED, Signals};
use crate::{Failure, note, print};

/// Printed if a run was stopped when there were no unsaved steps.
const NOTHING_UNSAVED: &str = "stopped; there was nothing to save; continue with --resume";

/// Options of `bornite train`.
#[derive(clap::Args)]
pub struct TrainOptions {
    /// Settings file (run.toml); docs/training.md lists the settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one setting, such as train.steps=100; overrides the file
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Training data: files or folders of text, JSONL, Parquet or .bin shards; for image models, a
    /// folder with a folder of images per class, or MNIST's IDX files
    #[arg(long, value_name = "PATH", num_args = 1..)]
    data: Vec<PathBuf>,
    /// Model size: tiny, small, medium, gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1558m, llama-tiny,
    /// llama-1b, …; or an image model: resnet18, resnet34, resnet50, vgg16, vit-tiny
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Tokenizer: bytes, gpt2, bpe:N or the path of a tokenizer.json
    #[arg(long, value_name = "NAME")]
    tokenizer: Option<String>,
    /// cpu[:N], cuda[:N], interpreter or auto
    #[arg(long, env = "BORNITE_DEVICE")]
    device: Option<String>,
    /// Train on several devices that share the batches of each step, such as cuda:0,cuda:1
    #[arg(long, value_name = "DEVICE", value_delimiter = ',', conflicts_with = "device")]
    pub devices: Vec<String>,
    /// Folder of the run
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Resume from the latest checkpoint of the folder
    #[arg(long)]
    pub resume: bool,
    /// Number of optimizer steps
    #[arg(long, value_name = "N")]
    steps: Option<String>,
    /// Number of passes over the training images (image models)
    #[arg(long, value_name = "N")]
    epochs: Option<String>,
    /// End training after N epochs without a lower validation loss (image models)
    #[arg(long, value_name = "N")]
    patience: Option<String>,
    /// Resize images to N × N pixels (image models)
    #[arg(long, value_name = "N")]
    image_size: Option<String>,
    /// Sequences or images per batch
    #[arg(long, value_name = "N")]
    batch: Option<String>,
    /// Tokens per sequence (context length)
    #[arg(long, value_name = "N")]
    context: Option<String>,
    /// Optimizer: adamw, adam, sgd, rmsprop, adagrad or muon
    #[arg(long, value_name = "NAME")]
    optimizer: Option<String>,
    /// Peak learning rate
    #[arg(long, value_name = "NUMBER")]
    lr: Option<String>,
    /// Learning rate of the last step (default: a tenth of the peak)
    #[arg(long, value_name = "NUMBER")]
    min_lr: Option<String>,
    /// Number of linear warmup steps
    #[arg(long, value_name = "N")]
    warmup: Option<String>,
    /// Weight decay, applied to matrices only
    #[arg(long, value_name = "NUMBER")]
    weight_decay: Option<String>,
    /// Maximum global gradient norm; 0 disables clipping
    #[arg(long, value_name = "NUMBER")]
    clip_norm: Option<String>,
    /// Precision: f32, tf32, bf16 or f16
    #[arg(long, value_name = "NAME")]
    precision: Option<String>,
    /// Seed of initialization, data order and dropout
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Do not measure which implementations are fastest before the first step
    #[arg(long)]
    no_tune: bool,
    /// Recompute blocks in the backward pass: less memory, more time
    #[arg(long, alias = "checkpointing")]
    activation_checkpointing: bool,
    /// Serve the report of the run to browsers of this machine while it trains [default port: any]
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0")]
    dashboard: Option<u16>,
    /// Write events to stdout, one JSON object per line
    #[arg(long)]
    pub json: bool,
}

impl TrainOptions {
    /// Merges the settings: flags override `--set`, which overrides the file, which overrides the
    /// saved settings of a resumed run.
    fn config(&self) -> Result<RunConfig, Failure> {
        let saved = self.out.join("run.toml");
        let mut config = match self.resume && saved.is_file() {
            true => RunConfig::read(&saved)?,
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
            ("train.epochs", &self.epochs),
            ("train.patience", &self.patience),
            ("data.image_size", &self.image_size),
            ("train.batch", &self.batch),
            ("train.context", &self.context),
            ("train.seed", &self.seed),
            ("train.precision", &self.precision),
            ("optimizer.name", &self.optimizer),
            ("optimizer.weight_decay", &self.weight_decay),
            ("optimizer.clip_norm", &self.clip_norm),
            ("schedule.lr", &self.lr),
            ("schedule.min_lr", &self.min_lr),
            ("schedule.warmup", &self.warmup),
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
        if self.no_tune {
            config.train.tune_seconds = Some(0.0);
        }
        if self.activation_checkpointing {
            config.train.activation_checkpointing = Some(true);
        }
        if let Some(device) = self.device.as_ref().filter(|device| !device.is_empty()) {
            config.set_text("train.device", device)?;
        }
        Ok(config)
    }
}

pub fn run(options: &TrainOptions) -> Result<ExitCode, Failure> {
    let signals = Signals::watch(NOTHING_UNSAVED.into())?;
    let config = options.config()?;
    let mut display = Display::new(options.json, signals.clone());
    if let Some(port) = options.dashboard {
        display.dashboard = Dashboard::Requested(port, options.out.clone());
    }
    if config.image_model().is_some() {
        return images::train(&config, options, display);
    }
    let trained = match &options.devices[..] {
        [] => ranks::train(&config, options, &mut display),
        devices => ranks::train_on(devices, &config, options, &signals, &mut display),
    };
    let Trained { summary, is_first } = match trained {
        Err(error) if ranks::is_stopped(&error) => {
            drop(display);
            note(NOTHING_UNSAVED);
            return Ok(ExitCode::from(STOPPED));
        }
        trained => trained?,
    };
    drop(display);
    if is_first {
        report(&summary, options.json)?;
    }
    Ok(if summary.stopped { ExitCode::from(STOPPED) } else { ExitCode::SUCCESS })
}

/// Reports the end of a run.
fn report(summary: &RunSummary, json: bool) -> Result<(), Failure> {
    let folder = summary.folder.display();
    let last = summary.last_metrics.map_or(String::new(), |metrics| format!(", {}", losses(&metrics)));
    let status = if summary.stopped { "stopped and saved" } else { "done" };
    if json {
        let event = json!({
            "event": "end", "step": summary.step, "stopped": summary.stopped, "skipped": summary.skipped,
            "folder": summary.folder,
        });
        print(&format!("{event}\n"))?;
    }
    note(&format!("{status} after step {}{last}: {folder}", summary.step));
    match summary.skipped {
        0 => {}
        1 => note("1 step was skipped: its gradients were not finite"),
        count => note(&format!("{count} steps were skipped: their gradients were not finite")),
    }
    if summary.stopped {
        note("continue with --resume");
    }
    Ok(())
}

/// The progress bar of steps, with facts about the run.
struct Training {
    steps: u64,
    /// Share of the peak throughput of the device per unit of speed, if known.
    peak_share: Option<f64>,
    progress: ProgressDisplay,
}

impl Training {
    fn new(step: u64, steps: u64, peak_share: Option<f64>) -> Training {
        let mut progress = ProgressDisplay::new(Unit::Steps);
        progress.update(step, steps, "");
        Training { steps, peak_share, progress }
    }
}

/// Shows the events of a run.
pub struct Display {
    json: bool,
    signals: Signals,
    data_progress: PreparationDisplay,
    /// Set once training has started.
    training: Option<Training>,
    /// Smoothed tokens or images per second.
    speed: Option<f64>,
    /// True once "stopping" was shown.
    stop_shown: bool,
    dashboard: Dashboard,
}

impl Display {
    /// Shows events on stderr or, as JSON, on stdout.
    pub fn new(json: bool, signals: Signals) -> Display {
        Display {
            json,
            signals,
            data_progress: PreparationDisplay::default(),
            training: None,
            speed: None,
            stop_shown: false,
            dashboard: Dashboard::Off,
        }
    }

    fn step(&mut self, metrics: &StepMetrics) {
        let Some(Training { steps, peak_share, progress }) = &mut self.training else { return };
        let (speed, unit) = match metrics.images_per_second {
            Some(speed) => (speed, "images/s"),
            None => (metrics.tokens_per_second.unwrap_or_default(), "tok/s"),
        };
        let speed = self.speed.map_or(speed, |smoothed| 0.9 * smoothed + 0.1 * speed);
        self.speed = Some(speed);
        let mut text = format!("{}  lr {:.2e}", losses(metrics), metrics.lr);
        text += &match metrics.grad_norm {
            Some(norm) => format!("  grad norm {norm:.3}"),
            None => "  grad norm not finite, step skipped".into(),
        };
        text += &format!("  {} {unit}", short(speed));
        if let Some(share) = peak_share {
            text += &format!("  {:.0}% of peak", 100.0 * speed * *share);
        }
        text += &format!("  {}", format_bytes(metrics.memory_bytes.into()));
        if self.signals.stop.load(Ordering::Relaxed) && !std::mem::replace(&mut self.stop_shown, true) {
            text += "  stopping";
        }
        let always = metrics.step == 1 || metrics.step == *steps || metrics.validation_loss.is_some();
        progress.update_line(metrics.step, *steps, &text, always);
    }

    fn json(&mut self, event: &TrainEvent<'_>) {
        let value = match event {
            TrainEvent::Note(text) => json!({"event": "note", "text": text}),
            TrainEvent::Data(p) => json!({"event": "data", "phase": p.phase, "done": p.done, "total": p.total}),
            TrainEvent::Begin(info) => json!({
                "event": "begin", "step": info.step, "steps": info.steps, "parameters": info.parameters,
                "tokens": info.tokens, "validation_tokens": info.validation_tokens,
                "tokens_per_step": info.tokens_per_step, "precision": info.precision,
                "required_bytes": info.required_bytes,
                "checkpointing_saved_bytes": info.checkpointing_saved_bytes,
            }),
            TrainEvent::BeginImages(info) => json!({
                "event": "begin", "steps": info.steps, "epochs": info.epochs, "parameters": info.parameters,
                "model": info.run.image_model, "classes": info.run.classes, "images": info.images,
                "validation_images": info.validation_images, "images_per_step": info.images_per_step,
                "precision": info.run.precision,
            }),
            TrainEvent::Epoch(report) => {
                let mut value = serde_json::to_value(report).unwrap_or_default();
                value["event"] = "epoch".into();
                value
            }
            TrainEvent::Step(metrics) => {
                let mut value = serde_json::to_value(metrics).unwrap_or_default();
                value["event"] = "step".into();
                value
            }
            TrainEvent::Saved { step, path, best } => {
                json!({"event": "saved", "step": step, "path": path, "best": best})
            }
            TrainEvent::Sample { step, text } => json!({"event": "sample", "step": step, "text": text}),
        };
        let _ = print(&format!("{value}\n"));
    }
}

impl Observer for Display {
    fn on_event(&mut self, event: TrainEvent<'_>) {
        self.dashboard.on_event(&event);
        if self.json {
            return self.json(&event);
        }
        match event {
            TrainEvent::Note(text) => note(text),
            TrainEvent::Data(progress) => self.data_progress.update(progress),
            TrainEvent::Begin(info) => {
                note(&format!(
                    "{} parameters in {}; {} training tokens, {} validation tokens; {} tokens per step; at least {} of memory",
                    short(info.parameters as f64),
                    json!(info.precision).as_str().unwrap_or_default(),
                    short(info.tokens as f64),
                    short(info.validation_tokens as f64),
                    short(info.tokens_per_step as f64),
                    format_bytes(info.required_bytes.into()),
                ));
                let peak_share = info.peak_flops.map(|peak| info.flops_per_token / peak);
                self.training = Some(Training::new(info.step, info.steps, peak_share));
            }
            TrainEvent::BeginImages(info) => {
                let ImageRunInfo { run, images, validation_images, .. } = info;
                note(&format!(
                    "{}, {} parameters in {}; {} classes; {images} training images of {size} × {size} pixels, \
                     {validation_images} validation images; {} images per step",
                    run.image_model.name.name(),
                    short(info.parameters as f64),
                    json!(run.precision).as_str().unwrap_or_default(),
                    run.classes.len(),
                    info.images_per_step,
                    size = run.image_model.image_size,
                ));
                self.training = Some(Training::new(0, info.steps, None));
            }
            TrainEvent::Epoch(report) => note(&report.to_string()),
            TrainEvent::Step(metrics) => self.step(metrics),
            TrainEvent::Saved { path, best, .. } => {
                note(&format!("saved {}{}", path.display(), if best { ", the best so far" } else { "" }));
            }
            TrainEvent::Sample { step, text } => note(&format!("--- sample after step {step}:\n{text}\n---")),
        }
    }

    fn should_stop(&self) -> bool {
        self.signals.stop.load(Ordering::Relaxed)
    }

    fn interrupt_flag(&self) -> Option<Arc<AtomicBool>> {
        Some(self.signals.stop.clone())
    }

    fn on_unsaved_steps(&mut self, steps: u64) {
        self.signals.unsaved.store(steps > 0, Ordering::Relaxed);
    }
}

fn losses(metrics: &StepMetrics) -> String {
    let loss = metrics.loss.map_or("not finite".into(), |loss| format!("{loss:.4}"));
    let validation = metrics.validation_loss.map_or(String::new(), |loss| format!(" (validation {loss:.4})"));
    format!("loss {loss}{validation}")
}

/// Formats a number with a decimal suffix.
fn short(number: f64) -> String {
    match number {
        n if n < 1e3 => format!("{n:.0}"),
        n if n < 1e6 => format!("{:.1}k", n / 1e3),
        n if n < 1e9 => format!("{:.1}M", n / 1e6),
        n => format!("{:.1}G", n / 1e9),
    }
}
