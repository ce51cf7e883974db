//! State of training: parameters, optimizer, accumulated gradients, loss scale and step count.
//! Launches the traced functions of a step. Knows nothing about models, data, files or time.

use std::collections::{BTreeMap, VecDeque};

use bornite::{
    DType, Device, Tensor,
    plan::PlanSummary,
    trace::TensorSpec,
    var::{Arena, commit},
};

use super::learner::{LearnerOptions, PendingStep};
use super::precision::LossScale;
use super::step_traces::{LossFunction, StepFunctions, StepTraces};
use crate::dropout;
use crate::inputs::{ApplyInputs, GradientInputs, StepInputs, unpack_outputs};
use crate::optimizer::{Optimizer, ParameterSettings, StepScalars};
use crate::{Error, ErrorKind, Result};

/// Maximum number of queued batches per step, which bounds the memory of their losses.
const MAX_QUEUED_BATCHES: usize = 64;

/// State of training.
pub(crate) struct Engine {
    pub options: LearnerOptions,
    pub device: Device,
    /// f32.
    pub parameters: Arena,
    /// Weights that the model runs on: the parameters or their 16-bit copy.
    pub weights: Arena,
    pub optimizer: Optimizer,
    /// Accumulated gradients, if a step has several batches.
    gradients: Option<Arena>,
    pub loss_scale: LossScale,
    pub steps: u64,
    /// Batches whose gradients were accumulated since the last step.
    pub accumulated: usize,
    /// One per parameter; `None` if all are trainable.
    trainable: Option<Vec<bool>>,
}

impl Engine {
    pub fn new(options: LearnerOptions, optimizer: Optimizer, parameters: Arena) -> Result<Engine> {
        if options.accumulate == 0 {
            return Err(Error::config("train.accumulate is 0; it must be at least 1"));
        }
        let device = parameters.get().device()?;
        let weights = match options.precision.dtype() {
            DType::F32 => parameters.clone(),
            dtype => parameters.like(dtype, 0.0)?,
        };
        let gradients = (options.accumulate > 1).then(|| parameters.like(DType::F32, 0.0)).transpose()?;
        let loss_scale = LossScale::new(options.precision);
        let (steps, accumulated, trainable) = (0, 0, None);
        let engine = Engine {
            options,
            device,
            parameters,
            weights,
            optimizer,
            gradients,
            loss_scale,
            steps,
            accumulated,
            trainable,
        };
        engine.update_weights()?;
        Ok(engine)
    }

    /// Sets which parameters are trained, and their settings. Returns true if traces of before are
    /// no longer valid.
    pub fn set_parameters(&mut self, trainable: &[bool], settings: Vec<ParameterSettings>) -> Result<bool> {
        let trainable = trainable.iter().any(|trainable| !trainable).then(|| trainable.to_vec());
        let changed = trainable != self.trainable;
        self.optimizer = self.optimizer.set_settings(settings, &self.parameters)?;
        self.trainable = trainable;
        Ok(changed)
    }

    /// Rounds the parameters into the 16-bit copy, if there is one.
    pub fn update_weights(&self) -> Result<()> {
        if self.options.precision.dtype() != DType::F32 {
            let rounded = self.parameters.get().cast(self.options.precision.dtype());
            commit(&[], vec![self.weights.set(rounded)])?;
        }
        Ok(())
    }

