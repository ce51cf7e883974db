//! Optimizers of a model: settings, and training steps compiled from a loss.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, Mutex};

use bornite::Tensor;
use serde::{Deserialize, Serialize};

use super::compiled_step::TrainStep;
use super::data_parallel::DataParallel;
use super::engine::Engine;
use super::optimizer_state::{GroupChange, OptimizerState, ParameterGroup, lock};
use super::precision::{LossScale, Precision};
use crate::Result;
use crate::checkpoint::Tensors;
use crate::optimizer::{LrSchedule, OptimizerKind};
use crate::parameters::{Params, Weights};

/// An optimization algorithm with its default settings.
pub trait OptimizerAlgorithm {
    /// Default hyperparameters.
    const KIND: OptimizerKind;
    /// Default learning rate.
    const LR: f64;
    /// Default weight decay.
    const WEIGHT_DECAY: f64 = 0.0;
}

/// Defines algorithms and the optimizer type of each.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $name:ident($marker:ident) = $kind:expr, $lr:expr, $decay:expr;)+) => { $(
        $(#[$doc])*
        pub type $name = OptimizerBuilder<$marker>;

        #[doc = concat!("Algorithm of [`", stringify!($name), "`].")]
        pub enum $marker {}

        impl OptimizerAlgorithm for $marker {
            const KIND: OptimizerKind = $kind;
            const LR: f64 = $lr;
            const WEIGHT_DECAY: f64 = $decay;
        }
    )+ };
}

algorithms! {
    /// AdamW: Adam with decoupled weight decay, of matrices only. Learning rate 1e-3, betas 0.9 and
    /// 0.999, eps 1e-8, weight decay 0.01 by default.
    ///
    /// ```
    /// use bornite_nn::prelude::*;
    /// # fn main() -> Result<()> {
    /// let device = Device::cpu();
    /// let params = Params::new(device, 0);
    /// let layer = Linear::new(&params, 2, 1);
    /// let adam = AdamW::new(&params).lr(0.1).clip_norm(1.0);
    /// let step = adam.compile(|b: &[Tensor]| layer.forward(&b[0]).mse(&b[1]));
    /// let x = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0], &[2, 2], device);
    /// let y = Tensor::from_slice(&[2.0f32, 3.0], &[2, 1], device);
    /// for _ in 0..100 {
    ///     step.call(&[x.clone(), y.clone()])?;
    /// }
    /// assert!(step.call(&[x, y])?.loss()? < 0.01);
    /// # Ok(())
    /// # }
    /// ```
    AdamW(AdamWAlgorithm) = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 }, 1e-3, 0.01;
    /// Adam, with weight decay added to the gradient. Learning rate 1e-3, betas 0.9 and 0.999, eps
    /// 1e-8, no weight decay by default.
    Adam(AdamAlgorithm) = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 }, 1e-3, 0.0;
    /// Stochastic gradient descent, with weight decay added to the gradient. Learning rate 1e-2, no
    /// momentum, no weight decay by default.
    Sgd(SgdAlgorithm) = OptimizerKind::Sgd { momentum: 0.0, nesterov: false }, 1e-2, 0.0;
    /// RMSprop. Learning rate 1e-2, alpha 0.99, eps 1e-8, no weight decay by default.
    RmsProp(RmsPropAlgorithm) = OptimizerKind::RmsProp { alpha: 0.99, eps: 1e-8 }, 1e-2, 0.0;
    /// Adagrad. Learning rate 1e-2, eps 1e-10, no weight decay by default.
    Adagrad(AdagradAlgorithm) = OptimizerKind::Adagrad { eps: 1e-10 }, 1e-2, 0.0;
    /// Muon for the matrices whose names contain `blocks.` (see
    /// [`OptimizerBuilder::orthogonalize`]), AdamW for all other parameters. Learning rate 1e-3,
    /// momentum 0.95, weight decay 0.1 by default.
    Muon(MuonAlgorithm) =
        OptimizerKind::Muon { momentum: 0.95, beta1: 0.9, beta2: 0.95, eps: 1e-8 }, 1e-3, 0.1;
}

