//! A model in training: parameters, optimizer and the traced steps. Knows nothing about data, files
//! or time.

use std::collections::{BTreeMap, VecDeque};

use bornite::{
    DType, Device, Tensor,
    plan::PlanSummary,
    trace,
    trace::{TensorSpec, Trace},
    var::Arena,
};

use super::precision::{LossScale, Precision};
use crate::dropout;
use crate::error::located;
use crate::inputs::{ApplyInputs, GradientInputs, LossInputs, StepInputs, unpack_outputs};
use crate::model::{Gpt, KvCache};
use crate::optimizer::{Optimizer, OptimizerKind, StepScalars};
use crate::parameters::Context;
use crate::{Error, ErrorKind, Result};

/// Maximum number of queued batches per step, which bounds the memory of their losses.
const MAX_QUEUED_BATCHES: usize = 64;

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
    options: LearnerOptions,
    device: Device,
    /// f32.
    parameters: Arena,
    /// Weights that the model runs on: the parameters or their 16-bit copy.
    weights: Arena,
    optimizer: Optimizer,
    /// Accumulated gradients, if a step has several batches.
    gradients: Option<Arena>,
    loss_scale: LossScale,
    steps: u64,
    /// A step from one batch.
    single_batch_step: Trace<'static>,
    /// Adds the gradients of one batch to the accumulated ones.
    accumulate_gradients: Trace<'static>,
    /// A step from the accumulated gradients.
    apply_gradients: Trace<'static>,
    /// Loss of a batch.
    loss: Trace<'static>,
}

