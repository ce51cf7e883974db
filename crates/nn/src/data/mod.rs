//! Training data: samples to batches of tensors, and text files to batches of tokens.
//!
//! A [`Dataset`] gives samples by index: arrays in memory ([`TensorDataset`], also of `.npy`, IDX
//! and CSV files), images in folders ([`ImageFolder`]) or a type of the program. A [`DataLoader`]
//! shuffles, transforms and batches them. See the page `docs/data.md`.
//!
//! For text, [`DataSource`]s name files; a [`TokenDataset`] contains their tokens, which are cached
//! in a folder; [`Batches`] iterates over its sequences in an order that depends only on a seed and
//! that a [`DataCursor`] resumes. Nothing here knows models.
//!
//! ```
//! use bornite_nn::data::{TokenDataset, BatchOptions, DataSource};
//! use bornite_nn::tokenizer::Tokenizer;
//!
//! # let folder = std::env::temp_dir().join(format!("bornite-data-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! # std::fs::write(folder.join("a.txt"), "To be, or not to be, that is the question. ".repeat(20)).unwrap();
//! let sources = [DataSource::new(folder.join("a.txt"))];
//! let data = TokenDataset::open(&sources, &Tokenizer::bytes(), &folder.join("cache"), &mut |_| {})?;
//! let (train, validation) = data.split(0.1)?;
//! let mut batches = train.batches(&BatchOptions { batch: 4, context: 16, seed: 1, ..BatchOptions::default() })?;
//! let batch = batches.next().unwrap()?;
//! assert_eq!(batch.inputs.len(), 4 * 16);
//! assert_eq!(batch.inputs[1], batch.targets[0]);
//! # assert!(validation.len() > 0);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), bornite_nn::Error>(())
//! ```

mod assembly;
mod batches;
mod build;
mod cache;
mod checksum;
mod csv;
mod dataset;
mod documents;
#[cfg(test)]
mod full_disk;
mod host_array;
mod idx;
mod image_folder;
mod jsonl;
mod labeled_images;
mod loader;
mod npy;
mod npz;
mod parquet;
mod permutation;
mod prefetch;
mod resize;
mod samples;
mod source;
mod tokens;
mod transforms;

pub use batches::{Batch, BatchOptions, Batches, DataCursor};
pub use cache::FORMAT_VERSION;
pub use csv::Csv;
pub use dataset::TokenDataset;
pub use host_array::HostArray;
pub use idx::read_idx;
pub(crate) use image_folder::read_image;
pub use image_folder::{ImageChannels, ImageFolder};
pub use labeled_images::LabeledImages;
pub(crate) use labeled_images::SameSize;
pub use loader::{DataLoader, Epoch};
pub use npy::{read_npy, write_npy};
pub use npz::read_npz;
pub use resize::Resize;
pub use samples::{Dataset, Subset, TensorDataset, split};
pub use source::{DataSource, SourceFormat};
pub use transforms::{CenterCrop, Normalize, RandomCrop, RandomFlip, SampleRandom, ToFloat, Transform};

use std::cell::{Cell, RefCell};

use crate::Result;
use crate::error::located;
use crate::tokenizer::{BpeTrainer, PreTokenizer, Tokenizer};

/// Runs the programs of docs/data.md as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/data.md")]
struct DataPage;

/// Progress of data preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataProgress {
    /// Current phase: "reading", "tokenizing", "comparing", "verifying" or "merging".
    pub phase: &'static str,
    /// Completed part of `total`: bytes, or tokens of a vocabulary.
    pub done: u64,
    /// Total amount of work.
    pub total: u64,
    /// Tokens so far.
    pub tokens: u64,
}

/// Receives the progress of data preparation and can stop it.
pub trait DataObserver {
    /// Called several times per second.
    fn on_progress(&self, progress: DataProgress);

    /// Returns true if the work should end with [`ErrorKind::Stopped`](crate::ErrorKind::Stopped).
    /// Called several times per second.
    fn should_stop(&self) -> bool {
        false
    }
}

/// An observer that only forwards progress to a closure.
struct ProgressFn<F>(RefCell<F>);

impl<F: FnMut(DataProgress)> ProgressFn<F> {
    fn new(progress: F) -> ProgressFn<F> {
        ProgressFn(RefCell::new(progress))
    }
}

impl<F: FnMut(DataProgress)> DataObserver for ProgressFn<F> {
    fn on_progress(&self, progress: DataProgress) {
        (self.0.borrow_mut())(progress);
    }
}

/// Trains a BPE tokenizer with `vocabulary` tokens on the text of `sources`; see [`BpeTrainer`].
#[track_caller]
pub fn train_tokenizer(
    sources: &[DataSource],
    vocabulary: usize,
    progress: &mut dyn FnMut(DataProgress),
) -> Result<Tokenizer> {
    train_tokenizer_with_observer(sources, vocabulary, &ProgressFn::new(progress))
}

/// As [`train_tokenizer`], with an observer that can stop it while text is read.
#[track_caller]
pub fn train_tokenizer_with_observer(
    sources: &[DataSource],
    vocabulary: usize,
    observer: &dyn DataObserver,
) -> Result<Tokenizer> {
    located(|| {
        let files = source::list(sources)?;
        let total = files.iter().map(|file| file.bytes).sum();
        let mut trainer = BpeTrainer::new(PreTokenizer::Gpt2);
        let (position, mut read, mut reported) = (Cell::new(0), 0, 0);
        for file in &files {
            documents::read(file, PreTokenizer::Gpt2, &|| observer.should_stop(), &position, &mut |piece| {
                trainer.add(&piece.text);
                read += piece.text.len() as u64;
                if read - reported > 4 << 20 {
                    reported = read;
                    observer.on_progress(DataProgress {
                        phase: "reading",
                        done: position.get().min(total),
                        total,
                        tokens: 0,
                    });
                }
                Ok(())
            })?;
        }
        trainer.finish(vocabulary, &mut |done, total| {
            observer.on_progress(DataProgress { phase: "merging", done: done as u64, total: total as u64, tokens: 0 });
        })
    })
}
