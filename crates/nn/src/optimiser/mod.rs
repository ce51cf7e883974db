//! Optimisers over flat arenas: each is a function of elements, so one kernel updates all parameters.

mod muon;
mod rate;

use bornite::{
    DType, Device, Tensor,
    fused::{AdamWStep, BiasCorrection, adam_direction, adamw},
    var::{Arena, SegmentValues, Update},
};
use serde::{Deserialize, Serialize};

pub use rate::{Fall, Rate};

use crate::parameters::Declarations;
use crate::{Error, Result};

/// Which rule moves parameters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// Moments of gradients, with decay apart from them.
    Adamw {
        /// How much of the first moment is kept.
        beta1: f64,
        /// How much of the second moment is kept.
        beta2: f64,
        /// What keeps the quotient finite.
        eps: f64,
    },
    /// As AdamW, with decay as part of the gradient.
    Adam {
        /// How much of the first moment is kept.
        beta1: f64,
        /// How much of the second moment is kept.
        beta2: f64,
        /// What keeps the quotient finite.
        eps: f64,
    },
    /// Down the gradient, with decay as part of it.
    Sgd {
        /// How much of the last move is kept.
        momentum: f64,
        /// Whether to look ahead along it.
        nesterov: bool,
    },
    /// By the root of a running mean of squares.
    Rmsprop {
        /// How much of the mean is kept.
        alpha: f64,
        /// What keeps the quotient finite.
        eps: f64,
    },
    /// By the root of the sum of all squares.
    Adagrad {
        /// What keeps the quotient finite.
        eps: f64,
    },
    /// Matrices along the nearest orthogonal matrix to their momentum, the rest as AdamW.
    Muon {
        /// How much of the momentum is kept.
        momentum: f64,
        /// How much of the first moment is kept, for what is no hidden matrix.
        beta1: f64,
        /// How much of the second moment is kept.
        beta2: f64,
        /// What keeps the quotient finite.
        eps: f64,
    },
}

impl Rule {
    /// AdamW as GPTs are trained.
    pub const ADAMW: Rule = Rule::Adamw { beta1: 0.9, beta2: 0.95, eps: 1e-8 };

    /// How many numbers a parameter are kept between steps.
    pub fn moments(&self) -> usize {
        match self {
            Rule::Adamw { .. } | Rule::Adam { .. } | Rule::Muon { .. } => 2,
            Rule::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
            Rule::Rmsprop { .. } | Rule::Adagrad { .. } => 1,
        }
    }

    /// Refuses what cannot be.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let (kept, eps): (&[(&str, f64)], f64) = match self {
            Rule::Adamw { beta1, beta2, eps } | Rule::Adam { beta1, beta2, eps } => {
                (&[("beta1", *beta1), ("beta2", *beta2)], *eps)
            }
            Rule::Sgd { momentum, .. } => (&[("momentum", *momentum)], 1.0),
            Rule::Rmsprop { alpha, eps } => (&[("alpha", *alpha)], *eps),
            Rule::Adagrad { eps } => (&[], *eps),
            Rule::Muon { momentum, beta1, beta2, eps } => {
                (&[("momentum", *momentum), ("beta1", *beta1), ("beta2", *beta2)], *eps)
            }
        };
        for (name, value) in kept {
            if !(0.0..1.0).contains(value) {
                return Err(Error::config(format!("optimiser.{name} is {value}; it must be from 0 to below 1")));
            }
        }
        if !(eps > 0.0 && eps.is_finite()) {
            return Err(Error::config(format!("optimiser.eps is {eps}; it must be above 0")));
        }
        Ok(())
    }
}

/// Step scalars: learning rate and bias-correction factors of one step. They are numbers on the host and tensors in
/// [`Optimiser::step`], which takes them as one tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepScalars<T = f32> {
    /// Learning rate.
    pub learning_rate: T,
    /// Bias correction of the first moment, 1 - β₁ᵗ at step t from 1; 1 for rules without it.
    pub bias_correction1: T,
    /// Bias correction of the second moment, 1 - β₂ᵗ; 1 for rules without it.
    pub bias_correction2: T,
}

