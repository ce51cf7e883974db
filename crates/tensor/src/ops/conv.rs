//! Convolution and pooling over images, by slices: a convolution is a product of matrices over the patches that its kernel
//! meets. Images are `[n, channels, height, width]`.

use crate::{SourceLocation, Tensor};

/// How a kernel moves over an image. The default touches every place once and adds nothing at the edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sliding {
    /// Steps down and to the right.
    pub stride: (usize, usize),
    /// Zeros above and below, left and right.
    pub padding: (usize, usize),
    /// Distances between elements of the kernel.
    pub dilation: (usize, usize),
    /// Channels are split into so many groups that do not see each other.
    pub groups: usize,
}

impl Default for Sliding {
    fn default() -> Sliding {
        Sliding { stride: (1, 1), padding: (0, 0), dilation: (1, 1), groups: 1 }
    }
}

/// Where a window of this length lies along an axis: how often it fits, or what is wrong.
fn fits(len: usize, window: usize, stride: usize, dilation: usize) -> Result<usize, String> {
    if window == 0 || stride == 0 || dilation == 0 {
        return Err("kernels, strides and dilations are at least 1".into());
    }
    let reach = (window - 1).checked_mul(dilation).and_then(|n| n.checked_add(1));
    match reach.and_then(|reach| len.checked_sub(reach)) {
        Some(rest) => Ok(rest / stride + 1),
        None => Err(format!("a kernel of {window} elements does not fit into {len}")),
    }
}

impl Tensor {
    /// For each element of a kernel, the image elements that it meets: `[n, channels, rows, columns]`.
    #[track_caller]
    fn patches(
        &self,
        name: &'static str,
        kernel: [usize; 2],
        by: Sliding,
    ) -> Result<(Vec<Tensor>, [usize; 2]), Tensor> {
        let location = SourceLocation::here();
        self.check_float(name, location)?;
        let [_, _, height, width] = self.0.shape[..] else {
            let message = format!("an image is [n, channels, height, width], not {:?}", self.0.shape);
            return Err(Tensor::failed_at(name, message, location));
        };
        let wrong = |message: String| Tensor::failed_at(name, message, location);
        let rows = fits(height, kernel[0], by.stride.0, by.dilation.0).map_err(wrong)?;
        let columns = fits(width, kernel[1], by.stride.1, by.dilation.1).map_err(wrong)?;
        let mut patches = vec![];
        for i in 0..kernel[0] {
            for j in 0..kernel[1] {
                let (top, left) = (i * by.dilation.0, j * by.dilation.1);
                let (bottom, right) = (top + (rows - 1) * by.stride.0 + 1, left + (columns - 1) * by.stride.1 + 1);
                let part = self.slice_step(2, top as isize..bottom as isize, by.stride.0 as isize);
                patches.push(part.slice_step(3, left as isize..right as isize, by.stride.1 as isize));
            }
        }
        Ok((patches, [rows, columns]))
    }

    /// Convolution (as everywhere in this field, without flipping the kernel) with a weight
    /// `[out, channels / groups, height, width]`.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, ops::Sliding};
    /// # fn main() -> bornite::Result<()> {
    /// let image = Tensor::ones(&[1, 1, 3, 3], DType::F32, Device::cpu());
    /// let weight = Tensor::ones(&[1, 1, 3, 3], DType::F32, Device::cpu());
    /// let out = image.conv2d(&weight, None, Sliding { padding: (1, 1), ..Sliding::default() });
    /// assert_eq!(out.to_vec::<f32>()?, [4., 6., 4., 6., 9., 6., 4., 6., 4.]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, by: Sliding) -> Tensor {
        let location = SourceLocation::here();
        for tensor in [self, weight] {
            if let Err(failed) = tensor.check_float("conv2d", location) {
                return failed;
            }
        }
        let (&[n, channels, ..], &[out, own, high, wide]) = (&self.0.shape[..], &weight.0.shape[..]) else {
            let message =
                format!("an image has four axes and a weight too, not {:?} and {:?}", self.0.shape, weight.0.shape);
            return Tensor::failed_at("conv2d", message, location);
        };
        let groups = by.groups.max(1);
        if by.groups == 0 || own.checked_mul(groups) != Some(channels) || !out.is_multiple_of(groups) {
            let message =
                format!("a weight {:?} in {} groups does not fit {channels} channels", weight.0.shape, by.groups);
            return Tensor::failed_at("conv2d", message, location);
        }
        let image = match (by.padding, self.0.shape.len()) {
            ((0, 0), _) => self.clone(),
            ((down, across), 4) => self.pad(&[(0, 0), (0, 0), (down, down), (across, across)], 0.0),
            _ => self.clone(),
        };
        let (patches, [rows, columns]) = match image.patches("conv2d", [high, wide], by) {
            Ok(patches) => patches,
            Err(failed) => return failed,
        };
        let meets = Tensor::stack(&patches.iter().collect::<Vec<_>>(), 2);
        let meets = meets.reshape(&[n, groups, own * high * wide, rows * columns]);
        let weight = weight.reshape(&[groups, out / groups, own * high * wide]);
        let product = weight.matmul(&meets).reshape(&[n, out, rows, columns]);
        match bias {
            Some(bias) => product + bias.unsqueeze(-1).unsqueeze(-1),
            None => product,
        }
    }

    /// The largest element under a kernel that moves by `stride`.
    #[track_caller]
    pub fn max_pool2d(&self, kernel: [usize; 2], stride: (usize, usize)) -> Tensor {
        match self.patches("max_pool2d", kernel, Sliding { stride, ..Sliding::default() }) {
            Ok((patches, _)) => Tensor::stack(&patches.iter().collect::<Vec<_>>(), 0).max(0),
            Err(failed) => failed,
        }
    }

    /// The mean under a kernel that moves by `stride`.
    #[track_caller]
    pub fn avg_pool2d(&self, kernel: [usize; 2], stride: (usize, usize)) -> Tensor {
        match self.patches("avg_pool2d", kernel, Sliding { stride, ..Sliding::default() }) {
            Ok((patches, _)) => Tensor::stack(&patches.iter().collect::<Vec<_>>(), 0).mean(0),
            Err(failed) => failed,
        }
    }
}
