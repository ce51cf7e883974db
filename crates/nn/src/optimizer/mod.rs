//! Optimizers over flat parameter arenas: updates are elementwise, so one kernel updates all
//! parameters.
//!
//! `schedule.rs` computes learning rates, `muon.rs` orthogonalizes matrices. Nothing here knows
//! models, data or files. Builders such as [`AdamW`] (`train/builder.rs`) compile training steps.

mod muon;
mod schedule;

use std::ops::Range;

use bornite::{
    DType, Device, Tensor, Var,
    fused::{AdamWStep, BiasCorrection, adam_direction, adamw},
    var::{Arena, SegmentValues, Update},
};
use serde::{Deserialize, Serialize};

pub use crate::train::{Adagrad, Adam, AdamW, AnyOptimizer, Muon, OptimizerBuilder, RmsProp, Sgd};
pub use schedule::{LrDecay, LrSchedule};

use crate::parameters::ParameterInfo;
use crate::{Error, Result};

/// Optimizer algorithm with its hyperparameters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
pub enum OptimizerKind {
    /// AdamW: Adam with decoupled weight decay.
    AdamW {
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator for numerical stability.
        eps: f64,
    },
    /// Adam, with weight decay added to the gradient (L2 regularization).
    Adam {
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator for numerical stability.
        eps: f64,
    },
    /// Stochastic gradient descent, with weight decay added to the gradient.
    Sgd {
        /// Momentum factor.
        momentum: f64,
        /// Enables Nesterov momentum.
        nesterov: bool,
    },
    /// RMSprop.
    RmsProp {
        /// Decay rate of the mean squared gradient.
        alpha: f64,
        /// Added to the denominator for numerical stability.
        eps: f64,
    },
    /// Adagrad.
    Adagrad {
        /// Added to the denominator for numerical stability.
        eps: f64,
    },
    /// Muon for the hidden matrices, AdamW for all other parameters.
    Muon {
        /// Momentum factor of the hidden matrices.
        momentum: f64,
        /// Decay rate of the first moment, for all other parameters.
        beta1: f64,
        /// Decay rate of the second moment, for all other parameters.
        beta2: f64,
        /// Added to the denominator for numerical stability, for all other parameters.
        eps: f64,
    },
}

impl OptimizerKind {
    /// AdamW with the usual hyperparameters of GPT training.
    pub const ADAMW: OptimizerKind = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 };

    /// Number of state values per parameter element.
    pub fn moment_count(&self) -> usize {
        match self {
            OptimizerKind::AdamW { .. } | OptimizerKind::Adam { .. } | OptimizerKind::Muon { .. } => 2,
            OptimizerKind::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
            OptimizerKind::RmsProp { .. } | OptimizerKind::Adagrad { .. } => 1,
        }
    }

    /// Validates the hyperparameters.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let (fractions, eps): (&[(&str, f64)], f64) = match self {
            OptimizerKind::AdamW { beta1, beta2, eps } | OptimizerKind::Adam { beta1, beta2, eps } => {
                (&[("beta1", *beta1), ("beta2", *beta2)], *eps)
            }
            OptimizerKind::Sgd { momentum, .. } => (&[("momentum", *momentum)], 1.0),
            OptimizerKind::RmsProp { alpha, eps } => (&[("alpha", *alpha)], *eps),
            OptimizerKind::Adagrad { eps } => (&[], *eps),
            OptimizerKind::Muon { momentum, beta1, beta2, eps } => {
                (&[("momentum", *momentum), ("beta1", *beta1), ("beta2", *beta2)], *eps)
            }
        };
        for (name, value) in fractions {
            if !(0.0..1.0).contains(value) {
                return Err(Error::config(format!("optimizer.{name} is {value}; it must be from 0 to below 1")));
            }
        }
        if !(eps > 0.0 && eps.is_finite()) {
            return Err(Error::config(format!("optimizer.eps is {eps}; it must be above 0")));
        }
        Ok(())
    }
}

/// Per-step scalars: learning rate and the two bias-correction factors. [`Optimizer::step`] takes
/// them packed into one tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct StepScalars<T = f32> {
    /// Learning rate.
    pub learning_rate: T,
    /// Bias correction of the first moment, 1 - β₁ᵗ at step t from 1; 1 for algorithms without it.
    pub bias_correction1: T,
    /// Bias correction of the second moment, 1 - β₂ᵗ; 1 for algorithms without it.
    pub bias_correction2: T,
}

