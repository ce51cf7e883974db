//! Errors of this crate, and the source location of the call that caused them.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

/// Result of reading a tensor, and of every other fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A source location in the user's program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SourceLocation(pub(crate) &'static Location<'static>);

thread_local! {
    /// Location that replaces the caller's in [`SourceLocation::here`], inside
    /// [`SourceLocation::in_scope`].
    static OVERRIDE: Cell<Option<SourceLocation>> = const { Cell::new(None) };
}

impl SourceLocation {
    /// The location of the caller, or that of the enclosing [`in_scope`](SourceLocation::in_scope).
    #[track_caller]
    pub fn here() -> SourceLocation {
        OVERRIDE.get().unwrap_or(SourceLocation(Location::caller()))
    }

    /// Runs `work`; tensors that it creates on this thread, and their errors, get this location.
    /// For functions that are composed of others, so that an error has the line of their caller.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, error::SourceLocation};
    /// #[track_caller]
    /// fn halves(x: &Tensor) -> Vec<Tensor> {
    ///     SourceLocation::here().in_scope(|| (0..2).map(|n| x.slice(7, n..n + 1)).collect())
    /// }
    /// let error = halves(&Tensor::ones(&[2], DType::F32, Device::cpu()))[0].item().unwrap_err();
    /// assert!(error.location().is_some()); // the line above
    /// ```
    pub fn in_scope<R>(self, work: impl FnOnce() -> R) -> R {
        // Ends the scope also if `work` panics.
        struct Scope(Option<SourceLocation>);
        impl Drop for Scope {
            fn drop(&mut self) {
                OVERRIDE.set(self.0);
            }
        }
        let _scope = Scope(OVERRIDE.replace(Some(self)));
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

/// An error of this crate. `Debug` prints the message as well, so that a `main` that returns the
/// error prints it.
#[derive(Clone, thiserror::Error)]
pub enum Error {
    /// An operation got invalid arguments.
    #[error("{op}: {message}\n  at {location}")]
    Op {
        /// The operation.
        op: &'static str,
        /// Expected and found values: shapes, dtypes, devices.
        message: String,
        /// The location of the call.
        location: SourceLocation,
    },
    /// An unknown device string.
    #[error("'{0}' is not a device; use cpu, cpu:N, cuda, cuda:N, interpreter or auto")]
    UnknownDevice(String),
    /// A memory pool was requested of a device that has none.
    #[error("{0} has no memory pool: it uses system memory. Only GPUs have one, such as cuda:0")]
    NoPool(crate::Device),
    /// An environment variable has an invalid value.
    #[error("{variable}={value}: {cause}")]
    Setting {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The error of the value.
        cause: Box<Error>,
    },
    /// An invalid setting or size, or an error of an on-disk cache.
    #[error(transparent)]
    Support(#[from] bornite_support::Error),
    /// A CUDA call failed.
    #[error(transparent)]
    Cuda(#[from] bornite_cuda::Error),
    /// A kernel failed while running.
    #[error(transparent)]
    Fault(#[from] bornite_ir::Fault),
    /// A kernel is invalid.
    #[error(transparent)]
    Kernel(#[from] bornite_ir::VerifyError),
    /// A kernel source file cannot be read or compiled.
    #[error("{0}")]
    Source(String),
    /// A kernel could not be compiled for the CPU.
    #[error(transparent)]
    Compile(#[from] bornite_codegen::cpu::CompileError),
    /// The flag of [`interruptible`](crate::interruptible) was set before the work was complete.
    #[error("interrupted")]
    Interrupted,
    /// Host memory is exhausted.
    #[error("out of memory: a tensor of {bytes} bytes does not fit")]
    OutOfMemory {
        /// Requested size.
        bytes: usize,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Error {
    /// Location of the call, if the error has one.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        match self {
            Error::Op { location, .. } => Some(location.0),
            _ => None,
        }
    }

    /// The message without the location.
    pub fn message(&self) -> String {
        match self {
            Error::Op { op, message, .. } => format!("{op}: {message}"),
            _ => self.to_string(),
        }
    }

    /// An error of an operation at the caller's location, for functions passed to
    /// [`trace`](crate::trace()), which return errors of this type.
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
