//! Messages that arrived for a rank and that it has not received yet.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, FailureKind, Result};

/// Incoming messages of one rank, by sender.
pub(crate) struct Mailbox {
    rank: usize,
    state: Mutex<MailboxState>,
    changed: Condvar,
    max_bytes: usize,
}

struct MailboxState {
    /// Messages with the numbers of their exchanges.
    queues: Vec<VecDeque<(u64, Vec<u8>)>>,
    /// First rank that reported a failure.
    failure: Option<(usize, FailureKind, String)>,
    /// Reasons of ranks that cannot send any more.
    lost: Vec<Option<String>>,
}

impl Mailbox {
    /// A mailbox of `rank`. Deliveries wait while one sender's messages exceed `max_bytes`.
    pub fn new(rank: usize, size: usize, max_bytes: usize) -> Mailbox {
        let state = MailboxState { queues: vec![VecDeque::new(); size], failure: None, lost: vec![None; size] };
        Mailbox { rank, state: Mutex::new(state), changed: Condvar::new(), max_bytes }
    }

    fn state(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a message. An empty mailbox takes one of any size.
    pub fn deliver(&self, from: usize, sequence: u64, bytes: Vec<u8>) {
        let is_full = |state: &mut MailboxState| {
            let queued: usize = state.queues[from].iter().map(|(_, bytes)| bytes.len()).sum();
            queued > 0 && queued.saturating_add(bytes.len()) > self.max_bytes && state.failure.is_none()
        };
        let mut state = self.changed.wait_while(self.state(), is_full).unwrap_or_else(PoisonError::into_inner);
        state.queues[from].push_back((sequence, bytes));
        self.changed.notify_all();
    }

    /// Makes all waits fail with the failure of a rank, unless one was reported before.
    pub fn report_failure(&self, rank: usize, kind: FailureKind, message: &str) {
        self.state().failure.get_or_insert((rank, kind, message.into()));
        self.changed.notify_all();
    }

    /// Makes waits for messages of a rank fail that have not arrived yet.
    pub fn mark_lost(&self, rank: usize, reason: String) {
        self.state().lost[rank].get_or_insert(reason);
        self.changed.notify_all();
    }

    /// Waits for one message of an exchange from each rank of `from`, with its expected length.
    pub fn receive(&self, sequence: u64, from: &[(usize, usize)], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let deadline = Instant::now() + timeout;
        let mut received = vec![None; from.len()];
        let mut state = self.state();
        loop {
            if let Some((rank, kind, message)) = &state.failure {
                return Err(Error::RankFailed { rank: *rank, kind: *kind, message: message.clone() });
            }
            for (slot, (rank, expected)) in received.iter_mut().zip(from).filter(|(slot, _)| slot.is_none()) {
                let queue = &mut state.queues[*rank];
                // A rank that calls other collectives is never answered: the timeout names it.
                let Some(position) = queue.iter().position(|(other, _)| *other == sequence) else { continue };
                let Some((_, bytes)) = queue.remove(position) else { continue };
                self.changed.notify_all();
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
            if let Some((lost, reason)) = missing.iter().find_map(|rank| Some((*rank, state.lost[*rank].as_ref()?))) {
                let (rank, reason) = (self.rank, reason.clone());
                return Err(Error::ConnectionLost { rank, sequence, lost, reason });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Timeout { rank: self.rank, sequence, missing, timeout });
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
