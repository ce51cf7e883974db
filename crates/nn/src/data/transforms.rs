//! Transforms of images `[channels, height, width]` or `[height, width]` in samples. Random ones
//! depend only on the loader's seed, the epoch and the sample, so that a resumed run repeats them.

use bornite::DType;
use bornite_support::random::Random;

use super::HostArray;
use super::host_array::{byte_count, reserve};
use crate::{Error, Result};

/// Random numbers of one sample in one epoch.
pub struct SampleRandom(Random);

impl SampleRandom {
    pub(super) fn new(key: u64) -> SampleRandom {
        SampleRandom(Random::new(key))
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns an integer below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    /// Returns a number from 0 to below 1.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * 2f64.powi(-53)
    }
}

/// A transform of one array of a sample. Functions from an array and random numbers to an array are
/// transforms, too.
pub trait Transform: Send + Sync {
    /// Transforms an array. The result must depend only on the arguments.
    fn apply(&self, array: HostArray, random: &mut SampleRandom) -> Result<HostArray>;
}

impl<F: Fn(HostArray, &mut SampleRandom) -> Result<HostArray> + Send + Sync> Transform for F {
    fn apply(&self, array: HostArray, random: &mut SampleRandom) -> Result<HostArray> {
        self(array, random)
    }
}

/// Channels, height and width of an image, which has two or three axes.
fn image_size(name: &str, array: &HostArray) -> Result<[usize; 3]> {
    match *array.shape() {
        [height, width] => Ok([1, height, width]),
        [channels, height, width] => Ok([channels, height, width]),
        _ => Err(Error::data(format!(
            "{name}: expected an image [channels, height, width] or [height, width], found {array:?}"
        ))),
    }
}

/// Shape of an image of another size.
fn with_size(array: &HostArray, height: usize, width: usize) -> Vec<usize> {
    let lead = &array.shape()[..array.shape().len() - 2];
    [lead, &[height, width]].concat()
}

/// Copies the part of an image that starts at a row and column, which may be outside; elements
/// outside the image are zeros.
fn cropped(array: &HostArray, [top, left]: [isize; 2], [height, width]: [usize; 2]) -> Result<HostArray> {
    let [channels, rows, columns] = image_size("crop", array)?;
    let size = array.dtype().bytes();
    let shape = with_size(array, height, width);
    let total = byte_count(&shape, array.dtype())
        .ok_or_else(|| Error::data(format!("crop: an image of {height} × {width} does not fit into memory")))?;
    let mut bytes = reserve(total, "a cropped image")?;
    // Columns before the source, within it and after it.
    let before = left.min(0).unsigned_abs().min(width);
    let first = left.max(0) as usize;
    let within = columns.saturating_sub(first).min(width - before);
    for channel in 0..channels {
        for row in 0..height as isize {
            let start = bytes.len();
            let row = top + row;
            if (0..rows as isize).contains(&row) {
                bytes.resize(start + before * size, 0);
                let source = ((channel * rows + row as usize) * columns + first.min(columns)) * size;
                bytes.extend_from_slice(&array.bytes()[source..][..within * size]);
            }
            bytes.resize(start + width * size, 0);
        }
    }
    HostArray::from_bytes(bytes, &shape, array.dtype())
}

/// Crops the centre of an image.
///
/// ```
/// use bornite::Device;
/// use bornite_nn::data::{CenterCrop, DataLoader, HostArray, TensorDataset};
///
/// let images = HostArray::from_slice(&(0..9).collect::<Vec<u8>>(), &[1, 3, 3])?;
/// let loader = DataLoader::new(TensorDataset::new(vec![images])?)
///     .device(Device::cpu())
///     .transform(0, CenterCrop { height: 1, width: 3 });
/// for batch in loader.epoch() {
///     assert_eq!(batch?[0].to_vec::<u8>()?, [3, 4, 5]);
/// }
/// # Ok::<(), bornite_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CenterCrop {
    /// Height of the result.
    pub height: usize,
    /// Width of the result.
    pub width: usize,
}

impl Transform for CenterCrop {
    fn apply(&self, array: HostArray, _: &mut SampleRandom) -> Result<HostArray> {
        let CenterCrop { height, width } = *self;
        let [_, rows, columns] = image_size("CenterCrop", &array)?;
        if height == 0 || width == 0 || height > rows || width > columns {
            return Err(Error::data(format!(
                "CenterCrop: cannot crop {height} × {width} from {array:?}; resize the image or crop less"
            )));
        }
        cropped(&array, [(rows - height) as isize / 2, (columns - width) as isize / 2], [height, width])
    }
}

/// Crops a random part of an image, which is padded with zeros first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomCrop {
    /// Height of the result.
    pub height: usize,
    /// Width of the result.
    pub width: usize,
    /// Number of zeros added on each side before the crop.
    pub padding: usize,
}

