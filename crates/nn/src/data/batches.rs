//! Batches of token sequences, prefetched by a thread.
//!
//! An epoch visits every sequence once, in an order that depends only on seed and epoch. So a small
//! cursor can resume anywhere, and prefetching does not affect the result.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::TokenDataset;
use super::permutation::Permutation;
use crate::error::located;
use crate::random::mix;
use crate::{Error, Result};

/// Maximum number of tokens per batch, so that a wrong setting does not become an allocation.
const MAX_BATCH_TOKENS: usize = 1 << 31;

/// Options of [`TokenDataset::batches`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchOptions {
    /// Sequences per batch.
    pub batch: usize,
    /// Tokens per sequence.
    pub context: usize,
    /// Seed of the order.
    pub seed: u64,
    /// Shuffles the sequences, differently in each epoch; otherwise they come in the order of the
    /// data.
    pub shuffle: bool,
    /// Number of batches that a thread prefetches; 0 for no thread.
    pub prefetch: usize,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions { batch: 8, context: 256, seed: 0, shuffle: true, prefetch: 4 }
    }
}

/// Position in the data, for checkpoints: after [`Batches::seek`] or
/// [`DataLoader::seek`](super::DataLoader::seek), iteration continues as if it had never stopped.
/// The sequences of a loader are its samples. Aliases are the names of earlier releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataCursor {
    /// Seed of the order.
    pub seed: u64,
    /// Completed epochs.
    pub epoch: u64,
    /// Sequences used in this epoch.
    pub position: u64,
    /// Sequences per epoch.
    #[serde(alias = "windows")]
    pub sequences: u64,
    /// [`TokenDataset::fingerprint`] or [`Dataset::fingerprint`](super::Dataset::fingerprint).
    #[serde(alias = "data")]
    pub fingerprint: u64,
}

/// Inputs and targets of one step, `batch` rows of `context` tokens each; a target is the token
/// after its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Input tokens.
    pub inputs: Vec<i32>,
    /// Target tokens.
    pub targets: Vec<i32>,
    /// Cursor of the next batch.
    pub next: DataCursor,
}

/// Endless iterator of batches; see [`TokenDataset::batches`]. Dropping it ends its thread.
pub struct Batches {
    sequences: Arc<Sequences>,
    cursor: DataCursor,
    share: Share,
    prefetch: usize,
    prefetcher: Option<Prefetcher>,
}

/// The batches of one of several ranks.
#[derive(Clone, Copy)]
struct Share {
    rank: usize,
    ranks: usize,
}

struct Sequences {
    data: TokenDataset,
    options: BatchOptions,
    count: u64,
}

