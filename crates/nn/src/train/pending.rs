//! A training step that was launched, and its result.

use std::collections::VecDeque;

use bornite::Tensor;

use crate::Result;
use crate::error::located;

/// A step that was launched; [`wait`](PendingStep::wait) returns its result.
pub struct PendingStep {
    /// Losses of batches that were not read yet.
    pub(crate) losses: VecDeque<Tensor>,
    /// Number of batches.
    pub(crate) batches: usize,
    /// Sum of the losses that were read, each divided by `batches`.
    pub(crate) partial_loss: f64,
    /// `None` if gradients were accumulated only.
    pub(crate) grad_norm: Option<Tensor>,
    /// Factor of the loss.
    pub(crate) loss_scale: f64,
}

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepResult {
    /// Mean loss of its batches.
    pub loss: f64,
    /// Global gradient norm before clipping; NaN for a batch whose gradients were accumulated only.
    pub grad_norm: f64,
    /// True if the gradients were finite; otherwise the step was skipped.
    pub finite: bool,
}

impl PendingStep {
    /// Waits for the step.
    #[track_caller]
    pub fn wait(&self) -> Result<StepResult> {
        located(|| {
            let mut loss = self.partial_loss;
            for batch_loss in &self.losses {
                loss += batch_loss.item()? / self.batches as f64;
            }
            let grad_norm = self.grad_norm.as_ref().map(Tensor::item).transpose()?;
            let finite = grad_norm.is_none_or(f64::is_finite);
            Ok(StepResult { loss: loss / self.loss_scale, grad_norm: grad_norm.unwrap_or(f64::NAN), finite })
        })
    }

    /// Waits for the step and returns its loss.
    #[track_caller]
    pub fn loss(&self) -> Result<f64> {
        located(|| Ok(self.wait()?.loss))
    }
}