impl StepScalars {
    /// Elements of the tensor of all scalars.
    pub const COUNT: usize = 3;

    /// One tensor of all scalars, f32, for [`Optimiser::step`].
    pub fn tensor(self, device: Device) -> Tensor {
        let StepScalars { learning_rate, bias_correction1, bias_correction2 } = self;
        Tensor::from_slice(&[learning_rate, bias_correction1, bias_correction2], &[StepScalars::COUNT], device)
    }
}

impl StepScalars<Tensor> {
    /// The scalars of the tensor that [`StepScalars::tensor`] makes.
    fn unpack(tensor: &Tensor) -> StepScalars<Tensor> {
        let [learning_rate, bias_correction1, bias_correction2] =
            [0, 1, 2].map(|n| tensor.slice(0, n..n + 1).reshape(&[]));
        StepScalars { learning_rate, bias_correction1, bias_correction2 }
    }

    /// A step of Adam or AdamW with these scalars.
    fn adam_step(&self, beta1: f64, beta2: f64, eps: f64) -> AdamWStep {
        let factors = [(&self.bias_correction1).into(), (&self.bias_correction2).into()];
        AdamWStep { beta1, beta2, eps, ..AdamWStep::new(&self.learning_rate, BiasCorrection::Factors(factors)) }
    }
}

/// An optimiser with what it keeps. Cloning copies handles.
#[derive(Clone)]
pub struct Optimiser {
    rule: Rule,
    /// Weight decay: of matrices only.
    weight_decay: SegmentValues,
    /// Largest norm of all gradients together; what is above is scaled down to it.
    clip: Option<f64>,
    moments: Vec<Arena>,
    declared: Declarations,
}

/// What a step makes: updates, and numbers about it.
pub struct Stepped {
    /// New parameters and moments.
    pub updates: Vec<Update>,
    /// The new parameters, flat, in f32: what copies of them in 16 bits are made from.
    pub parameters: Tensor,
    /// The norm of all gradients before it was clipped.
    pub norm: Tensor,
    /// Whether that was finite. If not, nothing changes.
    pub finite: Tensor,
}

impl Optimiser {
    /// An optimiser for the parameters of an arena in f32.
    #[track_caller]
    pub fn new(
        rule: Rule,
        decay: f64,
        clip: Option<f64>,
        declared: &Declarations,
        parameters: &Arena,
    ) -> Result<Optimiser> {
        rule.check()?;
        if !(decay >= 0.0 && decay.is_finite()) {
            return Err(Error::config(format!("optimiser.decay is {decay}; it must not be negative")));
        }
        if clip.is_some_and(|clip| clip.is_nan() || clip <= 0.0) {
            return Err(Error::config("optimiser.clip must be above 0; leave it out for no clipping"));
        }
        let moments = (0..rule.moments()).map(|_| parameters.like(DType::F32, 0.0)).collect::<bornite::Result<_>>()?;
        let weight_decay = parameters.segment_values(&declared.each(|d| if d.decays() { decay } else { 0.0 }))?;
        Ok(Optimiser { rule, weight_decay, clip, moments, declared: declared.clone() })
    }

    /// What is kept between steps, to be saved.
    pub fn moments(&self) -> &[Arena] {
        &self.moments
    }

    /// The scalars of a step, counted from 1.
    pub fn scalars(&self, learning_rate: f64, step: u64) -> StepScalars {
        let correction = |beta: f64| (1.0 - beta.powf(step as f64)) as f32;
        let (bias_correction1, bias_correction2) = match self.rule {
            Rule::Adamw { beta1, beta2, .. } | Rule::Adam { beta1, beta2, .. } | Rule::Muon { beta1, beta2, .. } => {
                (correction(beta1), correction(beta2))
            }
            _ => (1.0, 1.0),
        };
        StepScalars { learning_rate: learning_rate as f32, bias_correction1, bias_correction2 }
    }

