//! Windows of tokens in batches, made ahead of their use.
//!
//! An epoch goes once through all windows, in an order that follows from seed and epoch alone. So a cursor of a few numbers
//! resumes anywhere, and how far ahead a thread works changes nothing.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::Dataset;
use super::order::Permutation;
use crate::error::located;
use crate::random::mix;
use crate::{Error, Result};

/// No batch has more tokens; a wrong number must not become an allocation.
const LARGEST: usize = 1 << 31;

/// How batches are made of a [`Dataset`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Windows in a batch.
    pub batch: usize,
    /// Tokens in a window.
    pub context: usize,
    /// What fixes the order.
    pub seed: u64,
    /// Whether windows come in a random order, another one each epoch, or in that of the data.
    pub shuffle: bool,
    /// How many batches a thread makes ahead; 0 for no thread.
    pub prefetch: usize,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { batch: 8, context: 256, seed: 0, shuffle: true, prefetch: 4 }
    }
}

/// Where in the data training stands: saved and given to [`Batches::seek`], the next batch is the one that would have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// What fixes the order.
    pub seed: u64,
    /// How often all windows were used.
    pub epoch: u64,
    /// How many windows of this epoch were used.
    pub position: u64,
    /// How many windows an epoch has.
    pub windows: u64,
    /// What tells these data from others: see [`Dataset::mark`].
    pub data: u64,
}

/// Inputs and targets of one step, `batch` rows of `context` tokens each; a target is the token after its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What the model sees.
    pub inputs: Vec<i32>,
    /// What it should say.
    pub targets: Vec<i32>,
    /// Where the next batch starts.
    pub next: Cursor,
}

/// Batches without end; see [`Dataset::batches`]. Dropping it ends its thread.
pub struct Batches {
    windows: Arc<Windows>,
    cursor: Cursor,
    prefetch: usize,
    ahead: Option<Ahead>,
}

struct Windows {
    data: Dataset,
    plan: Plan,
    count: u64,
}

/// A thread that makes batches, and the way they come.
struct Ahead {
    batches: Option<Receiver<Result<Batch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Without a receiver the thread's next send fails, and it ends.
        drop(self.batches.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Batches {
    pub(super) fn new(data: Dataset, plan: &Plan) -> Result<Batches> {
        let (batch, context) = (plan.batch, plan.context);
        if batch == 0 || context == 0 || batch.checked_mul(context).is_none_or(|tokens| tokens > LARGEST) {
            let what = format!(
                "batches of {batch} windows of {context} tokens were asked for; at least one of each and at most"
            );
            return Err(Error::data(format!("{what} {LARGEST} tokens together are possible")));
        }
        let (found, needed) = (data.len(), context as u64 + 1);
        if found < needed {
            return Err(Error::data(format!(
                "there are {found} tokens, {} too few for one window of {context} tokens and the one after it; add data or \
                 shorten the context to {} or less",
                needed - found,
                found.saturating_sub(1),
            )));
        }
        let count = (found - 1) / context as u64;
        let cursor = Cursor { seed: plan.seed, epoch: 0, position: 0, windows: count, data: data.mark() };
        let windows = Arc::new(Windows { data, plan: plan.clone(), count });
        Ok(Batches { windows, cursor, prefetch: plan.prefetch, ahead: None })
    }

    /// Where the next batch starts.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// How many windows an epoch has.
    pub fn windows(&self) -> u64 {
        self.windows.count
    }

    /// Goes on from a cursor of these data.
    #[track_caller]
    pub fn seek(&mut self, cursor: Cursor) -> Result<()> {
        located(|| {
            let count = self.windows.count;
            if cursor.windows != count || cursor.position >= count {
                return Err(Error::data(format!(
                    "the position to resume from is window {} of {}, but with these data and this context there are {count}; \
                 resume with the data, the context and the split that it was saved with",
                    cursor.position, cursor.windows
                )));
            }
            if !self.windows.data.has_mark(cursor.data)? {
                return Err(Error::data(
                    "the position to resume from was saved with other data; resume with those, or start anew with these",
                ));
            }
            self.ahead = None;
            self.cursor = Cursor { data: self.windows.data.mark(), ..cursor };
            Ok(())
        })
    }

    fn start(&mut self) {
        let (send, receive) = sync_channel(self.prefetch);
        let (windows, mut cursor) = (self.windows.clone(), self.cursor);
        let work = move || {
            loop {
                let batch = windows.batch(cursor);
                let failed = batch.is_err();
                if let Ok(batch) = &batch {
                    cursor = batch.next;
                }
                if send.send(batch).is_err() || failed {
                    break;
                }
            }
        };
        // Where no thread can be had, batches are made when they are asked for.
        if let Ok(thread) = std::thread::Builder::new().name("bornite-data".into()).spawn(work) {
            self.ahead = Some(Ahead { batches: Some(receive), thread: Some(thread) });
        }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    /// The next batch; never `None`. After an error the same batch is tried again.
    #[track_caller]
    fn next(&mut self) -> Option<Result<Batch>> {
        if self.prefetch > 0 && self.ahead.is_none() {
            self.start();
        }
        let sent = self.ahead.as_ref().and_then(|ahead| ahead.batches.as_ref()?.recv().ok());
        let batch = sent.unwrap_or_else(|| self.windows.batch(self.cursor));
        match &batch {
            Ok(batch) => self.cursor = batch.next,
            Err(_) => self.ahead = None,
        }
        Some(located(|| batch))
    }
}

impl Windows {
    /// The batch that starts at a cursor. Where an epoch ends within it, the next one starts.
    fn batch(&self, mut cursor: Cursor) -> Result<Batch> {
        let Plan { batch, context, .. } = self.plan;
        let mut inputs = Vec::with_capacity(batch * context);
        let mut targets = Vec::with_capacity(batch * context);
        let mut window = Vec::with_capacity(context + 1);
        let mut epoch = Epoch::new(self, &cursor);
        for _ in 0..batch {
            window.clear();
            self.data.read(epoch.start(self, cursor.position), context + 1, &mut window)?;
            inputs.extend_from_slice(&window[..context]);
            targets.extend_from_slice(&window[1..]);
            cursor.position += 1;
            if cursor.position == self.count {
                cursor = Cursor { epoch: cursor.epoch + 1, position: 0, ..cursor };
                epoch = Epoch::new(self, &cursor);
            }
        }
        Ok(Batch { inputs, targets, next: cursor })
    }
}

/// The order of one epoch.
struct Epoch {
    order: Option<Permutation>,
    /// Tokens that fill no window are left out at the front and at the back, other ones each epoch.
    skip: u64,
}

impl Epoch {
    fn new(windows: &Windows, cursor: &Cursor) -> Epoch {
        if !windows.plan.shuffle {
            return Epoch { order: None, skip: 0 };
        }
        let key = mix(mix(cursor.seed) ^ cursor.epoch);
        let left_over = windows.data.len() - 1 - windows.count * windows.plan.context as u64;
        Epoch { order: Some(Permutation::new(windows.count, key)), skip: mix(key) % (left_over + 1) }
    }

    fn start(&self, windows: &Windows, position: u64) -> u64 {
        let window = self.order.map_or(position, |order| order.get(position));
        self.skip + window * windows.plan.context as u64
    }
}
