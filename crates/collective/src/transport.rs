//! Messages between ranks, on which the collectives are built.

use std::time::Duration;

use crate::{FailureKind, Result};

/// Message to a rank.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Receiver.
    pub to: usize,
    /// Contents.
    pub bytes: &'a [u8],
}

/// Exchange of messages between the ranks of a job.
pub trait Transport: Send + Sync {
    /// Number of this rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Sends messages and receives one from each rank of `from`, with its expected length; returns
    /// them in that order. `sequence` numbers the exchanges; all ranks pass the same. Fails if
    /// a message does not arrive within the timeout or has another length, or if a rank reported
    /// a failure.
    fn exchange(
        &self,
        sequence: u64,
        outgoing: &[Outgoing<'_>],
        from: &[(usize, usize)],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>>;

    /// Reports a failure of this rank: exchanges of all other ranks fail with this message.
    fn report_failure(&self, kind: FailureKind, message: &str);

    /// Ends this process, and the job where the transport can.
    fn terminate(&self, code: i32) -> ! {
        std::process::exit(code)
    }
}
