//! The fused ops of this crate: what they mean in plain ops, and how a CPU computes them in vectors (`simd/`).
//!
//! Elsewhere the plain ops are fused by the schedule's general rules, which need no names.

use bornite_codegen::cpu::pool;

use crate::fused::{FusedOp, Given, Memory, MemoryMut, Spelling};
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
    matches!(device, Device::Cpu(_)) && enough && inputs.iter().all(|given| given.dtype == DType::F32)
}

fn columns(given: &Given<'_>) -> usize {
    given.shape.last().copied().unwrap_or(1).max(1)
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
        let centred = inputs[0].centred(-1);
        vec![match self.0 {
            Softmax::Plain => {
                let powers = centred.exp();
                &powers / powers.sum_keep(-1)
            }
            Softmax::Log => &centred - centred.exp().sum_keep(-1).log(),
        }]
    }

    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let (kind, columns) = (self.0, columns(&inputs[0]));
        vectors(device, inputs).then(|| {
            Spelling::sure(move |given, results| {
                softmax(kind, given[0].slice()?, columns, results[0].slice_mut()?, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let (kind, columns) = (self.0, columns(&inputs[0]));
        vectors(device, inputs).then(|| {
            Spelling::sure(move |given, results| {
                let (y, dy) = (given[1].slice()?, given[2].slice()?);
                softmax_backward(kind, y, dy, columns, results[0].slice_mut()?, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "softmax_backward"
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
        let eps = self.eps as f32;
        let fits = inputs[1].shape == inputs[2].shape;
        (fits && vectors(device, inputs)).then(|| {
            Spelling::sure(move |given, results| {
                let [y, mean, rstd] = results else { return Ok(()) };
                let (x, gamma, beta) = (given[0].slice()?, given[1].slice()?, given[2].slice()?);
                let (y, mean, rstd) = (y.slice_mut()?, mean.slice_mut()?, rstd.slice_mut()?);
                layer_norm(x, gamma, beta, eps, y, mean, rstd, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        vectors(device, inputs).then(|| {
            Spelling::sure(|given, results| {
                let [dx, dgamma, dbeta] = results else { return Ok(()) };
                let (x, gamma) = (given[0].slice()?, given[1].slice()?);
                let (mean, rstd, dy) = (given[4].slice()?, given[5].slice()?, given[6].slice()?);
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
        vec![inputs[0].formula(self.name(), inputs[0].0.place)]
    }

    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let kind = self.0;
        vectors(device, inputs).then(|| {
            Spelling::sure(move |given, results| {
                gelu(kind, given[0].slice()?, results[0].slice_mut()?, pool::threads());
                Ok(())
            })
        })
    }

    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let kind = self.0;
        vectors(device, inputs).then(|| {
            Spelling::sure(move |given, results| {
                gelu_backward(kind, given[0].slice()?, given[2].slice()?, results[0].slice_mut()?, pool::threads());
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
    fn takes(device: Device, inputs: &[Given<'_>]) -> bool {
        let classes = matches!(inputs[1].dtype, DType::I32 | DType::I64);
        let rest: Vec<Given<'_>> =
            inputs.iter().enumerate().filter(|(n, _)| *n != 1).map(|(_, given)| *given).collect();
        classes && vectors(device, &rest)
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
        given: &[Memory<'_>],
        results: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        CrossEntropy::run::<T>(at, given[0].slice()?, given[1].slice()?, results[0].slice_mut()?, None, 1.0)
    }

    fn backward<T: Class + Element + bytemuck::Pod + std::fmt::Display>(
        at: Place,
        given: &[Memory<'_>],
        results: &mut [MemoryMut<'_>],
    ) -> Result<()> {
        let (logits, classes) = (given[0].slice::<f32>()?, given[1].slice::<T>()?);
        let (slopes, gradient) = (given[3].slice::<f32>()?, results[0].slice_mut::<f32>()?);
        let columns = logits.len() / classes.len().max(1);
        let mut losses = vec![0.0; classes.len()];
        // Rows of one factor at a time: all of them, where the loss is their mean.
        let mut first = 0;
        while first < slopes.len() {
            let same = slopes[first..].iter().take_while(|slope| slope.to_bits() == slopes[first].to_bits()).count();
            let (rows, elements) = (first..first + same, first * columns..(first + same) * columns);
            let gradient = Some(&mut gradient[elements.clone()]);
            let losses = &mut losses[rows.clone()];
            CrossEntropy::run(at, &logits[elements], &classes[rows], losses, gradient, slopes[first])?;
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
        let (at, wide) = (self.0, inputs[1].dtype == DType::I64);
        CrossEntropy::takes(device, inputs).then(|| {
            Spelling::routine(move |given, results| match wide {
                true => CrossEntropy::forward::<i64>(at, given, results),
                false => CrossEntropy::forward::<i32>(at, given, results),
            })
        })
    }

    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let (at, wide) = (self.0, inputs[1].dtype == DType::I64);
        CrossEntropy::takes(device, inputs).then(|| {
            Spelling::routine(move |given, results| match wide {
                true => CrossEntropy::backward::<i64>(at, given, results),
                false => CrossEntropy::backward::<i32>(at, given, results),
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "cross_entropy_backward"
    }
}