/// An optimizer whose algorithm is chosen at run time: see [`OptimizerBuilder::of_kind`].
pub type AnyOptimizer = OptimizerBuilder<AnyAlgorithm>;

/// Algorithm of [`AnyOptimizer`].
pub enum AnyAlgorithm {}

/// State of an optimizer that is not a tensor, for a checkpoint.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct OptimizerProgress {
    pub steps: u64,
    pub loss_scale: LossScale,
    /// Batches whose gradients were accumulated since the last step.
    pub accumulated: usize,
}

/// An optimizer for all parameters of a [`Params`]: [`AdamW`], [`Adam`], [`Sgd`], [`RmsProp`],
/// [`Adagrad`] or [`Muon`]. Clones share settings and state.
///
/// Settings come first, except for the learning rate, which may change at any time;
/// [`compile`](OptimizerBuilder::compile) then gives a training step, which
/// handles gradients, step count, bias correction, dropout, running statistics and 16-bit copies.
pub struct OptimizerBuilder<A> {
    state: Arc<Mutex<OptimizerState>>,
    algorithm: PhantomData<fn() -> A>,
}

impl<A> Clone for OptimizerBuilder<A> {
    fn clone(&self) -> OptimizerBuilder<A> {
        OptimizerBuilder { state: self.state.clone(), algorithm: PhantomData }
    }
}

impl<A: OptimizerAlgorithm> OptimizerBuilder<A> {
    /// Creates an optimizer with the default settings of the algorithm.
    pub fn new(params: &Params) -> OptimizerBuilder<A> {
        OptimizerBuilder::with_defaults(params, A::KIND, A::LR, A::WEIGHT_DECAY)
    }
}

impl OptimizerBuilder<AnyAlgorithm> {
    /// Creates an optimizer with an algorithm that is chosen at run time, such as by a setting.
    /// Learning rate 1e-3, no weight decay by default.
    ///
    /// ```
    /// use bornite_nn::{optimizer::{AnyOptimizer, OptimizerKind}, prelude::*};
    /// # fn main() -> Result<()> {
    /// let params = Params::new(Device::cpu(), 0);
    /// let layer = Linear::new(&params, 2, 1);
    /// let x = Tensor::ones(&[1, 2], DType::F32, Device::cpu());
    /// for kind in [OptimizerKind::ADAMW, OptimizerKind::Adagrad { eps: 1e-10 }] {
    ///     let optimizer = AnyOptimizer::of_kind(&params, kind).lr(0.1);
    ///     optimizer.compile(|b: &[Tensor]| layer.forward(&b[0]).square().mean(..)).call(&[x.clone()])?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_kind(params: &Params, kind: OptimizerKind) -> AnyOptimizer {
        OptimizerBuilder::with_defaults(params, kind, 1e-3, 0.0)
    }
}

impl<A> OptimizerBuilder<A> {
    fn with_defaults(params: &Params, kind: OptimizerKind, lr: f64, weight_decay: f64) -> OptimizerBuilder<A> {
        let state = OptimizerState::new(params, kind, lr, weight_decay);
        OptimizerBuilder { state: Arc::new(Mutex::new(state)), algorithm: PhantomData }
    }

    /// Changes a setting that the state of training depends on.
    #[track_caller]
    fn with(self, set: impl FnOnce(&mut OptimizerState)) -> Self {
        let mut state = lock(&self.state);
        if state.engine.is_some() && state.late_setting.is_none() {
            state.late_setting = Some(Location::caller());
        }
        set(&mut state);
        drop(state);
        self
    }

    /// Sets the learning rate.
    pub fn lr(self, lr: f64) -> Self {
        self.set_lr(lr);
        self
    }

