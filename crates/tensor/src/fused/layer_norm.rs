//! Layer normalization over the trailing axes.

mod cpu;

use std::sync::Arc;

use bornite_codegen::cpu::pool;

use super::simd::supports_simd;
use super::{FusedOp, Implementation, InputInfo, Memory, fused_at, unpack_inputs, unpack_outputs};
use crate::{Axes, Device, Result, SourceLocation, Tensor};
use cpu::{layer_norm, layer_norm_backward};

impl Tensor {
    /// Layer normalization over the trailing axes (as many as `weight` has): normalizes to mean 0
    /// and variance 1, multiplies by `weight` and adds `bias`.
    #[track_caller]
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.normalized_axes("layer_norm", weight, location) {
            return failed;
        }
        let (x, original_dtype) = self.widen();
        let op = LayerNorm { axes: weight.0.shape.len(), eps };
        fused_at(Arc::new(op), vec![x, weight.clone(), bias.clone()], location).remove(0).narrow_to(original_dtype)
    }
}

/// Inputs that the backward routine of layer norm reads.
struct LayerNormBackwardInputs<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    mean: &'a [f32],
    rstd: &'a [f32],
    /// Gradient of the output.
    dy: &'a [f32],
}

impl<'a> LayerNormBackwardInputs<'a> {
    /// Unpacks the inputs of the backward op: inputs and outputs of layer norm, then the output
    /// gradient.
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

/// Layer norm over the trailing axes; mean and 1 / standard deviation are saved for the backward
/// pass.
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
        let axes = Axes::List((1..=self.axes as isize).map(|n| -n).collect());
        let mean = x.mean_keepdim(axes.clone());
        let centered = x - &mean;
        let variance = (&centered * &centered).mean_keepdim(axes);
        let rstd = (variance + self.eps).rsqrt();
        vec![(centered * &rstd) * weight + bias, mean, rstd]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (name, eps) = (self.name(), self.eps as f32);
        let [_x, gamma, beta] = inputs else { return None };
        let same_shape = gamma.shape == beta.shape;
        (same_shape && supports_simd(device, inputs)).then(|| {
            Implementation::infallible(move |inputs, outputs| {
                let [x, gamma, beta] = unpack_inputs(name, inputs)?;
                let [y, mean, rstd] = unpack_outputs(name, outputs)?;
                let (x, gamma, beta) = (x.slice()?, gamma.slice()?, beta.slice()?);
                let (y, mean, rstd) = (y.slice_mut()?, mean.slice_mut()?, rstd.slice_mut()?);
                layer_norm(x, gamma, beta, eps, y, mean, rstd, pool::num_threads());
                Ok(())
            })
        })
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        supports_simd(device, inputs).then(|| {
            Implementation::infallible(|inputs, outputs| {
                let LayerNormBackwardInputs { x, gamma, mean, rstd, dy } = LayerNormBackwardInputs::slices(inputs)?;
                let [dx, dgamma, dbeta] = unpack_outputs("layer_norm_backward", outputs)?;
                let (dx, dgamma, dbeta) = (dx.slice_mut()?, dgamma.slice_mut()?, dbeta.slice_mut()?);
                layer_norm_backward(x, gamma, mean, rstd, dy, dx, dgamma, dbeta, pool::num_threads());
                Ok(())
            })
        })
    }

    fn backward_name(&self) -> &'static str {
        "layer_norm_backward"
    }
}
