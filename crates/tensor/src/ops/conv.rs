//! Convolution of signals `[n, channels, length]` and images `[n, channels, height, width]`. A
//! convolution is a matrix product over patches (im2col), which are slices of the image; a
//! transposed convolution is a matrix product whose columns are added to the patches (col2im).

use bornite_ir::Value;

use crate::graph::node::{AxisSlice, Op};
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

/// Options of [`Tensor::conv_transpose2d`], those of the convolution that it transposes: stride 1,
/// no padding, no dilation and one group by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvTranspose2dOptions {
    /// Vertical and horizontal stride.
    pub stride: (usize, usize),
    /// Rows removed above and below, and columns removed left and right.
    pub padding: (usize, usize),
    /// Rows added below and columns added right. Less than the stride or the dilation.
    pub output_padding: (usize, usize),
    /// Vertical and horizontal distance between elements of the kernel.
    pub dilation: (usize, usize),
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl Default for ConvTranspose2dOptions {
    fn default() -> ConvTranspose2dOptions {
        ConvTranspose2dOptions { stride: (1, 1), padding: (0, 0), output_padding: (0, 0), dilation: (1, 1), groups: 1 }
    }
}

const SIZES: &str = "kernel sizes, strides and dilations must be at least 1";

/// Number of positions of a window along an axis, or an error message.
fn output_length(len: usize, window: usize, stride: usize, dilation: usize) -> Result<usize, String> {
    if window == 0 || stride == 0 || dilation == 0 {
        return Err(SIZES.into());
    }
    let extent = (window - 1).checked_mul(dilation).and_then(|n| n.checked_add(1));
    match extent.and_then(|extent| len.checked_sub(extent)) {
        Some(rest) => Ok(rest / stride + 1),
        None => Err(format!("a kernel of length {window} does not fit an axis of length {len}")),
    }
}

/// One axis of a transposed convolution.
struct TransposedAxis {
    len: usize,
    window: usize,
    stride: usize,
    dilation: usize,
    padding: usize,
    output_padding: usize,
}

impl TransposedAxis {
    /// Length of the output with and without the padding that is removed, or an error message.
    fn lengths(&self) -> Result<(usize, usize), String> {
        let TransposedAxis { len, window, stride, dilation, padding, output_padding } = *self;
        if window == 0 || stride == 0 || dilation == 0 {
            return Err(SIZES.into());
        }
        if output_padding >= stride.max(dilation) {
            return Err(format!(
                "output_padding is {output_padding}; it must be less than the stride, {stride}, or the dilation, {dilation}"
            ));
        }
        let extent = || {
            let positions = len.checked_sub(1)?.checked_mul(stride)?;
            let complete = positions.checked_add((window - 1).checked_mul(dilation)?)?;
            complete.checked_add(1)?.checked_add(output_padding)
        };
        let complete = extent().ok_or_else(|| {
            format!("a kernel of length {window} with stride {stride} cannot be applied to an axis of length {len}")
        })?;
        match padding.checked_mul(2).and_then(|removed| complete.checked_sub(removed)) {
            Some(output @ 1..) => Ok((complete, output)),
            _ => Err(format!("padding {padding} removes the complete output, which has length {complete}")),
        }
    }

    /// Elements of the output that element `offset` of the kernel contributes to.
    fn targets(&self, offset: usize) -> AxisSlice {
        AxisSlice { start: offset * self.dilation, step: self.stride as isize, len: self.len }
    }
}

/// Inputs of a convolution, for checks and messages.
#[derive(Clone, Copy)]
struct Convolution<'a> {
    name: &'static str,
    input: &'a Tensor,
    weight: &'a Tensor,
    bias: Option<&'a Tensor>,
    groups: usize,
    location: SourceLocation,
}

