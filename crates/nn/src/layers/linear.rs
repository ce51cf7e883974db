//! Linear layers.

use bornite::Tensor;

use super::{cast_to_weight, without_padding};
use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters::{Init, Parameter, Params};

/// Linear layer: x · weightᵀ + bias.
///
/// Input `[…, inputs]`, output `[…, outputs]`. Parameters: `weight` `[outputs, inputs]`, `bias`
/// `[outputs]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::Linear};
/// # fn main() -> bornite_nn::Result<()> {
/// let layer = Linear::new(&Params::new(Device::cpu(), 0), 4, 2);
/// assert_eq!(layer.forward(&Tensor::ones(&[8, 4], DType::F32, Device::cpu())).shape()?, [8, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
    inputs: usize,
    outputs: usize,
}

impl Linear {
    /// Declares `weight` and `bias`, both initialized uniformly in ±1 / √inputs.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize) -> Linear {
        let weight = params.parameter("weight", &[outputs, inputs], Init::FanIn);
        let bias = params.parameter("bias", &[outputs], Init::Uniform(1.0 / (inputs.max(1) as f64).sqrt()));
        Linear { weight, bias: Some(bias), inputs, outputs }
    }

    /// Sets the initialization of the weight; the bias is initialized to zero.
    #[track_caller]
    pub fn init(self, init: Init) -> Linear {
        self.weight.set_init(init);
        if let Some(bias) = &self.bias {
            bias.set_init(Init::Zeros);
        }
        self
    }

    /// Removes the bias if `bias` is false. Directly after [`Linear::new`] or [`Linear::init`].
    #[track_caller]
    pub fn bias(mut self, bias: bool) -> Linear {
        if !bias && let Some(bias) = self.bias.take() {
            bias.withdraw();
        }
        self
    }

    /// Returns the weight.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }

    /// As `forward`, with the outputs of padded rows of the weight.
    #[track_caller]
    pub(crate) fn forward_padded(&self, x: &Tensor) -> Tensor {
        let weight = self.weight.padded_value();
        cast_to_weight(x, &weight).linear(&weight, self.bias.as_ref().map(Parameter::padded_value).as_ref())
    }
}

impl Module for Linear {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
        visitor.child("bias", &self.bias);
    }
}

impl Forward for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = without_padding(&self.forward_padded(x), -1, self.outputs);
        observed(self, "Linear", &y, |elements| 2 * elements * self.inputs as u64)
    }
}