impl StepScalars {
    /// Number of scalars, the length of the packed tensor.
    pub const COUNT: usize = 3;

    /// Packs the scalars into one f32 tensor for [`Optimizer::step`].
    pub fn tensor(self, device: Device) -> Tensor {
        let StepScalars { learning_rate, bias_correction1, bias_correction2 } = self;
        Tensor::from_slice(&[learning_rate, bias_correction1, bias_correction2], &[StepScalars::COUNT], device)
    }
}

impl StepScalars<Tensor> {
    /// Unpacks the tensor that [`StepScalars::tensor`] returns.
    fn unpack(tensor: &Tensor) -> StepScalars<Tensor> {
        let [learning_rate, bias_correction1, bias_correction2] =
            [0, 1, 2].map(|n| tensor.slice(0, n..n + 1).reshape(&[]));
        StepScalars { learning_rate, bias_correction1, bias_correction2 }
    }

    /// Options of an Adam or AdamW step with these scalars.
    fn adam_step(&self, beta1: f64, beta2: f64, eps: f64) -> AdamWStep {
        let factors = [(&self.bias_correction1).into(), (&self.bias_correction2).into()];
        AdamWStep { beta1, beta2, eps, ..AdamWStep::new(&self.learning_rate, BiasCorrection::Factors(factors)) }
    }
}

/// Settings of one parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ParameterSettings {
    /// Weight decay.
    pub weight_decay: f64,
    /// Factor of the learning rate; 0 keeps the parameter unchanged.
    pub lr_multiplier: f64,
    /// Muon orthogonalizes the update of this matrix.
    pub orthogonalize: bool,
}

impl ParameterSettings {
    /// Default settings: weight decay for matrices only, and Muon for the matrices of blocks, not
    /// for embeddings and the output head.
    pub fn new(parameter: &ParameterInfo, weight_decay: f64) -> ParameterSettings {
        let weight_decay = if parameter.has_weight_decay() { weight_decay } else { 0.0 };
        let orthogonalize = parameter.shape.len() == 2 && parameter.name.contains("blocks.");
        ParameterSettings { weight_decay, lr_multiplier: 1.0, orthogonalize }
    }
}

/// An optimizer and its state. Clones share the state.
#[derive(Clone)]
pub(crate) struct Optimizer {
    kind: OptimizerKind,
    /// Weight decay per parameter.
    weight_decay: SegmentValues,
    /// Factors of the learning rate, if one is not 1.
    lr_multipliers: Option<SegmentValues>,
    /// Maximum global gradient norm; larger gradients are scaled down to it.
    clip_norm: Option<f64>,
    /// Elements of the flat parameters that are updated; `None` for all.
    part: Option<Range<usize>>,
    /// One value per updated element.
    moments: Vec<Var>,
    settings: Vec<ParameterSettings>,
}

/// Gradients of a step.
#[derive(Clone, Copy)]
pub(crate) struct StepGradients<'a> {
    /// Flat, in any float type.
    pub flat: &'a Tensor,
    /// They are divided by this.
    pub scale: Option<&'a Tensor>,
    /// Global norm after the division, if `flat` is a part only.
    pub norm: Option<&'a Tensor>,
}

/// Result of [`Optimizer::step`].
pub(crate) struct OptimizerStep {
    /// Updates of the moments and, unless only a part was updated, of the parameters.
    pub updates: Vec<Update>,
    /// New parameters, or the new part, flat, in f32: the source of 16-bit copies.
    pub parameters: Tensor,
    /// Global gradient norm before clipping.
    pub grad_norm: Tensor,
}