impl Convolution<'_> {
    /// Checks dtypes and shapes; all but the last `axes - 2` axes of the weight are
    /// `[out, channels / groups]`, or `[channels, out / groups]` if `transposed`.
    fn check(&self, axes: usize, transposed: bool) -> Result<(), Tensor> {
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
    /// For each element of the kernel, the image elements that it is applied to:
    /// `[n, channels, rows, columns]`.
    pub(super) fn patches(
        &self,
        name: &'static str,
        kernel: [usize; 2],
        options: Conv2dOptions,
        location: SourceLocation,
    ) -> Result<(Vec<Tensor>, [usize; 2]), Tensor> {
        self.check_float(name, location)?;
        let [_, _, height, width] = self.0.shape[..] else {
            let message = format!("expected an image [n, channels, height, width], found {:?}", self.0.shape);
            return Err(Tensor::failed_at(name, message, location));
        };
        let fail = |message: String| Tensor::failed_at(name, message, location);
        let rows = output_length(height, kernel[0], options.stride.0, options.dilation.0).map_err(fail)?;
        let columns = output_length(width, kernel[1], options.stride.1, options.dilation.1).map_err(fail)?;
        let mut patches = vec![];
        for i in 0..kernel[0] {
            for j in 0..kernel[1] {
                let (top, left) = (i * options.dilation.0, j * options.dilation.1);
                let (bottom, right) =
                    (top + (rows - 1) * options.stride.0 + 1, left + (columns - 1) * options.stride.1 + 1);
                let part = self.slice_step(2, top as isize..bottom as isize, options.stride.0 as isize);
                patches.push(part.slice_step(3, left as isize..right as isize, options.stride.1 as isize));
            }
        }
        Ok((patches, [rows, columns]))
    }

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
        if let Err(failed) = convolution.check(3, false) {
            return failed;
        }
        let options = Conv2dOptions { stride: (1, stride), padding: (0, padding), dilation: (1, dilation), groups };
        let (input, weight) = (&self.unsqueeze(2), &weight.unsqueeze(2));
        let out = Convolution { input, weight, ..convolution }.apply(options);
        if out.node().is_ok() { out.squeeze(2) } else { out }
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
        let convolution = Convolution { name: "conv2d", input: self, weight, bias, groups: options.groups, location };
        match convolution.check(4, false) {
            Ok(()) => convolution.apply(options),
            Err(failed) => failed,
        }
    }

    /// Transposed convolution, the gradient of [`Tensor::conv2d`] by its input, with a weight
    /// `[channels, out / groups, height, width]` and a bias `[out]`. The output has
    /// `(height - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1` rows.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, ops::ConvTranspose2dOptions};
    /// # fn main() -> bornite::Result<()> {
    /// let image = Tensor::from_slice(&[1.0f32, 2.0], &[1, 1, 1, 2], Device::cpu());
    /// let weight = Tensor::ones(&[1, 1, 1, 3], DType::F32, Device::cpu());
    /// let options = ConvTranspose2dOptions { stride: (1, 2), ..ConvTranspose2dOptions::default() };
    /// let out = image.conv_transpose2d(&weight, None, options);
    /// assert_eq!(out.to_vec::<f32>()?, [1.0, 1.0, 3.0, 2.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn conv_transpose2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: ConvTranspose2dOptions) -> Tensor {
        let (name, location) = ("conv_transpose2d", SourceLocation::here());
        let ConvTranspose2dOptions { stride, padding, output_padding, dilation, groups } = options;
        if let Err(failed) = (Convolution { name, input: self, weight, bias, groups, location }).check(4, true) {
            return failed;
        }
        let (&[n, channels, height, width], &[_, group_out, kernel_height, kernel_width]) =
            (&self.0.shape[..], &weight.0.shape[..])
        else {
            return Tensor::failed_at(name, "expected four axes".into(), location);
        };
        let axis = |len, window, pick: fn((usize, usize)) -> usize| {
            let (stride, dilation, padding) = (pick(stride), pick(dilation), pick(padding));
            TransposedAxis { len, window, stride, dilation, padding, output_padding: pick(output_padding) }
        };
        let vertical = axis(height, kernel_height, |pair| pair.0);
        let horizontal = axis(width, kernel_width, |pair| pair.1);
        let ((complete_rows, rows), (complete_columns, columns)) = match (vertical.lengths(), horizontal.lengths()) {
            (Ok(rows), Ok(columns)) => (rows, columns),
            (Err(message), _) | (_, Err(message)) => return Tensor::failed_at(name, message, location),
        };
        let out = group_out * groups;
        let offsets = kernel_height * kernel_width;
        let weight = weight.reshape(&[groups, channels / groups, group_out * offsets]).transpose(1, 2);
        let product = weight.matmul(&self.reshape(&[n, groups, channels / groups, height * width]));
        // The sum over the kernel is computed in f32 for 16-bit floats.
        let (columns_of_kernel, original_dtype) = product.reshape(&[n, out, offsets, height, width]).widen();
        if columns_of_kernel.node().is_err() {
            return columns_of_kernel;
        }
        let zero = Value::from_f64(columns_of_kernel.0.dtype, 0.0);
        let shape = vec![n, out, complete_rows, complete_columns];
        let mut total: Option<Tensor> = None;
        for offset in 0..offsets {
            let part = columns_of_kernel.slice(2, offset as isize..offset as isize + 1).squeeze(2);
            let slices = vec![
                AxisSlice::full(n),
                AxisSlice::full(out),
                vertical.targets(offset / kernel_width),
                horizontal.targets(offset % kernel_width),
            ];
            let part = Tensor::build(Op::Pad(slices, shape.clone(), zero), vec![part], location);
            total = Some(total.map_or(part.clone(), |total| total + part));
        }
        let Some(total) = total else { return Tensor::failed_at(name, SIZES.into(), location) };
        let (top, left) = (padding.0 as isize, padding.1 as isize);
        let total = total.slice(2, top..top + rows as isize).slice(3, left..left + columns as isize);
        with_channel_bias(total.narrow_to(original_dtype), bias)
    }
}

/// Adds a bias per channel.
#[track_caller]
fn with_channel_bias(image: Tensor, bias: Option<&Tensor>) -> Tensor {
    match bias {
        Some(bias) => image + bias.unsqueeze(-1).unsqueeze(-1),
        None => image,
    }
}

impl Convolution<'_> {
    /// Applies the convolution to images; [`Convolution::check`] has passed.
    #[track_caller]
    fn apply(&self, options: Conv2dOptions) -> Tensor {
        let Convolution { name, input, weight, bias, groups, location } = *self;
        let (&[n, ..], &[out, group_channels, kernel_height, kernel_width]) = (&input.0.shape[..], &weight.0.shape[..])
        else {
            return Tensor::failed_at(name, "expected four axes".into(), location);
        };
        let image = match options.padding {
            (0, 0) => input.clone(),
            (down, across) => input.pad(&[(0, 0), (0, 0), (down, down), (across, across)], 0.0),
        };
        let (patches, [rows, columns]) = match image.patches(name, [kernel_height, kernel_width], options, location) {
            Ok(patches) => patches,
            Err(failed) => return failed,
        };
        let stacked = Tensor::stack(&patches.iter().collect::<Vec<_>>(), 2);
        let patch_matrix = stacked.reshape(&[n, groups, group_channels * kernel_height * kernel_width, rows * columns]);
        let weight = weight.reshape(&[groups, out / groups, group_channels * kernel_height * kernel_width]);
        let product = weight.matmul(&patch_matrix).reshape(&[n, out, rows, columns]);
        with_channel_bias(product, bias)
    }
}
