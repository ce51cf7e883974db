//! Threads that assemble the batches of an epoch ahead of their use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bornite::Tensor;

use super::assembly::Assembly;
use crate::Result;

/// Threads that assemble batches. Dropping it ends them after the sample that each is reading.
pub(super) struct Prefetch {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Set by the consumer; outside the lock, since threads read it between samples.
    closed: AtomicBool,
}

struct QueueState {
    /// Number of the next batch that a thread takes.
    claimed: u64,
    /// Number of the next batch that the consumer takes.
    next: u64,
    total: u64,
    /// Maximum number of batches that are claimed and not taken.
    ahead: u64,
    ready: BTreeMap<u64, Result<Vec<Tensor>>>,
    /// Running threads.
    threads: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, QueueState>) -> MutexGuard<'a, QueueState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a batch may be assembled, and claims it; `None` if there are no more.
    fn claim(&self) -> Option<u64> {
        let mut state = self.lock();
        loop {
            if self.closed.load(Ordering::Acquire) || state.claimed == state.total {
                return None;
            }
            // The next batch of the consumer can always be claimed, so it never waits in vain.
            if state.claimed < state.next.saturating_add(state.ahead) {
                state.claimed += 1;
                return Some(state.claimed - 1);
            }
            state = self.wait(state);
        }
    }
}

/// Counts a thread as ended, also if it panics.
struct EndOfThread(Arc<Queue>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}

impl Prefetch {
    /// Starts `workers` threads for `total` batches; `None` if there are to be none, or none could
    /// be started.
    pub(super) fn start(assembly: Arc<Assembly>, total: u64, workers: usize, ahead: u64) -> Option<Prefetch> {
        let ahead = ahead.max(workers as u64);
        let state = QueueState { claimed: 0, next: 0, total, ahead, ready: BTreeMap::new(), threads: 0 };
        let queue =
            Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new(), closed: AtomicBool::new(false) });
        let mut prefetch = Prefetch { queue: queue.clone(), threads: vec![] };
        for _ in 0..workers {
            queue.lock().threads += 1;
            let end = EndOfThread(queue.clone());
            let assembly = assembly.clone();
            let work = move || {
                let queue = &end.0;
                while let Some(number) = queue.claim() {
                    let batch = assembly.batch(number, &|| queue.closed.load(Ordering::Acquire));
                    queue.lock().ready.insert(number, batch);
                    queue.changed.notify_all();
                }
            };
            // A thread that cannot be started drops its guard; the others do its work.
            if let Ok(thread) = std::thread::Builder::new().name("bornite-loader".into()).spawn(work) {
                prefetch.threads.push(thread);
            }
        }
        (!prefetch.threads.is_empty()).then_some(prefetch)
    }

    /// Waits for batch `number`; numbers must increase by 1. `None` if all threads have ended
    /// without it.
    pub(super) fn take(&self, number: u64) -> Option<Result<Vec<Tensor>>> {
        let mut state = self.queue.lock();
        loop {
            if let Some(batch) = state.ready.remove(&number) {
                state.next = number + 1;
                self.queue.changed.notify_all();
                return Some(batch);
            }
            if state.threads == 0 {
                return None;
            }
            state = self.queue.wait(state);
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        // Under the lock, so that no thread misses it between its check and its wait.
        let state = self.queue.lock();
        self.queue.closed.store(true, Ordering::Release);
        drop(state);
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
