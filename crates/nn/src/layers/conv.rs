//! Convolutions.

use bornite::Tensor;
use bornite::ops::{Conv1dOptions, Conv2dOptions, ConvTranspose2dOptions};

use super::cast_to_weight;
use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters::{Init, Parameter, Params};

/// Parameters of a convolution.
#[derive(Clone, Debug)]
struct Kernel {
    weight: Parameter,
    bias: Option<Parameter>,
}

impl Kernel {
    /// Declares `weight`, of this shape, and `bias`, both initialized uniformly in ±1 / √fan-in.
    #[track_caller]
    fn new(params: &Params, shape: &[usize], outputs: usize) -> Kernel {
        let fan_in: f64 = shape.iter().skip(1).map(|&length| length as f64).product();
        let weight = params.parameter("weight", shape, Init::FanIn);
        let bias = params.parameter("bias", &[outputs], Init::Uniform(1.0 / fan_in.max(1.0).sqrt()));
        Kernel { weight, bias: Some(bias) }
    }

    #[track_caller]
    fn set_init(&self, init: Init) {
        self.weight.set_init(init);
        if let Some(bias) = &self.bias {
            bias.set_init(Init::Zeros);
        }
    }

    #[track_caller]
    fn set_bias(&mut self, bias: bool) {
        if !bias && let Some(bias) = self.bias.take() {
            bias.withdraw();
        }
    }

    /// The input in the precision of the weight, the weight and the bias.
    #[track_caller]
    fn operands(&self, x: &Tensor) -> (Tensor, Tensor, Option<Tensor>) {
        let weight = self.weight.value();
        (cast_to_weight(x, &weight), weight, self.bias.as_ref().map(Parameter::value))
    }

    /// Flops per element: of the output of a convolution, of the input of a transposed one.
    fn flops(&self) -> u64 {
        2 * self.weight.shape().iter().skip(1).map(|&length| length as u64).product::<u64>()
    }
}

impl Module for Kernel {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
        visitor.child("bias", &self.bias);
    }
}

/// Defines the settings that all convolutions have.
macro_rules! settings {
    ($name:ident) => {
        impl $name {
            /// Sets the initialization of the weight; the bias is initialized to zero.
            #[track_caller]
            pub fn init(self, init: Init) -> Self {
                self.kernel.set_init(init);
                self
            }

            /// Removes the bias if `bias` is false. Directly after the layer was created.
            #[track_caller]
            pub fn bias(mut self, bias: bool) -> Self {
                self.kernel.set_bias(bias);
                self
            }
        }

        impl Module for $name {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                self.kernel.visit(visitor);
            }
        }
    };
}

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
    kernel: Kernel,
    options: Conv2dOptions,
}

settings!(Conv2d);

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
        let kernel = Kernel::new(params, &[outputs, inputs / groups.max(1), kernel[0], kernel[1]], outputs);
        Conv2d { kernel, options: Conv2dOptions { groups, ..Conv2dOptions::default() } }
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
}

impl Forward for Conv2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let (x, weight, bias) = self.kernel.operands(x);
        let y = x.conv2d(&weight, bias.as_ref(), self.options);
        observed(self, "Conv2d", &y, |elements| elements * self.kernel.flops())
    }
}

/// 1-D convolution (cross-correlation: the kernel is not flipped).
///
/// Input `[n, inputs, length]`, output `[n, outputs, length']`. Parameters: `weight` `[outputs,
/// inputs / groups, kernel]`, `bias` `[outputs]`.
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
    kernel: Kernel,
    options: Conv1dOptions,
}

settings!(Conv1d);