impl Optimizer {
    /// Creates an optimizer for an f32 arena, or for a part of its flat tensor, with settings for
    /// each of its tensors.
    #[track_caller]
    pub fn new(
        kind: OptimizerKind,
        clip_norm: Option<f64>,
        settings: Vec<ParameterSettings>,
        arena: &Arena,
        part: Option<Range<usize>>,
    ) -> Result<Optimizer> {
        kind.check()?;
        if let Some(clip_norm) = clip_norm.filter(|clip_norm| clip_norm.is_nan() || *clip_norm <= 0.0) {
            let what = format!("optimizer.clip_norm is {clip_norm}; it must be above 0 (omit it for no clipping)");
            return Err(Error::config(what));
        }
        let weight_decay = arena.segment_values(&vec![0.0; arena.segments().count()])?;
        if matches!(kind, OptimizerKind::Muon { .. }) && part.is_some() {
            return Err(Error::config(
                "the optimizer state of muon cannot be sharded: it updates complete matrices; use another optimizer, or \
                 train.shard_optimizer=false",
            ));
        }
        let elements = part.as_ref().map_or(weight_decay.elements(), ExactSizeIterator::len);
        let zeros = Tensor::zeros(&[elements], DType::F32, arena.get().device()?);
        let moments = (0..kind.moment_count()).map(|_| Var::new(&zeros)).collect::<bornite::Result<_>>()?;
        let empty = Optimizer { kind, weight_decay, lr_multipliers: None, clip_norm, part, moments, settings: vec![] };
        empty.set_settings(settings, arena)
    }

    /// Replaces the settings of the parameters. The result shares the state.
    #[track_caller]
    pub fn set_settings(&self, settings: Vec<ParameterSettings>, arena: &Arena) -> Result<Optimizer> {
        for ParameterSettings { weight_decay, lr_multiplier, .. } in &settings {
            check_weight_decay(*weight_decay)?;
            if !(*lr_multiplier >= 0.0 && lr_multiplier.is_finite()) {
                return Err(Error::config(format!("the lr multiplier is {lr_multiplier}; it must be 0 or more")));
            }
        }
        let values = |value: fn(&ParameterSettings) -> f64| -> Result<SegmentValues> {
            let all = arena.segment_values(&settings.iter().map(value).collect::<Vec<_>>())?;
            Ok(self.part.clone().map_or(all.clone(), |part| all.slice(part)))
        };
        let weight_decay = values(|settings| settings.weight_decay)?;
        let has_multipliers = settings.iter().any(|settings| settings.lr_multiplier != 1.0);
        let lr_multipliers = has_multipliers.then(|| values(|settings| settings.lr_multiplier)).transpose()?;
        Ok(Optimizer { weight_decay, lr_multipliers, settings, ..self.clone() })
    }

    /// Optimizer state: one value per moment and updated element.
    pub fn moments(&self) -> &[Var] {
        &self.moments
    }

    /// Elements of the flat parameters that are updated; `None` for all.
    pub fn part(&self) -> Option<Range<usize>> {
        self.part.clone()
    }

    /// Returns the scalars of step `step`, counted from 1.
    pub fn scalars(&self, learning_rate: f64, step: u64) -> StepScalars {
        let correction = |beta: f64| (1.0 - beta.powf(step as f64)) as f32;
        let (bias_correction1, bias_correction2) = match self.kind {
            OptimizerKind::AdamW { beta1, beta2, .. }
            | OptimizerKind::Adam { beta1, beta2, .. }
            | OptimizerKind::Muon { beta1, beta2, .. } => (correction(beta1), correction(beta2)),
            _ => (1.0, 1.0),
        };
        StepScalars { learning_rate: learning_rate as f32, bias_correction1, bias_correction2 }
    }

