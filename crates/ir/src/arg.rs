//! What a kernel is called with on the host, and what can go wrong while it runs. Shared by all host readers.

use crate::{Access, Kernel};

/// Memory for one parameter, in 64-bit words so that every element type is aligned.
#[derive(Debug)]
pub enum Arg<'a> {
    /// For a parameter that is read.
    Read(&'a [u64]),
    /// For a parameter that is written.
    Write(&'a mut [u64]),
}

impl Arg<'_> {
    fn bytes(&self) -> usize {
        match self {
            Arg::Read(words) => words.len() * 8,
            Arg::Write(words) => words.len() * 8,
        }
    }
}

/// A kernel stopped: what happened, in which instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel '{kernel}': {kind}")]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// What happened.
    pub kind: FaultKind,
}

/// What can go wrong in a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// An index outside its view.
    #[error("index {index} is outside '{view}' of {len} elements, in instance {instance}")]
    OutOfBounds {
        /// The view's name.
        view: String,
        /// The index.
        index: i64,
        /// The view's number of elements.
        len: u64,
        /// The instance that did it.
        instance: u64,
    },
    /// The call does not fit the kernel's parameters.
    #[error("{0}")]
    BadCall(String),
}

/// Checks a call against a kernel's parameters.
pub fn check_args(kernel: &Kernel, args: &[Arg<'_>]) -> Result<(), Fault> {
    let fail = |what: String| Err(Fault { kernel: kernel.name.clone(), kind: FaultKind::BadCall(what) });
    if args.len() != kernel.params.len() {
        return fail(format!("called with {} arguments, has {} parameters", args.len(), kernel.params.len()));
    }
    for (param, arg) in kernel.params.iter().zip(args) {
        if (param.access == Access::Write) != matches!(arg, Arg::Write(_)) {
            return fail(format!("'{}' is for {:?}, the argument is not", param.name, param.access));
        }
        let needed = param.len as u128 * param.scalar.bytes() as u128;
        if needed > arg.bytes() as u128 {
            return fail(format!("'{}' needs {needed} bytes, the argument has {}", param.name, arg.bytes()));
        }
    }
    Ok(())
}