impl Conv1d {
    /// Declares `weight` and `bias`, both initialized uniformly in ±1 / √fan-in, with stride 1 and
    /// no padding.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, kernel: usize) -> Conv1d {
        Conv1d::grouped(params, inputs, outputs, kernel, 1)
    }

    /// As [`Conv1d::new`], with groups of channels that are convolved separately.
    #[track_caller]
    pub fn grouped(params: &Params, inputs: usize, outputs: usize, kernel: usize, groups: usize) -> Conv1d {
        let kernel = Kernel::new(params, &[outputs, inputs / groups.max(1), kernel], outputs);
        Conv1d { kernel, options: Conv1dOptions { groups, ..Conv1dOptions::default() } }
    }

    /// Sets the stride.
    pub fn stride(mut self, stride: usize) -> Conv1d {
        self.options.stride = stride;
        self
    }

    /// Sets the zero padding at both ends.
    pub fn padding(mut self, padding: usize) -> Conv1d {
        self.options.padding = padding;
        self
    }

    /// Sets the distance between elements of the kernel.
    pub fn dilation(mut self, dilation: usize) -> Conv1d {
        self.options.dilation = dilation;
        self
    }
}

impl Forward for Conv1d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let (x, weight, bias) = self.kernel.operands(x);
        let y = x.conv1d(&weight, bias.as_ref(), self.options);
        observed(self, "Conv1d", &y, |elements| elements * self.kernel.flops())
    }
}

/// Transposed 2-D convolution: the gradient of a convolution with respect to its input, which
/// enlarges images.
///
/// Input `[n, inputs, height, width]`, output `[n, outputs, height', width']`. Parameters: `weight`
/// `[inputs, outputs / groups, kernel, kernel]`, `bias` `[outputs]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::ConvTranspose2d};
/// # fn main() -> bornite_nn::Result<()> {
/// let layer = ConvTranspose2d::new(&Params::new(Device::cpu(), 0), 8, 1, 2).stride(2);
/// let images = Tensor::ones(&[4, 8, 7, 7], DType::F32, Device::cpu());
/// assert_eq!(layer.forward(&images).shape()?, [4, 1, 14, 14]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConvTranspose2d {
    kernel: Kernel,
    options: ConvTranspose2dOptions,
}

settings!(ConvTranspose2d);

impl ConvTranspose2d {
    /// Declares `weight` and `bias`, both initialized uniformly in ±1 / √(outputs · kernel²), for a
    /// square kernel, with stride 1 and no padding.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, kernel: usize) -> ConvTranspose2d {
        ConvTranspose2d::grouped(params, inputs, outputs, [kernel, kernel], 1)
    }

    /// As [`ConvTranspose2d::new`], with a kernel of `[height, width]` and groups of channels that
    /// are convolved separately.
    #[track_caller]
    pub fn grouped(
        params: &Params,
        inputs: usize,
        outputs: usize,
        kernel: [usize; 2],
        groups: usize,
    ) -> ConvTranspose2d {
        let kernel = Kernel::new(params, &[inputs, outputs / groups.max(1), kernel[0], kernel[1]], outputs);
        ConvTranspose2d { kernel, options: ConvTranspose2dOptions { groups, ..ConvTranspose2dOptions::default() } }
    }

    /// Sets the vertical and horizontal stride.
    pub fn stride(mut self, stride: usize) -> ConvTranspose2d {
        self.options.stride = (stride, stride);
        self
    }

    /// Sets the rows and columns that are removed on all four sides.
    pub fn padding(mut self, padding: usize) -> ConvTranspose2d {
        self.options.padding = (padding, padding);
        self
    }

    /// Sets the rows added below and the columns added right.
    pub fn output_padding(mut self, padding: usize) -> ConvTranspose2d {
        self.options.output_padding = (padding, padding);
        self
    }
}

impl Forward for ConvTranspose2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let inputs = x.shape().map_or(0, |shape| shape.iter().map(|&length| length as u64).product());
        let (x, weight, bias) = self.kernel.operands(x);
        let y = x.conv_transpose2d(&weight, bias.as_ref(), self.options);
        observed(self, "ConvTranspose2d", &y, |_| inputs * self.kernel.flops())
    }
}
