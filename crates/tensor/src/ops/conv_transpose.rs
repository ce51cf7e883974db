//! Transposed convolution of images `[n, channels, height, width]`: a matrix product whose columns
//! are added to the patches of the output (col2im).

use bornite_ir::Value;

use super::conv::{Convolution, SIZES, with_channel_bias};
use crate::graph::node::{AxisSlice, Op};
use crate::{SourceLocation, Tensor};

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

impl Tensor {
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
