//! Batch normalization by the statistics of the batch, for training: each channel of
//! `[n, channels, …]` to mean 0 and variance 1.

mod cpu;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bornite_codegen::cpu::pool;

use super::simd::supports_simd;
use super::{FusedOp, Implementation, InputInfo, fused_at, unpack_inputs, unpack_outputs};
use crate::{Device, SourceLocation, Tensor};
use cpu::{Channels, batch_norm, batch_norm_backward};

/// Result of [`Tensor::batch_norm_training`].
pub struct BatchNormResult {
    /// The normalized tensor.
    pub output: Tensor,
    /// Mean of each channel.
    pub mean: Tensor,
    /// Variance of each channel, the mean squared deviation.
    pub variance: Tensor,
}

/// `[x, weight, bias]` to output, mean and variance.
struct BatchNormTraining {
    eps: f64,
}

impl Tensor {
    /// Batch normalization for training: normalizes axis 1 by its mean and variance over all other
    /// axes, multiplies by `weight` and adds `bias`, which have the length of that axis. Mean and
    /// variance are returned for running statistics; use them detached.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f32, 5.0], &[2, 1], Device::cpu());
    /// let (one, zero) = (Tensor::from_slice(&[1.0f32], &[1], Device::cpu()), Tensor::from_slice(&[0.0f32], &[1], Device::cpu()));
    /// let norm = x.batch_norm_training(&one, &zero, 0.0);
    /// assert_eq!(norm.output.to_vec::<f32>()?, [-1.0, 1.0]);
    /// assert_eq!((norm.mean.to_vec::<f32>()?, norm.variance.to_vec::<f32>()?), (vec![3.0], vec![4.0]));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn batch_norm_training(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> BatchNormResult {
        let location = SourceLocation::here();
        let failed =
            |failed: Tensor| BatchNormResult { output: failed.clone(), mean: failed.clone(), variance: failed };
        if let Err(error) = self.check_float("batch_norm", location) {
            return failed(error);
        }
        let Some(&channels) = self.0.shape.get(1) else {
            let message = format!("expects at least two axes, found shape {:?}", self.0.shape);
            return failed(Tensor::failed_at("batch_norm", message, location));
        };
        if let Err(error) = self.check_channel_parameters("batch_norm", &[weight, bias], channels, location) {
            return failed(error);
        }
        let inputs = vec![self.clone(), weight.clone(), bias.clone()];
        match <[Tensor; 3]>::try_from(fused_at(Arc::new(BatchNormTraining { eps }), inputs, location)) {
            Ok([output, mean, variance]) => BatchNormResult { output, mean, variance },
            Err(_) => failed(Tensor::failed_at("batch_norm", "has no outputs".into(), location)),
        }
    }
}

impl FusedOp for BatchNormTraining {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [x, weight, bias] = inputs else { return vec![] };
        let axes: Vec<isize> = (0..x.0.shape.len() as isize).filter(|axis| *axis != 1).collect();
        let (mean, variance) = (x.mean(&axes[..]), x.var(&axes[..], 0));
        vec![x.batch_norm(weight, bias, &mean, &variance, self.eps), mean, variance]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (eps, channels) = (self.eps, channels(device, inputs)?);
        Some(Implementation::infallible(move |inputs, outputs| {
            let [x, weight, bias] = unpack_inputs("batch_norm", inputs)?;
            let [y, mean, variance] = unpack_outputs("batch_norm", outputs)?;
            let (x, weight, bias) = (x.slice()?, weight.slice()?, bias.slice()?);
            let (mean, variance) = (mean.slice_mut()?, variance.slice_mut()?);
            batch_norm(channels, x, weight, bias, eps, y.slice_mut()?, mean, variance, pool::num_threads());
            Ok(())
        }))
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let (eps, channels) = (self.eps, channels(device, inputs)?);
        Some(Implementation::infallible(move |inputs, outputs| {
            let [x, weight, _bias, _y, mean, variance, dy] = unpack_inputs("batch_norm_backward", inputs)?;
            let [dx, dweight, dbias] = unpack_outputs("batch_norm_backward", outputs)?;
            let (x, dy, weight) = (x.slice()?, dy.slice()?, weight.slice()?);
            let (mean, variance) = (mean.slice()?, variance.slice()?);
            let (dx, dweight, dbias) = (dx.slice_mut()?, dweight.slice_mut()?, dbias.slice_mut()?);
            batch_norm_backward(channels, x, weight, mean, variance, eps, dy, dx, dweight, dbias, pool::num_threads());
            Ok(())
        }))
    }

    fn backward_name(&self) -> &'static str {
        "batch_norm_backward"
    }
}

/// Sizes of the input, if the routines support it on the device.
fn channels(device: Device, inputs: &[InputInfo<'_>]) -> Option<Channels> {
    let [_, channels, rest @ ..] = inputs.first()?.shape else { return None };
    supports_simd(device, inputs).then(|| Channels { count: *channels, plane: rest.iter().product() })
}
