//! Errors of this crate. Each has the source location of the program's call into this crate.

use std::panic::Location;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Error type of this crate. `Debug` prints the message, so that a `main` that returns it shows the
/// message.
pub struct Error {
    pub(crate) kind: ErrorKind,
    location: &'static Location<'static>,
}

/// Cause of an [`Error`], whose message has no source location.
#[derive(thiserror::Error)]
pub enum ErrorKind {
    /// An operation on a file or folder failed.
    #[error("cannot {operation} {}: {cause}", .path.display())]
    Io {
        /// Operation, such as "read", "write" or "create folder".
        operation: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// A file or folder has invalid contents.
    #[error("{}: {message}", .path.display())]
    File {
        /// File or folder.
        path: PathBuf,
        /// Description of the problem.
        message: String,
    },
    /// A file has the format of a later release.
    #[error("{} has format version {found}; this release reads versions up to {supported}: update Bornite", .path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// Latest supported version.
        supported: u64,
    },
    /// Another process holds the lock of a folder.
    #[error("{} is being written by {holder}; stop it or save to another folder", .folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
        /// Process that holds its lock.
        holder: String,
    },
    /// A checkpoint could not be saved; earlier ones are unchanged.
    #[error("{} was not saved: {}; {remaining}", .folder.display(), .cause.kind)]
    NotSaved {
        /// Folder of the checkpoint.
        folder: PathBuf,
        /// Description of the checkpoints that remain.
        remaining: String,
        /// Cause.
        cause: Box<Error>,
    },
    /// A folder without a checkpoint.
    #[error("{} contains no checkpoint (no file '{pointer}'); pass the folder of a run that has saved one", .folder.display())]
    NoCheckpoint {
        /// The folder.
        folder: PathBuf,
        /// File that names the latest checkpoint.
        pointer: &'static str,
    },
    /// Invalid tokenizer.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// Invalid data.
    #[error("data: {0}")]
    Data(String),
    /// A sample of a dataset could not be read or transformed.
    #[error("{sample}: {}", .cause.kind)]
    Sample {
        /// Description of the sample: its index, and its file if there is one.
        sample: String,
        /// Cause.
        cause: Box<Error>,
    },
    /// Invalid setting.
    #[error("{0}")]
    Config(String),
    /// A tensor computation failed.
    #[error("{}", .0.message())]
    Compute(Box<bornite::Error>),
    /// A named tensor could not be read, created or written.
    #[error("tensor {}: {}", crate::checkpoint::quoted(.name), .cause.message())]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// Cause.
        cause: Box<bornite::Error>,
    },
    /// Another rank of a job died, hangs or failed, or the ranks disagree.
    #[error("{message}{}{hosts}", if .hosts.is_empty() { "" } else { "; " })]
    Ranks {
        /// Description of the problem.
        message: String,
        /// The rank that has reported it to the others; `None` if this one noticed it.
        reported_by: Option<usize>,
        /// True if a rank ended or hangs, so that the job can be resumed.
        is_rank_lost: bool,
        /// Hosts of the ranks that it names.
        hosts: String,
    },
    /// The caller stopped the operation.
    #[error("stopped")]
    Stopped,
    /// Out of host memory.
    #[error("out of memory: {purpose} needs {bytes} bytes")]
    OutOfMemory {
        /// Purpose of the allocation.
        purpose: String,
        /// Requested bytes.
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
            Some(location) => write!(f, "\n  at {location}"),
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
        Error { kind, location: Location::caller() }
    }
}

impl From<bornite::Error> for Error {
    #[track_caller]
    fn from(error: bornite::Error) -> Error {
        match error {
            bornite::Error::Interrupted => Error::stopped(),
            error => {
                let location = error.location().unwrap_or(Location::caller());
                Error { kind: ErrorKind::Compute(Box::new(error)), location }
            }
        }
    }
}

/// Returns true for a location in this crate's sources.
fn is_internal(location: &Location<'_>) -> bool {
    file!().strip_suffix("error.rs").is_some_and(|sources| location.file().starts_with(sources))
}

/// Runs the body of a public function. An error gets the location of the function's caller, unless
/// it already has a location in the program.
#[track_caller]
pub(crate) fn located<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let caller = Location::caller();
    body().map_err(|error| Error { location: error.location().unwrap_or(caller), ..error })
}

impl Error {
    /// Returns the cause of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Returns the source location of the program's call, or of the tensor that failed. `None`
    /// within this crate, before the error reaches the program.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        Some(self.location).filter(|location| !is_internal(location))
    }

    /// Creates an error about settings, located at the caller.
    #[track_caller]
    pub fn config(message: impl Into<String>) -> Error {
        ErrorKind::Config(message.into()).into()
    }

    /// Creates an error about data.
    pub(crate) fn data(message: impl Into<String>) -> Error {
        ErrorKind::Data(message.into()).into()
    }

    /// Creates an error about a tokenizer.
    pub(crate) fn tokenizer(message: impl Into<String>) -> Error {
        ErrorKind::Tokenizer(message.into()).into()
    }

    /// Creates the error of an operation that the caller stopped.
    pub(crate) fn stopped() -> Error {
        ErrorKind::Stopped.into()
    }

    /// Creates an error about a file's contents.
    pub(crate) fn file(path: &Path, message: impl Into<String>) -> Error {
        ErrorKind::File { path: path.into(), message: message.into() }.into()
    }

    /// Converts an I/O error of an operation on a path.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |cause| ErrorKind::Io { operation, path: path.into(), cause }.into()
    }

    /// Converts an error of a named tensor.
    pub(crate) fn tensor(name: &str) -> impl FnOnce(bornite::Error) -> Error {
        move |cause| {
            let location = cause.location().unwrap_or(Location::caller());
            Error { kind: ErrorKind::Tensor { name: name.into(), cause: Box::new(cause) }, location }
        }
    }

    /// Creates the error of a failed save; `remaining` describes the checkpoints that remain.
    pub(crate) fn not_saved(folder: PathBuf, remaining: String, cause: Error) -> Error {
        let location = cause.location;
        Error { kind: ErrorKind::NotSaved { folder, remaining, cause: Box::new(cause) }, location }
    }
}
