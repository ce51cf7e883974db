//! The training loop: steps, evaluations, samples and checkpoints until the last step or a stop.
//!
//! Nothing here prints: an [`Observer`] receives all events. The results of a step are read one
//! step later, so that the host stays ahead of the device; only evaluations, checkpoints and
//! samples wait for it. `prepare.rs` builds the [`Run`].

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bornite::{Device, Tensor, runtime::interruptible};
use bornite_support::tune::{Tuner, TuningRecord};

use super::builder::AnyOptimizer;
use super::compiled_step::TrainStep;
use super::config::RunConfig;
use super::data_parallel::DataParallel;
use super::folder::{MOMENTS, SAMPLES, State, mean_loss, state_json};
use super::gpu_time::{GpuSpan, GpuTimer};
use super::metrics::{Metrics, StepMetrics};
use super::observer::{Observer, RunSummary, TrainEvent};
use super::pending::PendingStep;
use super::prepare::prepare;
use super::rank_observer::RankObserver;
use super::tuning::Tuning;
use crate::checkpoint::{Checkpoint, CheckpointStore};
use crate::data::{Batches, TokenDataset};
use crate::error::located;
use crate::generate::{GenerationOptions, Sampling, TextGenerator, prompt_tokens};
use crate::inputs::LossInputs;
use crate::model::Gpt;
use crate::optimizer::LrSchedule;
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result, files};

/// Trains a model in a run's folder. With `resume`, an existing run continues after its latest
/// checkpoint as if it had never stopped. A stop during preparation returns [`ErrorKind::Stopped`]:
/// there is nothing to save.
#[track_caller]
pub fn run(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    observer: &mut dyn Observer,
) -> Result<RunSummary> {
    located(|| run_on(config, folder, device, resume, None, observer))
}

/// As [`run`], on one of several ranks, each of which calls this with the same settings. The ranks
/// share the batches of each step; rank 0 writes all files, and its observer receives the events.
/// The run stops if one of the observers requests it. After an error, all ranks fail. A single
/// rank runs as [`run`] does.
#[track_caller]
pub fn run_data_parallel(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    ranks: &DataParallel,
    observer: &mut dyn Observer,
) -> Result<RunSummary> {
    located(|| {
        let shared = Some(ranks).filter(|ranks| ranks.size() > 1);
        let result = run_on(config, folder, device, resume, shared, observer);
        if let Err(error) = &result {
            ranks.abort(error);
        }
        result
    })
}

fn run_on(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    ranks: Option<&DataParallel>,
    observer: &mut dyn Observer,
) -> Result<RunSummary> {
    // Tuned choices come from the start of the run or its checkpoint, not from the tuning cache
    // as it is when a kernel is first needed.
    let _sealed = Tuner::global().map_err(bornite::Error::from)?.ignore_disk();
    let mut observer = RankObserver::new(observer, ranks);
    let mut run = prepare(config, folder, device, resume, ranks, &mut observer)?;
    observer.begin_steps();
    let stopped = run.run_steps(&mut observer)?;
    let (step, skipped) = (run.optimizer.steps(), run.skipped);
    Ok(RunSummary { step, stopped, skipped, last_metrics: run.last_metrics, folder: folder.into() })
}

/// A step whose results have not been read yet.
pub(super) struct UnreadStep {
    step: u64,
    lr: f64,
    pending: PendingStep,
    started: Instant,
    host_ms: f64,
    data_wait_ms: f64,
    gpu_span: GpuSpan,
}

/// A run between two steps.
pub(super) struct Run {
    pub folder: PathBuf,
    pub config: RunConfig,
    pub device: Device,
    pub gpt: Gpt,
    pub optimizer: AnyOptimizer,
    pub train_step: TrainStep<'static>,
    pub tokenizer: Tokenizer,
    pub batches: Batches,
    pub validation: Option<TokenDataset>,
    /// Files of the run; `None` on other ranks than 0.
    pub files: Option<RunFiles>,
    /// Ranks that share the batches of a step.
    pub ranks: Option<DataParallel>,
    /// Number of skipped steps.
    pub skipped: u64,
    pub schedule: LrSchedule,
    /// Sequences per batch of this rank, tokens per sequence.
    pub shape: [usize; 2],
    pub tokens_per_step: u64,
    pub unread: Option<UnreadStep>,
    pub gpu_timer: GpuTimer,
    /// True if the gradients of the last step that was read were finite; set until the loss scale
    /// is updated for it.
    pub pending_scale_update: Option<bool>,
    pub elapsed_seconds: f64,
    /// Step of the last checkpoint.
    pub saved_step: Option<u64>,
    pub last_metrics: Option<StepMetrics>,
    /// Metrics of the last step, if a stop interrupted the evaluation or the sample after it.
    pub pending_metrics: Option<StepMetrics>,
    pub generator: Option<TextGenerator>,
}

