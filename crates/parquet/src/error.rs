//! Errors of files, without their paths, which the caller knows.

use bornite_support::{INPUT_LIMIT_VARIABLE, format_bytes};

/// Reason why a file cannot be read. Messages are clauses about the file: put its path before them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system could not read the file.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file ends in the middle of a header.
    #[error("a header ends in the middle")]
    Truncated,
    /// The file contradicts itself or the format.
    #[error("{0}")]
    Damaged(String),
    /// The file uses a part of the format that this crate does not read.
    #[error("{0}")]
    Unsupported(String),
    /// The table has no such column, or one of another type.
    #[error("{0}")]
    Column(String),
    /// Part of the file takes more memory than allowed.
    #[error("{what}, more than {}; raise {INPUT_LIMIT_VARIABLE} if you trust the file", format_bytes(*limit_bytes))]
    TooLarge {
        /// The part and its size.
        what: String,
        /// Largest size allowed.
        limit_bytes: u64,
    },
}

impl Error {
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged(what.into())
    }
}

/// Result of reading a file.
pub type Result<T> = std::result::Result<T, Error>;
