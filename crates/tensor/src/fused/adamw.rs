//! A step of AdamW. New values are written over old ones where both are a variable's: by the one kernel that the plain ops
//! are, and by the CPU's routine, whose vectors are wider (10 M parameters on one core: 8.3 and 6.9 ms).

mod cpu;

use std::sync::Arc;

use bornite_codegen::cpu::pool;

use crate::fused::simd::vectors;
use crate::fused::{FusedOp, Given, Memory, Spelling, fused_at, unpack_inputs, unpack_outputs};
use crate::{DType, Device, Number, Operand, Place, Result, Tensor};
use cpu::{AdamW, adamw as routine};

/// The numbers of a step of AdamW. Those that change between calls of a trace are tensors there.
#[derive(Clone, Debug)]
pub struct AdamWStep {
    /// The learning rate.
    pub rate: Operand,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Decoupled weight decay.
    pub decay: f64,
    /// The number of the step, from 1.
    pub step: Operand,
}

/// Factors of a step that depend on its number and its learning rate.
#[derive(Clone, Copy)]
struct Factors<T> {
    /// Of the parameters: 1 - rate · decay.
    kept: T,
    /// Of the first moment: rate / (1 - β₁ᵗ).
    rate: T,
    /// Of the root of the second moment: 1 / √(1 - β₂ᵗ).
    root: T,
}

impl<T> Factors<T> {
    /// The factors as the last inputs of the op.
    fn into_list(self) -> [T; 3] {
        [self.kept, self.rate, self.root]
    }

    /// The factors from the last inputs of the op.
    fn from_list([kept, rate, root]: [T; 3]) -> Factors<T> {
        Factors { kept, rate, root }
    }

    fn map<U>(self, f: impl FnMut(T) -> U) -> Factors<U> {
        Factors::from_list(self.into_list().map(f))
    }
}

/// Source of the factors of a step.
#[derive(Clone, Copy)]
enum FactorSource {
    Numbers(Factors<f64>),
    /// They are inputs, after all others.
    Inputs,
}

impl FactorSource {
    /// Gradients and factors, from the inputs of the CPU routine.
    fn unpack<'a>(self, inputs: &'a [Memory<'_>]) -> Result<(&'a [f32], Factors<f32>)> {
        match self {
            FactorSource::Numbers(numbers) => {
                let [gradients] = unpack_inputs("adamw", inputs)?;
                Ok((gradients.slice()?, numbers.map(|x| x as f32)))
            }
            FactorSource::Inputs => {
                let [gradients, factors @ ..] = unpack_inputs::<4>("adamw", inputs)?;
                let [kept, rate, root] = factors;
                let factors = Factors::from_list([kept.slice()?, rate.slice()?, root.slice()?]);
                Ok((gradients.slice()?, factors.map(|factor: &[f32]| factor[0])))
            }
        }
    }
}

/// Positions of those inputs and outputs of the op that share memory: new values replace the old ones.
mod position {
    pub const PARAMETERS: usize = 0;
    pub const FIRST_MOMENT: usize = 2;
    pub const SECOND_MOMENT: usize = 3;
    pub const NEW_PARAMETERS: usize = 0;
    pub const NEW_FIRST_MOMENT: usize = 1;
    pub const NEW_SECOND_MOMENT: usize = 2;
}

struct Step {
    beta1: f64,
    beta2: f64,
    eps: f64,
    factors: FactorSource,
}

impl AdamWStep {
    /// The source of the factors, and those that are tensors, of a dtype and device.
    fn factors(&self, dtype: DType, device: Device) -> (FactorSource, Vec<Tensor>) {
        let betas = [self.beta1, self.beta2];
        let number = |number: &Number| match number {
            Number::Int(n) => *n as f64,
            Number::Float(x) => *x,
        };
        if let (Operand::Number(rate), Operand::Number(step)) = (&self.rate, &self.step) {
            let (rate, [first, second]) = (number(rate), betas.map(|beta| 1.0 - beta.powf(number(step))));
            let factors = Factors { kept: 1.0 - rate * self.decay, rate: rate / first, root: 1.0 / second.sqrt() };
            return (FactorSource::Numbers(factors), vec![]);
        }
        let [rate, step] = [&self.rate, &self.step].map(|operand| match operand {
            Operand::Tensor(tensor) => tensor.cast(dtype),
            Operand::Number(n) => Tensor::full(number(n), &[], dtype, device),
        });
        // 1 - βᵗ, accurate also in the first steps.
        let [first, second] = betas.map(|beta| -(&step * beta.ln()).expm1());
        let factors = Factors { kept: 1.0 - &rate * self.decay, rate: rate / first, root: second.rsqrt() };
        (FactorSource::Inputs, factors.into_list().to_vec())
    }
}

impl FusedOp for Step {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let Step { beta1, beta2, eps, factors } = *self;
        let [p, g, first, second, factor_inputs @ ..] = inputs else { return vec![] };
        let m = first * beta1 + g * (1.0 - beta1);
        let v = second * beta2 + g * g * (1.0 - beta2);
        let Factors { kept, rate, root } = match (factors, factor_inputs) {
            (FactorSource::Numbers(numbers), _) => numbers.map(Operand::from),
            (FactorSource::Inputs, [kept, rate, root]) => Factors::from_list([kept, rate, root]).map(Operand::from),
            (FactorSource::Inputs, _) => return vec![],
        };
        // One division and one root an element: more would take longer than the memory does.
        let moved = m.mul(rate) / (v.sqrt().mul(root) + eps);
        // Numbers that are tensors are not weak.
        let new = [(p.mul(kept) - moved, p), (m, first), (v, second)];
        new.map(|(new, old)| new.cast(old.0.dtype)).to_vec()
    }

    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let Step { beta1, beta2, eps, factors } = *self;
        let [p, g, first, second, factor_inputs @ ..] = inputs else { return None };
        let same = [g, first, second].iter().all(|input| input.shape == p.shape);
        let single = factor_inputs.iter().all(|input| input.shape.is_empty());
        let in_place = vec![
            (position::NEW_PARAMETERS, position::PARAMETERS),
            (position::NEW_FIRST_MOMENT, position::FIRST_MOMENT),
            (position::NEW_SECOND_MOMENT, position::SECOND_MOMENT),
        ];
        // The routine finds old parameters and moments in the memory of the new ones; gradients are its first input.
        (same && single && vectors(device, inputs)).then(|| {
            Spelling::in_place(in_place, move |inputs, outputs| {
                let [p, m, v] = unpack_outputs("adamw", outputs)?;
                let (gradients, Factors { kept, rate, root }) = factors.unpack(inputs)?;
                let step = AdamW { beta1, beta2, eps: eps as f32, kept, rate, root };
                let (p, m, v) = (p.slice_mut()?, m.slice_mut()?, v.slice_mut()?);
                routine(step, p, gradients, m, v, pool::threads());
                Ok(())
            })
        })
    }
}

/// New parameters and both moments after a step of AdamW, from parameters, gradients and the moments before.
///
/// ```
/// use bornite::{Device, Tensor, fused::{AdamWStep, adamw}};
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
    let (factors, factor_inputs) = place.names(|| step.factors(parameters.0.dtype.wide(), parameters.0.device));
    let inputs = inputs.into_iter().cloned().chain(factor_inputs).collect();
    let mut results = fused_at(Arc::new(Step { beta1, beta2, eps, factors }), inputs, place).into_iter();
    std::array::from_fn(|_| results.next().unwrap_or_else(|| parameters.clone()))
}
