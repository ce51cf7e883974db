//! Convolution and pooling of images `[n, channels, height, width]`. A convolution is a matrix
//! product over patches (im2col), which are slices of the image.

use crate::{SourceLocation, Tensor};

/// Options of a convolution: stride 1, no padding, no dilation and one group by default.
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

/// Number of positions of a window along an axis, or an error message.
fn output_length(len: usize, window: usize, stride: usize, dilation: usize) -> Result<usize, String> {
    if window == 0 || stride == 0 || dilation == 0 {
        return Err("kernel sizes, strides and dilations must be at least 1".into());
    }
    let extent = (window - 1).checked_mul(dilation).and_then(|n| n.checked_add(1));
    match extent.and_then(|extent| len.checked_sub(extent)) {
        Some(rest) => Ok(rest / stride + 1),
        None => Err(format!("a kernel of length {window} does not fit an axis of length {len}")),
    }
}

impl Tensor {
    /// For each element of the kernel, the image elements that it is applied to:
    /// `[n, channels, rows, columns]`.
    #[track_caller]
    fn patches(
        &self,
        name: &'static str,
        kernel: [usize; 2],
        options: Conv2dOptions,
    ) -> Result<(Vec<Tensor>, [usize; 2]), Tensor> {
        let location = SourceLocation::here();
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

    /// Convolution (cross-correlation: the kernel is not flipped) with a weight
    /// `[out, channels / groups, height, width]`.
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
        for tensor in [self, weight] {
            if let Err(failed) = tensor.check_float("conv2d", location) {
                return failed;
            }
        }
        let (&[n, channels, ..], &[out, group_channels, kernel_height, kernel_width]) =
            (&self.0.shape[..], &weight.0.shape[..])
        else {
            let message =
                format!("expected image and weight with four axes, found {:?} and {:?}", self.0.shape, weight.0.shape);
            return Tensor::failed_at("conv2d", message, location);
        };
        let groups = options.groups.max(1);
        if options.groups == 0 || group_channels.checked_mul(groups) != Some(channels) || !out.is_multiple_of(groups) {
            let message =
                format!("weight {:?} in {} groups does not match {channels} channels", weight.0.shape, options.groups);
            return Tensor::failed_at("conv2d", message, location);
        }
        let image = match (options.padding, self.0.shape.len()) {
            ((0, 0), _) => self.clone(),
            ((down, across), 4) => self.pad(&[(0, 0), (0, 0), (down, down), (across, across)], 0.0),
            _ => self.clone(),
        };
        let (patches, [rows, columns]) = match image.patches("conv2d", [kernel_height, kernel_width], options) {
            Ok(patches) => patches,
            Err(failed) => return failed,
        };
        let stacked = Tensor::stack(&patches.iter().collect::<Vec<_>>(), 2);
        let patch_matrix = stacked.reshape(&[n, groups, group_channels * kernel_height * kernel_width, rows * columns]);
        let weight = weight.reshape(&[groups, out / groups, group_channels * kernel_height * kernel_width]);
        let product = weight.matmul(&patch_matrix).reshape(&[n, out, rows, columns]);
        match bias {
            Some(bias) => product + bias.unsqueeze(-1).unsqueeze(-1),
            None => product,
        }
    }

    /// Max pooling.
    #[track_caller]
    pub fn max_pool2d(&self, kernel: [usize; 2], stride: (usize, usize)) -> Tensor {
        match self.patches("max_pool2d", kernel, Conv2dOptions { stride, ..Conv2dOptions::default() }) {
            Ok((patches, _)) => Tensor::stack(&patches.iter().collect::<Vec<_>>(), 0).max(0),
            Err(failed) => failed,
        }
    }

    /// Average pooling.
    #[track_caller]
    pub fn avg_pool2d(&self, kernel: [usize; 2], stride: (usize, usize)) -> Tensor {
        match self.patches("avg_pool2d", kernel, Conv2dOptions { stride, ..Conv2dOptions::default() }) {
            Ok((patches, _)) => Tensor::stack(&patches.iter().collect::<Vec<_>>(), 0).mean(0),
            Err(failed) => failed,
        }
    }
}
