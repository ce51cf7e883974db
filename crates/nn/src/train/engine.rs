//! State of training: weights, optimizer, accumulated gradients, loss scale and step count.
//! Launches the traced functions of a step. Knows nothing about models, data, files or time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bornite::{
    DType, Device, Tensor,
    plan::PlanSummary,
    trace::TensorSpec,
    var::{Arena, commit},
};

use super::data_parallel::DataParallel;
use super::gradient_exchange::{GradientExchange, ReceiveBucket};
use super::pending::PendingStep;
use super::precision::{LossScale, Precision};
use super::step_traces::{LossFunction, StepFunctions, StepTraces};
use crate::dropout;
use crate::inputs::{ApplyInputs, ApplyPartInputs, GradientInputs, StepInputs, unpack_outputs};
use crate::optimizer::{Optimizer, ParameterSettings, StepScalars};
use crate::parameters::Weights;
use crate::{Error, ErrorKind, Result};

/// Maximum number of queued batches per step, which bounds the memory of their losses.
const MAX_QUEUED_BATCHES: usize = 64;

/// Options of a training step.
#[derive(Clone, Copy)]
pub(crate) struct StepOptions {
    pub precision: Precision,
    /// Batches per step, of one rank.
    pub accumulate: usize,
    /// Number of ranks that compute batches of a step, and the number of this one.
    pub ranks: usize,
    pub rank: usize,
    /// Seed of dropout.
    pub seed: u64,
}

impl StepOptions {
    /// Batches per step, of all ranks.
    pub fn step_batches(&self) -> usize {
        self.accumulate.saturating_mul(self.ranks)
    }
}

/// State of training.
pub(crate) struct Engine {
    options: StepOptions,
    device: Device,
    /// In the dtype of the precision.
    pub weights: Weights,
    optimizer: Optimizer,
    /// Ranks that share the batches of a step, and the exchange of their gradients.
    ranks: Option<DataParallel>,
    exchange: Option<GradientExchange>,
    /// Accumulated gradients, if a step has several batches.
    gradients: Option<Arena>,
    pub loss_scale: LossScale,
    pub steps: u64,
    /// Batches whose gradients were accumulated since the last step.
    pub accumulated: usize,
    /// One per parameter; `None` if all are trainable.
    trainable: Option<Vec<bool>>,
    /// Scale of the loss on the device, and a random state for steps that read none: a new tensor
    /// per call would cost a small model's step on a GPU several percent.
    scale_tensor: Option<(f64, Tensor)>,
    unread_state: Option<Tensor>,
}

impl Engine {
    pub fn new(
        options: StepOptions,
        optimizer: Optimizer,
        weights: Weights,
        ranks: Option<DataParallel>,
    ) -> Result<Engine> {
        if options.accumulate == 0 {
            return Err(Error::config("train.accumulate is 0; it must be at least 1"));
        }
        let parameters = &weights.parameters;
        let device = parameters.get().device()?;
        let gradients = (options.step_batches() > 1).then(|| parameters.like(DType::F32, 0.0)).transpose()?;
        let exchange = ranks.as_ref().map(|ranks| ranks.gradient_exchange(parameters));
        let loss_scale = LossScale::new(options.precision);
        let (steps, accumulated, trainable) = (0, 0, None);
        Ok(Engine {
            options,
            device,
            weights,
            optimizer,
            ranks,
            exchange,
            gradients,
            loss_scale,
            steps,
            accumulated,
            trainable,
            scale_tensor: None,
            unread_state: None,
        })
    }

    /// Sets which parameters are trained, and their settings. Returns true if traces of before are
    /// no longer valid.
    pub fn set_parameters(&mut self, trainable: &[bool], settings: Vec<ParameterSettings>) -> Result<bool> {
        let trainable = trainable.iter().any(|trainable| !trainable).then(|| trainable.to_vec());
        let changed = trainable != self.trainable;
        self.optimizer = self.optimizer.set_settings(settings, &self.weights.parameters)?;
        self.trainable = trainable;
        Ok(changed)
    }