impl Transform for RandomCrop {
    fn apply(&self, array: HostArray, random: &mut SampleRandom) -> Result<HostArray> {
        let RandomCrop { height, width, padding } = *self;
        let [_, rows, columns] = image_size("RandomCrop", &array)?;
        let padded = |len: usize| padding.checked_mul(2).and_then(|both| both.checked_add(len));
        let fits =
            |len, out| padded(len).filter(|len| isize::try_from(*len).is_ok()).and_then(|len| len.checked_sub(out));
        let (Some(down), Some(across), true) = (fits(rows, height), fits(columns, width), height > 0 && width > 0)
        else {
            return Err(Error::data(format!(
                "RandomCrop: cannot crop {height} × {width} from {array:?} with padding {padding}; resize the image or crop less"
            )));
        };
        let (top, left) = (random.below(down + 1), random.below(across + 1));
        cropped(&array, [top, left].map(|offset| offset as isize - padding as isize), [height, width])
    }
}

/// Reverses the order of the elements of `size` bytes in each line of `line` elements.
fn reverse_lines(bytes: &mut [u8], line: usize, size: usize) {
    if line == 0 || size == 0 {
        return;
    }
    for line in bytes.chunks_exact_mut(line * size) {
        line.reverse();
        line.chunks_exact_mut(size).for_each(|element| element.reverse());
    }
}

/// Flips an image at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomFlip {
    /// Probability of a flip of left and right.
    pub horizontal: f64,
    /// Probability of a flip of top and bottom.
    pub vertical: f64,
}

impl Transform for RandomFlip {
    fn apply(&self, array: HostArray, random: &mut SampleRandom) -> Result<HostArray> {
        let RandomFlip { horizontal, vertical } = *self;
        if ![horizontal, vertical].iter().all(|p| (0.0..=1.0).contains(p)) {
            return Err(Error::data(format!(
                "RandomFlip: probabilities must be from 0 to 1, found {horizontal} and {vertical}"
            )));
        }
        let [_, rows, columns] = image_size("RandomFlip", &array)?;
        let (shape, dtype) = (array.shape().to_vec(), array.dtype());
        let mut bytes = array.bytes().to_vec();
        if random.uniform() < horizontal {
            reverse_lines(&mut bytes, columns, dtype.bytes());
        }
        if random.uniform() < vertical {
            reverse_lines(&mut bytes, rows, dtype.bytes() * columns);
        }
        HostArray::from_bytes(bytes, &shape, dtype)
    }
}

/// Converts bytes from 0 to 255 to f32 from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToFloat;

impl Transform for ToFloat {
    fn apply(&self, array: HostArray, _: &mut SampleRandom) -> Result<HostArray> {
        if array.dtype() != DType::U8 {
            return Err(Error::data(format!("ToFloat: expected u8, found {array:?}")));
        }
        let floats: Vec<f32> = array.bytes().iter().map(|&byte| byte as f32 / 255.0).collect();
        HostArray::from_slice(&floats, array.shape())
    }
}

/// Subtracts the mean and divides by the standard deviation of each channel. Images of f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    /// Mean of each channel, or one for all.
    pub mean: Vec<f32>,
    /// Standard deviation of each channel, or one for all.
    pub std: Vec<f32>,
}

impl Transform for Normalize {
    fn apply(&self, array: HostArray, _: &mut SampleRandom) -> Result<HostArray> {
        let Normalize { mean, std } = self;
        let [channels, rows, columns] = image_size("Normalize", &array)?;
        if array.dtype() != DType::F32 {
            return Err(Error::data(format!("Normalize: expected f32, found {array:?}; apply ToFloat to u8 first")));
        }
        if ![mean, std].iter().all(|values| [1, channels].contains(&values.len())) {
            return Err(Error::data(format!(
                "Normalize: {} means and {} standard deviations do not match {array:?}; expected 1 or {channels}",
                mean.len(),
                std.len()
            )));
        }
        if !mean.iter().all(|mean| mean.is_finite()) || !std.iter().all(|std| *std > 0.0 && std.is_finite()) {
            return Err(Error::data(format!(
                "Normalize: means must be finite and standard deviations greater than 0, found {mean:?} and {std:?}"
            )));
        }
        let mut floats = array.to_vec::<f32>()?;
        for (channel, plane) in floats.chunks_mut((rows * columns).max(1)).enumerate() {
            let (mean, std) = (mean[channel.min(mean.len() - 1)], std[channel.min(std.len() - 1)]);
            plane.iter_mut().for_each(|value| *value = (*value - mean) / std);
        }
        HostArray::from_slice(&floats, array.shape())
    }
}
