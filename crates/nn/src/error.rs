//! What can go wrong with tokenisers, data and files.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. Each message is a whole sentence: what was asked, what was found, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to read or write a file.
    #[error("cannot {doing} {}: {cause}", path.display())]
    Io {
        /// What was tried: "read", "write", …
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system answered.
        #[source]
        cause: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it and where.
        what: String,
    },
    /// A tokenizer cannot be made of what was given.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// Data cannot be used as asked.
    #[error("data: {0}")]
    Data(String),
}

impl Error {
    /// For `map_err`: what was tried on which file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::Io { doing, path: path.into(), cause }
    }

    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.into(), what: what.into() }
    }
}