    /// Functions of a step with this loss, to be traced at their first call.
    pub fn traces<'f>(&self, loss: LossFunction<'f>) -> StepTraces<'f> {
        let functions = StepFunctions {
            loss,
            options: self.options,
            optimizer: self.optimizer.clone(),
            parameters: self.weights.parameters.clone(),
            weights: self.weights.values.clone(),
            gradients: self.gradients.clone(),
            buckets: self.exchange.as_ref().map_or(vec![], |exchange| exchange.buckets().to_vec()),
            trainable: self.trainable.clone(),
            draws: Arc::default(),
        };
        functions.traces()
    }

    /// Launches the next batch of a step. Returns its scaled loss and, if it completes the step,
    /// the gradient norm.
    pub fn launch(&mut self, traces: &StepTraces<'_>, batch: Vec<Tensor>, lr: f64) -> Result<(Tensor, Option<Tensor>)> {
        let (step, precision) = (self.steps + 1, self.options.precision);
        let (loss_scale, random_state) = (self.scale_tensor(), self.random_state(traces));
        let launched = precision.within(|| -> Result<_> {
            let Some(sums) = &self.gradients else {
                let inputs = StepInputs { scalars: self.scalars(lr), loss_scale, random_state };
                let inputs = [batch, inputs.into_list()].concat();
                let [loss, grad_norm] = unpack_outputs("train_step", traces.single_batch_step.call(&inputs)?)?;
                return Ok((loss, Some(grad_norm)));
            };
            let inputs = GradientInputs { loss_scale: loss_scale.clone(), random_state };
            let inputs = [batch, inputs.into_list()].concat();
            let is_last = self.accumulated + 1 == self.options.accumulate;
            if is_last && let Some(exchange) = &mut self.exchange {
                let accumulated = (self.accumulated > 0).then(|| sums.get().to_vec::<f32>()).transpose()?;
                let compute = |receive: &mut ReceiveBucket<'_>| traces.bucket_gradients(&inputs, receive);
                let (loss, flat) = exchange.run(accumulated, compute)?;
                return Ok((loss, Some(self.apply_exchanged(traces, flat, self.scalars(lr), loss_scale)?)));
            }
            let [loss] = unpack_outputs("gradients", traces.accumulate_gradients.call(&inputs)?)?;
            let grad_norm = is_last.then(|| self.apply_gradients(traces, self.scalars(lr), loss_scale)).transpose()?;
            Ok((loss, grad_norm))
        })?;
        match launched {
            (_, Some(_)) => {
                (self.steps, self.accumulated) = (step, 0);
                self.weights.note_step();
            }
            (_, None) => self.accumulated += 1,
        }
        Ok(launched)
    }

    /// Updates the parameters by the accumulated gradients; returns the gradient norm.
    fn apply_gradients(&self, traces: &StepTraces<'_>, scalars: Tensor, loss_scale: Tensor) -> Result<Tensor> {
        let inputs = ApplyInputs { scalars, loss_scale };
        let [grad_norm] = unpack_outputs("apply_gradients", traces.apply_gradients.call(&inputs.into_list())?)?;
        Ok(grad_norm)
    }

    /// Learning rate and bias-correction factors of the next step.
    fn scalars(&self, lr: f64) -> Tensor {
        self.optimizer.scalars(lr, self.steps + 1).tensor(self.device)
    }

    /// Updates the parameters by the gradients of all ranks; returns the gradient norm.
    fn apply_exchanged(
        &self,
        traces: &StepTraces<'_>,
        mut flat: Vec<f32>,
        scalars: Tensor,
        loss_scale: Tensor,
    ) -> Result<Tensor> {
        let sums = |values: Tensor| self.gradients.iter().map(|sums| sums.set(values.clone())).collect::<Vec<_>>();
        let (Some(ranks), Some(part)) = (&self.ranks, self.optimizer.part()) else {
            commit(&[], sums(Tensor::from_slice(&flat, &[flat.len()], self.device)))?;
            return self.apply_gradients(traces, scalars, loss_scale);
        };
        let own = &flat[part.clone()];
        let scale = (self.loss_scale.scale * self.options.step_batches() as f64) as f32;
        let mut squared_norm = [own.iter().map(|gradient| f64::from(gradient / scale).powi(2)).sum::<f64>()];
        ranks.all_reduce(&mut squared_norm)?;
        let grad_norm = Tensor::from_slice(&[squared_norm[0].sqrt() as f32], &[], self.device);
        let gradients = Tensor::from_slice(own, &[own.len()], self.device);
        let inputs = ApplyPartInputs { gradients, grad_norm: grad_norm.clone(), scalars, loss_scale };
        let [new] = unpack_outputs("apply_part", traces.apply_part.call(&inputs.into_list())?)?;
        flat[part].copy_from_slice(&new.to_vec::<f32>()?);
        ranks.all_gather(&mut flat)?;
        let new = Tensor::from_slice(&flat, &[flat.len()], self.device);
        let mut updates = sums(Tensor::zeros(&[flat.len()], DType::F32, self.device));
        if self.options.precision.dtype() != DType::F32 {
            updates.push(self.weights.values.set(new.cast(self.options.precision.dtype())));
        }
        updates.push(self.weights.parameters.set(new));
        commit(&[], updates)?;
        Ok(grad_norm)
    }

    /// Current scale of the loss.
    fn scale_tensor(&mut self) -> Tensor {
        let scale = self.loss_scale.scale;
        match &self.scale_tensor {
            Some((known, tensor)) if *known == scale => tensor.clone(),
            _ => {
                let tensor = Tensor::from_slice(&[scale as f32], &[], self.device);
                self.scale_tensor.insert((scale, tensor)).1.clone()
            }
        }
    }

    /// Random state of the next batch. If no function that was traced draws random numbers, it is
    /// not read, and any state will do.
    fn random_state(&mut self, traces: &StepTraces<'_>) -> Tensor {
        if traces.have_loss() && !traces.draws.load(Ordering::Relaxed) {
            let zeros = || Tensor::from_slice(&[0u64, 0], &[2], self.device);
            return self.unread_state.get_or_insert_with(zeros).clone();
        }
        let batch = self.accumulated * self.options.ranks + self.options.rank;
        let state = dropout::state(self.options.seed, self.steps + 1, batch as u64);
        Tensor::from_slice(&state, &[2], self.device)
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
    fn discard_gradients(&mut self) -> Result<()> {
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

    /// Returns the optimizer state by name, for a checkpoint. If ranks share it, all must call
    /// this.
    pub fn moments(&self) -> Result<BTreeMap<String, Tensor>> {
        let table = &self.weights.parameters;
        let mut all = BTreeMap::new();
        for (n, moment) in self.optimizer.moments().iter().enumerate() {
            let flat = match (self.optimizer.part(), &self.ranks) {
                (Some(part), Some(ranks)) => {
                    let mut flat = vec![0f32; table.get().elements()?];
                    flat[part].copy_from_slice(&moment.get().to_vec::<f32>()?);
                    ranks.all_gather(&mut flat)?;
                    Tensor::from_slice(&flat, &[flat.len()], self.device)
                }
                _ => moment.get(),
            };
            all.extend(named(table, &table.unflatten(&flat), &format!("moment{n}.")));
        }
        Ok(all)
    }

    /// Restores the optimizer state.
    pub fn load_moments(&self, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
        for (n, moment) in self.optimizer.moments().iter().enumerate() {
            let prefix = format!("moment{n}.");
            let Some(part) = self.optimizer.part() else {
                load(&self.weights.parameters.over(moment)?, tensors, &prefix)?;
                continue;
            };
            let complete = self.weights.parameters.like(DType::F32, 0.0)?;
            load(&complete, tensors, &prefix)?;
            commit(&[], vec![moment.set(complete.get().slice(0, part.start as isize..part.end as isize))])?;
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
        gradients.map(|arena| named(arena, &arena.tensors(), GRADIENT).collect()).unwrap_or_default()
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

/// Tensors of an arena's segments by name, with a prefix.
fn named(arena: &Arena, tensors: &[Tensor], prefix: &str) -> impl Iterator<Item = (String, Tensor)> {
    arena.segments().map(move |(name, _)| format!("{prefix}{name}")).zip(tensors.iter().cloned())
}

/// Replaces all tensors of an arena.
fn load(arena: &Arena, from: &BTreeMap<String, Tensor>, prefix: &str) -> Result<()> {
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
