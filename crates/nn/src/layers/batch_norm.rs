//! Batch normalization.

use bornite::{DType, Tensor, error::SourceLocation};

use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters::{BATCH_COUNT, Buffer, Init, Parameter, Params, is_training};

/// Batch normalization over all axes but axis 1: of rows, series and images.
///
/// Input and output `[n, channels]`, `[n, channels, length]` or `[n, channels, height, width]`.
/// Parameters: scale `weight` and shift `bias`. Buffers: `running_mean` and `running_var`. All are
/// `[channels]`. A scalar buffer, `num_batches_tracked`, counts training steps for PyTorch.
///
/// A training step normalizes by the statistics of the batch and updates the running statistics:
/// 0.9 of the old ones and 0.1 of the batch's (with the unbiased variance). Otherwise the layer
/// normalizes by the running statistics.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::BatchNorm};
/// # fn main() -> bornite_nn::Result<()> {
/// let norm = BatchNorm::new(&Params::new(Device::cpu(), 0), 3);
/// let images = Tensor::ones(&[2, 3, 4, 4], DType::F32, Device::cpu());
/// assert_eq!(norm.forward(&images).shape()?, [2, 3, 4, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BatchNorm {
    weight: Parameter,
    bias: Parameter,
    running_mean: Buffer,
    running_var: Buffer,
    num_batches_tracked: Buffer,
    eps: f64,
    momentum: f64,
}

impl BatchNorm {
    /// Declares the parameters and buffers; eps is 1e-5.
    #[track_caller]
    pub fn new(params: &Params, channels: usize) -> BatchNorm {
        BatchNorm {
            weight: params.parameter("weight", &[channels], Init::Ones),
            bias: params.parameter("bias", &[channels], Init::Zeros),
            running_mean: params.buffer("running_mean", &[channels], Init::Zeros),
            running_var: params.buffer("running_var", &[channels], Init::Ones),
            num_batches_tracked: params.buffer(BATCH_COUNT, &[], Init::Zeros),
            eps: 1e-5,
            momentum: 0.1,
        }
    }

    /// Sets the value that is added to the variance.
    pub fn eps(self, eps: f64) -> BatchNorm {
        BatchNorm { eps, ..self }
    }

    /// Sets the weight of a batch in the running statistics, 0.1 by default.
    pub fn momentum(self, momentum: f64) -> BatchNorm {
        BatchNorm { momentum, ..self }
    }

    /// Normalizes by the statistics of the batch and updates the running ones.
    fn forward_training(&self, x: &Tensor) -> Tensor {
        let Ok(shape) = x.shape() else { return x.clone() };
        let [n, channels, rest @ ..] = shape else {
            return Tensor::failed("batch_norm", format!("expected [n, channels, …], found {shape:?}"));
        };
        if self.weight.shape() != [*channels] {
            let what = format!("expected {} channels on axis 1, found input {shape:?}", self.weight.shape()[0]);
            return Tensor::failed("batch_norm", what);
        }
        let count = n * rest.iter().product::<usize>();
        if count < 2 {
            let what = format!("a training step needs more than one value per channel, found input {shape:?}");
            return Tensor::failed("batch_norm", what);
        }
        let norm = x.batch_norm_training(&self.weight.value(), &self.bias.value(), self.eps);
        let unbiased = count as f64 / (count - 1) as f64;
        let running =
            |old: &Buffer, new: Tensor| old.update(&(old.value() * (1.0 - self.momentum) + new * self.momentum));
        let batches = &self.num_batches_tracked;
        let updated = running(&self.running_mean, norm.mean.detach())
            .and_then(|()| running(&self.running_var, norm.variance.detach() * unbiased))
            .and_then(|()| batches.update(&(batches.value() + 1.0)));
        match updated {
            Ok(()) => norm.output,
            Err(failed) => failed,
        }
    }
}

impl Module for BatchNorm {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
        visitor.child("bias", &self.bias);
        visitor.child("running_mean", &self.running_mean);
        visitor.child("running_var", &self.running_var);
        visitor.child(BATCH_COUNT, &self.num_batches_tracked);
    }
}

impl Forward for BatchNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = SourceLocation::here().in_scope(|| {
            let Ok(dtype) = x.dtype() else { return x.clone() };
            // Statistics of 16-bit floats are computed in f32.
            let wide = if matches!(dtype, DType::F16 | DType::BF16) { x.cast(DType::F32) } else { x.clone() };
            let y = match is_training() {
                true => self.forward_training(&wide),
                false => {
                    let (mean, variance) = (self.running_mean.value(), self.running_var.value());
                    wide.batch_norm(&self.weight.value(), &self.bias.value(), &mean, &variance, self.eps)
                }
            };
            if matches!(dtype, DType::F16 | DType::BF16) { y.cast(dtype) } else { y }
        });
        observed(self, "BatchNorm", &y, |elements| 4 * elements)
    }
}