/// A thread that prefetches batches, and its channel.
struct Prefetcher {
    batches: Option<Receiver<Result<Batch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        // Without a receiver the thread's next send fails, and it ends.
        drop(self.batches.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Batches {
    pub(super) fn new(data: TokenDataset, options: &BatchOptions) -> Result<Batches> {
        let (batch, context) = (options.batch, options.context);
        if batch == 0 || context == 0 || batch.checked_mul(context).is_none_or(|tokens| tokens > MAX_BATCH_TOKENS) {
            return Err(Error::data(format!(
                "a batch of {batch} × {context} tokens is not possible; both must be 1 or more, and their product at most \
                 {MAX_BATCH_TOKENS}"
            )));
        }
        let (found, required) = (data.len(), context as u64 + 1);
        if found < required {
            return Err(Error::data(format!(
                "there are {found} tokens, {} too few for a sequence of {context} tokens and its last target; add data or lower the \
                 context to {} or less",
                required - found,
                found.saturating_sub(1),
            )));
        }
        let count = (found - 1) / context as u64;
        let cursor =
            DataCursor { seed: options.seed, epoch: 0, position: 0, sequences: count, fingerprint: data.fingerprint() };
        let sequences = Arc::new(Sequences { data, options: options.clone(), count });
        let share = Share { rank: 0, ranks: 1 };
        Ok(Batches { sequences, cursor, share, prefetch: options.prefetch, prefetcher: None })
    }

    /// Returns every `ranks`-th batch only, from batch `rank` on. The cursor counts the batches of
    /// all ranks, so that it is the same on each of them.
    pub fn of_rank(self, rank: usize, ranks: usize) -> Batches {
        Batches { share: Share { rank, ranks: ranks.max(1) }, prefetcher: None, ..self }
    }

    /// Returns the cursor of the next batch.
    pub fn cursor(&self) -> DataCursor {
        self.cursor
    }

    /// Returns the number of sequences per epoch.
    pub fn sequences(&self) -> u64 {
        self.sequences.count
    }

    /// Continues from a cursor of the same data.
    #[track_caller]
    pub fn seek(&mut self, cursor: DataCursor) -> Result<()> {
        located(|| {
            let count = self.sequences.count;
            if cursor.sequences != count || cursor.position >= count {
                return Err(Error::data(format!(
                    "cannot resume at sequence {} of {}: this data and context give {count} sequences; resume with the data, context \
                     and validation fraction of the checkpoint",
                    cursor.position, cursor.sequences
                )));
            }
            if !self.sequences.data.matches_fingerprint(cursor.fingerprint)? {
                return Err(Error::data(
                    "cannot resume: the checkpoint was saved with other data; resume with that data or start a new run",
                ));
            }
            self.prefetcher = None;
            self.cursor = DataCursor { fingerprint: self.sequences.data.fingerprint(), ..cursor };
            Ok(())
        })
    }

    fn start_prefetching(&mut self) {
        let (send, receive) = sync_channel(self.prefetch);
        let (sequences, mut cursor, share) = (self.sequences.clone(), self.cursor, self.share);
        let work = move || {
            loop {
                let batch = sequences.batch(cursor, share);
                let failed = batch.is_err();
                if let Ok(batch) = &batch {
                    cursor = batch.next;
                }
                if send.send(batch).is_err() || failed {
                    break;
                }
            }
        };
        // Without a thread, batches are read on demand.
        if let Ok(thread) = std::thread::Builder::new().name("bornite-data".into()).spawn(work) {
            self.prefetcher = Some(Prefetcher { batches: Some(receive), thread: Some(thread) });
        }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    /// Returns the next batch; never `None`. After an error the same batch is tried again.
    #[track_caller]
    fn next(&mut self) -> Option<Result<Batch>> {
        if self.prefetch > 0 && self.prefetcher.is_none() {
            self.start_prefetching();
        }
        let prefetched = self.prefetcher.as_ref().and_then(|prefetcher| prefetcher.batches.as_ref()?.recv().ok());
        let batch = prefetched.unwrap_or_else(|| self.sequences.batch(self.cursor, self.share));
        match &batch {
            Ok(batch) => self.cursor = batch.next,
            Err(_) => self.prefetcher = None,
        }
        Some(located(|| batch))
    }
}

impl Sequences {
    /// Reads a rank's batch of those from a cursor on, one per rank; they may continue into the
    /// next epoch.
    fn batch(&self, first: DataCursor, share: Share) -> Result<Batch> {
        let BatchOptions { batch, context, .. } = self.options;
        let mut cursor = self.advance(first, share.rank.saturating_mul(batch));
        let mut inputs = Vec::with_capacity(batch * context);
        let mut targets = Vec::with_capacity(batch * context);
        let mut sequence = Vec::with_capacity(context + 1);
        let mut epoch = Epoch::new(self, &cursor);
        for _ in 0..batch {
            sequence.clear();
            self.data.read(epoch.start(self, cursor.position), context + 1, &mut sequence)?;
            inputs.extend_from_slice(&sequence[..context]);
            targets.extend_from_slice(&sequence[1..]);
            let next = self.advance(cursor, 1);
            if next.epoch != cursor.epoch {
                epoch = Epoch::new(self, &next);
            }
            cursor = next;
        }
        Ok(Batch { inputs, targets, next: self.advance(first, share.ranks.saturating_mul(batch)) })
    }

    /// The cursor after `sequences` more.
    fn advance(&self, cursor: DataCursor, sequences: usize) -> DataCursor {
        let position = cursor.position + sequences as u64;
        DataCursor { epoch: cursor.epoch + position / self.count, position: position % self.count, ..cursor }
    }
}

/// Order of the sequences in one epoch.
struct Epoch {
    order: Option<Permutation>,
    /// Tokens skipped at the start. Tokens that do not fill a sequence are skipped at both ends,
    /// differently in each epoch.
    skip: u64,
}

impl Epoch {
    fn new(sequences: &Sequences, cursor: &DataCursor) -> Epoch {
        if !sequences.options.shuffle {
            return Epoch { order: None, skip: 0 };
        }
        let key = mix(mix(cursor.seed) ^ cursor.epoch);
        let left_over = sequences.data.len() - 1 - sequences.count * sequences.options.context as u64;
        Epoch { order: Some(Permutation::new(sequences.count, key)), skip: mix(key) % (left_over + 1) }
    }

    /// Index of the first token of the sequence at `position`.
    fn start(&self, sequences: &Sequences, position: u64) -> u64 {
        let sequence = self.order.map_or(position, |order| order.get(position));
        self.skip + sequence * sequences.options.context as u64
    }
}
