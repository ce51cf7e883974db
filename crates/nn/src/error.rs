//! Everything that can go wrong here, each with what was asked, what was found and what to do.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. Its `Debug` form is its message, so that a `main` that returns it prints the message.
#[derive(thiserror::Error)]
pub enum Error {
    /// The system refused to do something with a file or folder.
    #[error("cannot {doing} {}: {cause}", .path.display())]
    Io {
        /// What was tried: "read", "write", "make folder".
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file or folder is not what it should be.
    #[error("{}: {what}", .path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What was expected and what was found.
        what: String,
    },
    /// A file was written by a later release.
    #[error("{} has format version {found}, and this release reads versions up to {known}; update Bornite", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The last version that is known here.
        known: u64,
    },
    /// Another process writes to the same folder.
    #[error("{} is being written by {holder}; stop it or save to another folder", .folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
        /// Who holds its lock.
        holder: String,
    },
    /// A checkpoint could not be saved; those before it are as they were.
    #[error("{} was not saved: {cause}; {kept}", .folder.display())]
    NotSaved {
        /// Where it would be.
        folder: PathBuf,
        /// What there is still.
        kept: String,
        /// Why.
        cause: Box<Error>,
    },
    /// A folder in which no checkpoint was saved.
    #[error("{} holds no checkpoint: there is no file '{pointer}' in it; give the folder of a run that has saved one", .folder.display())]
    NoCheckpoint {
        /// The folder.
        folder: PathBuf,
        /// The file that would name one.
        pointer: &'static str,
    },
    /// A tokenizer cannot be made of what was given.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// Data cannot be used as asked.
    #[error("data: {0}")]
    Data(String),
    /// A setting that cannot be.
    #[error("{0}")]
    Config(String),
    /// A computation failed.
    #[error(transparent)]
    Compute(bornite::Error),
    /// A tensor could not be read, made or written.
    #[error("tensor {}: {cause}", crate::checkpoint::shown(.name))]
    Tensor {
        /// Its name.
        name: String,
        /// Why.
        cause: Box<bornite::Error>,
    },
    /// The caller asked for a stop before the work was done.
    #[error("stopped")]
    Stopped,
    /// Memory on the host does not suffice.
    #[error("out of memory: {what} needs {bytes} bytes")]
    OutOfMemory {
        /// What for.
        what: String,
        /// Bytes asked for.
        bytes: u64,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<bornite::Error> for Error {
    fn from(error: bornite::Error) -> Error {
        match error {
            bornite::Error::Interrupted => Error::Stopped,
            error => Error::Compute(error),
        }
    }
}

impl Error {
    /// An error about a file's contents.
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.into(), what: what.into() }
    }

    /// Turns what the system said about a path into an error.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::Io { doing, path: path.into(), cause }
    }

    /// Turns an error of a tensor into one that names it.
    pub(crate) fn tensor(name: &str) -> impl FnOnce(bornite::Error) -> Error {
        move |cause| Error::Tensor { name: name.into(), cause: Box::new(cause) }
    }
}
