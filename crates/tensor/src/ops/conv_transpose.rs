//! Transposed convolution of images `[n, channels, height, width]`: the gradient of a convolution
//! by its input. See `fused/conv.rs` for its definition.

use super::conv::{Convolution, SIZES};
use crate::fused::conv::{ConvKind, Convolve, Geometry, spatial};
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
    /// Length of the output, or an error message.
    fn length(&self) -> Result<usize, String> {
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
            Some(output @ 1..) => Ok(output),
            _ => Err(format!("padding {padding} removes the complete output, which has length {complete}")),
        }
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
        let (x, w) = (&self.0.shape, &weight.0.shape);
        let axis = |axis: usize, pick: fn((usize, usize)) -> usize| {
            let (stride, dilation, padding) = (pick(stride), pick(dilation), pick(padding));
            let (len, window) = (x[axis], w[axis]);
            TransposedAxis { len, window, stride, dilation, padding, output_padding: pick(output_padding) }.length()
        };
        let (rows, columns) = match (axis(2, |pair| pair.0), axis(3, |pair| pair.1)) {
            (Ok(rows), Ok(columns)) => (rows, columns),
            (Err(message), _) | (_, Err(message)) => return Tensor::failed_at(name, message, location),
        };
        let geometry = Geometry {
            rank: 2,
            batch: x[0],
            groups,
            channels: w[1],
            out_channels: w[0] / groups,
            input: spatial(&[rows, columns], 1),
            kernel: spatial(&w[2..], 1),
            output: spatial(&x[2..], 1),
            stride: spatial(&[stride.0, stride.1], 1),
            dilation: spatial(&[dilation.0, dilation.1], 1),
            padding: spatial(&[padding.0, padding.1], 0),
        };
        let transposed = Convolve { kind: ConvKind::InputGradient, geometry };
        let image = transposed.apply(vec![self.clone(), weight.clone()], location);
        match bias {
            Some(bias) => location.in_scope(|| image + bias.unsqueeze(-1).unsqueeze(-1)),
            None => image,
        }
    }
}