/// Files that a run writes.
pub(super) struct RunFiles {
    pub store: CheckpointStore,
    pub metrics: Metrics,
}

impl Run {
    /// Runs steps until the last one or until the observer stops the run; returns true if it was
    /// stopped.
    fn run_steps(&mut self, observer: &mut RankObserver<'_>) -> Result<bool> {
        let steps = self.config.train.steps.unwrap_or(0);
        if let Some(metrics) = self.pending_metrics.take()
            && !self.after_step(Some(metrics), observer)?
        {
            return Ok(true);
        }
        while self.optimizer.steps() < steps {
            if observer.any_rank_stops()? || !self.step(steps, observer)? {
                self.finish_unread(Instant::now(), None, observer)?;
                self.save(None, observer)?;
                return Ok(true);
            }
            observer.on_unsaved_steps(self.unsaved_steps());
            if !self.after_step(None, observer)? {
                return Ok(true);
            }
        }
        if self.saved_step.is_none() {
            self.save(None, observer)?;
        }
        Ok(false)
    }

    /// Number of steps since the last checkpoint.
    fn unsaved_steps(&self) -> u64 {
        self.optimizer.steps().saturating_sub(self.saved_step.unwrap_or(0))
    }

    /// Evaluates, samples and saves after a step, if due. `metrics` are those of the step if a stop
    /// interrupted this after they were read. Returns false if a stop interrupts it now: then the
    /// run is saved, and a resumed run repeats it.
    fn after_step(&mut self, metrics: Option<StepMetrics>, observer: &mut dyn Observer) -> Result<bool> {
        let (train, step) = (self.config.train.clone(), self.optimizer.steps());
        let every = |n: Option<u64>| n.is_some_and(|n| n > 0 && step.is_multiple_of(n));
        let save = train.steps == Some(step) || every(train.save_every);
        let evaluate = train.eval_every.is_some_and(|n| n > 0) && (save || every(train.eval_every));
        let sample = every(train.sample_every);
        if !(save || evaluate || sample) {
            return Ok(true);
        }
        // What follows does not count as training time.
        self.device.synchronize()?;
        let ended = Instant::now();
        let validation_loss = match if evaluate { self.evaluate(observer) } else { Ok(None) } {
            Err(Error { kind: ErrorKind::Stopped, .. }) => return self.save_interrupted(metrics, ended, observer),
            loss => loss?,
        };
        match metrics {
            Some(metrics) => self.report(StepMetrics { validation_loss, ..metrics }, observer)?,
            None => self.finish_unread(ended, validation_loss, observer)?,
        }
        if sample && !self.sample(step, observer)? {
            return self.save_interrupted(self.last_metrics, ended, observer);
        }
        if save {
            // An interrupted step was saved before it was evaluated; it is saved again.
            self.saved_step = self.saved_step.filter(|_| metrics.is_none());
            self.save(validation_loss, observer)?;
        }
        Ok(true)
    }

    /// Saves a run whose evaluation or sample was interrupted.
    fn save_interrupted(
        &mut self,
        metrics: Option<StepMetrics>,
        ended: Instant,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        self.finish_unread(ended, None, observer)?;
        // A resumed run removes the line of the step that must be evaluated again.
        if let Some(metrics) = metrics.filter(|metrics| self.last_metrics.is_none_or(|last| last.step < metrics.step)) {
            self.push(&metrics)?;
        }
        self.pending_metrics = metrics.or(self.last_metrics);
        self.save(None, observer)?;
        Ok(false)
    }

