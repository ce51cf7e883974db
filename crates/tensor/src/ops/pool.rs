//! Pooling of images `[n, channels, height, width]`.

use super::conv::output_length;
use crate::fused::pool::{Pool, PoolGeometry, PoolKind};
use crate::{SourceLocation, Tensor};

/// Maximum length of an adaptively pooled axis, whose windows are separate slices.
const MAX_WINDOWS: usize = 1 << 16;

/// Reduces one axis.
type ReduceAxis = fn(&Tensor, isize) -> Tensor;

impl Tensor {
    /// Max pooling: the maximum over each position of a window. Elements that are equal to it share
    /// the gradient.
    #[track_caller]
    pub fn max_pool2d(&self, kernel: [usize; 2], stride: (usize, usize)) -> Tensor {
        self.pool(PoolKind::Max, kernel, stride, (0, 0))
    }

    /// Average pooling: the mean over each position of a window.
    #[track_caller]
    pub fn avg_pool2d(&self, kernel: [usize; 2], stride: (usize, usize)) -> Tensor {
        self.pool(PoolKind::Mean, kernel, stride, (0, 0))
    }

    /// As [`Tensor::max_pool2d`], with `padding` rows above and below and columns left and right
    /// that are never the maximum. The padding is at most half the kernel.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let image = -Tensor::ones(&[1, 1, 3, 3], DType::F32, Device::cpu());
    /// assert_eq!(image.max_pool2d_padded([3, 3], (2, 2), (1, 1)).to_vec::<f32>()?, [-1.0; 4]);
    /// assert_eq!(image.avg_pool2d_padded([3, 3], (3, 3), (1, 1)).to_vec::<f32>()?, [-4.0 / 9.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn max_pool2d_padded(&self, kernel: [usize; 2], stride: (usize, usize), padding: (usize, usize)) -> Tensor {
        self.pool(PoolKind::Max, kernel, stride, padding)
    }

    /// As [`Tensor::avg_pool2d`], with `padding` rows above and below and columns left and right of
    /// zeros, which count in the means. The padding is at most half the kernel.
    #[track_caller]
    pub fn avg_pool2d_padded(&self, kernel: [usize; 2], stride: (usize, usize), padding: (usize, usize)) -> Tensor {
        self.pool(PoolKind::Mean, kernel, stride, padding)
    }

    #[track_caller]
    fn pool(&self, kind: PoolKind, kernel: [usize; 2], stride: (usize, usize), padding: (usize, usize)) -> Tensor {
        let location = SourceLocation::here();
        let name = match kind {
            PoolKind::Max => "max_pool2d",
            PoolKind::Mean => "avg_pool2d",
        };
        if let Err(failed) = self.check_float(name, location) {
            return failed;
        }
        let fail = |message: String| Tensor::failed_at(name, message, location);
        let (stride, padding) = ([stride.0, stride.1], [padding.0, padding.1]);
        let &[_, _, height, width] = &self.0.shape[..] else {
            return fail(format!("expected an image [n, channels, height, width], found {:?}", self.0.shape));
        };
        // So that no window is only padding.
        if padding[0] > kernel[0] / 2 || padding[1] > kernel[1] / 2 {
            return fail(format!(
                "cannot pad {:?} by {:?} for a kernel {kernel:?}; the padding is at most half the kernel",
                self.0.shape,
                (padding[0], padding[1])
            ));
        }
        let input = [height, width];
        let mut output = [0; 2];
        for axis in 0..2 {
            let padded = padding[axis].checked_mul(2).and_then(|both| both.checked_add(input[axis]));
            let length = padded.ok_or_else(|| format!("padding {padding:?} is too large"));
            match length.and_then(|length| output_length(length, kernel[axis], stride[axis], 1)) {
                Ok(length) => output[axis] = length,
                Err(message) => return fail(message),
            }
        }
        let geometry = PoolGeometry { input, kernel, stride, padding, output };
        Pool { kind, geometry }.apply(self, location)
    }

    /// Average pooling to an image of `size`: output `i` of `out` averages the elements from
    /// `⌊i · len / out⌋` to `⌈(i + 1) · len / out⌉` along each axis.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let image = Tensor::arange(5, DType::F32, Device::cpu()).reshape(&[1, 1, 1, 5]);
    /// assert_eq!(image.adaptive_avg_pool2d([1, 3]).to_vec::<f32>()?, [0.5, 2.0, 3.5]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, size: [usize; 2]) -> Tensor {
        self.adaptive_pool("adaptive_avg_pool2d", size, |window, axis| window.mean(axis))
    }

    /// Max pooling to an image of `size`, over the windows of [`Tensor::adaptive_avg_pool2d`].
    #[track_caller]
    pub fn adaptive_max_pool2d(&self, size: [usize; 2]) -> Tensor {
        self.adaptive_pool("adaptive_max_pool2d", size, |window, axis| window.max(axis))
    }

    /// Both reductions are separable, so that the axes are reduced one after the other.
    #[track_caller]
    fn adaptive_pool(&self, name: &'static str, size: [usize; 2], reduce: ReduceAxis) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float(name, location) {
            return failed;
        }
        let shape = &self.0.shape;
        if shape.len() != 4 || shape[2..].contains(&0) || !size.iter().all(|out| (1..=MAX_WINDOWS).contains(out)) {
            let message = format!(
                "cannot pool {shape:?} to {size:?}; expected an image [n, channels, height, width] and lengths from 1 to {MAX_WINDOWS}"
            );
            return Tensor::failed_at(name, message, location);
        }
        let (image, original_dtype) = self.widen();
        let rows = adaptive_axis(&image, 2, shape[2], size[0], reduce);
        adaptive_axis(&rows, 3, shape[3], size[1], reduce).narrow_to(original_dtype)
    }

    /// The mean over all axes after the channels: `[n, channels, …]` to `[n, channels]`.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let images = Tensor::arange(8, DType::F32, Device::cpu()).reshape(&[1, 2, 2, 2]);
    /// assert_eq!(images.global_avg_pool().to_vec::<f32>()?, [1.5, 5.5]);
    /// assert_eq!(images.global_max_pool().to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn global_avg_pool(&self) -> Tensor {
        self.global_pool("global_avg_pool", |channels, axis| channels.mean(axis))
    }

    /// The maximum over all axes after the channels: `[n, channels, …]` to `[n, channels]`.
    #[track_caller]
    pub fn global_max_pool(&self) -> Tensor {
        self.global_pool("global_max_pool", |channels, axis| channels.max(axis))
    }

    #[track_caller]
    fn global_pool(&self, name: &'static str, reduce: ReduceAxis) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float(name, location) {
            return failed;
        }
        match &self.0.shape[..] {
            [_, _, rest @ ..] if !rest.is_empty() && !rest.contains(&0) => reduce(&self.flatten(2, -1), 2),
            shape => {
                let message =
                    format!("expected [n, channels, …] with axes of at least 1 to pool over, found {shape:?}");
                Tensor::failed_at(name, message, location)
            }
        }
    }
}

/// Reduces an axis of length `len` to `out` windows.
#[track_caller]
fn adaptive_axis(image: &Tensor, axis: usize, len: usize, out: usize, reduce: ReduceAxis) -> Tensor {
    if len == out || image.node().is_err() {
        return image.clone();
    }
    if len.is_multiple_of(out) {
        let mut shape = image.0.shape.clone();
        shape.splice(axis..=axis, [out, len / out]);
        return reduce(&image.reshape(&shape), axis as isize + 1);
    }
    let axis = axis as isize;
    let windows: Vec<Tensor> = (0..out as u128)
        .map(|i| {
            let start = i * len as u128 / out as u128;
            let end = ((i + 1) * len as u128).div_ceil(out as u128);
            reduce(&image.slice(axis, start as isize..end as isize), axis)
        })
        .collect();
    Tensor::stack(&windows.iter().collect::<Vec<_>>(), axis)
}