    /// A step from flat gradients, in any float type, divided by `scale`. `scalars` is the tensor of [`Optimiser::scalars`].
    pub fn step(&self, parameters: &Arena, gradients: &Tensor, scale: Option<&Tensor>, scalars: &Tensor) -> Stepped {
        let g = gradients.cast(DType::F32);
        let g = scale.map_or(g.clone(), |scale| g / scale);
        let norm = (&g * &g).sum(..).sqrt();
        let finite = norm.lt(f64::INFINITY); // false also for NaN
        // As PyTorch has it, which divides by a little more than the norm.
        let clip_factor = self.clip.map(|clip| (clip / (&norm + 1e-6)).clamp(0.0, 1.0));
        let scalars = StepScalars::unpack(scalars);
        let old: Vec<Tensor> = [parameters].into_iter().chain(&self.moments).map(Arena::get).collect();
        let (p, m, rate) = (&old[0], &old[1..], &scalars.learning_rate);
        let clipped = || clip_factor.as_ref().map_or(g.clone(), |factor| &g * factor);
        let decay = || self.weight_decay.tensor();
        let with_decay = || clipped() + decay() * p;
        let new = match self.rule {
            Rule::Adamw { beta1, beta2, eps } => {
                let step = AdamWStep {
                    weight_decay: self.weight_decay.clone().into(),
                    gradient_factor: clip_factor.clone(),
                    finite: Some(finite.clone()),
                    ..scalars.adam_step(beta1, beta2, eps)
                };
                adamw(&step, p, &g, &m[0], &m[1]).to_vec()
            }
            Rule::Adam { beta1, beta2, eps } => {
                let step = scalars.adam_step(beta1, beta2, eps);
                let [direction, first, second] = adam_direction(&step, &with_decay(), &m[0], &m[1]);
                if_finite(&finite, &old, [p - direction * rate, first, second])
            }
            Rule::Sgd { momentum, nesterov } => {
                let g = with_decay();
                match m.first() {
                    None => if_finite(&finite, &old, [p - g * rate]),
                    Some(before) => {
                        let velocity = before * momentum + &g;
                        let direction = if nesterov { &g + &velocity * momentum } else { velocity.clone() };
                        if_finite(&finite, &old, [p - direction * rate, velocity])
                    }
                }
            }
            Rule::Rmsprop { alpha, eps } => {
                let g = with_decay();
                let squares = &m[0] * alpha + &g * &g * (1.0 - alpha);
                if_finite(&finite, &old, [p - &g / (squares.sqrt() + eps) * rate, squares])
            }
            Rule::Adagrad { eps } => {
                let g = with_decay();
                let squares = &m[0] + &g * &g;
                if_finite(&finite, &old, [p - &g / (squares.sqrt() + eps) * rate, squares])
            }
            Rule::Muon { momentum, beta1, beta2, eps } => {
                let g = clipped();
                let step = scalars.adam_step(beta1, beta2, eps);
                let [direction, first, second] = adam_direction(&step, &g, &m[0], &m[1]);
                let velocity = &m[0] * momentum + &g;
                let hidden = self.declared.each(|d| f64::from(muon::is_hidden(d)));
                let is_hidden = parameters.spread(&hidden).gt(0.0);
                let orthogonal = muon::directions(&self.declared, parameters, &(&g + &velocity * momentum));
                let first = is_hidden.select(&velocity, &first);
                let direction = is_hidden.select(&orthogonal, &direction);
                if_finite(&finite, &old, [p * (1.0 - decay() * rate) - direction * rate, first, second])
            }
        };
        let arenas = [parameters].into_iter().chain(&self.moments);
        let updates = arenas.zip(&new).map(|(arena, new)| arena.set(new.clone())).collect();
        Stepped { updates, parameters: new[0].clone(), norm, finite }
    }
}

/// New values where the gradients are finite, else the old ones.
fn if_finite<const N: usize>(finite: &Tensor, old: &[Tensor], new: [Tensor; N]) -> Vec<Tensor> {
    new.iter().zip(old).map(|(new, old)| finite.select(new, old)).collect()
}
