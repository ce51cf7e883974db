//! Errors of files. They do not contain the path, which the caller knows.

use bornite_support::{INPUT_LIMIT_VARIABLE, format_bytes};

/// Reason why a file cannot be read. Messages are clauses about the file: the caller prefixes its
/// path.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system could not read the file.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A header is truncated.
    #[error("a header is truncated")]
    Truncated,
    /// The file violates the format.
    #[error("{0}")]
    Damaged(String),
    /// The file uses a feature of the format that this crate does not support.
    #[error("{0}")]
    Unsupported(String),
    /// The table has no column of that name, or its type is different.
    #[error("{0}")]
    Column(String),
    /// A part of the file exceeds the memory limit.
    #[error("{what}, more than {}; raise {INPUT_LIMIT_VARIABLE} if you trust the file", format_bytes(*limit_bytes))]
    TooLarge {
        /// The part and its size.
        what: String,
        /// Maximum size in bytes.
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