    /// Runs one step. Returns false if a stop interrupted it; then nothing has changed.
    pub(super) fn step(&mut self, steps: u64, observer: &mut dyn Observer) -> Result<bool> {
        let (started, waited) = (Instant::now(), bornite_support::device_wait_time());
        let lr = self.schedule.lr_at(self.optimizer.steps(), steps);
        let (before, shape, device) = (self.batches.cursor(), self.shape, self.device);
        let (batches, interrupt) = (&mut self.batches, observer.interrupt_flag());
        let (mut data_wait, mut gpu_span) = (Duration::ZERO, GpuSpan::default());
        let mut next = |n: usize| -> Result<Option<Vec<Tensor>>> {
            if n > 0 && observer.should_stop() {
                return Ok(None);
            }
            let requested = Instant::now();
            let batch = batches.next().transpose()?;
            data_wait += requested.elapsed();
            let Some(batch) = batch else { return Ok(None) };
            if n == 0 {
                gpu_span = GpuSpan::start(device);
            }
            let tensor = |tokens: &[i32]| Tensor::from_slice(tokens, &shape, device);
            Ok(Some(LossInputs { tokens: tensor(&batch.inputs), targets: tensor(&batch.targets) }.into_list()))
        };
        // Choices that differ between ranks would give other bits after a resume.
        let limit_seconds = self.config.train.tune_seconds.filter(|_| self.ranks.is_none());
        let tuning = Tuning::after(self.optimizer.steps(), device, limit_seconds)?;
        self.optimizer.set_lr(lr);
        let launch = || interruptible(interrupt, || self.train_step.step_from(&mut next));
        let (launched, note) = tuning.run(launch);
        let Some(pending) = launched? else {
            self.batches.seek(before)?;
            return Ok(false);
        };
        gpu_span.stop();
        note.iter().for_each(|note| observer.on_event(TrainEvent::Note(note)));
        let data_wait_ms = data_wait.as_secs_f64() * 1e3;
        let unread =
            UnreadStep { step: self.optimizer.steps(), lr, pending, started, host_ms: 0.0, data_wait_ms, gpu_span };
        // The previous step is read while the device works on this one.
        if let Some(previous) = self.unread.replace(unread) {
            self.finish_step(previous, started, None, observer)?;
        }
        // Always after the next step has started, even if the previous one was read earlier, so
        // that a stop changes nothing.
        if let Some(finite) = self.pending_scale_update.take() {
            self.optimizer.update_loss_scale(finite)?;
        }
        let waits = bornite_support::device_wait_time() - waited + data_wait;
        let busy = started.elapsed().saturating_sub(waits);
        if let Some(unread) = &mut self.unread {
            unread.host_ms = busy.as_secs_f64() * 1e3;
        }
        Ok(true)
    }

    /// Waits for the last step, if it was not read yet, and reports its metrics.
    pub(super) fn finish_unread(
        &mut self,
        ended: Instant,
        validation_loss: Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let finished = match self.unread.take() {
            Some(unread) => self.finish_step(unread, ended, validation_loss, observer),
            None => Ok(()),
        };
        // Until the next step the device evaluates, samples or saves.
        self.gpu_timer.pause();
        finished
    }

    /// Waits for a step and reports its metrics. Its duration ends when the next step starts, which
    /// on a GPU is close to its execution time.
    fn finish_step(
        &mut self,
        mut step: UnreadStep,
        ended: Instant,
        validation_loss: Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let mut result = step.pending.wait()?;
        if let Some(ranks) = &self.ranks {
            result.loss = ranks.mean(result.loss)?;
        }
        self.pending_scale_update = Some(result.finite);
        let seconds = ended.saturating_duration_since(step.started).as_secs_f64().max(1e-9);
        self.elapsed_seconds += seconds;
        let metrics = StepMetrics {
            step: step.step,
            loss: Some(result.loss).filter(|loss| loss.is_finite()),
            lr: step.lr,
            grad_norm: Some(result.grad_norm).filter(|norm| norm.is_finite()),
            tokens_per_second: Some(self.tokens_per_step as f64 / seconds),
            images_per_second: None,
            elapsed_seconds: self.elapsed_seconds,
            host_ms: Some(step.host_ms),
            data_wait_ms: Some(step.data_wait_ms),
            gpu_idle_share: self.gpu_timer.idle_share(&mut step.gpu_span),
            memory_bytes: self.device.allocated_bytes().unwrap_or(0) as u64,
            skipped: !result.finite,
            validation_loss,
            validation_accuracy: None,
        };
        self.report(metrics, observer)
    }

    fn push(&mut self, metrics: &StepMetrics) -> Result<()> {
        self.skipped += u64::from(metrics.skipped);
        self.files.as_mut().map_or(Ok(()), |files| files.metrics.push(metrics))
    }

    fn report(&mut self, metrics: StepMetrics, observer: &mut dyn Observer) -> Result<()> {
        self.push(&metrics)?;
        self.last_metrics = Some(metrics);
        observer.on_event(TrainEvent::Step(&metrics));
        Ok(())
    }

