//! Convolution of signals `[n, channels, length]`, images `[n, channels, height, width]` and
//! volumes `[n, channels, depth, height, width]`. See `fused/conv.rs` for its definition.

use crate::fused::conv::{ConvKind, Convolve, Geometry, spatial};
use crate::{SourceLocation, Tensor};

/// Options of [`Tensor::conv1d`]: stride 1, no padding, no dilation and one group by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conv1dOptions {
    /// Distance between neighbouring positions of the kernel.
    pub stride: usize,
    /// Zero padding at both ends.
    pub padding: usize,
    /// Distance between elements of the kernel.
    pub dilation: usize,
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl Default for Conv1dOptions {
    fn default() -> Conv1dOptions {
        Conv1dOptions { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

/// Options of [`Tensor::conv2d`]: stride 1, no padding, no dilation and one group by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conv2dOptions {
    /// Vertical and horizontal stride.
    pub stride: (usize, usize),
    /// Zero padding above and below, and left and right.
    pub padding: (usize, usize),
    /// Vertical and horizontal distance between elements of the kernel.
    pub dilation: (usize, usize),
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl Default for Conv2dOptions {
    fn default() -> Conv2dOptions {
        Conv2dOptions { stride: (1, 1), padding: (0, 0), dilation: (1, 1), groups: 1 }
    }
}

/// Options of [`Tensor::conv3d`]: stride 1, no padding, no dilation and one group by default. Each
/// list holds the values along depth, height and width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conv3dOptions {
    /// Distances between neighbouring positions of the kernel.
    pub stride: [usize; 3],
    /// Zero padding on both sides.
    pub padding: [usize; 3],
    /// Distances between elements of the kernel.
    pub dilation: [usize; 3],
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl Default for Conv3dOptions {
    fn default() -> Conv3dOptions {
        Conv3dOptions { stride: [1; 3], padding: [0; 3], dilation: [1; 3], groups: 1 }
    }
}

pub(super) const SIZES: &str = "kernel sizes, strides and dilations must be at least 1";

/// Number of positions of a window along an axis, or an error message.
pub(super) fn output_length(len: usize, window: usize, stride: usize, dilation: usize) -> Result<usize, String> {
    if window == 0 || stride == 0 || dilation == 0 {
        return Err(SIZES.into());
    }
    let extent = (window - 1).checked_mul(dilation).and_then(|n| n.checked_add(1));
    match extent.and_then(|extent| len.checked_sub(extent)) {
        Some(rest) => Ok(rest / stride + 1),
        None => Err(format!("a kernel of length {window} does not fit an axis of length {len}")),
    }
}

/// Inputs of a convolution, for checks and messages.
#[derive(Clone, Copy)]
pub(super) struct Convolution<'a> {
    pub name: &'static str,
    pub input: &'a Tensor,
    pub weight: &'a Tensor,
    pub bias: Option<&'a Tensor>,
    pub groups: usize,
    pub location: SourceLocation,
}

impl Convolution<'_> {
    /// Checks dtypes and shapes; all but the last `axes - 2` axes of the weight are
    /// `[out, channels / groups]`, or `[channels, out / groups]` if `transposed`.
    pub(super) fn check(&self, axes: usize, transposed: bool) -> Result<(), Tensor> {
        let Convolution { name, input, weight, bias, groups, location } = *self;
        for tensor in [Some(input), Some(weight), bias].into_iter().flatten() {
            tensor.check_float(name, location)?;
        }
        let fail = |message| Err(Tensor::failed_at(name, message, location));
        let (x, w) = (&input.0.shape, &weight.0.shape);
        if x.len() != axes || w.len() != axes {
            return fail(format!("expected input and weight with {axes} axes, found {x:?} and {w:?}"));
        }
        let (channels, out) = match transposed {
            false => (w[1].checked_mul(groups), Some(w[0])),
            true => (Some(w[0]), w[1].checked_mul(groups)),
        };
        let out = out.filter(|_| groups > 0 && channels == Some(x[1]) && w[0].is_multiple_of(groups));
        let Some(out) = out else {
            let expected = if transposed { "[channels, out / groups, …]" } else { "[out, channels / groups, …]" };
            return fail(format!(
                "weight {w:?} in {groups} groups does not match the {} channels of input {x:?}; expected {expected}",
                x[1]
            ));
        };
        match bias {
            Some(bias) if bias.0.shape != [out] => {
                fail(format!("bias has shape {:?}; expected [{out}] for weight {w:?}", bias.0.shape))
            }
            _ => Ok(()),
        }
    }
}

impl Tensor {
    /// Convolution (cross-correlation: the kernel is not flipped) of signals
    /// `[n, channels, length]` with a weight `[out, channels / groups, length]` and a bias `[out]`.
    ///
    /// ```
    /// use bornite::{Device, Tensor, ops::Conv1dOptions};
    /// # fn main() -> bornite::Result<()> {
    /// let signal = Tensor::from_slice(&[1.0f32, 4.0, 9.0, 16.0], &[1, 1, 4], Device::cpu());
    /// let difference = Tensor::from_slice(&[-1.0f32, 1.0], &[1, 1, 2], Device::cpu());
    /// let out = signal.conv1d(&difference, None, Conv1dOptions::default());
    /// assert_eq!(out.to_vec::<f32>()?, [3.0, 5.0, 7.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv1dOptions) -> Tensor {
        let location = SourceLocation::here();
        let Conv1dOptions { stride, padding, dilation, groups } = options;
        let convolution = Convolution { name: "conv1d", input: self, weight, bias, groups, location };
        convolution.apply(&[stride], &[padding], &[dilation])
    }

    /// Convolution (cross-correlation: the kernel is not flipped) with a weight
    /// `[out, channels / groups, height, width]` and a bias `[out]`.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, ops::Conv2dOptions};
    /// # fn main() -> bornite::Result<()> {
    /// let image = Tensor::ones(&[1, 1, 3, 3], DType::F32, Device::cpu());
    /// let weight = Tensor::ones(&[1, 1, 3, 3], DType::F32, Device::cpu());
    /// let out = image.conv2d(&weight, None, Conv2dOptions { padding: (1, 1), ..Conv2dOptions::default() });
    /// assert_eq!(out.to_vec::<f32>()?, [4., 6., 4., 6., 9., 6., 4., 6., 4.]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions) -> Tensor {
        let location = SourceLocation::here();
        let Conv2dOptions { stride, padding, dilation, groups } = options;
        let convolution = Convolution { name: "conv2d", input: self, weight, bias, groups, location };
        convolution.apply(&[stride.0, stride.1], &[padding.0, padding.1], &[dilation.0, dilation.1])
    }

    /// Convolution (cross-correlation: the kernel is not flipped) of volumes
    /// `[n, channels, depth, height, width]` with a weight
    /// `[out, channels / groups, depth, height, width]` and a bias `[out]`.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, ops::Conv3dOptions};
    /// # fn main() -> bornite::Result<()> {
    /// let volume = Tensor::ones(&[1, 1, 3, 3, 3], DType::F32, Device::cpu());
    /// let weight = Tensor::ones(&[1, 1, 3, 3, 3], DType::F32, Device::cpu());
    /// let options = Conv3dOptions { padding: [1; 3], stride: [2; 3], ..Conv3dOptions::default() };
    /// assert_eq!(volume.conv3d(&weight, None, options).to_vec::<f32>()?, [8.0; 8]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn conv3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv3dOptions) -> Tensor {
        let location = SourceLocation::here();
        let Conv3dOptions { stride, padding, dilation, groups } = options;
        let convolution = Convolution { name: "conv3d", input: self, weight, bias, groups, location };
        convolution.apply(&stride, &padding, &dilation)
    }
}

