//! Convolutions.

use bornite::{Tensor, error::SourceLocation, ops::Conv2dOptions};

use super::cast_to_weight;
use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters::{Init, Parameter, Params};

/// 2-D convolution (cross-correlation: the kernel is not flipped).
///
/// Input `[n, inputs, height, width]`, output `[n, outputs, height', width']`. Parameters: `weight`
/// `[outputs, inputs / groups, kernel, kernel]`, `bias` `[outputs]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::Conv2d};
/// # fn main() -> bornite_nn::Result<()> {
/// let layer = Conv2d::new(&Params::new(Device::cpu(), 0), 1, 8, 3).stride(2).padding(1);
/// let images = Tensor::ones(&[4, 1, 28, 28], DType::F32, Device::cpu());
/// assert_eq!(layer.forward(&images).shape()?, [4, 8, 14, 14]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Conv2d {
    weight: Parameter,
    bias: Option<Parameter>,
    options: Conv2dOptions,
}

impl Conv2d {
    /// Declares `weight` and `bias`, both initialized uniformly in ±1 / √fan-in, for a square
    /// kernel, with stride 1 and no padding.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, kernel: usize) -> Conv2d {
        Conv2d::grouped(params, inputs, outputs, [kernel, kernel], 1)
    }

    /// As [`Conv2d::new`], with a kernel of `[height, width]` and groups of channels that are
    /// convolved separately.
    #[track_caller]
    pub fn grouped(params: &Params, inputs: usize, outputs: usize, kernel: [usize; 2], groups: usize) -> Conv2d {
        let [weight, bias] = declare(params, outputs, inputs / groups.max(1), &kernel);
        let options = Conv2dOptions { groups, ..Conv2dOptions::default() };
        Conv2d { weight, bias: Some(bias), options }
    }

    /// Sets the initialization of the weight; the bias is initialized to zero.
    #[track_caller]
    pub fn init(self, init: Init) -> Conv2d {
        set_init(&self.weight, self.bias.as_ref(), init);
        self
    }

    /// Sets the vertical and horizontal stride.
    pub fn stride(mut self, stride: usize) -> Conv2d {
        self.options.stride = (stride, stride);
        self
    }

    /// Sets the zero padding on all four sides.
    pub fn padding(mut self, padding: usize) -> Conv2d {
        self.options.padding = (padding, padding);
        self
    }

    /// Sets the distance between elements of the kernel.
    pub fn dilation(mut self, dilation: usize) -> Conv2d {
        self.options.dilation = (dilation, dilation);
        self
    }

    /// Removes the bias if `bias` is false. Directly after [`Conv2d::new`].
    #[track_caller]
    pub fn bias(mut self, bias: bool) -> Conv2d {
        if !bias && let Some(bias) = self.bias.take() {
            bias.withdraw();
        }
        self
    }
}

/// Declares the parameters of a convolution.
#[track_caller]
fn declare(params: &Params, outputs: usize, inputs: usize, kernel: &[usize]) -> [Parameter; 2] {
    let fan_in = inputs as f64 * kernel.iter().map(|&length| length as f64).product::<f64>();
    let weight = params.parameter("weight", &[&[outputs, inputs], kernel].concat(), Init::FanIn);
    [weight, params.parameter("bias", &[outputs], Init::Uniform(1.0 / fan_in.max(1.0).sqrt()))]
}

#[track_caller]
fn set_init(weight: &Parameter, bias: Option<&Parameter>, init: Init) {
    weight.set_init(init);
    if let Some(bias) = bias {
        bias.set_init(Init::Zeros);
    }
}

/// Flops per output element.
fn flops(weight: &Parameter) -> u64 {
    2 * weight.shape().iter().skip(1).map(|&length| length as u64).product::<u64>()
}

impl Module for Conv2d {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
        visitor.child("bias", &self.bias);
    }
}

impl Forward for Conv2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let weight = self.weight.value();
        let bias = self.bias.as_ref().map(Parameter::value);
        let y = cast_to_weight(x, &weight).conv2d(&weight, bias.as_ref(), self.options);
        observed(self, "Conv2d", &y, |elements| elements * flops(&self.weight))
    }
}

/// 1-D convolution (cross-correlation: the kernel is not flipped).
///
/// Input `[n, inputs, length]`, output `[n, outputs, length']`. Parameters: `weight` `[outputs,
/// inputs, kernel]`, `bias` `[outputs]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::Conv1d};
/// # fn main() -> bornite_nn::Result<()> {
/// let layer = Conv1d::new(&Params::new(Device::cpu(), 0), 2, 4, 3).padding(1);
/// let series = Tensor::ones(&[1, 2, 10], DType::F32, Device::cpu());
/// assert_eq!(layer.forward(&series).shape()?, [1, 4, 10]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Conv1d {
    weight: Parameter,
    bias: Option<Parameter>,
    options: Conv2dOptions,
}

impl Conv1d {
    /// Declares `weight` and `bias`, both initialized uniformly in ±1 / √fan-in, with stride 1 and
    /// no padding.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, kernel: usize) -> Conv1d {
        let [weight, bias] = declare(params, outputs, inputs, &[kernel]);
        Conv1d { weight, bias: Some(bias), options: Conv2dOptions::default() }
    }

    /// Sets the initialization of the weight; the bias is initialized to zero.
    #[track_caller]
    pub fn init(self, init: Init) -> Conv1d {
        set_init(&self.weight, self.bias.as_ref(), init);
        self
    }

    /// Sets the stride.
    pub fn stride(mut self, stride: usize) -> Conv1d {
        self.options.stride = (1, stride);
        self
    }

    /// Sets the zero padding at both ends.
    pub fn padding(mut self, padding: usize) -> Conv1d {
        self.options.padding = (0, padding);
        self
    }

    /// Sets the distance between elements of the kernel.
    pub fn dilation(mut self, dilation: usize) -> Conv1d {
        self.options.dilation = (1, dilation);
        self
    }

    /// Removes the bias if `bias` is false. Directly after [`Conv1d::new`].
    #[track_caller]
    pub fn bias(mut self, bias: bool) -> Conv1d {
        if !bias && let Some(bias) = self.bias.take() {
            bias.withdraw();
        }
        self
    }
}

impl Module for Conv1d {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
        visitor.child("bias", &self.bias);
    }
}

impl Forward for Conv1d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = SourceLocation::here().in_scope(|| {
            let weight = self.weight.value();
            let bias = self.bias.as_ref().map(Parameter::value);
            match cast_to_weight(x, &weight).as_image("Conv1d") {
                // An image of height 1.
                Ok(x) => x.conv2d(&weight.unsqueeze(2), bias.as_ref(), self.options).squeeze(2),
                Err(failed) => failed,
            }
        });
        observed(self, "Conv1d", &y, |elements| elements * flops(&self.weight))
    }
}

/// Series as images of height 1.
pub(crate) trait AsImage {
    /// `[n, channels, 1, length]` from `[n, channels, length]`.
    fn as_image(&self, layer: &'static str) -> Result<Tensor, Tensor>;
}

impl AsImage for Tensor {
    fn as_image(&self, layer: &'static str) -> Result<Tensor, Tensor> {
        match self.shape() {
            Ok([_, _, _]) => Ok(self.unsqueeze(2)),
            Ok(shape) => Err(Tensor::failed(layer, format!("expected [n, channels, length], found {shape:?}"))),
            Err(_) => Err(self.clone()),
        }
    }
}
