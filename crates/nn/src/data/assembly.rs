//! Assembly of one batch: reads and transforms samples, stacks them and copies them to the device.
//! The result depends only on the settings and the number of the batch, so that threads can
//! assemble batches in any order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bornite::{Device, Tensor};

use super::permutation::Permutation;
use super::transforms::{SampleRandom, Transform};
use super::{DataCursor, Dataset, HostArray};
use crate::random::mix;
use crate::{Error, ErrorKind, Result};

/// Assembles batches of one epoch.
#[derive(Clone)]
pub(super) struct Assembly {
    pub dataset: Arc<dyn Dataset>,
    pub transforms: Vec<(usize, Arc<dyn Transform>)>,
    pub batch: usize,
    pub shuffle: bool,
    pub drop_last: bool,
    pub device: Device,
    /// Start of the first batch.
    pub start: DataCursor,
}

impl Assembly {
    /// Number of batches from a position to the end of the epoch.
    pub(super) fn batches(&self, position: u64) -> u64 {
        let (rest, batch) = (self.start.sequences.saturating_sub(position), self.batch.max(1) as u64);
        if self.drop_last { rest / batch } else { rest.div_ceil(batch) }
    }

    /// Cursor after the first `count` batches.
    pub(super) fn after(&self, count: u64) -> DataCursor {
        let position = self.start.position.saturating_add(count.saturating_mul(self.batch as u64));
        if count < self.batches(self.start.position) {
            DataCursor { position, ..self.start }
        } else {
            DataCursor { epoch: self.start.epoch + 1, position: 0, ..self.start }
        }
    }

    /// Assembles batch `number`; ends early with an error if `stopped`.
    pub(super) fn batch(&self, number: u64, stopped: &dyn Fn() -> bool) -> Result<Vec<Tensor>> {
        let key = mix(mix(self.start.seed) ^ self.start.epoch);
        let order = self.shuffle.then(|| Permutation::new(self.start.sequences, key));
        let first = self.start.position + number * self.batch as u64;
        let last = first.saturating_add(self.batch as u64).min(self.start.sequences);
        let (mut indices, mut samples) = (vec![], vec![]);
        for position in first..last {
            if stopped() {
                return Err(Error::stopped());
            }
            let index = order.map_or(position, |order| order.get(position));
            samples.push(self.sample(index as usize, key)?);
            indices.push(index as usize);
        }
        let arrays = samples.first().map_or(0, Vec::len);
        if let Some(other) = samples.iter().position(|sample| sample.is_empty() || sample.len() != arrays) {
            return Err(Error::data(format!(
                "{} has {} arrays, but {} {arrays}; expected the same number in all samples, at least 1",
                self.dataset.describe(indices[other]),
                samples[other].len(),
                self.dataset.describe(indices[0]),
            )));
        }
        (0..arrays)
            .map(|array| {
                let column: Vec<&HostArray> = samples.iter().map(|sample| &sample[array]).collect();
                match HostArray::stack(&column)? {
                    Ok(stacked) => {
                        let tensor = stacked.to_tensor(self.device);
                        tensor.realize()?;
                        Ok(tensor)
                    }
                    Err(other) => Err(Error::data(format!(
                        "array {array} of {} is {:?}, but of {} {:?}; samples of a batch must have one dtype and shape: resize, \
                         crop or pad them",
                        self.dataset.describe(indices[other]),
                        column[other],
                        self.dataset.describe(indices[0]),
                        column[0]
                    ))),
                }
            })
            .collect()
    }

    /// Reads and transforms a sample. A panic of the dataset or of a transform is an error.
    fn sample(&self, index: usize, key: u64) -> Result<Vec<HostArray>> {
        let failed = |sample, cause| Error::from(ErrorKind::Sample { sample, cause: Box::new(cause) });
        let work = || {
            let mut sample = self.dataset.get(index).map_err(|cause| failed(format!("sample {index}"), cause))?;
            let mut random = SampleRandom::new(mix(key ^ mix(index as u64)));
            for (array, transform) in &self.transforms {
                let count = sample.len();
                let Some(array) = sample.get_mut(*array) else {
                    return Err(Error::data(format!(
                        "a transform is set for array {array}, but {} has {count}",
                        self.dataset.describe(index)
                    )));
                };
                let old = std::mem::replace(array, HostArray::scalar(false));
                *array =
                    transform.apply(old, &mut random).map_err(|cause| failed(self.dataset.describe(index), cause))?;
            }
            Ok(sample)
        };
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(Error::data(format!("reading {} panicked: {text}", self.dataset.describe(index))))
        })
    }
}
