//! Training over epochs: progress, metrics, checkpoints, early stopping.
//!
//! `run.rs` is the loop of `bornite train` for text. This one is for any model and any
//! [`BatchSource`]; `images/` runs it in a run's folder. Nothing here prints: callers pass a
//! function that receives progress.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bornite::{Tensor, runtime::interruptible};
use serde::{Deserialize, Serialize};

use super::builder::{OptimizerBuilder, OptimizerProgress};
use super::compiled_step::TrainStep;
use super::evaluate::{BatchSource, mean_over, weighted_mean};
use super::pending::{PendingStep, StepResult};
use crate::checkpoint::{Checkpoint, CheckpointStore, Keep, load_latest, newest};
use crate::error::located;
use crate::{Error, ErrorKind, Result};

/// Name of the optimizer state in checkpoints.
const OPTIMIZER: &str = "optimizer";

/// Loss of a batch, or a metric of it.
type BatchFunction<'f> = Box<dyn Fn(&[Tensor]) -> Tensor + Send + Sync + 'f>;

/// Ends training when the validation loss has not improved for some epochs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct EarlyStopping {
    /// Epochs without improvement.
    pub patience: u64,
    /// Minimum decrease of the loss that counts as an improvement.
    pub min_delta: f64,
}

/// Result of an epoch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EpochReport {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Optimizer steps so far.
    pub steps: u64,
    /// Mean training loss of the batches; those whose loss was not finite are left out.
    pub loss: f64,
    /// Mean loss of the validation batches, in evaluation mode.
    pub validation_loss: Option<f64>,
    /// Metrics of the validation batches, by name.
    pub metrics: Vec<(String, f64)>,
}

impl fmt::Display for EpochReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}  loss {:.4}", self.epoch, self.loss)?;
        if let Some(loss) = self.validation_loss {
            write!(f, "  validation {loss:.4}")?;
        }
        self.metrics.iter().try_for_each(|(name, value)| write!(f, "  {name} {value:.4}"))
    }
}

/// Progress of training.
#[derive(Clone, Copy, Debug)]
pub enum FitEvent<'a> {
    /// A batch was trained on: epoch from 1, number of the batch in the epoch from 1, its loss.
    Batch {
        /// Epoch, from 1.
        epoch: u64,
        /// Number of the batch in the epoch, from 1.
        batch: u64,
        /// Loss.
        loss: f64,
        /// Optimizer steps so far.
        step: u64,
        /// Learning rate.
        lr: f64,
        /// Global gradient norm before clipping; NaN if gradients were accumulated only.
        grad_norm: f64,
        /// True if the gradients were finite; otherwise the step was skipped.
        finite: bool,
        /// Time until the next batch started, the wait for its data included.
        seconds: f64,
    },
    /// An epoch ended.
    Epoch(&'a EpochReport),
    /// A checkpoint was saved.
    Saved {
        /// Its folder.
        path: &'a Path,
        /// True if it has the lowest validation loss so far.
        best: bool,
    },
    /// Training continues from a checkpoint, after this number of optimizer steps.
    Resumed(u64),
}

/// Result of training.
#[derive(Clone, PartialEq, Debug)]
pub struct FitReport {
    /// Completed epochs, also those before a resumed checkpoint.
    pub epochs: Vec<EpochReport>,
    /// True if training ended by [`EarlyStopping`].
    pub stopped_early: bool,
    /// True if it was stopped by the flag of [`Fit::stop_flag`].
    pub stopped: bool,
}

/// State of training that is not a tensor.
#[derive(Clone, Serialize, Deserialize)]
struct FitState {
    optimizer: OptimizerProgress,
    /// Epoch from 0, and the number of the next batch in it.
    epoch: u64,
    batch: u64,
    /// Sum and number of the finite losses of this epoch so far.
    loss_sum: f64,
    loss_count: u64,
    epochs: Vec<EpochReport>,
    /// Best validation loss, and epochs since.
    best: Option<f64>,
    epochs_since_best: u64,
    /// [`BatchSource::fingerprint`].
    fingerprint: u64,
    /// [`Fit::description`]; null in checkpoints of earlier releases.
    #[serde(default)]
    description: serde_json::Value,
}

/// A batch whose results have not been read yet.
struct UnreadBatch {
    number: u64,
    step: u64,
    lr: f64,
    started: Instant,
    pending: PendingStep,
}