    /// Computes a step; `scalars` is the packed tensor of [`Optimizer::scalars`].
    pub fn step(&self, parameters: &Arena, gradients: StepGradients<'_>, scalars: &Tensor) -> OptimizerStep {
        let g = gradients.flat.cast(DType::F32);
        let g = gradients.scale.map_or(g.clone(), |scale| g / scale);
        let grad_norm = gradients.norm.cloned().unwrap_or_else(|| (&g * &g).sum(..).sqrt());
        let finite = grad_norm.lt(f64::INFINITY); // false also for NaN
        // As in PyTorch's `clip_grad_norm_`.
        let clip_factor = self.clip_norm.map(|clip_norm| (clip_norm / (&grad_norm + 1e-6)).clamp(0.0, 1.0));
        let scalars = StepScalars::unpack(scalars);
        let all = parameters.get();
        let own = self.part.as_ref().map_or(all.clone(), |part| all.slice(0, part.start as isize..part.end as isize));
        let old: Vec<Tensor> = std::iter::once(own).chain(self.moments.iter().map(Var::get)).collect();
        let (p, m) = (&old[0], &old[1..]);
        let multipliers = self.lr_multipliers.as_ref().map(SegmentValues::tensor);
        let lr = &multipliers.map_or(scalars.learning_rate.clone(), |factors| factors * &scalars.learning_rate);
        let clipped = || clip_factor.as_ref().map_or(g.clone(), |factor| &g * factor);
        let decay = || self.weight_decay.tensor();
        let with_decay = || clipped() + decay() * p;
        let new = match self.kind {
            OptimizerKind::AdamW { beta1, beta2, eps } if self.lr_multipliers.is_some() => {
                let step = scalars.adam_step(beta1, beta2, eps);
                let [direction, first, second] = adam_direction(&step, &clipped(), &m[0], &m[1]);
                if_finite(&finite, &old, [p * (1.0 - decay() * lr) - direction * lr, first, second])
            }
            OptimizerKind::AdamW { beta1, beta2, eps } => {
                let step = AdamWStep {
                    weight_decay: self.weight_decay.clone().into(),
                    gradient_factor: clip_factor.clone(),
                    finite: Some(finite.clone()),
                    ..scalars.adam_step(beta1, beta2, eps)
                };
                adamw(&step, p, &g, &m[0], &m[1]).to_vec()
            }
            OptimizerKind::Adam { beta1, beta2, eps } => {
                let step = scalars.adam_step(beta1, beta2, eps);
                let [direction, first, second] = adam_direction(&step, &with_decay(), &m[0], &m[1]);
                if_finite(&finite, &old, [p - direction * lr, first, second])
            }
            OptimizerKind::Sgd { momentum, nesterov } => {
                let g = with_decay();
                match m.first() {
                    None => if_finite(&finite, &old, [p - g * lr]),
                    Some(velocity) => {
                        let velocity = velocity * momentum + &g;
                        let direction = if nesterov { &g + &velocity * momentum } else { velocity.clone() };
                        if_finite(&finite, &old, [p - direction * lr, velocity])
                    }
                }
            }
            OptimizerKind::RmsProp { alpha, eps } => {
                let g = with_decay();
                let squares = &m[0] * alpha + &g * &g * (1.0 - alpha);
                if_finite(&finite, &old, [p - &g / (squares.sqrt() + eps) * lr, squares])
            }
            OptimizerKind::Adagrad { eps } => {
                let g = with_decay();
                let squares = &m[0] + &g * &g;
                if_finite(&finite, &old, [p - &g / (squares.sqrt() + eps) * lr, squares])
            }
            OptimizerKind::Muon { momentum, beta1, beta2, eps } => {
                let g = clipped();
                let step = scalars.adam_step(beta1, beta2, eps);
                let [direction, first, second] = adam_direction(&step, &g, &m[0], &m[1]);
                let velocity = &m[0] * momentum + &g;
                let chosen: Vec<bool> = self.settings.iter().map(|settings| settings.orthogonalize).collect();
                let by_segment: Vec<f64> = chosen.iter().map(|chosen| f64::from(*chosen)).collect();
                let is_chosen = parameters.expand_segment_values(&by_segment).gt(0.0);
                let orthogonal = muon::directions(&chosen, parameters, &(&g + &velocity * momentum));
                let first = is_chosen.select(&velocity, &first);
                let direction = is_chosen.select(&orthogonal, &direction);
                if_finite(&finite, &old, [p * (1.0 - decay() * lr) - direction * lr, first, second])
            }
        };
        let parameters = self.part.is_none().then(|| parameters.set(new[0].clone()));
        let moments = self.moments.iter().zip(&new[1..]).map(|(moment, new)| moment.set(new.clone()));
        let updates = parameters.into_iter().chain(moments).collect();
        OptimizerStep { updates, parameters: new[0].clone(), grad_norm }
    }
}

#[track_caller]
fn check_weight_decay(weight_decay: f64) -> Result<()> {
    if weight_decay >= 0.0 && weight_decay.is_finite() {
        return Ok(());
    }
    Err(Error::config(format!("optimizer.weight_decay is {weight_decay}; it must be 0 or more")))
}

/// Selects the new values if the gradients are finite, else the old ones.
fn if_finite<const N: usize>(finite: &Tensor, old: &[Tensor], new: [Tensor; N]) -> Vec<Tensor> {
    new.iter().zip(old).map(|(new, old)| finite.select(new, old)).collect()
}
