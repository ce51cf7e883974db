//! Ranks that are threads of one process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, FailureKind, Outgoing, Result, Transport};

/// Messages that were sent and not received yet, with their sequence numbers, by sender and
/// receiver.
type Mailboxes = HashMap<(usize, usize), VecDeque<(u64, Vec<u8>)>>;

#[derive(Default)]
struct Shared {
    state: Mutex<ThreadState>,
    changed: Condvar,
}

#[derive(Default)]
struct ThreadState {
    mailboxes: Mailboxes,
    /// First rank that failed, with its message.
    failure: Option<(usize, FailureKind, String)>,
}

/// One of the ranks of [`thread_ranks`].
pub struct ThreadTransport {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
}

/// Returns the ranks of a job of `size` threads.
pub fn thread_ranks(size: usize) -> Vec<ThreadTransport> {
    let shared = Arc::<Shared>::default();
    (0..size).map(|rank| ThreadTransport { rank, size, shared: shared.clone() }).collect()
}

impl ThreadTransport {
    fn state(&self) -> MutexGuard<'_, ThreadState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for ThreadTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &self,
        sequence: u64,
        outgoing: &[Outgoing<'_>],
        from: &[(usize, usize)],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        for Outgoing { to, bytes } in outgoing {
            state.mailboxes.entry((self.rank, *to)).or_default().push_back((sequence, bytes.to_vec()));
        }
        self.shared.changed.notify_all();
        let mut received = vec![None; from.len()];
        loop {
            if let Some((rank, kind, message)) = &state.failure {
                return Err(Error::RankFailed { rank: *rank, kind: *kind, message: message.clone() });
            }
            for (slot, (rank, expected)) in received.iter_mut().zip(from).filter(|(slot, _)| slot.is_none()) {
                let mailbox = state.mailboxes.entry((*rank, self.rank)).or_default();
                // A rank that calls other collectives is never answered: the timeout names it.
                let Some(position) = mailbox.iter().position(|(other, _)| *other == sequence) else { continue };
                let Some((_, bytes)) = mailbox.remove(position) else { continue };
                if bytes.len() != *expected {
                    let (from, expected, found) = (*rank, *expected, bytes.len());
                    return Err(Error::MessageLength { from, sequence, expected, found });
                }
                *slot = Some(bytes);
            }
            let missing: Vec<usize> =
                received.iter().zip(from).filter(|(slot, _)| slot.is_none()).map(|(_, (rank, _))| *rank).collect();
            if missing.is_empty() {
                return Ok(received.into_iter().flatten().collect());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Timeout { rank: self.rank, sequence, missing, timeout });
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn report_failure(&self, kind: FailureKind, message: &str) {
        self.state().failure.get_or_insert((self.rank, kind, message.into()));
        self.shared.changed.notify_all();
    }
}