impl Convolution<'_> {
    /// Checks the convolution and builds it; the lists hold one value per spatial axis.
    fn apply(&self, stride: &[usize], padding: &[usize], dilation: &[usize]) -> Tensor {
        let Convolution { name, input, weight, bias, groups, location } = *self;
        if let Err(failed) = self.check(stride.len() + 2, false) {
            return failed;
        }
        let (x, w) = (&input.0.shape, &weight.0.shape);
        let mut output = vec![];
        for axis in 0..stride.len() {
            let padded = padding[axis].checked_mul(2).and_then(|both| both.checked_add(x[axis + 2]));
            let length = padded.ok_or_else(|| format!("padding {} is too large", padding[axis]));
            let length = length.and_then(|len| output_length(len, w[axis + 2], stride[axis], dilation[axis]));
            match length {
                Ok(length) => output.push(length),
                Err(message) => return Tensor::failed_at(name, message, location),
            }
        }
        let geometry = Geometry {
            rank: stride.len(),
            batch: x[0],
            groups,
            channels: w[1],
            out_channels: w[0] / groups,
            input: spatial(&x[2..], 1),
            kernel: spatial(&w[2..], 1),
            output: spatial(&output, 1),
            stride: spatial(stride, 1),
            dilation: spatial(dilation, 1),
            padding: spatial(padding, 0),
        };
        let inputs = [Some(input), Some(weight), bias].into_iter().flatten().cloned().collect();
        Convolve { kind: ConvKind::Conv, geometry }.apply(inputs, location)
    }
}
