//! A training step compiled from a loss.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bornite::{Tensor, plan::PlanSummary, trace::TensorSpec, var::Update};

use super::engine::Engine;
use super::optimizer_state::{OptimizerState, lock};
use super::pending::PendingStep;
use super::step_traces::{LossFunction, StepTraces};
use crate::Result;
use crate::error::located;
use crate::parameters::{Context, Params};

/// A training step: see [`OptimizerBuilder::compile`](super::OptimizerBuilder::compile).
pub struct TrainStep<'f> {
    state: Arc<Mutex<OptimizerState>>,
    loss: LossFunction<'f>,
    /// Traced functions, with the version of the optimizer's settings.
    traces: Mutex<Option<(u64, Arc<StepTraces<'f>>)>>,
}

impl<'f> TrainStep<'f> {
    pub(crate) fn new(
        state: Arc<Mutex<OptimizerState>>,
        params: Params,
        loss: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'f,
    ) -> TrainStep<'f> {
        let loss = move |context: &Context, batch: &[Tensor]| {
            let value = context.run(&params, || loss(batch));
            (checked_loss(value, context), buffer_updates(&params, context))
        };
        TrainStep { state, loss: Arc::new(loss), traces: Mutex::new(None) }
    }

    /// Runs the step on a batch: computes loss and gradients, and updates the parameters. Returns
    /// before the step has finished; [`PendingStep::loss`] waits for it. After an error, nothing
    /// has changed.
    ///
    /// With [`accumulate`](super::OptimizerBuilder::accumulate), only every n-th call updates the
    /// parameters.
    #[track_caller]
    pub fn call(&self, batch: &[Tensor]) -> Result<PendingStep> {
        located(|| {
            let mut state = lock(&self.state);
            let lr = state.current_lr();
            let version = {
                state.current_engine()?;
                state.version
            };
            let engine = state.engine()?;
            let (traces, loss_scale) = (self.traces(engine, version), engine.loss_scale.scale);
            let (loss, grad_norm) = engine.launch(&traces, batch.to_vec(), lr)?;
            if let Some(norm) = &grad_norm {
                state.note_norm(norm);
            }
            let losses = VecDeque::from([loss]);
            Ok(PendingStep { losses, batches: 1, partial_loss: 0.0, grad_norm, loss_scale })
        })
    }

    /// Runs an optimizer step, of several batches if gradients are accumulated, from batches of a
    /// callback that receives the index of each. If it returns `None`, or the step is interrupted
    /// (see [`bornite::runtime::interruptible`]), the parameters are unchanged and the result is
    /// `None`. The caller updates the loss scale.
    pub(crate) fn step_from(
        &self,
        batch: &mut dyn FnMut(usize) -> Result<Option<Vec<Tensor>>>,
    ) -> Result<Option<PendingStep>> {
        let lr = lock(&self.state).current_lr();
        self.with_engine(|engine, traces| engine.step_from(traces, batch, lr))
    }

    /// Returns the loss of a batch in evaluation mode, in the precision of the step.
    #[track_caller]
    pub fn evaluate(&self, batch: &[Tensor]) -> Result<f64> {
        located(|| self.with_engine(|engine, traces| engine.evaluate(traces, batch)))
    }

    /// Explains the plan of a step on a batch of these tensors: kernels, and memory in addition to
    /// parameters and optimizer state. Nothing runs.
    #[track_caller]
    pub fn explain(&self, batch: &[TensorSpec]) -> Result<PlanSummary> {
        located(|| self.with_engine(|engine, traces| engine.explain(traces, batch.to_vec())))
    }

    /// Calls a function with the state of training and the traced functions.
    fn with_engine<R>(&self, work: impl FnOnce(&mut Engine, &StepTraces<'f>) -> Result<R>) -> Result<R> {
        let mut state = lock(&self.state);
        state.engine()?;
        let version = state.version;
        let engine = state.engine()?;
        let traces = self.traces(engine, version);
        work(engine, &traces)
    }

    /// The traced functions for the current settings of the optimizer.
    fn traces(&self, engine: &Engine, version: u64) -> Arc<StepTraces<'f>> {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        match &*traces {
            Some((known, traces)) if *known == version => traces.clone(),
            _ => {
                let new = Arc::new(engine.traces(self.loss.clone()));
                *traces = Some((version, new.clone()));
                new
            }
        }
    }
}

/// The loss, or a failed tensor if it cannot be one.
fn checked_loss(loss: Tensor, context: &Context) -> Tensor {
    match (loss.shape(), loss.dtype()) {
        (Ok(shape), _) if !shape.is_empty() => {
            Tensor::failed("compile", format!("the loss has shape {shape:?}; expected a scalar, such as loss.mean(..)"))
        }
        (_, Ok(dtype)) if !dtype.is_float() => {
            Tensor::failed("compile", format!("the loss is {dtype}; expected a float"))
        }
        (Ok(_), Ok(_)) if !context.was_read() => {
            let what = "the loss depends on no parameter of the optimizer; create the optimizer for the Params that \
                        the model was declared in";
            Tensor::failed("compile", what)
        }
        _ => loss,
    }
}

/// Updates of the buffers that a forward pass changed.
fn buffer_updates(params: &Params, context: &Context) -> Vec<Update> {
    let changed = context.take_buffers();
    let buffers = params.values().ok().and_then(|values| values.buffers);
    let Some(buffers) = buffers.filter(|_| !changed.is_empty()) else { return vec![] };
    let mut values = buffers.tensors();
    for (index, value) in changed {
        if let Some(slot) = values.get_mut(index) {
            *slot = value;
        }
    }
    vec![buffers.set(buffers.flatten(&values))]
}