/// Trains a model over epochs.
///
/// ```
/// use bornite_nn::prelude::*;
/// # fn main() -> Result<()> {
/// let device = Device::cpu();
/// let params = Params::new(device, 0);
/// let net = Linear::new(&params, 2, 2);
/// let x = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0], &[2, 2], device);
/// let train = vec![vec![x, Tensor::from_slice(&[1i64, 0], &[2], device)]];
/// let adam = AdamW::new(&params).lr(0.1);
/// let report = Fit::new(&adam, |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]))
///     .epochs(20)
///     .validation(&train)
///     .metric("accuracy", |b: &[Tensor]| metrics::accuracy(&net.forward(&b[0]), &b[1]))
///     .run(&train)?;
/// assert_eq!(report.epochs[19].metrics[0].1, 1.0);
/// # Ok(())
/// # }
/// ```
pub struct Fit<'f, A> {
    optimizer: OptimizerBuilder<A>,
    step: TrainStep<'f>,
    epochs: u64,
    validation: Option<&'f dyn BatchSource>,
    metrics: Vec<(String, BatchFunction<'f>)>,
    checkpoints: Option<PathBuf>,
    save_every: Option<u64>,
    early_stopping: Option<EarlyStopping>,
    max_steps: Option<u64>,
    keep_last: usize,
    description: serde_json::Value,
    stop: Option<Arc<AtomicBool>>,
    observer: Box<dyn FnMut(FitEvent<'_>) + 'f>,
}

impl<'f, A> Fit<'f, A> {
    /// Trains with an optimizer and the loss of a batch, as
    /// [`compile`](OptimizerBuilder::compile) takes it, for one epoch.
    pub fn new(optimizer: &OptimizerBuilder<A>, loss: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'f) -> Fit<'f, A> {
        Fit {
            optimizer: optimizer.clone(),
            step: optimizer.compile(loss),
            epochs: 1,
            validation: None,
            metrics: vec![],
            checkpoints: None,
            save_every: None,
            early_stopping: None,
            max_steps: None,
            keep_last: 3,
            description: serde_json::Value::Null,
            stop: None,
            observer: Box::new(|_| {}),
        }
    }

    /// Sets the number of epochs.
    pub fn epochs(self, epochs: u64) -> Self {
        Fit { epochs, ..self }
    }

    /// Evaluates the loss and the metrics on these batches after each epoch.
    pub fn validation(self, batches: &'f dyn BatchSource) -> Self {
        Fit { validation: Some(batches), ..self }
    }

    /// Adds a metric of validation batches: a scalar, in evaluation mode.
    pub fn metric(mut self, name: &str, metric: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'f) -> Self {
        self.metrics.push((name.into(), Box::new(metric)));
        self
    }

    /// Saves a checkpoint to this folder after each epoch, keeping the last three and the best, and
    /// continues from the latest one if there is one. A resumed run gives the same bits as one that
    /// was not interrupted.
    pub fn checkpoints(self, folder: impl Into<PathBuf>) -> Self {
        Fit { checkpoints: Some(folder.into()), ..self }
    }

    /// Saves a checkpoint after this number of optimizer steps, too.
    pub fn save_every(self, steps: u64) -> Self {
        Fit { save_every: Some(steps), ..self }
    }

    /// Ends training when the validation loss has not improved for some epochs.
    pub fn early_stopping(self, early_stopping: EarlyStopping) -> Self {
        Fit { early_stopping: Some(early_stopping), ..self }
    }

    /// Stops after this number of optimizer steps in total, with a checkpoint.
    pub fn max_steps(self, steps: u64) -> Self {
        Fit { max_steps: Some(steps), ..self }
    }

    /// Sets the number of latest checkpoints to keep, in addition to the best one.
    pub fn keep_checkpoints(self, keep_last: usize) -> Self {
        Fit { keep_last, ..self }
    }

    /// Describes the model in checkpoints, for programs that load them. A checkpoint with another
    /// description is not resumed.
    pub fn description(self, description: serde_json::Value) -> Self {
        Fit { description, ..self }
    }

    /// Stops as soon as possible once the flag is set, with a checkpoint. A batch or an evaluation
    /// that is interrupted is repeated by a resumed run.
    pub fn stop_flag(self, stop: Arc<AtomicBool>) -> Self {
        Fit { stop: Some(stop), ..self }
    }

    /// Sets a function that receives progress.
    pub fn on_event(self, observer: impl FnMut(FitEvent<'_>) + 'f) -> Self {
        Fit { observer: Box::new(observer), ..self }
    }

    /// Trains on these batches.
    #[track_caller]
    pub fn run(mut self, batches: &dyn BatchSource) -> Result<FitReport> {
        located(|| {
            if self.early_stopping.is_some() && self.validation.is_none() {
                return Err(Error::config("early stopping needs validation batches; set Fit::validation"));
            }
            if self.optimizer.is_data_parallel() {
                return Err(Error::config(
                    "Fit does not support several ranks: its checkpoints and early stopping are those of one process; call the \
                     compiled step of OptimizerBuilder::data_parallel",
                ));
            }
            if self.save_every == Some(0) {
                return Err(Error::config("save_every is 0; it must be at least 1"));
            }
            let keep = Keep { last: self.keep_last, best: self.validation.is_some() };
            let mut store = self.checkpoints.as_ref().map(|folder| CheckpointStore::open(folder, keep)).transpose()?;
            let mut state = self.start(batches.fingerprint())?;
            let mut saved_steps = state.optimizer.steps;
            let max_steps = self.max_steps;
            let is_at_end = |steps: u64| max_steps.is_some_and(|max| steps >= max);
            let mut stopped = false;
            while state.epoch < self.epochs && !self.is_done(&state) && !is_at_end(self.optimizer.steps()) {
                let mut unread: Option<UnreadBatch> = None;
                let mut at_end = false;
                let mut started = Instant::now();
                for batch in batches.batches_of(state.epoch, state.batch)? {
                    let batch = batch?;
                    let lr = self.optimizer.current_lr();
                    let pending = match self.interruptible(|| self.step.call(&batch)) {
                        Err(Error { kind: ErrorKind::Stopped, .. }) => {
                            stopped = true;
                            break;
                        }
                        pending => pending?,
                    };
                    state.batch += 1;
                    let steps = self.optimizer.steps();
                    // Read one step late, so that the device is never idle.
                    let next = UnreadBatch { number: state.batch, step: steps, lr, started, pending };
                    let previous = unread.replace(next);
                    self.read(previous, started, &mut state)?;
                    started = Instant::now();
                    at_end = is_at_end(steps);
                    let due = self.save_every.is_some_and(|every| steps.is_multiple_of(every) && steps > saved_steps);
                    if at_end || due {
                        self.read(unread.take(), Instant::now(), &mut state)?;
                        self.save(store.as_mut(), &mut state, None)?;
                        saved_steps = steps;
                    }
                    if at_end {
                        break;
                    }
                }
                self.read(unread.take(), Instant::now(), &mut state)?;
                if at_end {
                    break;
                }
                if !stopped {
                    stopped = match self.end_epoch(&mut state) {
                        Err(Error { kind: ErrorKind::Stopped, .. }) => true,
                        ended => ended.map(|()| false)?,
                    };
                }
                let validation_loss = state.epochs.last().and_then(|report| report.validation_loss);
                self.save(store.as_mut(), &mut state, validation_loss.filter(|_| !stopped))?;
                saved_steps = state.optimizer.steps;
                if stopped {
                    break;
                }
            }
            let stopped_early = self.is_done(&state) && state.epoch < self.epochs;
            Ok(FitReport { epochs: state.epochs, stopped_early, stopped })
        })
    }

    /// Runs work that the stop flag interrupts; an error if it is set.
    fn interruptible<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        match &self.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(Error::stopped()),
            stop => interruptible(stop.clone(), work),
        }
    }

    /// Returns true if training ends by early stopping.
    fn is_done(&self, state: &FitState) -> bool {
        self.early_stopping.is_some_and(|stopping| state.epochs_since_best >= stopping.patience.max(1))
    }

    /// State of the latest checkpoint, or the initial state.
    fn start(&mut self, fingerprint: u64) -> Result<FitState> {
        let params = self.optimizer.params();
        if let Some(folder) = &self.checkpoints
            && newest(folder)?.is_some()
        {
            let Checkpoint { weights, groups, state, .. } = load_latest(folder, params.device(), true)?.checkpoint;
            let read = |error| Error::file(folder, format!("the checkpoint is not one of Fit: {error}"));
            let state: FitState = serde_json::from_value(state).map_err(read)?;
            if state.fingerprint != fingerprint {
                let what = "the checkpoint was saved with other batches (data, seed or batch size); resume with these or \
                            choose another folder";
                return Err(Error::file(folder, what));
            }
            if state.description != self.description {
                let what = format!(
                    "the checkpoint was saved with another description ({}, now {}); resume with the same model and data or choose \
                     another folder",
                    state.description, self.description
                );
                return Err(Error::file(folder, what));
            }
            let moments = groups.get(OPTIMIZER).cloned().unwrap_or_default();
            let named =
                |error: Error| Error::file(folder, format!("the checkpoint is of another model: {}", error.kind));
            params.load_tensors(&weights).map_err(named)?;
            self.optimizer.restore(&moments, state.optimizer).map_err(named)?;
            (self.observer)(FitEvent::Resumed(state.optimizer.steps));
            return Ok(state);
        }
        let (_, optimizer) = self.optimizer.checkpoint()?;
        Ok(FitState {
            optimizer,
            epoch: 0,
            batch: 0,
            loss_sum: 0.0,
            loss_count: 0,
            epochs: vec![],
            best: None,
            epochs_since_best: 0,
            fingerprint,
            description: self.description.clone(),
        })
    }

    /// Waits for a step, whose time ends when the next one starts, and adds its loss to the
    /// epoch's.
    fn read(&mut self, batch: Option<UnreadBatch>, ended: Instant, state: &mut FitState) -> Result<()> {
        let Some(UnreadBatch { number: batch, step, lr, started, pending }) = batch else { return Ok(()) };
        let StepResult { loss, grad_norm, finite } = pending.wait()?;
        if loss.is_finite() {
            state.loss_sum += loss;
            state.loss_count += 1;
        }
        let epoch = state.epoch + 1;
        let seconds = ended.saturating_duration_since(started).as_secs_f64();
        (self.observer)(FitEvent::Batch { epoch, batch, loss, step, lr, grad_norm, finite, seconds });
        Ok(())
    }

    /// Evaluates the epoch and begins the next one.
    fn end_epoch(&mut self, state: &mut FitState) -> Result<()> {
        if state.batch == 0 {
            return Err(Error::data(format!("epoch {} has no batches", state.epoch + 1)));
        }
        let mut report = EpochReport {
            epoch: state.epoch + 1,
            steps: self.optimizer.steps(),
            loss: state.loss_sum / state.loss_count.max(1) as f64,
            validation_loss: None,
            metrics: vec![],
        };
        if let Some(validation) = self.validation {
            let loss = weighted_mean(validation, |batch| self.interruptible(|| self.step.evaluate(batch)))?;
            // JSON has no NaN; a loss that is not finite is never the best.
            report.validation_loss = loss.is_finite().then_some(loss);
            for (name, metric) in &self.metrics {
                let value = mean_over(validation, metric, |work| self.interruptible(work))?;
                report.metrics.push((name.clone(), value));
            }
            let min_delta = self.early_stopping.map_or(0.0, |stopping| stopping.min_delta);
            if loss.is_finite() && state.best.is_none_or(|best| loss < best - min_delta) {
                (state.best, state.epochs_since_best) = (Some(loss), 0);
            } else {
                state.epochs_since_best += 1;
            }
        }
        (self.observer)(FitEvent::Epoch(&report));
        state.epochs.push(report);
        (state.epoch, state.batch, state.loss_sum, state.loss_count) = (state.epoch + 1, 0, 0.0, 0);
        Ok(())
    }

    fn save(&mut self, store: Option<&mut CheckpointStore>, state: &mut FitState, metric: Option<f64>) -> Result<()> {
        let Some(store) = store else { return Ok(()) };
        let (moments, progress) = self.optimizer.checkpoint()?;
        state.optimizer = progress;
        let json = serde_json::to_value(&*state).map_err(|error| Error::config(error.to_string()))?;
        let mut checkpoint = Checkpoint::new(progress.steps, self.optimizer.params().tensors()?, json);
        checkpoint.groups.insert(OPTIMIZER.into(), moments);
        let saved = store.save(&checkpoint, metric)?;
        (self.observer)(FitEvent::Saved { path: &saved.path, best: saved.best });
        Ok(())
    }
}
