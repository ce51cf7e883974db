//! From files of text to batches of tokens.
//!
//! [`Source`]s name files; a [`Dataset`] is their tokens, made once and kept in a cache folder; [`Batches`] are its windows in
//! an order that a seed fixes and a [`Cursor`] resumes. Nothing here makes tensors or knows what is trained.
//!
//! ```
//! use bornite_nn::data::{Dataset, Plan, Source};
//! use bornite_nn::tokenizer::Tokenizer;
//!
//! # let folder = std::env::temp_dir().join(format!("bornite-data-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! # std::fs::write(folder.join("a.txt"), "To be, or not to be, that is the question. ".repeat(20)).unwrap();
//! let sources = [Source::new(folder.join("a.txt"))];
//! let data = Dataset::open(&sources, &Tokenizer::bytes(), &folder.join("cache"), &mut |_| {})?;
//! let (train, validation) = data.split(0.1)?;
//! let mut batches = train.batches(&Plan { batch: 4, context: 16, seed: 1, ..Plan::default() })?;
//! let batch = batches.next().unwrap()?;
//! assert_eq!(batch.inputs.len(), 4 * 16);
//! assert_eq!(batch.inputs[1], batch.targets[0]);
//! # assert!(validation.len() > 0);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), bornite_nn::Error>(())
//! ```

mod batches;
mod build;
mod cache;
mod checksum;
mod dataset;
mod documents;
#[cfg(test)]
mod full_disk;
mod jsonl;
mod order;
mod parquet;
mod source;
mod store;

pub use batches::{Batch, Batches, Cursor, Plan};
pub use cache::FORMAT_VERSION;
pub use dataset::Dataset;
pub use source::{Format, Source};

use std::cell::{Cell, RefCell};

use crate::Result;
use crate::error::located;
use crate::tokenizer::{Split, Tokenizer, Trainer};

/// How far work on data has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done: "reading", "tokenising", "comparing", "verifying", "merging".
    pub doing: &'static str,
    /// How much is done, of `total`: bytes, or tokens of a vocabulary.
    pub done: u64,
    /// How much there is to do.
    pub total: u64,
    /// Tokens made so far.
    pub tokens: u64,
}

/// Receiver of progress that can stop the work.
pub trait Watch {
    /// Takes note of progress, which is reported several times per second.
    fn progress(&self, progress: Progress);

    /// Whether the work is to end with [`ErrorKind::Stopped`](crate::ErrorKind::Stopped). Asked several times per second.
    fn stop(&self) -> bool {
        false
    }
}

/// A watch that only reports progress.
struct Report<F>(RefCell<F>);

impl<F: FnMut(Progress)> Report<F> {
    fn new(progress: F) -> Report<F> {
        Report(RefCell::new(progress))
    }
}

impl<F: FnMut(Progress)> Watch for Report<F> {
    fn progress(&self, progress: Progress) {
        (self.0.borrow_mut())(progress);
    }
}

/// Learns a tokenizer of so many tokens from the text of sources; see [`Trainer`].
#[track_caller]
pub fn train_tokenizer(sources: &[Source], vocabulary: usize, progress: &mut dyn FnMut(Progress)) -> Result<Tokenizer> {
    train_tokenizer_watched(sources, vocabulary, &Report::new(progress))
}

/// As [`train_tokenizer`], with a watch that can stop it while text is read.
#[track_caller]
pub fn train_tokenizer_watched(sources: &[Source], vocabulary: usize, watch: &dyn Watch) -> Result<Tokenizer> {
    located(|| {
        let files = source::list(sources)?;
        let total = files.iter().map(|file| file.bytes).sum();
        let mut trainer = Trainer::new(Split::Gpt2);
        let (position, mut read, mut told) = (Cell::new(0), 0, 0);
        for file in &files {
            documents::read(file, Split::Gpt2, &|| watch.stop(), &position, &mut |piece| {
                trainer.add(&piece.text);
                read += piece.text.len() as u64;
                if read - told > 4 << 20 {
                    told = read;
                    watch.progress(Progress { doing: "reading", done: position.get().min(total), total, tokens: 0 });
                }
                Ok(())
            })?;
        }
        trainer.finish(vocabulary, &mut |done, total| {
            watch.progress(Progress { doing: "merging", done: done as u64, total: total as u64, tokens: 0 });
        })
    })
}
