//! A step of AdamW. New values are written over old ones where both are a variable's: by the one kernel that the plain ops
//! are, and by the CPU's routine, whose vectors are wider (10 M parameters on one core: 8.3 and 6.9 ms).

use std::sync::Arc;

use bornite_codegen::cpu::pool;

use crate::fused::{FusedOp, Given, Spelling, fused_at};
use crate::simd::adamw::{AdamW, adamw as routine};
use crate::spellings::vectors;
use crate::{DType, Device, Number, Operand, Place, Tensor};

/// The numbers of a step of AdamW. Those that change between calls of a trace are tensors there.
#[derive(Clone, Debug)]
pub struct AdamWStep {
    /// The learning rate.
    pub rate: Operand,
    /// How much of the first moment is kept.
    pub beta1: f64,
    /// How much of the second moment is kept.
    pub beta2: f64,
    /// What keeps the quotient finite.
    pub eps: f64,
    /// What `rate` times this takes off each parameter, apart from its gradient.
    pub decay: f64,
    /// The number of the step, from 1.
    pub step: Operand,
}

/// What a step multiplies by: parameters, the first moment (rate / (1 - β₁ᵗ)) and the root of the second (1 / √(1 - β₂ᵗ)).
#[derive(Clone, Copy)]
enum Factors {
    Numbers([f64; 3]),
    /// They are inputs, after all others.
    Inputs,
}

struct Step {
    beta1: f64,
    beta2: f64,
    eps: f64,
    factors: Factors,
}

impl AdamWStep {
    /// The factors, and those that are tensors, of a dtype and device.
    fn factors(&self, dtype: DType, device: Device) -> (Factors, Vec<Tensor>) {
        let betas = [self.beta1, self.beta2];
        let number = |number: &Number| match number {
            Number::Int(n) => *n as f64,
            Number::Float(x) => *x,
        };
        if let (Operand::Number(rate), Operand::Number(step)) = (&self.rate, &self.step) {
            let (rate, [first, second]) = (number(rate), betas.map(|beta| 1.0 - beta.powf(number(step))));
            return (Factors::Numbers([1.0 - rate * self.decay, rate / first, 1.0 / second.sqrt()]), vec![]);
        }
        let [rate, step] = [&self.rate, &self.step].map(|operand| match operand {
            Operand::Tensor(tensor) => tensor.cast(dtype),
            Operand::Number(n) => Tensor::full(number(n), &[], dtype, device),
        });
        // 1 - βᵗ, accurate also in the first steps.
        let [first, second] = betas.map(|beta| -(&step * beta.ln()).expm1());
        (Factors::Inputs, vec![1.0 - &rate * self.decay, rate / first, second.rsqrt()])
    }
}

impl FusedOp for Step {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let Step { beta1, beta2, eps, factors } = *self;
        let [p, g, first, second, given @ ..] = inputs else { return vec![] };
        let m = first * beta1 + g * (1.0 - beta1);
        let v = second * beta2 + g * g * (1.0 - beta2);
        let [kept, rate, root]: [Operand; 3] = match (factors, given) {
            (Factors::Numbers(numbers), _) => numbers.map(Operand::from),
            (Factors::Inputs, [kept, rate, root]) => [kept, rate, root].map(Operand::from),
            (Factors::Inputs, _) => return vec![],
        };
        // One division and one root an element: more would take longer than the memory does.
        let moved = m.mul(rate) / (v.sqrt().mul(root) + eps);
        // Numbers that are tensors are not weak.
        let new = [(p.mul(kept) - moved, p), (m, first), (v, second)];
        new.map(|(new, old)| new.cast(old.0.dtype)).to_vec()
    }

    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let Step { beta1, beta2, eps, factors } = *self;
        let same = inputs[..4].iter().all(|given| given.shape == inputs[0].shape);
        let single = inputs[4..].iter().all(|given| given.shape.is_empty());
        // The new parameters and moments take the place of the old ones, so that the gradients are given first.
        (same && single && vectors(device, inputs)).then(|| {
            Spelling::in_place(vec![(0, 0), (1, 2), (2, 3)], move |given, results| {
                let [p, m, v] = results else { return Ok(()) };
                let [kept, rate, root] = match factors {
                    Factors::Numbers(numbers) => numbers.map(|x| x as f32),
                    Factors::Inputs => [given[1].slice()?[0], given[2].slice()?[0], given[3].slice()?[0]],
                };
                let step = AdamW { beta1, beta2, eps: eps as f32, kept, rate, root };
                let (p, m, v) = (p.slice_mut()?, m.slice_mut()?, v.slice_mut()?);
                routine(step, p, given[0].slice()?, m, v, pool::threads());
                Ok(())
            })
        })
    }
}

/// New parameters and both moments after a step of AdamW, from parameters, gradients and the moments before.
///
/// ```
/// use bornite::{AdamWStep, Device, Tensor, adamw};
/// # fn main() -> bornite::Result<()> {
/// let step = AdamWStep { rate: 0.1.into(), beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0, step: 1.into() };
/// let [p, g] = [1.0f32, 4.0].map(|v| Tensor::from_slice(&[v], &[1], Device::cpu()));
/// let zero = Tensor::from_slice(&[0.0f32], &[1], Device::cpu());
/// let [p, m, v] = adamw(&step, &p, &g, &zero, &zero);
/// assert!((p.item()? - 0.9).abs() < 1e-6); // the first step is as long as the rate, whatever the gradient
/// assert!((m.item()? - 0.4).abs() < 1e-6 && (v.item()? - 0.016).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn adamw(
    step: &AdamWStep,
    parameters: &Tensor,
    gradients: &Tensor,
    first: &Tensor,
    second: &Tensor,
) -> [Tensor; 3] {
    let place = Place::here();
    let AdamWStep { beta1, beta2, eps, .. } = *step;
    let inputs = [parameters, gradients, first, second];
    if let Some(failed) = inputs.iter().find(|tensor| tensor.node().is_err()) {
        return [0; 3].map(|_| (*failed).clone());
    }
    let (factors, given) = place.names(|| step.factors(parameters.0.dtype.wide(), parameters.0.device));
    let inputs = inputs.into_iter().cloned().chain(given).collect();
    let mut results = fused_at(Arc::new(Step { beta1, beta2, eps, factors }), inputs, place).into_iter();
    std::array::from_fn(|_| results.next().unwrap_or_else(|| parameters.clone()))
}
