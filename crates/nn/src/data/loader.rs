//! Batches of the samples of any [`Dataset`], assembled by threads.
//!
//! An epoch visits every sample once, in an order that depends only on seed and epoch, and random
//! transforms depend only on seed, epoch and sample. So a small cursor can resume anywhere, and the
//! number of threads does not affect the result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bornite::{Device, Tensor};

use super::assembly::Assembly;
use super::prefetch::Prefetch;
use super::transforms::Transform;
use super::{DataCursor, Dataset};
use crate::error::located;
use crate::{Error, Result};

/// Maximum number of threads, so that a wrong setting does not exhaust the machine.
const MAX_WORKERS: usize = 256;

/// Batches of a dataset as tensors; see [`DataLoader::epoch`].
///
/// ```
/// use bornite::Device;
/// use bornite_nn::data::{DataLoader, HostArray, TensorDataset};
///
/// let numbers: Vec<f32> = (0..10).map(|n| n as f32).collect();
/// let dataset = TensorDataset::new(vec![HostArray::from_slice(&numbers, &[10, 1])?])?;
/// let loader = DataLoader::new(dataset).batch(4).shuffle(7).workers(2).device(Device::cpu());
/// let mut rows = vec![];
/// for batch in loader.epoch() {
///     rows.push(batch?[0].shape()?[0]);
/// }
/// assert_eq!(rows, [4, 4, 2]);
/// # Ok::<(), bornite_nn::Error>(())
/// ```
pub struct DataLoader {
    assembly: Assembly,
    workers: usize,
    prefetch: usize,
    cursor: Mutex<DataCursor>,
    /// True while an [`Epoch`] is read.
    reading: AtomicBool,
}

impl DataLoader {
    /// Creates a loader of batches of 32 samples, in order, on [`Device::auto`], with one thread
    /// that prefetches two batches.
    pub fn new(dataset: impl Dataset + 'static) -> DataLoader {
        let (sequences, fingerprint) = (dataset.len() as u64, dataset.fingerprint());
        let start = DataCursor { seed: 0, epoch: 0, position: 0, sequences, fingerprint };
        let (dataset, device) = (Arc::new(dataset), Device::auto());
        let assembly =
            Assembly { dataset, transforms: vec![], batch: 32, shuffle: false, drop_last: false, device, start };
        DataLoader { assembly, workers: 1, prefetch: 2, cursor: Mutex::new(start), reading: AtomicBool::new(false) }
    }

    /// Sets the number of samples per batch.
    pub fn batch(mut self, samples: usize) -> DataLoader {
        self.assembly.batch = samples;
        self
    }

    /// Shuffles the samples, differently in each epoch; otherwise they come in order.
    pub fn shuffle(mut self, seed: u64) -> DataLoader {
        self.assembly.shuffle = true;
        self.seed(seed)
    }

    /// Sets the seed of random transforms, without shuffling.
    pub fn seed(self, seed: u64) -> DataLoader {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner).seed = seed;
        self
    }

    /// Sets the number of threads that read and transform samples; 0 for none. The batches do not
    /// depend on it.
    pub fn workers(mut self, threads: usize) -> DataLoader {
        self.workers = threads.min(MAX_WORKERS);
        self
    }

    /// Sets the number of batches that threads prepare ahead, including the copy to the device; at
    /// least 1.
    pub fn prefetch(mut self, batches: usize) -> DataLoader {
        self.prefetch = batches.max(1);
        self
    }

    /// Drops the last batch of an epoch if it is short; otherwise it is kept.
    pub fn drop_last(mut self, drop_last: bool) -> DataLoader {
        self.assembly.drop_last = drop_last;
        self
    }

    /// Sets the device of the batches.
    pub fn device(mut self, device: Device) -> DataLoader {
        self.assembly.device = device;
        self
    }

    /// Adds a transform of one array of each sample, applied after earlier ones.
    pub fn transform(mut self, array: usize, transform: impl Transform + 'static) -> DataLoader {
        self.assembly.transforms.push((array, Arc::new(transform)));
        self
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.assembly.start.sequences as usize
    }

    /// Returns the number of samples per batch.
    pub fn batch_size(&self) -> usize {
        self.assembly.batch
    }

    /// Returns the number of batches of a complete epoch.
    pub fn batches(&self) -> usize {
        self.assembly.batches(0) as usize
    }

    /// Returns the cursor of the next batch, for checkpoints; `sequences` counts samples.
    pub fn cursor(&self) -> DataCursor {
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues from a cursor of the same data, also in the middle of an epoch, with the cursor's
    /// seed. Takes effect at the next call of [`DataLoader::epoch`].
    #[track_caller]
    pub fn seek(&self, cursor: DataCursor) -> Result<()> {
        located(|| {
            let DataCursor { sequences: count, fingerprint, .. } = self.assembly.start;
            if cursor.sequences != count || cursor.position >= count {
                return Err(Error::data(format!(
                    "cannot resume at sample {} of {}: this dataset has {count} samples; resume with the data of the checkpoint",
                    cursor.position, cursor.sequences
                )));
            }
            if cursor.fingerprint != fingerprint {
                return Err(Error::data(
                    "cannot resume: the checkpoint was saved with other data; resume with that data or start a new run",
                ));
            }
            if self.reading.load(Ordering::Acquire) {
                return Err(Error::data("cannot change the position while an epoch is read; end its loop first"));
            }
            *self.cursor.lock().unwrap_or_else(PoisonError::into_inner) = cursor;
            Ok(())
        })
    }

    /// Returns the batches from the cursor to the end of its epoch, each with the arrays of the
    /// samples stacked along a new first axis. The cursor follows; after the last batch it is at
    /// the start of the next epoch. If the iterator is dropped earlier, the next one continues
    /// there. After an error the iterator ends, and the cursor stays at the failed batch.
    pub fn epoch(&self) -> Epoch<'_> {
        Epoch { loader: self, feed: None, owner: false, finished: false }
    }

    fn check(&self) -> Result<()> {
        let Assembly { batch, drop_last, .. } = self.assembly;
        let count = self.samples();
        if count == 0 {
            return Err(Error::data("the dataset is empty; there are no samples to load"));
        }
        if batch == 0 {
            return Err(Error::data("the batch size is 0; it must be 1 or more"));
        }
        if drop_last && count < batch {
            return Err(Error::data(format!(
                "there are {count} samples, fewer than one batch of {batch}, and drop_last drops short batches; lower the batch size"
            )));
        }
        Ok(())
    }
}

