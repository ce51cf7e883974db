//! Datasets of samples: the trait, arrays in memory, and parts of other datasets.

use std::sync::{Arc, OnceLock};

use bornite::Tensor;

use super::HostArray;
use super::permutation::Permutation;
use crate::error::located;
use crate::random::mix;
use crate::{Error, Result};

/// A dataset of samples that are accessed by index. Each sample is a list of arrays, such as an
/// image and its class; all samples of a batch must have the same dtypes and shapes.
///
/// ```
/// use bornite_nn::data::{Dataset, HostArray};
///
/// /// Numbers and their squares.
/// struct Squares;
///
/// impl Dataset for Squares {
///     fn len(&self) -> usize {
///         100
///     }
///
///     fn get(&self, index: usize) -> bornite_nn::Result<Vec<HostArray>> {
///         let x = index as f32;
///         Ok(vec![HostArray::scalar(x), HostArray::scalar(x * x)])
///     }
/// }
/// # assert_eq!(Squares.get(3)?[1].to_vec::<f32>()?, [9.0]);
/// # Ok::<(), bornite_nn::Error>(())
/// ```
pub trait Dataset: Send + Sync {
    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Reads a sample. Called by several threads; the result must depend on the index only.
    fn get(&self, index: usize) -> Result<Vec<HostArray>>;

    /// Returns true if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Describes a sample in messages, such as "sample 3 (cats/tom.png)".
    fn describe(&self, index: usize) -> String {
        format!("sample {index}")
    }

    /// Returns a number that identifies the data, so that a run is not resumed with other data. By
    /// default it depends on the number of samples only.
    fn fingerprint(&self) -> u64 {
        fingerprint_of([self.len() as u64])
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize) -> Result<Vec<HostArray>> {
        (**self).get(index)
    }

    fn describe(&self, index: usize) -> String {
        (**self).describe(index)
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}

/// Hashes words to 63 bits, since TOML integers are signed.
pub(super) fn fingerprint_of(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, |hash, word| mix(hash ^ word)) >> 1
}

/// Words of a byte string, for [`fingerprint_of`].
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64))
}

/// Error of an index that is not below the number of samples.
pub(super) fn no_such_sample(index: usize, count: usize) -> Error {
    Error::data(format!("there is no sample {index}; the dataset has {count}"))
}

/// Arrays in memory whose first axes count the samples.
///
/// ```
/// use bornite_nn::data::{Dataset, HostArray, TensorDataset};
///
/// let points = HostArray::from_slice(&[0.0f32, 0.0, 1.0, 0.5, 2.0, 1.0], &[3, 2])?;
/// let classes = HostArray::from_slice(&[0i64, 1, 1], &[3])?;
/// let dataset = TensorDataset::new(vec![points, classes])?.with_classes(1, 2)?;
/// assert_eq!(dataset.get(1)?[0].to_vec::<f32>()?, [1.0, 0.5]);
/// # Ok::<(), bornite_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorDataset {
    arrays: Arc<Vec<HostArray>>,
    fingerprint: Arc<OnceLock<u64>>,
}

impl TensorDataset {
    /// Creates a dataset of arrays with equally long first axes.
    #[track_caller]
    pub fn new(arrays: Vec<HostArray>) -> Result<TensorDataset> {
        located(|| {
            let shapes: Vec<&[usize]> = arrays.iter().map(|array| array.shape()).collect();
            let rows = shapes.first().and_then(|shape| shape.first());
            if rows.is_none() || shapes.iter().any(|shape| shape.first() != rows) {
                return Err(Error::data(format!(
                    "arrays of shapes {shapes:?} are not a dataset; expected at least one, and first axes of equal length"
                )));
            }
            Ok(TensorDataset { arrays: Arc::new(arrays), fingerprint: Arc::default() })
        })
    }

    /// Creates a dataset of tensors with equally long first axes, which are copied to the host.
    #[track_caller]
    pub fn from_tensors(tensors: &[&Tensor]) -> Result<TensorDataset> {
        located(|| {
            let arrays = tensors.iter().map(|tensor| HostArray::from_tensor(tensor)).collect::<Result<_>>()?;
            TensorDataset::new(arrays)
        })
    }

