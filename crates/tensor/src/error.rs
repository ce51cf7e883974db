//! What can go wrong with tensors.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

/// The result of reading tensors and of everything else that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A line of the user's program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SourceLocation(pub(crate) &'static Location<'static>);

thread_local! {
    /// The line of the call that other lines work for.
    static FOR: Cell<Option<SourceLocation>> = const { Cell::new(None) };
}

impl SourceLocation {
    #[track_caller]
    pub(crate) fn here() -> SourceLocation {
        FOR.get().unwrap_or(SourceLocation(Location::caller()))
    }

    /// Has all that `work` makes on this thread name this line, not those inside.
    pub(crate) fn in_scope<R>(self, work: impl FnOnce() -> R) -> R {
        // Ends the scope also if `work` panics.
        struct Scope(Option<SourceLocation>);
        impl Drop for Scope {
            fn drop(&mut self) {
                FOR.set(self.0);
            }
        }
        let _scope = Scope(FOR.replace(Some(self)));
        work()
    }

    /// The source file.
    pub fn file(self) -> &'static str {
        self.0.file()
    }

    /// The line in that file, from 1.
    pub fn line(self) -> u32 {
        self.0.line()
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An error of this crate. Its `Debug` form is its message, so that a `main` that returns it prints the message.
#[derive(Clone, thiserror::Error)]
pub enum Error {
    /// An operation cannot be done on what it was given.
    #[error("{op}: {message}\n  at {location}")]
    Op {
        /// The operation.
        op: &'static str,
        /// What was asked and what was found: shapes, dtypes, devices.
        message: String,
        /// The line of the program that asked.
        location: SourceLocation,
    },
    /// A device string that means nothing.
    #[error("'{0}' is not a device; write cpu, cpu:N, cuda, cuda:N, interpreter or auto")]
    UnknownDevice(String),
    /// A device whose memory is the system's was asked for its memory pool.
    #[error("{0} has no memory pool: its memory is the system's. Only GPUs have one, such as cuda:0")]
    NoPool(crate::Device),
    /// A variable of the environment has a value that cannot be used.
    #[error("{variable}={value}: {cause}")]
    Setting {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        cause: Box<Error>,
    },
    /// A setting, a size or a cache on disk.
    #[error(transparent)]
    Support(#[from] bornite_support::Error),
    /// The CUDA runtime refused.
    #[error(transparent)]
    Cuda(#[from] bornite_cuda::Error),
    /// A kernel stopped while running.
    #[error(transparent)]
    Fault(#[from] bornite_ir::Fault),
    /// A kernel is not valid.
    #[error(transparent)]
    Kernel(#[from] bornite_ir::VerifyError),
    /// A file of kernels cannot be read, or is wrong.
    #[error("{0}")]
    Source(String),
    /// A kernel could not be compiled for the CPU.
    #[error(transparent)]
    Compile(#[from] bornite_codegen::cpu::CompileError),
    /// The flag of [`interruptible`](crate::interruptible) was set before the work was done.
    #[error("interrupted")]
    Interrupted,
    /// The host has not enough memory.
    #[error("out of memory: a tensor of {bytes} bytes does not fit")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Error {
    /// Line of the program that asked, if the error has one.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        match self {
            Error::Op { location, .. } => Some(location.0),
            _ => None,
        }
    }

    /// The message without the line of the program.
    pub fn message(&self) -> String {
        match self {
            Error::Op { op, message, .. } => format!("{op}: {message}"),
            _ => self.to_string(),
        }
    }

    /// An error of an operation, at the caller's line: for functions that [`trace`](crate::trace()) runs, whose errors are of
    /// this type.
    ///
    /// ```
    /// use bornite::{Error, trace};
    /// let double = trace(|inputs| {
    ///     let [x] = inputs else { return Err(Error::op("double", format!("{} inputs; expected one", inputs.len()))) };
    ///     Ok((vec![x * 2.0], vec![]))
    /// });
    /// assert!(double.call(&[]).unwrap_err().to_string().starts_with("double: 0 inputs; expected one"));
    /// ```
    #[track_caller]
    pub fn op(op: &'static str, message: impl Into<String>) -> Error {
        Error::Op { op, message: message.into(), location: SourceLocation::here() }
    }
}

impl From<bornite_lang::Errors> for Error {
    fn from(errors: bornite_lang::Errors) -> Error {
        Error::Source(errors.to_string())
    }
}