    /// Sets a schedule of the learning rate over `total_steps` steps.
    pub fn schedule(self, schedule: LrSchedule, total_steps: u64) -> Self {
        lock(&self.state).schedule = Some((schedule, total_steps));
        self
    }

    /// Sets the weight decay of matrices; vectors and scalars, such as biases and norms, have none.
    #[track_caller]
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        self.with(|state| state.weight_decay = weight_decay)
    }

    /// Sets the maximum global gradient norm; larger gradients are scaled down to it.
    #[track_caller]
    pub fn clip_norm(self, clip_norm: f64) -> Self {
        self.with(|state| state.clip_norm = Some(clip_norm))
    }

    /// Sets the precision of forward and backward pass. With a 16-bit type, the step runs on a
    /// rounded copy of the f32 parameters; f16 has dynamic loss scaling.
    #[track_caller]
    pub fn precision(self, precision: Precision) -> Self {
        self.with(|state| state.precision = precision)
    }

    /// Gradient accumulation: every `batches`-th call of the step updates the parameters, by the
    /// mean gradient.
    #[track_caller]
    pub fn accumulate(self, batches: usize) -> Self {
        self.with(|state| state.accumulate = batches)
    }

    /// Data-parallel training: every rank calls the step with batches of its own, and each step
    /// applies the mean gradient over all ranks. The initial parameters are those of rank 0. A
    /// loss is that of this rank's batch; [`DataParallel::mean`] averages over ranks. Each rank has
    /// its own values of variables that the loss updates, such as the running statistics of batch
    /// norms. After an error, a rank must end: the others no longer match it. [`Fit`](super::Fit)
    /// does not support it.
    #[track_caller]
    pub fn data_parallel(self, ranks: &DataParallel) -> Self {
        self.with(|state| state.ranks = Some(ranks.clone()).filter(|ranks| ranks.size() > 1))
    }

    /// Multiplies the learning rate of parameters whose names match a pattern, in which `*` matches
    /// any characters: `"head.*"`, `"*.bias"`. The last matching setting applies; a pattern that
    /// matches nothing is an error.
    #[track_caller]
    pub fn lr_multiplier(self, pattern: &str, multiplier: f64) -> Self {
        self.with_group(pattern, GroupChange::LrMultiplier(multiplier))
    }

    /// Sets the weight decay of parameters whose names match a pattern: see
    /// [`lr_multiplier`](OptimizerBuilder::lr_multiplier).
    #[track_caller]
    pub fn weight_decay_of(self, pattern: &str, weight_decay: f64) -> Self {
        self.with_group(pattern, GroupChange::WeightDecay(weight_decay))
    }

    #[track_caller]
    fn with_group(self, pattern: &str, change: GroupChange) -> Self {
        self.with(|state| state.groups.push(ParameterGroup { pattern: pattern.into(), change }))
    }

    /// Changes the learning rate during training; replaces a schedule.
    pub fn set_lr(&self, lr: f64) {
        let mut state = lock(&self.state);
        (state.lr, state.schedule) = (lr, None);
    }

    /// Returns the learning rate of the next step.
    pub fn current_lr(&self) -> f64 {
        lock(&self.state).current_lr()
    }

    /// Returns the number of completed steps.
    pub fn steps(&self) -> u64 {
        lock(&self.state).engine.as_ref().map_or(0, |engine| engine.steps)
    }

    /// Returns the parameters.
    pub fn params(&self) -> Params {
        lock(&self.state).params.clone()
    }

    pub(super) fn is_data_parallel(&self) -> bool {
        lock(&self.state).ranks.is_some()
    }

    /// Compiles a training step from the loss of a batch: a scalar. It is traced at the first call,
    /// and again for batches of other shapes.
    ///
    /// The loss is computed in training mode: dropout is active, batch norms use the statistics of
    /// the batch. Everything outside of training steps is in evaluation mode.
    #[must_use = "a training step does nothing until it is called"]
    pub fn compile<'f>(&self, loss: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'f) -> TrainStep<'f> {
        TrainStep::new(self.state.clone(), self.params(), loss)
    }

    /// Returns the optimizer state, for a checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<(Tensors, OptimizerProgress)> {
        let mut state = lock(&self.state);
        let engine = state.current_engine()?;
        let mut tensors = engine.moments()?;
        tensors.extend(engine.accumulated_gradients());
        let Engine { steps, loss_scale, accumulated, .. } = *engine;
        Ok((tensors, OptimizerProgress { steps, loss_scale, accumulated }))
    }

    /// Restores the state of a checkpoint. The parameters are restored separately.
    pub(crate) fn restore(&self, moments: &Tensors, progress: OptimizerProgress) -> Result<()> {
        let mut state = lock(&self.state);
        let engine = state.current_engine()?;
        engine.load_moments(moments)?;
        engine.load_gradients(moments, progress.accumulated)?;
        (engine.steps, engine.loss_scale) = (progress.steps, progress.loss_scale);
        Ok(())
    }

    /// Updates the loss scale after a step of [`TrainStep::step_from`] whose gradients were finite
    /// or not.
    pub(crate) fn update_loss_scale(&self, finite: bool) -> Result<()> {
        lock(&self.state).engine()?.update_loss_scale(finite);
        Ok(())
    }

    /// Returns the weights that training steps run on, in the dtype of the precision.
    pub(crate) fn weights(&self) -> Result<Weights> {
        Ok(lock(&self.state).engine()?.weights.clone())
    }
}