    /// Functions of a step with this loss, to be traced at their first call.
    pub fn traces<'f>(&self, loss: LossFunction<'f>) -> StepTraces<'f> {
        let functions = StepFunctions {
            loss,
            options: self.options,
            optimizer: self.optimizer.clone(),
            parameters: self.parameters.clone(),
            weights: self.weights.clone(),
            gradients: self.gradients.clone(),
            trainable: self.trainable.clone(),
        };
        functions.traces()
    }

    /// Launches the next batch of a step. Returns its scaled loss and, if it completes the step,
    /// the gradient norm.
    pub fn launch(&mut self, traces: &StepTraces<'_>, batch: Vec<Tensor>, lr: f64) -> Result<(Tensor, Option<Tensor>)> {
        let (device, step, precision) = (self.device, self.steps + 1, self.options.precision);
        let scalars = || self.optimizer.scalars(lr, step).tensor(device);
        let loss_scale = Tensor::from_slice(&[self.loss_scale.scale as f32], &[], device);
        let random_state = dropout::state(self.options.seed, step, self.accumulated as u64);
        let random_state = Tensor::from_slice(&random_state, &[2], device);
        let launched = precision.within(|| -> Result<_> {
            if self.gradients.is_none() {
                let inputs = StepInputs { scalars: scalars(), loss_scale, random_state };
                let inputs = [batch, inputs.into_list()].concat();
                let [loss, grad_norm] = unpack_outputs("train_step", traces.single_batch_step.call(&inputs)?)?;
                return Ok((loss, Some(grad_norm)));
            }
            let inputs = GradientInputs { loss_scale: loss_scale.clone(), random_state };
            let inputs = [batch, inputs.into_list()].concat();
            let [loss] = unpack_outputs("gradients", traces.accumulate_gradients.call(&inputs)?)?;
            if self.accumulated + 1 < self.options.accumulate {
                return Ok((loss, None));
            }
            let inputs = ApplyInputs { scalars: scalars(), loss_scale };
            let [grad_norm] = unpack_outputs("apply_gradients", traces.apply_gradients.call(&inputs.into_list())?)?;
            Ok((loss, Some(grad_norm)))
        })?;
        match launched {
            (_, Some(_)) => (self.steps, self.accumulated) = (step, 0),
            (_, None) => self.accumulated += 1,
        }
        Ok(launched)
    }

    /// Launches a step from batches of a callback that receives the index of each. If it returns
    /// `None`, or the step is interrupted, the parameters are unchanged and the result is `None`.
    pub fn step_from(
        &mut self,
        traces: &StepTraces<'_>,
        batch: &mut dyn FnMut(usize) -> Result<Option<Vec<Tensor>>>,
        lr: f64,
    ) -> Result<Option<PendingStep>> {
        let batches = self.options.accumulate;
        let (mut losses, mut partial_loss) = (VecDeque::new(), 0.0);
        let mut launch_all = || -> Result<Option<Tensor>> {
            for n in 0..batches {
                let Some(tensors) = batch(n)? else { return Ok(None) };
                let (loss, grad_norm) = self.launch(traces, tensors, lr)?;
                losses.push_back(loss);
                if losses.len() > MAX_QUEUED_BATCHES
                    && let Some(first) = losses.pop_front()
                {
                    partial_loss += first.item()? / batches as f64;
                }
                if grad_norm.is_some() {
                    return Ok(grad_norm);
                }
            }
            Ok(None)
        };
        let grad_norm = match launch_all() {
            Err(Error { kind: ErrorKind::Stopped, .. }) => None,
            Err(error) => {
                // The error of the batch is the cause; gradients that cannot be cleared have the
                // same one.
                let _ = self.discard_gradients();
                return Err(error);
            }
            Ok(grad_norm) => grad_norm,
        };
        if grad_norm.is_none() {
            bornite::runtime::interruptible(None, || self.discard_gradients())?;
            return Ok(None);
        }
        Ok(Some(PendingStep { losses, batches, partial_loss, grad_norm, loss_scale: self.loss_scale.scale }))
    }

    /// Sets the accumulated gradients to zero.
    pub fn discard_gradients(&mut self) -> Result<()> {
        self.accumulated = 0;
        if let Some(sums) = &self.gradients {
            let flat = sums.get();
            commit(&[], vec![sums.set(Tensor::zeros(flat.shape()?, DType::F32, flat.device()?))])?;
        }
        Ok(())
    }

    /// Explains the plan of a step, or of a batch of it, for a batch of these shapes.
    pub fn explain(&self, traces: &StepTraces<'_>, batch: Vec<TensorSpec>) -> Result<PlanSummary> {
        let spec = |dtype: DType, shape: &[usize]| TensorSpec::new(dtype, shape, self.device);
        let (loss_scale, random_state) = (spec(DType::F32, &[]), spec(DType::U64, &[2]));
        let explained = self.options.precision.within(|| match self.gradients {
            None => {
                let scalars = spec(DType::F32, &[StepScalars::COUNT]);
                let inputs = StepInputs { scalars, loss_scale, random_state };
                traces.single_batch_step.explain(&[batch, inputs.into_list()].concat())
            }
            Some(_) => {
                let inputs = GradientInputs { loss_scale, random_state };
                traces.accumulate_gradients.explain(&[batch, inputs.into_list()].concat())
            }
        });
        Ok(explained?)
    }

    /// Returns the loss of a batch in evaluation mode.
    pub fn evaluate(&self, traces: &StepTraces<'_>, batch: &[Tensor]) -> Result<f64> {
        let [loss] = unpack_outputs("loss", self.options.precision.within(|| traces.loss.call(batch))?)?;
        Ok(loss.item()?)
    }

    /// Updates the loss scale after a step whose gradients were finite or not.
    pub fn update_loss_scale(&mut self, finite: bool) {
        self.loss_scale = self.loss_scale.updated(self.options.precision, finite);
    }

    /// Returns the optimizer state by name, for a checkpoint.
    pub fn moments(&self) -> BTreeMap<String, Tensor> {
        let moments = self.optimizer.moments().iter().enumerate();
        moments.flat_map(|(n, arena)| named(arena, &format!("moment{n}."))).collect()
    }

    /// Restores the optimizer state.
    pub fn load_moments(&self, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
        for (n, arena) in self.optimizer.moments().iter().enumerate() {
            load(arena, tensors, &format!("moment{n}."))?;
        }
        Ok(())
    }
}

/// Prefix of accumulated gradients in a checkpoint.
const GRADIENT: &str = "gradient.";

impl Engine {
    /// Returns the gradients that were accumulated since the last step, by name.
    pub fn accumulated_gradients(&self) -> BTreeMap<String, Tensor> {
        let gradients = self.gradients.as_ref().filter(|_| self.accumulated > 0);
        gradients.map(|arena| named(arena, GRADIENT)).unwrap_or_default()
    }

    /// Restores the gradients of `accumulated` batches.
    pub fn load_gradients(&mut self, tensors: &BTreeMap<String, Tensor>, accumulated: usize) -> Result<()> {
        self.discard_gradients()?;
        if let Some(arena) = self.gradients.as_ref().filter(|_| accumulated > 0) {
            load(arena, tensors, GRADIENT)?;
            self.accumulated = accumulated;
        }
        Ok(())
    }
}

/// Tensors of an arena by name, with a prefix.
pub(crate) fn named(arena: &Arena, prefix: &str) -> BTreeMap<String, Tensor> {
    arena.segments().map(|(name, _)| format!("{prefix}{name}")).zip(arena.tensors()).collect()
}

/// Replaces all tensors of an arena.
pub(crate) fn load(arena: &Arena, from: &BTreeMap<String, Tensor>, prefix: &str) -> Result<()> {
    let mut found = vec![];
    for (name, _) in arena.segments() {
        let full = format!("{prefix}{name}");
        match from.get(&full) {
            Some(tensor) => found.push((name, tensor)),
            None => return Err(Error::config(format!("the checkpoint has no tensor '{full}'"))),
        }
    }
    Ok(arena.load(&found)?)
}
