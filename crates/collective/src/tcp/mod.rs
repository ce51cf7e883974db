//! Ranks that are processes connected by TCP, for launchers that start no MPI job (torchrun).
//!
//! `rendezvous.rs` is the file by which ranks find rank 0, `handshake.rs` proves that a connection
//! is of the same job, `connect.rs` connects all ranks, `frame.rs` has the messages. Contents are
//! neither encrypted nor authenticated after the handshake.

mod connect;
mod frame;
mod handshake;
mod rendezvous;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::communicator::MAX_TIMEOUT;
use crate::mailbox::Mailbox;
use crate::{Error, FailureKind, LauncherRank, Outgoing, Result, Transport};
use frame::Frame;

/// Memory of messages per sender that were not received yet. Senders wait beyond that.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Longest time to send a report of a failure to a rank.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time in which the reason of a closed connection arrives.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// Job whose ranks [`TcpRanks`] connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpJob {
    /// Number of this rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// Host name or address at which all ranks reach rank 0.
    pub host: String,
    /// Identity of the job, the same for all ranks.
    pub id: String,
    /// File by which ranks find rank 0, in a folder that all ranks see.
    pub rendezvous: PathBuf,
}

impl TcpJob {
    /// Reads the job from the variables of torchrun.
    pub fn from_environment(launcher: &LauncherRank, rendezvous: &Path) -> Result<TcpJob> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("MASTER_ADDR").ok_or_else(|| {
            let LauncherRank { launcher, size, .. } = launcher;
            Error::Launcher(format!(
                "MASTER_ADDR is not set in a job of {size} processes ({launcher}); set it to the host of rank 0"
            ))
        })?;
        let parts = ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"];
        let id = parts.map(|name| variable(name).unwrap_or_default()).join(" ").replace(['\n', '\r'], " ");
        Ok(TcpJob { rank: launcher.rank, size: launcher.size, host, id, rendezvous: rendezvous.into() })
    }
}

/// Ranks that are connected by TCP.
pub struct TcpRanks {
    rank: usize,
    size: usize,
    /// Connections to the other ranks.
    streams: BTreeMap<usize, Mutex<TcpStream>>,
    mailbox: Arc<Mailbox>,
}

impl TcpRanks {
    /// Connects all ranks of a job, each of which calls this.
    pub fn connect(job: &TcpJob, timeout: Duration) -> Result<TcpRanks> {
        if job.rank >= job.size {
            return Err(Error::Argument(format!("rank {} of a job of {} ranks", job.rank, job.size)));
        }
        let mailbox = Arc::new(Mailbox::new(job.rank, job.size, MAX_QUEUED_BYTES));
        let mut streams = BTreeMap::new();
        for (rank, stream) in connect::connect(job, timeout.min(MAX_TIMEOUT))? {
            let started = start_reader(rank, &stream, mailbox.clone());
            started.map_err(|error| Error::Rendezvous(format!("connection to rank {rank}: {error}")))?;
            streams.insert(rank, Mutex::new(stream));
        }
        Ok(TcpRanks { rank: job.rank, size: job.size, streams, mailbox })
    }

    /// Runs `write` with the connection to a rank and the longest time for a write.
    fn with_stream(
        &self,
        to: usize,
        timeout: Duration,
        write: impl FnOnce(&mut TcpStream) -> io::Result<()>,
    ) -> io::Result<()> {
        let stream = self.streams.get(&to).ok_or_else(|| io::Error::other("no such rank"))?;
        let mut stream: MutexGuard<'_, TcpStream> = stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.set_write_timeout(Some(timeout.max(Duration::from_millis(1))))?;
        write(&mut stream)
    }
}

/// Delivers the messages of a rank in a thread, until the connection ends.
fn start_reader(rank: usize, stream: &TcpStream, mailbox: Arc<Mailbox>) -> io::Result<()> {
    let mut stream = stream.try_clone()?;
    stream.set_read_timeout(None)?;
    let read = move || {
        let reason = loop {
            match frame::read(&mut stream) {
                Ok(Some(Frame::Message { sequence, bytes })) => mailbox.deliver(rank, sequence, bytes),
                Ok(Some(Frame::Failure { kind, message })) => mailbox.report_failure(rank, kind, &message),
                Ok(None) => break "it was closed".to_string(),
                Err(error) => break error.to_string(),
            }
        };
        mailbox.mark_lost(rank, reason);
    };
    std::thread::Builder::new().name(format!("bornite-rank-{rank}")).spawn(read).map(|_| ())
}

impl Transport for TcpRanks {
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
        for Outgoing { to, bytes } in outgoing {
            match self.with_stream(*to, timeout, |stream| frame::write_message(stream, sequence, bytes)) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(Error::Timeout { rank: self.rank, sequence, missing: vec![*to], timeout });
                }
                // The reason of a rank that failed arrives before the end of its connection.
                Err(error) => {
                    let (rank, lost, reason) = (self.rank, *to, error.to_string());
                    let received = self.mailbox.receive(sequence, &[(*to, usize::MAX)], REASON_TIMEOUT);
                    return Err(match received {
                        Err(error @ (Error::RankFailed { .. } | Error::ConnectionLost { .. })) => error,
                        _ => Error::ConnectionLost { rank, sequence, lost, reason },
                    });
                }
            }
        }
        self.mailbox.receive(sequence, from, timeout)
    }

    fn report_failure(&self, kind: FailureKind, message: &str) {
        for to in self.streams.keys() {
            // A lost rank receives nothing.
            let _ = self.with_stream(*to, FAILURE_TIMEOUT, |stream| frame::write_failure(stream, kind, message));
        }
    }
}

impl Drop for TcpRanks {
    /// Ends the connections, after what was sent.
    fn drop(&mut self) {
        for stream in self.streams.values_mut() {
            let stream = stream.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}