/// Defines setters of hyperparameters that some algorithms have.
macro_rules! hyperparameters {
    ($($(#[$doc:meta])* $marker:ident: $name:ident($($field:ident: $type:ty),+) in $kind:ident;)+) => { $(
        impl OptimizerBuilder<$marker> {
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self, $($field: $type),+) -> Self {
                self.with(|state| {
                    $(let new = $field;
                    if let OptimizerKind::$kind { $field, .. } = &mut state.kind {
                        *$field = new;
                    })+
                })
            }
        }
    )+ };
}

hyperparameters! {
    /// Sets the decay rates of the moments.
    AdamWAlgorithm: betas(beta1: f64, beta2: f64) in AdamW;
    /// Sets the decay rates of the moments.
    AdamAlgorithm: betas(beta1: f64, beta2: f64) in Adam;
    /// Sets the decay rates of the moments, for parameters that are not orthogonalized.
    MuonAlgorithm: betas(beta1: f64, beta2: f64) in Muon;
    /// Sets the value that is added to the denominator for numerical stability.
    AdamWAlgorithm: eps(eps: f64) in AdamW;
    /// Sets the value that is added to the denominator for numerical stability.
    AdamAlgorithm: eps(eps: f64) in Adam;
    /// Sets the value that is added to the denominator for numerical stability.
    RmsPropAlgorithm: eps(eps: f64) in RmsProp;
    /// Sets the value that is added to the denominator for numerical stability.
    AdagradAlgorithm: eps(eps: f64) in Adagrad;
    /// Sets the momentum factor.
    SgdAlgorithm: momentum(momentum: f64) in Sgd;
    /// Enables Nesterov momentum.
    SgdAlgorithm: nesterov(nesterov: bool) in Sgd;
    /// Sets the decay rate of the mean squared gradient.
    RmsPropAlgorithm: alpha(alpha: f64) in RmsProp;
    /// Sets the momentum factor of orthogonalized matrices.
    MuonAlgorithm: momentum(momentum: f64) in Muon;
}

impl OptimizerBuilder<MuonAlgorithm> {
    /// Orthogonalizes the updates of the matrices whose names match a pattern, in addition to those
    /// with `blocks.` in their names: see [`lr_multiplier`](OptimizerBuilder::lr_multiplier).
    #[track_caller]
    pub fn orthogonalize(self, pattern: &str) -> Self {
        self.with_group(pattern, GroupChange::Orthogonalize)
    }
}