    /// Checks that array `number` contains class indices from 0 to below `classes`.
    #[track_caller]
    pub fn with_classes(self, number: usize, classes: usize) -> Result<TensorDataset> {
        located(|| {
            let Some(array) = self.arrays.get(number) else {
                let count = self.arrays.len();
                return Err(Error::data(format!("there is no array {number} with classes; the dataset has {count}")));
            };
            if !array.dtype().is_int() {
                let message = format!("classes in array {number} are {}; expected integers", array.dtype());
                return Err(Error::data(message));
            }
            let (size, signed) = (array.dtype().bytes(), array.dtype().is_signed());
            let label = |bytes: &[u8]| {
                let mut wide = [if signed && bytes[size - 1] > 127 { 0xff } else { 0 }; 16];
                wide[..size].copy_from_slice(bytes);
                i128::from_le_bytes(wide)
            };
            let wrong = array.bytes().chunks_exact(size).map(label).enumerate();
            match wrong.into_iter().find(|(_, label)| !(0..classes as i128).contains(label)) {
                Some((position, label)) => {
                    let per_sample = (array.bytes().len() / size).checked_div(self.len()).unwrap_or(1).max(1);
                    Err(Error::data(format!(
                        "sample {} has class {label}, which is outside 0 to {}; correct the data or the number of classes",
                        position / per_sample,
                        classes.saturating_sub(1)
                    )))
                }
                None => Ok(self),
            }
        })
    }

    /// Returns the arrays.
    pub fn arrays(&self) -> &[HostArray] {
        &self.arrays
    }
}

impl Dataset for TensorDataset {
    fn len(&self) -> usize {
        self.arrays.first().and_then(|array| array.shape().first()).copied().unwrap_or(0)
    }

    fn get(&self, index: usize) -> Result<Vec<HostArray>> {
        let rows = self.arrays.iter().map(|array| array.row(index));
        rows.collect::<Option<_>>().ok_or_else(|| no_such_sample(index, self.len()))
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            fingerprint_of(self.arrays.iter().flat_map(|array| {
                let shape = array.shape().iter().map(|&len| len as u64);
                shape.chain(words_of(array.dtype().name().as_bytes())).chain(words_of(array.bytes()))
            }))
        })
    }
}

/// Some samples of another dataset, as returned by [`split`].
#[derive(Clone, Debug)]
pub struct Subset<D> {
    dataset: Arc<D>,
    order: Permutation,
    start: usize,
    len: usize,
}

/// Splits a dataset at random: about `fraction` of the samples are in the second part. The same
/// seed gives the same parts.
///
/// ```
/// use bornite_nn::data::{Dataset, HostArray, TensorDataset, split};
///
/// let dataset = TensorDataset::new(vec![HostArray::from_slice(&[1u8; 50], &[50])?])?;
/// let (train, test) = split(dataset, 0.2, 1)?;
/// assert_eq!((train.len(), test.len()), (40, 10));
/// # Ok::<(), bornite_nn::Error>(())
/// ```
#[track_caller]
pub fn split<D: Dataset>(dataset: D, fraction: f64, seed: u64) -> Result<(Subset<D>, Subset<D>)> {
    located(|| {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::data(format!("the fraction of the second part is {fraction}; it must be from 0 to 1")));
        }
        let count = dataset.len();
        let second = ((count as f64 * fraction).round() as usize).min(count);
        let order = Permutation::new(count as u64, mix(seed));
        let first = Subset { dataset: Arc::new(dataset), order, start: 0, len: count - second };
        let second = Subset { start: count - second, len: second, ..first.clone_parts() };
        Ok((first, second))
    })
}

impl<D> Subset<D> {
    /// As `clone`, for any `D`.
    fn clone_parts(&self) -> Subset<D> {
        Subset { dataset: self.dataset.clone(), ..*self }
    }
}

impl<D: Dataset> Subset<D> {
    fn index(&self, index: usize) -> Result<usize> {
        let found = (index < self.len).then(|| self.order.get((self.start + index) as u64) as usize);
        found.ok_or_else(|| no_such_sample(index, self.len))
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<Vec<HostArray>> {
        self.dataset.get(self.index(index)?)
    }

    fn describe(&self, index: usize) -> String {
        self.index(index).map_or_else(|_| format!("sample {index}"), |index| self.dataset.describe(index))
    }

    fn fingerprint(&self) -> u64 {
        // The first index depends on the seed of the split.
        let first = if self.len > 0 { self.order.get(self.start as u64) } else { 0 };
        fingerprint_of([self.dataset.fingerprint(), self.start as u64, self.len as u64, first])
    }
}
