//! Errors of this crate: what was asked, what was found, what to do, and the line of the program that called this crate.

use std::panic::Location;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. Its `Debug` form is its message, so that a `main` that returns it prints the message.
pub struct Error {
    pub(crate) kind: ErrorKind,
    at: &'static Location<'static>,
}

/// Cause of an [`Error`], whose message has no source location.
#[derive(thiserror::Error)]
pub enum ErrorKind {
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
    #[error("{} was not saved: {}; {kept}", .folder.display(), .cause.kind)]
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
    #[error("{}", .0.message())]
    Compute(Box<bornite::Error>),
    /// A tensor could not be read, made or written.
    #[error("tensor {}: {}", crate::checkpoint::shown(.name), .cause.message())]
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

impl fmt::Debug for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match self.location() {
            Some(at) => write!(f, "\n  at {at}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Compute(error) => error.source(),
            kind => kind.source(),
        }
    }
}

impl From<ErrorKind> for Error {
    #[track_caller]
    fn from(kind: ErrorKind) -> Error {
        Error { kind, at: Location::caller() }
    }
}

impl From<bornite::Error> for Error {
    #[track_caller]
    fn from(error: bornite::Error) -> Error {
        match error {
            bornite::Error::Interrupted => Error::stopped(),
            error => {
                Error { at: error.location().unwrap_or(Location::caller()), kind: ErrorKind::Compute(Box::new(error)) }
            }
        }
    }
}

/// Whether a line is in this crate's own sources.
fn is_internal(at: &Location<'_>) -> bool {
    file!().strip_suffix("error.rs").is_some_and(|sources| at.file().starts_with(sources))
}

/// Runs the body of a public function. An error gets the line of the function's caller, unless it has a line of the program already.
#[track_caller]
pub(crate) fn located<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let caller = Location::caller();
    body().map_err(|error| Error { at: error.location().unwrap_or(caller), ..error })
}

impl Error {
    /// Cause of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Line of the program that called this crate, or that made the tensor which failed. None within this crate, before an error
    /// reaches the program.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        Some(self.at).filter(|at| !is_internal(at))
    }

    /// An error about settings, at the caller's line.
    #[track_caller]
    pub fn config(what: impl Into<String>) -> Error {
        ErrorKind::Config(what.into()).into()
    }

    /// An error about data.
    pub(crate) fn data(what: impl Into<String>) -> Error {
        ErrorKind::Data(what.into()).into()
    }

    /// An error about a tokenizer.
    pub(crate) fn tokenizer(what: impl Into<String>) -> Error {
        ErrorKind::Tokenizer(what.into()).into()
    }

    /// End of work that the caller stopped.
    pub(crate) fn stopped() -> Error {
        ErrorKind::Stopped.into()
    }

    /// An error about a file's contents.
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        ErrorKind::File { path: path.into(), what: what.into() }.into()
    }

    /// Turns what the system said about a path into an error.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |cause| ErrorKind::Io { doing, path: path.into(), cause }.into()
    }

    /// Turns an error of a tensor into one that names it.
    pub(crate) fn tensor(name: &str) -> impl FnOnce(bornite::Error) -> Error {
        move |cause| {
            let at = cause.location().unwrap_or(Location::caller());
            Error { kind: ErrorKind::Tensor { name: name.into(), cause: Box::new(cause) }, at }
        }
    }

    /// The error of a save that failed, and what is left.
    pub(crate) fn not_saved(folder: PathBuf, kept: String, cause: Error) -> Error {
        let at = cause.at;
        Error { kind: ErrorKind::NotSaved { folder, kept, cause: Box::new(cause) }, at }
    }
}