/// A step that was launched; [`wait`](PendingStep::wait) returns its result.
pub struct PendingStep {
    /// Losses of batches that were not read yet.
    losses: VecDeque<Tensor>,
    /// Number of batches.
    batches: usize,
    /// Sum of the losses that were read, each divided by `batches`.
    partial_loss: f64,
    grad_norm: Tensor,
    /// Factor of the loss.
    loss_scale: f64,
}

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepResult {
    /// Mean loss of its batches.
    pub loss: f64,
    /// Global gradient norm before clipping.
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
            let grad_norm = self.grad_norm.item()?;
            Ok(StepResult { loss: loss / self.loss_scale, grad_norm, finite: grad_norm.is_finite() })
        })
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
            if options.accumulate == 0 {
                return Err(Error::config("train.accumulate is 0; it must be at least 1"));
            }
            let device = parameters.get().device()?;
            let LearnerOptions { optimizer, weight_decay, clip_norm, precision, .. } = options;
            let optimizer = Optimizer::new(optimizer, weight_decay, clip_norm, gpt.parameters(), &parameters)?;
            let weights = match precision.dtype() {
                DType::F32 => parameters.clone(),
                dtype => parameters.like(dtype, 0.0)?,
            };
            let accumulates = options.accumulate > 1;
            let gradients = accumulates.then(|| parameters.like(DType::F32, 0.0)).transpose()?;
            let functions = StepFunctions { gpt: gpt.clone(), options, optimizer: optimizer.clone() };
            let arenas =
                Arenas { parameters: parameters.clone(), weights: weights.clone(), gradients: gradients.clone() };
            let mut learner = Learner {
                gpt,
                options,
                device,
                parameters,
                weights,
                optimizer,
                gradients,
                loss_scale: LossScale::new(precision),
                steps: 0,
                single_batch_step: functions.clone().single_batch_step(arenas.clone()),
                accumulate_gradients: functions.clone().accumulate_gradients(arenas.clone()),
                apply_gradients: functions.clone().apply_gradients(arenas.clone()),
                loss: functions.loss(arenas),
            };
            learner.update_weights()?;
            Ok(learner)
        })
    }

    /// Rounds the parameters into the 16-bit copy, if there is one.
    fn update_weights(&mut self) -> Result<()> {
        if self.options.precision.dtype() != DType::F32 {
            let rounded = self.parameters.get().cast(self.options.precision.dtype());
            bornite::var::commit(&[], vec![self.weights.set(rounded)])?;
        }
        Ok(())
    }

    /// Returns the model.
    pub fn gpt(&self) -> &Gpt {
        &self.gpt
    }

    /// Returns the device of the parameters.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the f32 parameters.
    pub fn parameters(&self) -> &Arena {
        &self.parameters
    }

    /// Returns the number of completed steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the current loss scale.
    pub fn loss_scale(&self) -> LossScale {
        self.loss_scale
    }

    /// Updates the loss scale after a step whose gradients were finite or not.
    pub fn update_loss_scale(&mut self, finite: bool) {
        self.loss_scale = self.loss_scale.updated(self.options.precision, finite);
    }

    /// Launches a step from [`LearnerOptions::accumulate`] batches of tokens and targets, each
    /// `[batch, tokens]`. Returns before the step has finished.
    #[track_caller]
    pub fn step(&mut self, batches: &[(Tensor, Tensor)], lr: f64) -> Result<PendingStep> {
        located(|| {
            if batches.len() != self.options.accumulate {
                let what =
                    format!("step: found {} batches; expected accumulate = {}", batches.len(), self.options.accumulate);
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
            let device = self.device;
            let step = self.steps + 1;
            let scalars = self.optimizer.scalars(lr, step).tensor(device);
            let loss_scale = Tensor::from_slice(&[self.loss_scale.scale as f32], &[], device);
            let random_state =
                |n: usize| Tensor::from_slice(&dropout::state(self.options.seed, step, n as u64), &[2], device);
            let (precision, count) = (self.options.precision, self.options.accumulate);
            let (mut losses, mut partial_loss) = (VecDeque::new(), 0.0);
            let launched = precision.within(|| -> Result<Option<Tensor>> {
                if self.gradients.is_none() {
                    let Some((tokens, targets)) = batch(0)? else { return Ok(None) };
                    let inputs = StepInputs { tokens, targets, scalars, loss_scale, random_state: random_state(0) };
                    let [loss, grad_norm] =
                        unpack_outputs("train_step", self.single_batch_step.call(&inputs.into_list())?)?;
                    losses.push_back(loss);
                    return Ok(Some(grad_norm));
                }
                for n in 0..count {
                    let Some((tokens, targets)) = batch(n)? else { return Ok(None) };
                    let (loss_scale, random_state) = (loss_scale.clone(), random_state(n));
                    let inputs = GradientInputs { tokens, targets, loss_scale, random_state };
                    let [loss] = unpack_outputs("gradients", self.accumulate_gradients.call(&inputs.into_list())?)?;
                    losses.push_back(loss);
                    if losses.len() > MAX_QUEUED_BATCHES
                        && let Some(first) = losses.pop_front()
                    {
                        partial_loss += first.item()? / count as f64;
                    }
                }
                let inputs = ApplyInputs { scalars, loss_scale };
                let outputs = self.apply_gradients.call(&inputs.into_list())?;
                let [grad_norm] = unpack_outputs("apply_gradients", outputs)?;
                Ok(Some(grad_norm))
            });
            let Some(grad_norm) = (match launched {
                Err(Error { kind: ErrorKind::Stopped, .. }) => None,
                launched => launched?,
            }) else {
                bornite::runtime::interruptible(None, || self.discard_gradients())?;
                return Ok(None);
            };
            self.steps = step;
            let loss_scale = self.loss_scale.scale;
            Ok(Some(PendingStep { losses, batches: count, partial_loss, grad_norm, loss_scale }))
        })
    }

    /// Sets the accumulated gradients to zero.
    fn discard_gradients(&mut self) -> Result<()> {
        if let Some(sums) = &self.gradients {
            let flat = sums.get();
            bornite::var::commit(&[], vec![sums.set(Tensor::zeros(flat.shape()?, DType::F32, flat.device()?))])?;
        }
        Ok(())
    }

    /// Explains the plan of a step for batches of `[batch, tokens]`: kernels, and memory in
    /// addition to parameters, optimizer state and accumulated gradients. Nothing runs.
    #[track_caller]
    pub fn explain(&self, batch: usize, tokens: usize) -> Result<PlanSummary> {
        located(|| {
            let spec = |dtype: DType, shape: &[usize]| TensorSpec::new(dtype, shape, self.device);
            let tokens = spec(DType::I32, &[batch, tokens]);
            let targets = tokens.clone();
            let (loss_scale, random_state) = (spec(DType::F32, &[]), spec(DType::U64, &[2]));
            let explained = self.options.precision.within(|| match self.gradients {
                None => {
                    let scalars = spec(DType::F32, &[StepScalars::COUNT]);
                    let inputs = StepInputs { tokens, targets, scalars, loss_scale, random_state };
                    self.single_batch_step.explain(&inputs.into_list())
                }
                Some(_) => {
                    let inputs = GradientInputs { tokens, targets, loss_scale, random_state };
                    self.accumulate_gradients.explain(&inputs.into_list())
                }
            });
            Ok(explained?)
        })
    }

    /// Returns the loss of a batch, without dropout.
    #[track_caller]
    pub fn evaluate(&self, tokens: &Tensor, targets: &Tensor) -> Result<f64> {
        located(|| {
            let inputs = LossInputs { tokens: tokens.clone(), targets: targets.clone() }.into_list();
            let [loss] = unpack_outputs("loss", self.options.precision.within(|| self.loss.call(&inputs))?)?;
            Ok(loss.item()?)
        })
    }

    /// Returns the parameters and the optimizer state by name, for a checkpoint.
    pub fn tensors(&self) -> [BTreeMap<String, Tensor>; 2] {
        let named = |arena: &Arena, prefix: &str| -> Vec<(String, Tensor)> {
            let names = arena.segments().map(|(name, _)| format!("{prefix}{name}"));
            names.zip(arena.tensors()).collect()
        };
        let moments = self.optimizer.moments().iter().enumerate();
        let state = moments.flat_map(|(n, arena)| named(arena, &format!("moment{n}.")));
        [named(&self.parameters, "").into_iter().collect(), state.collect()]
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
            let load = |arena: &Arena, from: &BTreeMap<String, Tensor>, prefix: &str| -> Result<()> {
                let mut found = vec![];
                for (name, _) in arena.segments() {
                    let full = format!("{prefix}{name}");
                    match from.get(&full) {
                        Some(tensor) => found.push((name.to_owned(), tensor.clone())),
                        None => return Err(Error::config(format!("the checkpoint has no tensor '{full}'"))),
                    }
                }
                let named: Vec<(&str, &Tensor)> = found.iter().map(|(name, tensor)| (&name[..], tensor)).collect();
                Ok(arena.load(&named)?)
            };
            load(&self.parameters, tensors[0], "")?;
            for (n, arena) in self.optimizer.moments().iter().enumerate() {
                load(arena, tensors[1], &format!("moment{n}."))?;
            }
            (self.steps, self.loss_scale) = (steps, loss_scale);
            self.update_weights()
        })
    }

    /// Returns the weights that the model runs on, in the data type of the precision.
    pub fn weights(&self) -> &Arena {
        &self.weights
    }

    /// Creates empty key/value caches for one sequence of up to `length` tokens.
    #[track_caller]
    pub fn kv_caches(&self, length: usize) -> Result<Vec<KvCache>> {
        self.gpt.kv_caches(1, length, self.options.precision.dtype(), self.device)
    }
}

