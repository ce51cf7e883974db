//! A GPT in training. Knows nothing about data, files or time; `engine.rs` runs the steps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bornite::{DType, Device, Tensor, plan::PlanSummary, trace::TensorSpec, var::Arena};

use super::engine::{Engine, load, named};
use super::precision::{LossScale, Precision};
use super::step_traces::{LossFunction, StepTraces};
use crate::error::located;
use crate::inputs::LossInputs;
use crate::model::{Gpt, KvCache};
use crate::optimizer::{Optimizer, OptimizerKind};
use crate::{Error, Result};

/// Options of a [`Learner`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearnerOptions {
    /// Optimizer.
    pub optimizer: OptimizerKind,
    /// Weight decay, applied to matrices only.
    pub weight_decay: f64,
    /// Maximum global gradient norm.
    pub clip_norm: Option<f64>,
    /// Precision.
    pub precision: Precision,
    /// Gradient accumulation: batches per step.
    pub accumulate: usize,
    /// Seed of initialization and dropout.
    pub seed: u64,
}

/// A model with its parameters, optimizer state and traced training steps.
pub struct Learner {
    gpt: Gpt,
    engine: Engine,
    traces: StepTraces<'static>,
}

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

impl Learner {
    /// Creates a learner with newly initialized parameters.
    #[track_caller]
    pub fn new(gpt: Gpt, options: LearnerOptions, device: Device) -> Result<Learner> {
        located(|| {
            let parameters = gpt.parameters().arena(options.seed, device)?;
            Learner::from_parameters(gpt, options, parameters)
        })
    }

    /// Creates a learner that starts from an f32 arena of the model's parameters.
    #[track_caller]
    pub fn from_parameters(gpt: Gpt, options: LearnerOptions, parameters: Arena) -> Result<Learner> {
        located(|| {
            let LearnerOptions { optimizer, weight_decay, clip_norm, .. } = options;
            let optimizer = Optimizer::new(optimizer, weight_decay, clip_norm, gpt.parameters(), &parameters)?;
            let engine = Engine::new(options, optimizer, parameters)?;
            let model = gpt.clone();
            let loss: LossFunction<'static> = Arc::new(move |context, batch| match LossInputs::from_list(batch) {
                Ok(LossInputs { tokens, targets }) => (model.loss(context, tokens, targets), vec![]),
                Err(error) => (error.into(), vec![]),
            });
            let traces = engine.traces(loss);
            Ok(Learner { gpt, engine, traces })
        })
    }

    /// Returns the model.
    pub fn gpt(&self) -> &Gpt {
        &self.gpt
    }

    /// Returns the device of the parameters.
    pub fn device(&self) -> Device {
        self.engine.device
    }

    /// Returns the f32 parameters.
    pub fn parameters(&self) -> &Arena {
        &self.engine.parameters
    }

    /// Returns the number of completed steps.
    pub fn steps(&self) -> u64 {
        self.engine.steps
    }

    /// Returns the current loss scale.
    pub fn loss_scale(&self) -> LossScale {
        self.engine.loss_scale
    }

    /// Updates the loss scale after a step whose gradients were finite or not.
    pub fn update_loss_scale(&mut self, finite: bool) {
        self.engine.update_loss_scale(finite);
    }

    /// Launches a step from [`LearnerOptions::accumulate`] batches of tokens and targets, each
    /// `[batch, tokens]`. Returns before the step has finished.
    #[track_caller]
    pub fn step(&mut self, batches: &[(Tensor, Tensor)], lr: f64) -> Result<PendingStep> {
        located(|| {
            let accumulate = self.engine.options.accumulate;
            if batches.len() != accumulate {
                let what = format!("step: found {} batches; expected accumulate = {accumulate}", batches.len());
                return Err(Error::config(what));
            }
            let pending = self.step_from(&mut |n| Ok(batches.get(n).cloned()), lr)?;
            pending.ok_or_else(|| Error::config("step: there are no batches"))
        })
    }

    /// As [`step`](Learner::step), with batches from a callback that receives the index of each. If
    /// it returns `None`, or the step is interrupted (see [`bornite::runtime::interruptible`]), the
    /// parameters are unchanged and the result is `None`.
    #[track_caller]
    pub fn step_from(
        &mut self,
        batch: &mut dyn FnMut(usize) -> Result<Option<(Tensor, Tensor)>>,
        lr: f64,
    ) -> Result<Option<PendingStep>> {
        located(|| {
            let mut pair = |n: usize| Ok(batch(n)?.map(|(tokens, targets)| LossInputs { tokens, targets }.into_list()));
            self.engine.step_from(&self.traces, &mut pair, lr)
        })
    }

    /// Explains the plan of a step for batches of `[batch, tokens]`: kernels, and memory in
    /// addition to parameters, optimizer state and accumulated gradients. Nothing runs.
    #[track_caller]
    pub fn explain(&self, batch: usize, tokens: usize) -> Result<PlanSummary> {
        located(|| {
            let tokens = TensorSpec::new(DType::I32, &[batch, tokens], self.engine.device);
            let inputs = LossInputs { tokens: tokens.clone(), targets: tokens };
            self.engine.explain(&self.traces, inputs.into_list())
        })
    }

    /// Returns the loss of a batch, without dropout.
    #[track_caller]
    pub fn evaluate(&self, tokens: &Tensor, targets: &Tensor) -> Result<f64> {
        located(|| {
            let inputs = LossInputs { tokens: tokens.clone(), targets: targets.clone() }.into_list();
            self.engine.evaluate(&self.traces, &inputs)
        })
    }

    /// Returns the parameters and the optimizer state by name, for a checkpoint.
    pub fn tensors(&self) -> [BTreeMap<String, Tensor>; 2] {
        [named(&self.engine.parameters, ""), self.engine.moments()]
    }

    /// Restores the state of a checkpoint. After an error the learner must not be used.
    #[track_caller]
    pub fn restore(
        &mut self,
        tensors: [&BTreeMap<String, Tensor>; 2],
        steps: u64,
        loss_scale: LossScale,
    ) -> Result<()> {
        located(|| {
            load(&self.engine.parameters, tensors[0], "")?;
            self.engine.load_moments(tensors[1])?;
            (self.engine.steps, self.engine.loss_scale) = (steps, loss_scale);
            self.engine.update_weights()
        })
    }

    /// Returns the weights that the model runs on, in the data type of the precision.
    pub fn weights(&self) -> &Arena {
        &self.engine.weights
    }

    /// Creates empty key/value caches for one sequence of up to `length` tokens.
    #[track_caller]
    pub fn kv_caches(&self, length: usize) -> Result<Vec<KvCache>> {
        self.gpt.kv_caches(1, length, self.engine.options.precision.dtype(), self.engine.device)
    }
}
