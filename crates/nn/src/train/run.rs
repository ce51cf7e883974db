//! A run: settings become data, a tokenizer and a learner; then steps, evaluations and checkpoints until the end or a stop.
//!
//! Nothing here prints: an [`Observer`] hears of everything. What a step found is read one step late, so that the host is
//! ahead of the device; only evaluations, saves and samples wait for it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bornite::{Device, Tensor, runtime::interruptible};
use bornite_support::tune::{Record, Tuner};

use super::config::RunConfig;
use super::folder::{MOMENTS, SAMPLES, State, mean_loss, state_json};
use super::learner::{Learner, Outcome};
use super::metrics::{Line, Metrics};
use super::precision::Precision;
use super::prepare::prepare;
use crate::checkpoint::{Checkpoint, Store};
use crate::data::{Batches, Dataset, Progress};
use crate::error::located;
use crate::generate::{Generator, Request, Sampling, prompt_tokens};
use crate::optimiser::Rate;
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result, files};

/// What happens in a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// Something that whoever started it should know.
    Note(&'a str),
    /// Work on the data goes on.
    Data(Progress),
    /// The first step comes next.
    Begin(&'a Beginning),
    /// Numbers of a step, which may be told one step late.
    Step(&'a Line),
    /// A checkpoint is on the disk.
    Saved {
        /// After which step.
        step: u64,
        /// Where.
        path: &'a Path,
        /// Whether it has the least validation loss so far.
        best: bool,
    },
    /// A text that the model wrote.
    Sample {
        /// After which step.
        step: u64,
        /// The prompt and what follows.
        text: &'a str,
    },
}

/// What is known before the first step.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// Steps made already.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Tokens to train on.
    pub tokens: u64,
    /// Tokens to judge by.
    pub validation_tokens: u64,
    /// Tokens a step.
    pub tokens_a_step: u64,
    /// Arithmetic.
    pub precision: Precision,
    /// Floating-point operations a token.
    pub flops_a_token: f64,
    /// The most that the device can do of them a second, where it is known.
    pub peak_flops: Option<f64>,
    /// Bytes that training needs at least.
    pub needs_bytes: u64,
    /// Bytes that checkpointing saves of them, where it is on.
    pub saved_bytes: Option<u64>,
}

/// Who hears of a run and may stop it.
pub trait Observer {
    /// Something happened.
    fn tell(&mut self, event: Event<'_>);

    /// Whether the run is to end as soon as it can, with a checkpoint. Asked before every step and several times per second
    /// while data are prepared, gradients accumulated and losses evaluated.
    fn stop(&self) -> bool {
        false
    }

    /// A flag that interrupts the batch, evaluation or sample under way when it is set; [`stop`](Observer::stop) must be true
    /// from then on.
    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Reports how many steps no checkpoint holds yet: after every step and every save.
    fn unsaved(&mut self, _steps: u64) {}
}

/// How a run ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Finished {
    /// Steps made in all.
    pub step: u64,
    /// Whether it was stopped before its last step.
    pub stopped: bool,
    /// Steps that changed nothing since gradients were not finite, of all.
    pub skipped: u64,
    /// The last step's numbers, where one was made.
    pub last: Option<Line>,
    /// The run's folder.
    pub folder: PathBuf,
}

/// Trains as settings say, in a folder. With `resume` a run that is there goes on after its latest checkpoint as if it had
/// never stopped. A stop while the run is prepared is [`ErrorKind::Stopped`]: there is nothing to save.
#[track_caller]
pub fn run(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    observer: &mut dyn Observer,
) -> Result<Finished> {
    located(|| {
        // Choices come from the run's beginning or its checkpoint, not from what the disk holds when a kernel is first needed.
        let _sealed = Tuner::of_process().map_err(bornite::Error::from)?.seal();
        let mut run = prepare(config, folder, device, resume, observer)?;
        let stopped = run.steps(observer)?;
        let (step, skipped) = (run.learner.steps(), run.metrics.skipped());
        Ok(Finished { step, stopped, skipped, last: run.last, folder: folder.into() })
    })
}

/// A step whose numbers have not been read.
pub(super) struct Late {
    step: u64,
    rate: f64,
    outcome: Outcome,
    started: Instant,
    host_ms: f64,
}

/// A run between two steps; `prepare.rs` makes it.
pub(super) struct Run {
    pub folder: PathBuf,
    pub config: RunConfig,
    pub device: Device,
    pub learner: Learner,
    pub tokenizer: Tokenizer,
    pub batches: Batches,
    pub validation: Option<Dataset>,
    pub store: Store,
    pub metrics: Metrics,
    pub rates: Rate,
    /// Windows in a batch, tokens in a window.
    pub shape: [usize; 2],
    pub tokens_a_step: u64,
    pub late: Option<Late>,
    /// Whether the last step that was read moved parameters, until the factor of the loss knows.
    pub unapplied: Option<bool>,
    pub seconds: f64,
    pub saved_at: Option<u64>,
    pub last: Option<Line>,
    /// The last step's numbers, if a stop interrupted the evaluation or the sample after it.
    pub pending: Option<Line>,
    pub generator: Option<Generator>,
}

impl Run {
    /// Makes steps until the last one, or until the observer wants no more; says whether it was that.
    fn steps(&mut self, observer: &mut dyn Observer) -> Result<bool> {
        let steps = self.config.train.steps.unwrap_or(0);
        if let Some(line) = self.pending.take()
            && !self.after_step(Some(line), observer)?
        {
            return Ok(true);
        }
        while self.learner.steps() < steps {
            if observer.stop() || !self.step(steps, observer)? {
                self.read(Instant::now(), None, observer)?;
                self.save(None, observer)?;
                return Ok(true);
            }
            observer.unsaved(self.unsaved());
            if !self.after_step(None, observer)? {
                return Ok(true);
            }
        }
        if self.saved_at.is_none() {
            self.save(None, observer)?;
        }
        Ok(false)
    }

    /// Steps that no checkpoint holds.
    fn unsaved(&self) -> u64 {
        self.learner.steps().saturating_sub(self.saved_at.unwrap_or(0))
    }

    /// Evaluates, samples and saves after a step, as far as that is due. `line` has the numbers of the step if they were read
    /// before a stop that interrupted this. False if one does so now: then the run is saved, and a resumed one begins here.
    fn after_step(&mut self, line: Option<Line>, observer: &mut dyn Observer) -> Result<bool> {
        let (train, step) = (self.config.train.clone(), self.learner.steps());
        let every = |n: Option<u64>| n.is_some_and(|n| n > 0 && step.is_multiple_of(n));
        let save = train.steps == Some(step) || every(train.save_every);
        let evaluate = train.eval_every.is_some_and(|n| n > 0) && (save || every(train.eval_every));
        let sample = every(train.sample_every);
        if !(save || evaluate || sample) {
            return Ok(true);
        }
        // What follows is not training.
        self.device.synchronize()?;
        let ended = Instant::now();
        let found = match if evaluate { self.evaluate(observer) } else { Ok(None) } {
            Err(Error { kind: ErrorKind::Stopped, .. }) => return self.interrupted(line, ended, observer),
            found => found?,
        };
        match line {
            Some(line) => self.push(Line { validation_loss: found, ..line }, observer)?,
            None => self.read(ended, found, observer)?,
        }
        if sample && !self.sample(step, observer)? {
            return self.interrupted(self.last, ended, observer);
        }
        if save {
            // Also where the interrupted step was saved before it was evaluated.
            self.saved_at = self.saved_at.filter(|_| line.is_none());
            self.save(found, observer)?;
        }
        Ok(true)
    }

    /// Saves a run whose evaluation or sample was interrupted.
    fn interrupted(&mut self, line: Option<Line>, ended: Instant, observer: &mut dyn Observer) -> Result<bool> {
        self.read(ended, None, observer)?;
        // A resumed run begins without the line of a step that is still to be evaluated.
        if let Some(line) = line.filter(|line| self.last.is_none_or(|last| last.step < line.step)) {
            self.metrics.push(&line)?;
        }
        self.pending = line.or(self.last);
        self.save(None, observer)?;
        Ok(false)
    }

    /// Makes one step; false if a stop interrupted it, which leaves everything as it was before.
    fn step(&mut self, steps: u64, observer: &mut dyn Observer) -> Result<bool> {
        let (started, waited) = (Instant::now(), bornite_support::waited());
        let rate = self.rates.at(self.learner.steps(), steps);
        let (before, shape, device) = (self.batches.cursor(), self.shape, self.device);
        let (batches, interrupt) = (&mut self.batches, observer.interrupt());
        let mut next = |n: usize| -> Result<Option<(Tensor, Tensor)>> {
            if n > 0 && observer.stop() {
                return Ok(None);
            }
            let Some(batch) = batches.next().transpose()? else { return Ok(None) };
            let tensor = |tokens: &[i32]| Tensor::from_slice(tokens, &shape, device);
            Ok(Some((tensor(&batch.inputs), tensor(&batch.targets))))
        };
        let Some(outcome) = interruptible(interrupt, || self.learner.step_from(&mut next, rate))? else {
            self.batches.seek(before)?;
            return Ok(false);
        };
        let late = Late { step: self.learner.steps(), rate, outcome, started, host_ms: 0.0 };
        // While the device works on this step, the one before is looked at.
        if let Some(before) = self.late.replace(late) {
            self.settle(&before, started, None, observer)?;
        }
        // Always after the next step has begun, also where one had to be read before: then a stop changes nothing.
        if let Some(moved) = self.unapplied.take() {
            self.learner.rescale(moved);
        }
        let busy = started.elapsed().saturating_sub(bornite_support::waited() - waited);
        if let Some(late) = &mut self.late {
            late.host_ms = busy.as_secs_f64() * 1e3;
        }
        Ok(true)
    }

    /// Reads the last step's numbers now.
    fn read(&mut self, ended: Instant, found: Option<f64>, observer: &mut dyn Observer) -> Result<()> {
        match self.late.take() {
            Some(late) => self.settle(&late, ended, found, observer),
            None => Ok(()),
        }
    }

    /// Waits for a step. It lasted until the next one began, which on a GPU is about as long as it took there.
    fn settle(
        &mut self,
        late: &Late,
        ended: Instant,
        validation_loss: Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let measured = late.outcome.measure()?;
        self.unapplied = Some(measured.moved);
        let seconds = ended.saturating_duration_since(late.started).as_secs_f64().max(1e-9);
        self.seconds += seconds;
        let line = Line {
            step: late.step,
            loss: Some(measured.loss).filter(|loss| loss.is_finite()),
            rate: late.rate,
            norm: Some(measured.norm).filter(|norm| norm.is_finite()),
            tokens_per_second: self.tokens_a_step as f64 / seconds,
            seconds: self.seconds,
            host_ms: late.host_ms,
            memory: self.device.allocated_bytes().unwrap_or(0) as u64,
            skipped: !measured.moved,
            validation_loss,
        };
        self.push(line, observer)
    }

    fn push(&mut self, line: Line, observer: &mut dyn Observer) -> Result<()> {
        self.metrics.push(&line)?;
        self.last = Some(line);
        observer.tell(Event::Step(&line));
        Ok(())
    }

    fn evaluate(&self, observer: &dyn Observer) -> Result<Option<f64>> {
        let Some(data) = &self.validation else { return Ok(None) };
        let most = self.config.train.eval_batches.unwrap_or(1) as u64;
        let loss = |x: &Tensor, y: &Tensor| match observer.stop() {
            true => Err(Error::stopped()),
            false => interruptible(observer.interrupt(), || self.learner.evaluate(x, y)),
        };
        let (loss, _) = mean_loss(data, self.shape[0], self.shape[1], most, self.device, &loss)?;
        Ok(Some(loss).filter(|loss| loss.is_finite()))
    }

    fn save(&mut self, metric: Option<f64>, observer: &mut dyn Observer) -> Result<()> {
        let step = self.learner.steps();
        self.metrics.draw()?;
        if self.saved_at == Some(step) {
            return Ok(());
        }
        let known = Tuner::of_process().map_err(bornite::Error::from)?.known();
        let state = State {
            model: self.learner.gpt().config().clone(),
            config: self.config.clone(),
            tokenizer: self.tokenizer.fingerprint().into(),
            cursor: Some(self.batches.cursor()),
            scale: self.learner.scale(),
            unapplied: self.unapplied,
            seconds: self.seconds,
            pending: self.pending,
            samples: Some(fs::metadata(self.folder.join(SAMPLES)).map_or(0, |found| found.len())),
            // Which candidate it was is enough; how long each took is on the disk.
            tuning: known.into_iter().map(|record| Record { trials: vec![], ..record }).collect(),
        };
        let [weights, moments] = self.learner.tensors();
        let mut checkpoint = Checkpoint::new(step, weights, state_json(&state)?);
        checkpoint.groups.insert(MOMENTS.into(), moments);
        let saved = self.store.save(&checkpoint, metric)?;
        self.saved_at = Some(step);
        observer.unsaved(0);
        saved.notes.iter().for_each(|note| observer.tell(Event::Note(note)));
        observer.tell(Event::Saved { step, path: &saved.path, best: saved.best });
        Ok(())
    }

    /// Writes a text with the model; false if a stop interrupted it.
    fn sample(&mut self, step: u64, observer: &mut dyn Observer) -> Result<bool> {
        let train = &self.config.train;
        let prompt = train.prompt.clone().unwrap_or_default();
        let (tokens, max_tokens) = (prompt_tokens(&self.tokenizer, &prompt)?, train.sample_tokens.unwrap_or(64));
        let sampling = Sampling { seed: train.seed.unwrap_or(0).wrapping_add(step), ..Sampling::default() };
        let request = Request { sampling, max_tokens, stops: vec![] };
        let cached = self.generator.take();
        let write = || {
            let generator = match cached {
                Some(generator) => generator,
                None => {
                    let precision = train.precision.unwrap_or_default();
                    let length = tokens.len().saturating_add(max_tokens);
                    Generator::new(self.learner.gpt(), self.learner.weights(), precision, length)?
                }
            };
            let written = generator.write_after(&self.tokenizer, &tokens, &request, &mut |_| !observer.stop())?;
            Ok((generator, written))
        };
        let (generator, written) = match interruptible(observer.interrupt(), write) {
            Err(Error { kind: ErrorKind::Stopped, .. }) => return Ok(false),
            written => written?,
        };
        self.generator = Some(generator);
        if observer.stop() {
            return Ok(false);
        }
        let text = prompt + &written.text;
        let path = self.folder.join(SAMPLES);
        let said = write!(files::append(&path)?, "--- step {step}\n{text}\n");
        said.map_err(Error::io("write", &path))?;
        observer.tell(Event::Sample { step, text: &text });
        Ok(true)
    }
}
