//! The fused ops of this crate: what they mean in plain ops, and how a CPU computes them in vectors (`simd/`).
//!
//! Elsewhere the plain ops are fused by the schedule's general rules, which need no names.

use bornite_codegen::cpu::pool;

use crate::fused::{FusedOp, Given, Memory, MemoryMut, Spelling, unpack_inputs, unpack_outputs};
use crate::simd::cross_entropy::{Class, cross_entropy};
use crate::simd::gelu::{Gelu, gelu, gelu_backward};
use crate::simd::layer_norm::{layer_norm, layer_norm_backward};
use crate::simd::softmax::{Softmax, softmax, softmax_backward};
use crate::{Axes, DType, Device, Element, Error, Place, Result, Tensor};

/// Elements below which a call costs more than it saves.
const FEWEST: usize = 64;

/// True if all of these, and enough of the first, are f32 on a CPU.
pub(crate) fn vectors(device: Device, inputs: &[Given<'_>]) -> bool {
    let enough = inputs.first().is_some_and(|x| x.shape.iter().product::<usize>() >= FEWEST);
    matches!(device, Device::Cpu(_)) && enough && inputs.iter().all(|input| input.dtype == DType::F32)
}

fn columns(input: &Given<'_>) -> usize {
    input.shape.last().copied().unwrap_or(1).max(1)
}

/// Softmax or its logarithm along the last axis.
pub(crate) struct SoftmaxOp(pub Softmax);

impl FusedOp for SoftmaxOp {
    fn name(&self) -> &'static str {
        match self.0 {
            Softmax::Plain => "softmax",
            Softmax::Log => "log_softmax",
        }
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [x] = inputs else { return vec![] };
        let centred = x.centred(-1);
        vec![match self.0 {
            Softmax::Plain => {
                let powers = centred.exp();
                &powers / powers.sum_keep(-1)
            }
            Softmax::Log => &centred - centred.exp().sum_keep(-1).log(),
        }]
    }

    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let [x] = inputs else { return None };
        let (kind, name, columns) = (self.0, self.name(), columns(x));
        vectors(device, inputs).then(|| {
            Spelling::sure(move |inputs, outputs| {
                let ([x], [y]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                softmax(kind, x.slice()?, columns, y.slice_mut()?, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let [x, _y, _dy] = inputs else { return None };
        let (kind, name, columns) = (self.0, self.backward_name(), columns(x));
        vectors(device, inputs).then(|| {
            Spelling::sure(move |inputs, outputs| {
                let ([_x, y, dy], [dx]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                softmax_backward(kind, y.slice()?, dy.slice()?, columns, dx.slice_mut()?, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "softmax_backward"
    }
}

/// Inputs of the backward op of layer norm that its routine reads.
struct LayerNormBackwardInputs<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    mean: &'a [f32],
    rstd: &'a [f32],
    /// Gradient of the loss by the output.
    dy: &'a [f32],
}

impl<'a> LayerNormBackwardInputs<'a> {
    /// Elements of the inputs, in the order of the op: inputs and outputs of layer norm, then the gradient.
    fn slices(inputs: &'a [Memory<'_>]) -> Result<Self> {
        let [x, gamma, _beta, _y, mean, rstd, dy] = unpack_inputs("layer_norm_backward", inputs)?;
        Ok(LayerNormBackwardInputs {
            x: x.slice()?,
            gamma: gamma.slice()?,
            mean: mean.slice()?,
            rstd: rstd.slice()?,
            dy: dy.slice()?,
        })
    }
}

/// Layer norm over the last axes, with mean and 1 / standard deviation for the gradient.
pub(crate) struct LayerNorm {
    pub axes: usize,
    pub eps: f64,
}

impl FusedOp for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [x, weight, bias] = inputs else { return vec![] };
        let axes = Axes::These((1..=self.axes as isize).map(|n| -n).collect());
        let mean = x.mean_keep(axes.clone());
        let centred = x - &mean;
        let variance = (&centred * &centred).mean_keep(axes);
        let rstd = (variance + self.eps).rsqrt();
        vec![(centred * &rstd) * weight + bias, mean, rstd]
    }

    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let (name, eps) = (self.name(), self.eps as f32);
        let [_x, gamma, beta] = inputs else { return None };
        let fits = gamma.shape == beta.shape;
        (fits && vectors(device, inputs)).then(|| {
            Spelling::sure(move |inputs, outputs| {
                let [x, gamma, beta] = unpack_inputs(name, inputs)?;
                let [y, mean, rstd] = unpack_outputs(name, outputs)?;
                let (x, gamma, beta) = (x.slice()?, gamma.slice()?, beta.slice()?);
                let (y, mean, rstd) = (y.slice_mut()?, mean.slice_mut()?, rstd.slice_mut()?);
                layer_norm(x, gamma, beta, eps, y, mean, rstd, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        vectors(device, inputs).then(|| {
            Spelling::sure(|inputs, outputs| {
                let LayerNormBackwardInputs { x, gamma, mean, rstd, dy } = LayerNormBackwardInputs::slices(inputs)?;
                let [dx, dgamma, dbeta] = unpack_outputs("layer_norm_backward", outputs)?;
                let (dx, dgamma, dbeta) = (dx.slice_mut()?, dgamma.slice_mut()?, dbeta.slice_mut()?);
                layer_norm_backward(x, gamma, mean, rstd, dy, dx, dgamma, dbeta, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "layer_norm_backward"
    }
}

/// GELU, by tanh or by the error function.
pub(crate) struct GeluOp(pub Gelu);

impl FusedOp for GeluOp {
    fn name(&self) -> &'static str {
        match self.0 {
            Gelu::Tanh => "gelu",
            Gelu::Erf => "gelu_erf",
        }
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [x] = inputs else { return vec![] };
        vec![x.formula(self.name(), x.0.place)]
    }

    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let (kind, name) = (self.0, self.name());
        vectors(device, inputs).then(|| {
            Spelling::sure(move |inputs, outputs| {
                let ([x], [y]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                gelu(kind, x.slice()?, y.slice_mut()?, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let (kind, name) = (self.0, self.backward_name());
        vectors(device, inputs).then(|| {
            Spelling::sure(move |inputs, outputs| {
                let ([x, _y, dy], [dx]) = (unpack_inputs(name, inputs)?, unpack_outputs(name, outputs)?);
                gelu_backward(kind, x.slice()?, dy.slice()?, dx.slice_mut()?, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "gelu_backward"
    }
}

/// Minus the log-probability of a class, for each row of logits.
pub(crate) struct CrossEntropy(pub Place);

impl CrossEntropy {
    /// Type of the classes, if the routines support such inputs.
    fn class_type(device: Device, inputs: &[Given<'_>]) -> Option<DType> {
        let [logits, classes, rest @ ..] = inputs else { return None };
        let floats = [&[*logits], rest].concat();
        (matches!(classes.dtype, DType::I32 | DType::I64) && vectors(device, &floats)).then_some(classes.dtype)
    }

    /// Runs over rows of one class type, with the gradient's factor for all rows.
    fn run<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        at: Place,
        logits: &[f32],
        classes: &[T],
        losses: &mut [f32],
        gradient: Option<&mut [f32]>,
        scale: f32,
    ) -> Result<()> {
        let columns = logits.len() / classes.len().max(1);
        cross_entropy(logits, classes, columns, losses, gradient, scale, pool::threads()).map_err(|row| {
            let what = format!("index {} of row {row} is outside the {columns} classes", classes[row]);
            Error::Op { op: "cross_entropy", what, at }
        })
    }

    fn forward<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        at: Place,
        inputs: &[Memory<'_>],
        outputs: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        let [logits, classes] = unpack_inputs("cross_entropy", inputs)?;
        let [losses] = unpack_outputs("cross_entropy", outputs)?;
        CrossEntropy::run::<T>(at, logits.slice()?, classes.slice()?, losses.slice_mut()?, None, 1.0)
    }

    fn backward<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        at: Place,
        inputs: &[Memory<'_>],
        outputs: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        let [logits, classes, _losses, loss_gradients] = unpack_inputs("cross_entropy_backward", inputs)?;
        let [gradient] = unpack_outputs("cross_entropy_backward", outputs)?;
        let (logits, classes) = (logits.slice::<f32>()?, classes.slice::<T>()?);
        let (factors, gradient) = (loss_gradients.slice::<f32>()?, gradient.slice_mut::<f32>()?);
        let columns = logits.len() / classes.len().max(1);
        let mut losses = vec![0.0; classes.len()];
        // Rows of one factor at a time: all of them, where the loss is their mean.
        let mut first = 0;
        while first < factors.len() {
            let factor = factors[first];
            let same = factors[first..].iter().take_while(|other| other.to_bits() == factor.to_bits()).count();
            let (rows, elements) = (first..first + same, first * columns..(first + same) * columns);
            let gradient = Some(&mut gradient[elements.clone()]);
            let losses = &mut losses[rows.clone()];
            CrossEntropy::run(at, &logits[elements], &classes[rows], losses, gradient, factor)?;
            first += same;
        }
        Ok(())
    }
}

impl FusedOp for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [logits, classes] = inputs else { return vec![] };
        let picked = SoftmaxOp(Softmax::Log).decompose(std::slice::from_ref(logits)).remove(0);
        vec![-picked.gather(-1, &classes.unsqueeze(-1)).squeeze(-1)]
    }

    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let (at, class_type) = (self.0, CrossEntropy::class_type(device, inputs)?);
        Some(Spelling::routine(move |inputs, outputs| match class_type {
            DType::I64 => CrossEntropy::forward::<i64>(at, inputs, outputs),
            _ => CrossEntropy::forward::<i32>(at, inputs, outputs),
        }))
    }

    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let (at, class_type) = (self.0, CrossEntropy::class_type(device, inputs)?);
        Some(Spelling::routine(move |inputs, outputs| match class_type {
            DType::I64 => CrossEntropy::backward::<i64>(at, inputs, outputs),
            _ => CrossEntropy::backward::<i32>(at, inputs, outputs),
        }))
    }

    fn backward_name(&self) -> &'static str {
        "cross_entropy_backward"
    }
}
