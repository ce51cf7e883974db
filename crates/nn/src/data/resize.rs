//! Resizing of images in samples: linear interpolation, with a wider filter when the image shrinks,
//! so that no pixel is left out.

use bornite::DType;

use super::HostArray;
use super::host_array::byte_count;
use super::transforms::{SampleRandom, Transform};
use crate::{Error, ErrorKind, Result};

/// Maximum height and width of the result.
const MAX_LENGTH: usize = 1 << 16;

/// Resizes an image of u8 or f32, `[channels, height, width]` or `[height, width]`.
///
/// ```
/// use bornite::Device;
/// use bornite_nn::data::{DataLoader, HostArray, Resize, TensorDataset};
///
/// let images = HostArray::from_slice(&[10u8, 30], &[1, 1, 2])?;
/// let loader = DataLoader::new(TensorDataset::new(vec![images])?)
///     .device(Device::cpu())
///     .transform(0, Resize { height: 1, width: 4 });
/// for batch in loader.epoch() {
///     assert_eq!(batch?[0].to_vec::<u8>()?, [10, 15, 25, 30]);
/// }
/// # Ok::<(), bornite_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// Height of the result.
    pub height: usize,
    /// Width of the result.
    pub width: usize,
}

/// The first source element and the weights of each element along a resized axis.
fn filters(len: usize, out: usize) -> Vec<(usize, Vec<f32>)> {
    let scale = len as f64 / out as f64;
    let support = scale.max(1.0);
    let filter = |i: usize| {
        let center = (i as f64 + 0.5) * scale;
        let first = (center - support + 0.5).floor().max(0.0) as usize;
        let last = ((center + support + 0.5).floor() as usize).min(len);
        let weight = |j: usize| (1.0 - ((j as f64 + 0.5 - center) / support).abs()).max(0.0);
        let total: f64 = (first..last).map(weight).sum();
        (first, (first..last).map(|j| (weight(j) / total) as f32).collect())
    };
    (0..out).map(filter).collect()
}

/// Resizes the middle axis of `[outer, len, inner]`.
fn resize_axis(data: &[f32], [outer, len, inner]: [usize; 3], out: usize) -> Result<Vec<f32>> {
    let filters = filters(len, out);
    let elements = outer * out * inner;
    let mut resized = Vec::new();
    let bytes = 4 * elements as u64;
    let purpose = || "a resized image".to_string();
    resized.try_reserve_exact(elements).map_err(|_| ErrorKind::OutOfMemory { purpose: purpose(), bytes })?;
    resized.resize(elements, 0.0);
    for (lines, source) in resized.chunks_mut(out * inner).zip(data.chunks(len * inner)) {
        for (line, (first, weights)) in lines.chunks_mut(inner).zip(&filters) {
            for (n, weight) in weights.iter().enumerate() {
                let from = &source[(first + n) * inner..][..inner];
                line.iter_mut().zip(from).for_each(|(sum, value)| *sum += value * weight);
            }
        }
    }
    Ok(resized)
}

impl Transform for Resize {
    fn apply(&self, array: HostArray, _: &mut SampleRandom) -> Result<HostArray> {
        let Resize { height, width } = *self;
        let (lead, rows, columns) = match array.shape() {
            [lead @ .., rows, columns] if lead.len() <= 1 => (lead, *rows, *columns),
            _ => {
                return Err(Error::data(format!(
                    "Resize: expected an image [channels, height, width] or [height, width], found {array:?}"
                )));
            }
        };
        let sizes = 1..=MAX_LENGTH;
        let shape = [lead, &[height, width]].concat();
        // Rows are resized last, so the intermediate image has the old height.
        let between = byte_count(&[lead, &[rows, width]].concat(), DType::F32);
        let fits = [rows, columns, height, width].iter().all(|len| sizes.contains(len)) && between.is_some();
        if byte_count(&shape, DType::F32).is_none() || !fits {
            return Err(Error::data(format!(
                "Resize: cannot resize {array:?} to {height} × {width}; expected lengths from 1 to {MAX_LENGTH}"
            )));
        }
        let pixels = match array.dtype() {
            DType::U8 => array.bytes().iter().map(|&byte| byte as f32).collect(),
            DType::F32 => array.to_vec::<f32>()?,
            _ => return Err(Error::data(format!("Resize: expected u8 or f32, found {array:?}"))),
        };
        let channels: usize = lead.iter().product();
        let pixels = resize_axis(&pixels, [channels * rows, columns, 1], width)?;
        let pixels = resize_axis(&pixels, [channels, rows, width], height)?;
        match array.dtype() {
            // Conversion saturates; sums of weights may exceed 1 by a rounding.
            DType::U8 => {
                HostArray::from_bytes(pixels.iter().map(|pixel| pixel.round() as u8).collect(), &shape, DType::U8)
            }
            _ => HostArray::from_slice(&pixels, &shape),
        }
    }
}
