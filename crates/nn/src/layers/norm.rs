//! Normalization over the last axis, or over groups of channels.

use bornite::Tensor;

use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters::{Init, Parameter, Params};

/// Layer normalization over the last axis, with scale `weight` and shift `bias`, both `[width]`.
///
/// Input and output `[…, width]`.
///
/// ```
/// use bornite::{Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::LayerNorm};
/// # fn main() -> bornite_nn::Result<()> {
/// let norm = LayerNorm::new(&Params::new(Device::cpu(), 0), 2);
/// let y = norm.forward(&Tensor::from_slice(&[1.0f32, 3.0], &[1, 2], Device::cpu()));
/// assert!(y.to_vec::<f32>()?.iter().zip([-1.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-4));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LayerNorm {
    weight: Parameter,
    bias: Parameter,
    eps: f64,
}

impl LayerNorm {
    /// Declares `weight`, ones, and `bias`, zeros; eps is 1e-5.
    #[track_caller]
    pub fn new(params: &Params, width: usize) -> LayerNorm {
        let weight = params.parameter("weight", &[width], Init::Ones);
        LayerNorm { weight, bias: params.parameter("bias", &[width], Init::Zeros), eps: 1e-5 }
    }

    /// Sets the value that is added to the variance.
    pub fn eps(self, eps: f64) -> LayerNorm {
        LayerNorm { eps, ..self }
    }
}

impl Module for LayerNorm {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
        visitor.child("bias", &self.bias);
    }
}

impl Forward for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = x.layer_norm(&self.weight.value(), &self.bias.value(), self.eps);
        observed(self, "LayerNorm", &y, |elements| 8 * elements)
    }
}

/// RMS normalization over the last axis, with scale `weight` `[width]`.
///
/// Input and output `[…, width]`.
///
/// ```
/// use bornite::{Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::RmsNorm};
/// # fn main() -> bornite_nn::Result<()> {
/// let norm = RmsNorm::new(&Params::new(Device::cpu(), 0), 2);
/// let y = norm.forward(&Tensor::from_slice(&[2.0f32, 2.0], &[1, 2], Device::cpu()));
/// assert!(y.to_vec::<f32>()?.iter().all(|y| (y - 1.0).abs() < 1e-4));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RmsNorm {
    weight: Parameter,
    eps: f64,
}

impl RmsNorm {
    /// Declares `weight`, ones; eps is 1e-5.
    #[track_caller]
    pub fn new(params: &Params, width: usize) -> RmsNorm {
        RmsNorm { weight: params.parameter("weight", &[width], Init::Ones), eps: 1e-5 }
    }

    /// Sets the value that is added to the mean square.
    pub fn eps(self, eps: f64) -> RmsNorm {
        RmsNorm { eps, ..self }
    }
}

impl Module for RmsNorm {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
    }
}

impl Forward for RmsNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        observed(self, "RmsNorm", &x.rms_norm(&self.weight.value(), self.eps), |elements| 5 * elements)
    }
}

/// Group normalization: of groups of channels, with scale `weight` and shift `bias`, both
/// `[channels]`.
///
/// Input and output `[n, channels, …]`; `channels` is a multiple of `groups`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::GroupNorm};
/// # fn main() -> bornite_nn::Result<()> {
/// let norm = GroupNorm::new(&Params::new(Device::cpu(), 0), 2, 6);
/// let images = Tensor::ones(&[1, 6, 4, 4], DType::F32, Device::cpu());
/// assert_eq!(norm.forward(&images).shape()?, [1, 6, 4, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GroupNorm {
    weight: Parameter,
    bias: Parameter,
    groups: usize,
    eps: f64,
}

impl GroupNorm {
    /// Declares `weight`, ones, and `bias`, zeros; eps is 1e-5.
    #[track_caller]
    pub fn new(params: &Params, groups: usize, channels: usize) -> GroupNorm {
        let weight = params.parameter("weight", &[channels], Init::Ones);
        GroupNorm { weight, bias: params.parameter("bias", &[channels], Init::Zeros), groups, eps: 1e-5 }
    }

    /// Sets the value that is added to the variance.
    pub fn eps(self, eps: f64) -> GroupNorm {
        GroupNorm { eps, ..self }
    }
}

impl Module for GroupNorm {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
        visitor.child("bias", &self.bias);
    }
}

impl Forward for GroupNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = x.group_norm(self.groups, Some(&self.weight.value()), Some(&self.bias.value()), self.eps);
        observed(self, "GroupNorm", &y, |elements| 8 * elements)
    }
}

/// LayerNorm or RMSNorm, by the configuration of a model.
#[derive(Clone, Debug)]
pub enum Norm {
    /// LayerNorm.
    Layer(LayerNorm),
    /// RMSNorm.
    Rms(RmsNorm),
}

impl Module for Norm {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Norm::Layer(norm) => norm.visit(visitor),
            Norm::Rms(norm) => norm.visit(visitor),
        }
    }
}

impl Forward for Norm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Norm::Layer(norm) => norm.forward(x),
            Norm::Rms(norm) => norm.forward(x),
        }
    }
}
