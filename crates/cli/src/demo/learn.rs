//! A vocabulary and a small GPT, learned from pairs in a given time.

use std::cell::Cell;
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

use bornite::Device;
use bornite_nn::tokenizer::{Split, Tokenizer, Trainer};
use bornite_nn::train::{Event, Observer, RunConfig, run};
use serde_json::{Value as Json, json};

use super::pairs::TRAIN;
use super::progress::Progress;
use crate::{Failure, note};

/// Sizes of models by name: layers, heads, width, windows in a batch, the highest rate.
const MODELS: [(&str, [usize; 3], usize, f64); 5] = [
    ("1m", [4, 4, 128], 6, 4e-3),
    ("2m", [4, 4, 192], 8, 3e-3),
    ("8m", [6, 8, 320], 64, 1.5e-3),
    ("30m", [10, 8, 512], 128, 1e-3),
    ("85m", [12, 12, 768], 128, 6e-4),
];

/// Tokens of the vocabulary, and in a window.
const VOCABULARY: usize = 512;
const CONTEXT: usize = 256;
/// Texts that the vocabulary is learned from, at most.
const MOST_TEXTS: usize = 20_000;
/// Steps that say how long one takes, and how many of them are not counted: kernels are compiled in them.
const TRIAL: (u64, u64) = (10, 4);

/// What is to be trained, and for how long.
pub struct Plan<'a> {
    pub model: &'a str,
    pub steps: Option<u64>,
    pub seconds: f64,
    pub seed: u64,
}

/// What was trained.
pub struct Learned {
    pub parameters: u64,
    pub steps: u64,
    pub loss: Option<f64>,
    pub validation_loss: Option<f64>,
    pub tokens: u64,
    pub tokens_per_second: f64,
    pub vocabulary: usize,
    pub seconds: f64,
}

impl Learned {
    pub fn json(&self, model: &str) -> Json {
        json!({
            "model": model, "parameters": self.parameters, "steps": self.steps, "loss": self.loss,
            "validation_loss": self.validation_loss, "tokens": self.tokens,
            "tokens_per_second": self.tokens_per_second, "vocabulary": self.vocabulary, "seconds": self.seconds,
        })
    }
}

/// Refuses a model that there is none of.
pub fn check(model: &str) -> Result<(), Failure> {
    if MODELS.iter().any(|(name, ..)| *name == model) {
        return Ok(());
    }
    let names: Vec<&str> = MODELS.iter().map(|(name, ..)| *name).collect();
    Err(bornite_nn::Error::Config(format!("there is no model '{model}'; there are {}", names.join(", "))).into())
}

