//! The caller's side of a run: the events that it receives, and how it stops the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::fit::EpochReport;
use super::images::ImageRunInfo;
use super::metrics::StepMetrics;
use super::precision::Precision;
use crate::data::DataProgress;

/// An event of a run.
#[derive(Debug)]
pub enum TrainEvent<'a> {
    /// A message for the user.
    Note(&'a str),
    /// Progress of data preparation.
    Data(DataProgress),
    /// Training starts with the next step.
    Begin(&'a RunInfo),
    /// Training of an image model starts.
    BeginImages(&'a ImageRunInfo),
    /// An epoch of an image model ended.
    Epoch(&'a EpochReport),
    /// Metrics of a step, reported up to one step late.
    Step(&'a StepMetrics),
    /// A checkpoint was saved.
    Saved {
        /// Step after which it was made.
        step: u64,
        /// Its folder.
        path: &'a Path,
        /// True if it has the lowest validation loss so far.
        best: bool,
    },
    /// A generated sample.
    Sample {
        /// Step after which it was made.
        step: u64,
        /// Prompt and continuation.
        text: &'a str,
    },
}

/// Facts about a run, known before the first step.
#[derive(Clone, Debug)]
pub struct RunInfo {
    /// Completed steps.
    pub step: u64,
    /// Total steps.
    pub steps: u64,
    /// Number of parameters.
    pub parameters: u64,
    /// Training tokens.
    pub tokens: u64,
    /// Validation tokens.
    pub validation_tokens: u64,
    /// Tokens per step.
    pub tokens_per_step: u64,
    /// Precision.
    pub precision: Precision,
    /// Floating-point operations per token.
    pub flops_per_token: f64,
    /// Peak flops per second of the device, if known.
    pub peak_flops: Option<f64>,
    /// Lower bound of the bytes that training needs.
    pub required_bytes: u64,
    /// Bytes that activation checkpointing saves, if enabled.
    pub checkpointing_saved_bytes: Option<u64>,
}

/// Receives the events of a run and can stop it.
pub trait Observer {
    /// Called for every event.
    fn on_event(&mut self, event: TrainEvent<'_>);

    /// Returns true if the run should save a checkpoint and end as soon as possible. Called before
    /// every step, and several times per second during data preparation, gradient accumulation and
    /// evaluation.
    fn should_stop(&self) -> bool {
        false
    }

    /// Returns a flag that interrupts the current batch, evaluation or sample once it is set;
    /// [`should_stop`](Observer::should_stop) must return true from then on.
    fn interrupt_flag(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Called after every step and every save with the number of steps since the last checkpoint.
    fn on_unsaved_steps(&mut self, _steps: u64) {}
}

/// Result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct RunSummary {
    /// Completed steps.
    pub step: u64,
    /// True if it was stopped before its last step.
    pub stopped: bool,
    /// Number of steps that were skipped because gradients were not finite.
    pub skipped: u64,
    /// Metrics of the last step, if there was one.
    pub last_metrics: Option<StepMetrics>,
    /// The run's folder.
    pub folder: PathBuf,
}
