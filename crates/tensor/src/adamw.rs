//! A step of AdamW, in plain ops: one kernel, which writes new values over old ones where both are a variable's.

use crate::{DType, Number, Operand, Place, Tensor};

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

/// What a step multiplies by.
struct Factors {
    /// Parameters.
    kept: Operand,
    /// The first moment: rate / (1 - β₁ᵗ).
    rate: Operand,
    /// The root of the second moment: 1 / √(1 - β₂ᵗ).
    root: Operand,
}

impl AdamWStep {
    /// The factors, in floats of that type where they are tensors.
    fn factors(&self, dtype: DType, like: &Tensor) -> Factors {
        let betas = [self.beta1, self.beta2];
        if let (Operand::Number(rate), Operand::Number(step)) = (&self.rate, &self.step) {
            let [rate, step] = [rate, step].map(|number| match number {
                Number::Int(n) => *n as f64,
                Number::Float(x) => *x,
            });
            let [first, second] = betas.map(|beta| 1.0 - beta.powf(step));
            let [kept, rate, root] = [1.0 - rate * self.decay, rate / first, 1.0 / second.sqrt()].map(Operand::from);
            return Factors { kept, rate, root };
        }
        let [rate, step] = [&self.rate, &self.step].map(|operand| match operand {
            Operand::Tensor(tensor) => tensor.cast(dtype),
            Operand::Number(Number::Int(n)) => Tensor::full(*n as f64, &[], dtype, like.0.device),
            Operand::Number(Number::Float(x)) => Tensor::full(*x, &[], dtype, like.0.device),
        });
        // 1 - βᵗ, accurate also in the first steps.
        let [first, second] = betas.map(|beta| -(&step * beta.ln()).expm1());
        Factors { kept: (1.0 - &rate * self.decay).into(), rate: (rate / first).into(), root: second.rsqrt().into() }
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
    Place::here().names(|| {
        let AdamWStep { beta1, beta2, eps, .. } = *step;
        for tensor in [parameters, gradients, first, second] {
            if tensor.node().is_err() {
                return [0; 3].map(|_| tensor.clone());
            }
        }
        let Factors { kept, rate, root } = step.factors(parameters.0.dtype.wide(), parameters);
        let m = first * beta1 + gradients * (1.0 - beta1);
        let v = second * beta2 + gradients * gradients * (1.0 - beta2);
        // One division and one root an element: more would take longer than the memory does.
        let moved = m.mul(rate) / (v.sqrt().mul(root) + eps);
        let moved = parameters.mul(kept) - moved;
        // Numbers that are tensors are not weak.
        [(moved, parameters), (m, first), (v, second)].map(|(new, old)| new.cast(old.0.dtype))
    })
}
