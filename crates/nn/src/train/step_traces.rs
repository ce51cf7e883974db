//! The traced functions of a training step, for any loss.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite::{
    DType, Device, Tensor, trace,
    trace::Trace,
    var::{Arena, Update},
};

use super::engine::StepOptions;
use super::gradient_exchange::ReceiveBucket;
use super::precision::Precision;
use crate::Result;
use crate::inputs::{ApplyInputs, ApplyPartInputs, GradientInputs, StepInputs, unpack_outputs};
use crate::optimizer::{Optimizer, StepGradients};
use crate::parameters::Context;

/// The loss of a batch with the parameter values of a context, and updates of other variables.
pub(crate) type LossFunction<'f> = Arc<dyn Fn(&Context, &[Tensor]) -> (Tensor, Vec<Update>) + Send + Sync + 'f>;

/// Traced functions of a training step.
pub(crate) struct StepTraces<'f> {
    /// A step from one batch.
    pub single_batch_step: Trace<'f>,
    /// Adds the gradients of one batch to the accumulated ones.
    pub accumulate_gradients: Trace<'f>,
    /// The gradients of one batch, in buckets, to be exchanged with other ranks.
    bucket_gradients: Trace<'f>,
    /// A step from the accumulated gradients.
    pub apply_gradients: Trace<'f>,
    /// A step of a part of the parameters from their gradients, summed over all ranks.
    pub apply_part: Trace<'f>,
    /// Loss of a batch, in evaluation mode.
    pub loss: Trace<'f>,
    /// Set when a traced loss draws random numbers. Otherwise the random state is not read.
    pub draws: Arc<AtomicBool>,
}

impl StepTraces<'_> {
    /// Returns true if the loss was traced, for any batch.
    pub fn have_loss(&self) -> bool {
        [&self.single_batch_step, &self.accumulate_gradients, &self.bucket_gradients].iter().any(|t| t.traces() > 0)
    }

    /// Passes the gradients of each bucket to `receive` as soon as they are computed; returns the
    /// loss.
    pub fn bucket_gradients(&self, inputs: &[Tensor], receive: &mut ReceiveBucket<'_>) -> Result<Tensor> {
        let mut receive = |n: usize, value| n.checked_sub(1).map_or((), |bucket| receive(bucket, value));
        let mut results = self.bucket_gradients.call_receiving(inputs, &mut receive)?;
        results.truncate(1);
        let [loss] = unpack_outputs("gradients", results)?;
        Ok(loss)
    }
}

/// Variables that the traced functions read and write, and their settings.
#[derive(Clone)]
pub(crate) struct StepFunctions<'f> {
    pub loss: LossFunction<'f>,
    pub options: StepOptions,
    pub optimizer: Optimizer,
    /// f32.
    pub parameters: Arena,
    /// Weights that the model runs on: the parameters or their 16-bit copy.
    pub weights: Arena,
    /// Accumulated gradients, if a step has several batches.
    pub gradients: Option<Arena>,
    /// Ranges of the flat gradients that are exchanged with other ranks.
    pub buckets: Vec<Range<usize>>,
    /// One per parameter; `None` if all are trainable.
    pub trainable: Option<Vec<bool>>,
    /// See [`StepTraces::draws`].
    pub draws: Arc<AtomicBool>,
}

/// Splits the inputs of a traced function into those of the batch and the last `count`.
fn split(inputs: &[Tensor], count: usize) -> (&[Tensor], &[Tensor]) {
    inputs.split_at(inputs.len().saturating_sub(count))
}

