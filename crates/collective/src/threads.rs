//! Ranks that are threads of one process.

use std::sync::Arc;
use std::time::Duration;

use crate::mailbox::Mailbox;
use crate::{FailureKind, Outgoing, Result, Transport};

/// One of the ranks of [`thread_ranks`].
pub struct ThreadTransport {
    rank: usize,
    /// Mailboxes of all ranks.
    mailboxes: Arc<[Mailbox]>,
}

/// Returns the ranks of a job of `size` threads.
pub fn thread_ranks(size: usize) -> Vec<ThreadTransport> {
    let mailboxes: Arc<[Mailbox]> = (0..size).map(|rank| Mailbox::new(rank, size, usize::MAX)).collect();
    (0..size).map(|rank| ThreadTransport { rank, mailboxes: mailboxes.clone() }).collect()
}

impl Transport for ThreadTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.mailboxes.len()
    }

    fn exchange(
        &self,
        sequence: u64,
        outgoing: &[Outgoing<'_>],
        from: &[(usize, usize)],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        for Outgoing { to, bytes } in outgoing {
            self.mailboxes[*to].deliver(self.rank, sequence, bytes.to_vec());
        }
        self.mailboxes[self.rank].receive(sequence, from, timeout)
    }

    fn report_failure(&self, kind: FailureKind, message: &str) {
        for mailbox in self.mailboxes.iter() {
            mailbox.report_failure(self.rank, kind, message);
        }
    }
}