/// Arenas that the traced steps read and write.
#[derive(Clone)]
struct Arenas {
    parameters: Arena,
    weights: Arena,
    gradients: Option<Arena>,
}

/// Functions to trace.
#[derive(Clone)]
struct StepFunctions {
    gpt: Gpt,
    options: LearnerOptions,
    optimizer: Optimizer,
}

impl StepFunctions {
    /// Returns the scaled loss and its flat gradients.
    fn gradients(&self, arenas: &Arenas, inputs: GradientInputs<&Tensor>) -> (Tensor, Tensor) {
        let GradientInputs { tokens, targets, loss_scale, random_state } = inputs;
        let context = Context::training(arenas.weights.padded_tensors(), random_state.clone());
        let loss = self.gpt.loss(&context, tokens, targets).cast(DType::F32) * loss_scale;
        let flat = arenas.weights.gradient(&loss);
        (loss, flat)
    }

    /// Applies the optimizer to flat gradients, which are multiplied by `scale`; returns gradient
    /// norm and updates.
    fn optimizer_step(
        &self,
        arenas: &Arenas,
        flat: &Tensor,
        scale: Tensor,
        scalars: &Tensor,
    ) -> (Tensor, Vec<bornite::var::Update>) {
        let unscaled = self.options.precision != Precision::F16 && self.options.accumulate == 1;
        let step = self.optimizer.step(&arenas.parameters, flat, (!unscaled).then_some(&scale), scalars);
        let mut updates = step.updates;
        if self.options.precision.dtype() != DType::F32 {
            updates.push(arenas.weights.set(step.parameters.cast(self.options.precision.dtype())));
        }
        (step.grad_norm, updates)
    }

    fn single_batch_step(self, arenas: Arenas) -> Trace<'static> {
        trace(move |inputs| {
            let StepInputs { tokens, targets, scalars, loss_scale, random_state } = StepInputs::from_list(inputs)?;
            let inputs = GradientInputs { tokens, targets, loss_scale, random_state };
            let (loss, flat) = self.gradients(&arenas, inputs);
            let (grad_norm, updates) = self.optimizer_step(&arenas, &flat, loss_scale.clone(), scalars);
            Ok((vec![loss, grad_norm], updates))
        })
    }

    fn accumulate_gradients(self, arenas: Arenas) -> Trace<'static> {
        trace(move |inputs| {
            let (loss, flat) = self.gradients(&arenas, GradientInputs::from_list(inputs)?);
            let sums = arenas.gradients.iter().map(|sums| sums.set(sums.get() + flat.cast(DType::F32))).collect();
            Ok((vec![loss], sums))
        })
    }

    fn apply_gradients(self, arenas: Arenas) -> Trace<'static> {
        trace(move |inputs| {
            let ApplyInputs { scalars, loss_scale } = ApplyInputs::from_list(inputs)?;
            let Some(sums) = &arenas.gradients else { return Ok((vec![], vec![])) };
            let flat = sums.get();
            let scale = loss_scale * self.options.accumulate as f64;
            let (grad_norm, mut updates) = self.optimizer_step(&arenas, &flat, scale, scalars);
            // Not multiplied by 0, which would keep values that are not finite.
            updates.push(sums.set(Tensor::zeros(flat.shape()?, DType::F32, flat.device()?)));
            Ok((vec![grad_norm], updates))
        })
    }

    fn loss(self, arenas: Arenas) -> Trace<'static> {
        trace(move |inputs| {
            let LossInputs { tokens, targets } = LossInputs::from_list(inputs)?;
            let loss = self.gpt.loss(&Context::new(arenas.weights.padded_tensors()), tokens, targets);
            Ok((vec![loss.cast(DType::F32)], vec![]))
        })
    }
}