impl<'f> StepFunctions<'f> {
    pub fn traces(self) -> StepTraces<'f> {
        StepTraces {
            single_batch_step: self.clone().single_batch_step(),
            accumulate_gradients: self.clone().accumulate_gradients(),
            bucket_gradients: self.clone().bucket_gradients(),
            apply_gradients: self.clone().apply_gradients(),
            apply_part: self.clone().apply_part(),
            draws: self.draws.clone(),
            loss: self.evaluation_loss(),
        }
    }

    /// Returns true if the loss is multiplied by a scale, which is an input.
    fn is_scaled(&self) -> bool {
        self.options.precision == Precision::F16
    }

    /// Returns the scaled loss, its gradients in the shapes of the padded weights, and updates of
    /// other variables.
    fn gradients(&self, batch: &[Tensor], inputs: GradientInputs<&Tensor>) -> (Tensor, Vec<Tensor>, Vec<Update>) {
        let GradientInputs { loss_scale, random_state } = inputs;
        let context = Context::training(self.weights.padded_tensors(), random_state.clone());
        let (loss, updates) = (self.loss)(&context, batch);
        self.draws.fetch_or(context.has_drawn(), Ordering::Relaxed);
        let loss = if self.is_scaled() { loss.cast(DType::F32) * loss_scale } else { loss.cast(DType::F32) };
        let values = self.weights.padded_tensors();
        let gradients = match &self.trainable {
            None => loss.grad(&values.iter().collect::<Vec<_>>()),
            Some(trainable) => StepFunctions::partial_gradients(&loss, &values, trainable),
        };
        (loss, gradients, updates)
    }

    /// Gradients of the trainable parameters, and zeros for the others.
    fn partial_gradients(loss: &Tensor, values: &[Tensor], trainable: &[bool]) -> Vec<Tensor> {
        let chosen = values.iter().zip(trainable).filter(|(_, trainable)| **trainable);
        let mut found = loss.grad(&chosen.map(|(value, _)| value).collect::<Vec<_>>()).into_iter();
        let gradient = |(value, trainable): (&Tensor, &bool)| match (trainable, value.shape(), value.dtype()) {
            (true, ..) => found.next().unwrap_or_else(|| value.clone()),
            (false, Ok(shape), Ok(dtype)) => Tensor::zeros(shape, dtype, value.device().unwrap_or(Device::cpu())),
            _ => value.clone(),
        };
        values.iter().zip(trainable).map(gradient).collect()
    }

    /// Applies the optimizer to all gradients; returns gradient norm and updates.
    fn optimizer_step(&self, gradients: StepGradients<'_>, scalars: &Tensor) -> (Tensor, Vec<Update>) {
        let precision = self.options.precision;
        let step = self.optimizer.step(&self.parameters, gradients, scalars);
        let mut updates = step.updates;
        if precision.dtype() != DType::F32 {
            updates.push(self.weights.set(step.parameters.cast(precision.dtype())));
        }
        (step.grad_norm, updates)
    }

    fn single_batch_step(self) -> Trace<'f> {
        trace(move |inputs| {
            let (batch, inputs) = split(inputs, 3);
            let StepInputs { scalars, loss_scale, random_state } = StepInputs::from_list(inputs)?;
            let (loss, gradients, others) = self.gradients(batch, GradientInputs { loss_scale, random_state });
            let flat = self.weights.flatten(&gradients);
            let gradients = StepGradients { flat: &flat, scale: self.is_scaled().then_some(loss_scale), norm: None };
            let (grad_norm, mut updates) = self.optimizer_step(gradients, scalars);
            updates.extend(others);
            Ok((vec![loss, grad_norm], updates))
        })
    }

    fn accumulate_gradients(self) -> Trace<'f> {
        trace(move |inputs| {
            let (batch, inputs) = split(inputs, 2);
            let (loss, gradients, mut updates) = self.gradients(batch, GradientInputs::from_list(inputs)?);
            let flat = self.weights.flatten(&gradients).cast(DType::F32);
            updates.extend(self.gradients.iter().map(|sums| sums.set(sums.get() + &flat)));
            Ok((vec![loss], updates))
        })
    }

    fn bucket_gradients(self) -> Trace<'f> {
        trace(move |inputs| {
            let (batch, inputs) = split(inputs, 2);
            let (loss, gradients, updates) = self.gradients(batch, GradientInputs::from_list(inputs)?);
            let buckets = self.weights.flatten_buckets(&gradients, &self.buckets);
            Ok(([vec![loss], buckets].concat(), updates))
        })
    }

    fn apply_gradients(self) -> Trace<'f> {
        trace(move |inputs| {
            let ApplyInputs { scalars, loss_scale } = ApplyInputs::from_list(inputs)?;
            let Some(sums) = &self.gradients else { return Ok((vec![], vec![])) };
            let flat = sums.get();
            let scale = self.accumulated_scale(loss_scale, flat.device()?);
            let gradients = StepGradients { flat: &flat, scale: Some(&scale), norm: None };
            let (grad_norm, mut updates) = self.optimizer_step(gradients, scalars);
            // Not multiplied by 0, which would keep values that are not finite.
            updates.push(sums.set(Tensor::zeros(flat.shape()?, DType::F32, flat.device()?)));
            Ok((vec![grad_norm], updates))
        })
    }

    /// Number that accumulated gradients are divided by.
    fn accumulated_scale(&self, loss_scale: &Tensor, device: Device) -> Tensor {
        let batches = self.options.step_batches() as f64;
        match self.is_scaled() {
            true => loss_scale * batches,
            false => Tensor::full(batches, &[], DType::F32, device),
        }
    }

    fn apply_part(self) -> Trace<'f> {
        trace(move |inputs| {
            let ApplyPartInputs { gradients, grad_norm, scalars, loss_scale } = ApplyPartInputs::from_list(inputs)?;
            let scale = self.accumulated_scale(loss_scale, gradients.device()?);
            let gradients = StepGradients { flat: gradients, scale: Some(&scale), norm: Some(grad_norm) };
            let step = self.optimizer.step(&self.parameters, gradients, scalars);
            Ok((vec![step.parameters], step.updates))
        })
    }

    fn evaluation_loss(self) -> Trace<'f> {
        trace(move |batch| {
            let (loss, _) = (self.loss)(&Context::new(self.weights.padded_tensors()), batch);
            Ok((vec![loss.cast(DType::F32)], vec![]))
        })
    }
}
