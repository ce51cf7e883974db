//! Resizing of images `[n, channels, height, width]` by interpolation.

use crate::{SourceLocation, Tensor};

/// Maximum length of a resized axis, so that a wrong setting does not become an allocation.
const MAX_LENGTH: usize = 1 << 24;

/// Interpolation of [`Tensor::upsample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpsampleMode {
    /// The element at `⌊i · len / out⌋`.
    Nearest,
    /// Linear interpolation between the two neighbours along each axis.
    Bilinear {
        /// Maps the centres of the corner elements onto each other, instead of the outer edges of
        /// the image.
        align_corners: bool,
    },
}

impl Tensor {
    /// Resizes images to `size`, which may also be smaller. Bilinear interpolation does not average
    /// over more than two elements per axis.
    ///
    /// ```
    /// use bornite::{Device, Tensor, ops::UpsampleMode};
    /// # fn main() -> bornite::Result<()> {
    /// let image = Tensor::from_slice(&[1.0f32, 3.0], &[1, 1, 1, 2], Device::cpu());
    /// assert_eq!(image.upsample([1, 4], UpsampleMode::Nearest).to_vec::<f32>()?, [1.0, 1.0, 3.0, 3.0]);
    /// let bilinear = |align_corners| image.upsample([1, 4], UpsampleMode::Bilinear { align_corners });
    /// assert_eq!(bilinear(false).to_vec::<f32>()?, [1.0, 1.5, 2.5, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn upsample(&self, size: [usize; 2], mode: UpsampleMode) -> Tensor {
        let location = SourceLocation::here();
        let Ok(node) = self.node() else { return self.clone() };
        let shape = &node.shape;
        if shape.len() != 4 || shape[2..].contains(&0) || !size.iter().all(|out| (1..=MAX_LENGTH).contains(out)) {
            let message = format!(
                "cannot resize {shape:?} to {size:?}; expected an image [n, channels, height, width] and lengths from 1 to {MAX_LENGTH}"
            );
            return Tensor::failed_at("upsample", message, location);
        }
        match mode {
            UpsampleMode::Nearest => nearest(&nearest(self, 3, size[1]), 2, size[0]),
            UpsampleMode::Bilinear { align_corners } => {
                if let Err(failed) = self.check_float("upsample", location) {
                    return failed;
                }
                let (image, original_dtype) = self.widen();
                let rows = linear(&image, 3, size[1], align_corners);
                linear(&rows, 2, size[0], align_corners).narrow_to(original_dtype)
            }
        }
    }
}

#[track_caller]
fn nearest(image: &Tensor, axis: usize, out: usize) -> Tensor {
    let Ok(node) = image.node() else { return image.clone() };
    let len = node.shape[axis];
    if len == out {
        return image.clone();
    }
    if out.is_multiple_of(len) {
        // Repetition is a view.
        let (mut repeated, mut merged) = (node.shape.clone(), node.shape.clone());
        repeated.insert(axis + 1, out / len);
        merged[axis] = out;
        return image.unsqueeze(axis as isize + 1).expand(&repeated).reshape(&merged);
    }
    let sources: Vec<i64> = (0..out).map(|i| (i as u128 * len as u128 / out as u128) as i64).collect();
    image.index_select(axis as isize, &Tensor::from_slice(&sources, &[out], node.device))
}

#[track_caller]
fn linear(image: &Tensor, axis: usize, out: usize, align_corners: bool) -> Tensor {
    let Ok(node) = image.node() else { return image.clone() };
    let len = node.shape[axis];
    if len == out {
        return image.clone();
    }
    let last = (len - 1) as f64;
    let positions = (0..out).map(|i| match align_corners {
        true if out == 1 => 0.0,
        true => i as f64 * last / (out - 1) as f64,
        false => ((i as f64 + 0.5) * len as f64 / out as f64 - 0.5).clamp(0.0, last),
    });
    let (mut below, mut above, mut fractions) = (vec![], vec![], vec![]);
    for position in positions {
        let index = position.floor();
        below.push(index as i64);
        above.push((index + 1.0).min(last) as i64);
        fractions.push(position - index);
    }
    let mut shape = vec![1; node.shape.len()];
    shape[axis] = out;
    let fraction = Tensor::from_slice(&fractions, &shape, node.device).cast(node.dtype);
    let select = |indices: &[i64]| image.index_select(axis as isize, &Tensor::from_slice(indices, &[out], node.device));
    select(&below) * (1.0 - &fraction) + select(&above) * fraction
}