/// Batches of one epoch; see [`DataLoader::epoch`]. Dropping it ends its threads.
pub struct Epoch<'a> {
    loader: &'a DataLoader,
    feed: Option<Feed>,
    /// True if this iterator set `reading`.
    owner: bool,
    finished: bool,
}

/// Source of the batches of an epoch.
struct Feed {
    assembly: Arc<Assembly>,
    /// Threads; `None` if batches are assembled on demand.
    prefetch: Option<Prefetch>,
    /// Number of the next batch.
    next: u64,
    total: u64,
}

impl Epoch<'_> {
    fn start(&mut self) -> Result<Feed> {
        let loader = self.loader;
        loader.check()?;
        if loader.reading.swap(true, Ordering::AcqRel) {
            return Err(Error::data(
                "another epoch of this loader is being read; end its loop or create a second loader",
            ));
        }
        self.owner = true;
        let assembly = Arc::new(Assembly { start: loader.cursor(), ..loader.assembly.clone() });
        let total = assembly.batches(assembly.start.position);
        let workers = loader.workers.min(total as usize);
        let prefetch = Prefetch::start(assembly.clone(), total, workers, loader.prefetch as u64);
        Ok(Feed { assembly, prefetch, next: 0, total })
    }

    fn advance(&mut self) -> Option<Result<Vec<Tensor>>> {
        if self.feed.is_none() {
            match self.start() {
                Ok(feed) => self.feed = Some(feed),
                Err(error) => return Some(Err(error)),
            }
        }
        let feed = self.feed.as_mut()?;
        if feed.next == feed.total {
            // Reached without a batch if fewer samples than a batch were left.
            *self.loader.cursor.lock().unwrap_or_else(PoisonError::into_inner) = feed.assembly.after(feed.next);
            return None;
        }
        let prefetched = feed.prefetch.as_ref().and_then(|prefetch| prefetch.take(feed.next));
        let batch = prefetched.unwrap_or_else(|| feed.assembly.batch(feed.next, &|| false));
        if batch.is_ok() {
            feed.next += 1;
            *self.loader.cursor.lock().unwrap_or_else(PoisonError::into_inner) = feed.assembly.after(feed.next);
        }
        Some(batch)
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Vec<Tensor>>;

    #[track_caller]
    #[allow(clippy::manual_map)] // see below
    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        if self.finished {
            return None;
        }
        let batch = self.advance();
        self.finished = !matches!(batch, Some(Ok(_)));
        if self.finished {
            // Ends the threads now: the loop may keep the iterator.
            self.feed = None;
        }
        // Not `map`: the location of a closure is here.
        match batch {
            Some(batch) => Some(located(|| batch)),
            None => None,
        }
    }
}

impl Drop for Epoch<'_> {
    fn drop(&mut self) {
        if self.owner {
            self.loader.reading.store(false, Ordering::Release);
        }
    }
}