/// Trains on the pairs of a folder; the run is in `out`.
pub fn learn(pairs: &Path, out: &Path, device: Device, plan: &Plan<'_>) -> Result<Learned, Failure> {
    let began = Instant::now();
    let tokenizer = vocabulary(&pairs.join(TRAIN))?;
    let path = pairs.join("tokenizer.json");
    std::fs::write(&path, tokenizer.to_json()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    let mut config = config(pairs, plan)?;
    config.set_text("data.tokenizer", &path.to_string_lossy())?;
    config.data.cache = Some(pairs.join("tokens"));
    let steps = match plan.steps {
        Some(steps) => steps,
        None => {
            let trial = pairs.join("trial");
            let step = seconds_a_step(&config, &trial, device)?;
            let _ = std::fs::remove_dir_all(&trial);
            ((plan.seconds - began.elapsed().as_secs_f64()).max(1.0) / step).max(20.0) as u64
        }
    };
    config.train.steps = Some(steps);
    config.rate.warmup = Some((steps / 20).min(200));
    config.train.eval_every = Some((steps / 2).max(1));
    // A machine that became busy: the run ends all the same.
    let most = plan.steps.is_none().then_some(1.3 * plan.seconds);
    let mut watch = Watch { progress: Progress::new(), most, ..Watch::new() };
    let finished = run(&config, out, device, false, &mut watch)?;
    watch.progress.end();
    if finished.stopped {
        note(&format!("  stopped after {} of {steps} steps: they took longer than the first ones", finished.step));
    }
    Ok(Learned {
        parameters: watch.parameters,
        steps: finished.step,
        loss: finished.last.and_then(|line| line.loss),
        validation_loss: watch.validation,
        tokens: finished.step * watch.tokens_a_step,
        tokens_per_second: watch.speed,
        vocabulary: tokenizer.vocabulary(),
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn vocabulary(path: &Path) -> Result<Tokenizer, Failure> {
    let file = std::fs::File::open(path).map_err(|e| format!("cannot open {}: {e}", path.display()))?;
    // A bracket and the name in it are one word, and so are a semicolon and the line's end: a fifth fewer tokens in code.
    let mut trainer = Trainer::new(Split::Llama3 { digits: 3 });
    for line in std::io::BufReader::new(file).lines().take(MOST_TEXTS) {
        let row: Json = serde_json::from_str(&line?)?;
        trainer.add(row["text"].as_str().unwrap_or_default());
    }
    Ok(trainer.finish(VOCABULARY, &mut |_, _| {})?)
}

fn config(pairs: &Path, plan: &Plan<'_>) -> Result<RunConfig, Failure> {
    check(plan.model)?;
    let Some((_, [layers, heads, width], batch, rate)) = MODELS.iter().find(|(name, ..)| *name == plan.model) else {
        return Err("there is no such model".into());
    };
    let mut config = RunConfig::default();
    let seed = plan.seed;
    for setting in [
        "model.name=llama-small".to_owned(),
        format!("model.layers={layers}"),
        format!("model.heads={heads}"),
        format!("model.kv_heads={heads}"),
        format!("model.width={width}"),
        format!("model.hidden={}", (8 * width / 3).next_multiple_of(32)),
        format!("model.context={CONTEXT}"),
        "model.tied=true".to_owned(),
        format!("train.context={CONTEXT}"),
        format!("train.batch={batch}"),
        format!("train.seed={seed}"),
        "train.keep=1".to_owned(),
        "train.save_every=0".to_owned(),
        "train.eval_batches=4".to_owned(),
        "data.validation=0.01".to_owned(),
        format!("rate.highest={rate}"),
        "rate.lowest=0.02".to_owned(),
    ] {
        config.set(&setting)?;
    }
    config.data.path = Some(vec![pairs.join(TRAIN)]);
    Ok(config)
}

/// A short run in a folder of its own.
fn seconds_a_step(config: &RunConfig, folder: &Path, device: Device) -> Result<f64, Failure> {
    let mut config = config.clone();
    config.train.steps = Some(TRIAL.0);
    config.train.eval_every = Some(0);
    config.rate.warmup = Some(1);
    let mut watch = Watch { quiet: true, ..Watch::new() };
    run(&config, folder, device, false, &mut watch)?;
    let mut times = watch.times;
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).copied().unwrap_or(1.0))
}

/// Hears of a run, shows it, and ends it when its time is over.
struct Watch {
    progress: Progress,
    quiet: bool,
    most: Option<f64>,
    begun: Cell<Option<Instant>>,
    steps: u64,
    parameters: u64,
    tokens_a_step: u64,
    speed: f64,
    validation: Option<f64>,
    /// Seconds of the steps that count.
    times: Vec<f64>,
}

impl Watch {
    fn new() -> Watch {
        Watch {
            progress: Progress::new(),
            quiet: false,
            most: None,
            begun: Cell::new(None),
            steps: 0,
            parameters: 0,
            tokens_a_step: 0,
            speed: 0.0,
            validation: None,
            times: vec![],
        }
    }
}

impl Observer for Watch {
    fn tell(&mut self, event: Event<'_>) {
        match event {
            Event::Begin(begun) => {
                (self.steps, self.parameters, self.tokens_a_step) =
                    (begun.steps, begun.parameters, begun.tokens_a_step);
                self.begun.set(Some(Instant::now()));
                self.progress = Progress::new();
            }
            Event::Step(line) => {
                let count = line.step as f64;
                self.speed += (line.tokens_per_second - self.speed) / count.min(20.0);
                if line.step > TRIAL.1 {
                    self.times.push(self.tokens_a_step as f64 / line.tokens_per_second);
                }
                self.validation = line.validation_loss.or(self.validation);
                let (steps, speed) = (self.steps, self.speed);
                if !self.quiet {
                    self.progress.tell(count / steps as f64, || {
                        let loss = line.loss.unwrap_or(f64::NAN);
                        format!("step {} of {steps}, loss {loss:.3}, {speed:.0} tokens a second", line.step)
                    });
                }
            }
            _ => {}
        }
    }

    fn stop(&self) -> bool {
        match (self.begun.get(), self.most) {
            (Some(begun), Some(most)) => begun.elapsed().as_secs_f64() > most,
            _ => false,
        }
    }
}