    fn evaluate(&self, observer: &dyn Observer) -> Result<Option<f64>> {
        let Some(data) = &self.validation else { return Ok(None) };
        let max_batches = self.config.train.eval_batches.unwrap_or(1) as u64;
        // One of several ranks may have smaller batches than those of the settings.
        let batch = self.config.train.batch.unwrap_or(1);
        let (shape, split) = ([batch, self.shape[1]], batch / self.shape[0].max(1));
        let loss = |batch: &[Tensor]| match observer.should_stop() {
            true => Err(Error::stopped()),
            false => interruptible(observer.interrupt_flag(), || self.train_step.evaluate(batch)),
        };
        let (loss, _) = mean_loss(data, shape, split, max_batches, self.device, self.ranks.as_ref(), &loss)?;
        Ok(Some(loss).filter(|loss| loss.is_finite()))
    }

    fn save(&mut self, metric: Option<f64>, observer: &mut dyn Observer) -> Result<()> {
        let step = self.optimizer.steps();
        if let Some(files) = &mut self.files {
            files.metrics.write_plot()?;
        }
        if self.saved_step == Some(step) {
            return Ok(());
        }
        if let Some(ranks) = &self.ranks {
            ranks.check_equal_parameters(self.gpt.params(), step)?;
        }
        let (moments, progress) = self.optimizer.checkpoint()?;
        let choices = Tuner::global().map_err(bornite::Error::from)?.known_records();
        let state = State {
            model: self.gpt.config().clone(),
            config: self.config.clone(),
            tokenizer_fingerprint: self.tokenizer.fingerprint().into(),
            data_cursor: Some(self.batches.cursor()),
            loss_scale: progress.loss_scale,
            pending_scale_update: self.pending_scale_update,
            elapsed_seconds: self.elapsed_seconds,
            pending_metrics: self.pending_metrics,
            samples_bytes: Some(fs::metadata(self.folder.join(SAMPLES)).map_or(0, |found| found.len())),
            // The choice suffices; the measured times are in the tuning cache.
            tuning: choices.into_iter().map(|record| TuningRecord { trials: vec![], ..record }).collect(),
        };
        let mut checkpoint = Checkpoint::new(step, self.gpt.params().tensors()?, state_json(&state)?);
        checkpoint.groups.insert(MOMENTS.into(), moments);
        let files = &mut self.files;
        let mut save = || files.as_mut().map(|files| files.store.save(&checkpoint, metric)).transpose();
        let saved = match &self.ranks {
            Some(ranks) => ranks.long_work(save)?,
            None => save()?,
        };
        self.saved_step = Some(step);
        observer.on_unsaved_steps(0);
        if let Some(saved) = saved {
            saved.notes.iter().for_each(|note| observer.on_event(TrainEvent::Note(note)));
            observer.on_event(TrainEvent::Saved { step, path: &saved.path, best: saved.best });
        }
        Ok(())
    }

    /// Generates a sample. Returns false if a stop interrupted it.
    fn sample(&mut self, step: u64, observer: &mut dyn Observer) -> Result<bool> {
        let train = &self.config.train;
        let prompt = train.sample_prompt.clone().unwrap_or_default();
        let (tokens, max_tokens) = (prompt_tokens(&self.tokenizer, &prompt)?, train.sample_tokens.unwrap_or(64));
        let sampling = Sampling { seed: train.seed.unwrap_or(0).wrapping_add(step), ..Sampling::default() };
        let options = GenerationOptions { sampling, max_tokens, stops: vec![] };
        let cached = self.generator.take();
        let generate = || {
            let generator = match cached {
                Some(generator) => generator,
                None => {
                    let precision = train.precision.unwrap_or_default();
                    let length = tokens.len().saturating_add(max_tokens);
                    TextGenerator::with_weights(&self.gpt, self.optimizer.weights()?, precision, length)?
                }
            };
            let generated =
                generator.generate_from_tokens(&self.tokenizer, &tokens, &options, &mut |_| !observer.should_stop())?;
            Ok((generator, generated))
        };
        let (generator, generated) = match interruptible(observer.interrupt_flag(), generate) {
            Err(Error { kind: ErrorKind::Stopped, .. }) => return Ok(false),
            generated => generated?,
        };
        self.generator = Some(generator);
        if observer.should_stop() {
            return Ok(false);
        }
        let text = prompt + &generated.text;
        if self.files.is_some() {
            let path = self.folder.join(SAMPLES);
            let written = write!(files::append(&path)?, "--- step {step}\n{text}\n");
            written.map_err(Error::io("write", &path))?;
        }
        observer.on_event(TrainEvent::Sample { step, text: &text });
        Ok(true)
    }
}
