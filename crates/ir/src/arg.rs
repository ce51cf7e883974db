//! What a kernel is called with on the host, and what can go wrong while it runs. Shared by all host readers.

use crate::Kernel;

/// Memory for one parameter, in 64-bit words so that every element type is aligned.
#[derive(Debug)]
pub enum Arg<'a> {
    /// For a parameter that is read.
    Read(&'a [u64]),
    /// For a parameter that is written, or read and written.
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

/// A kernel stopped: what happened, and where in its text form if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// What happened.
    pub kind: FaultKind,
    /// The line of the kernel's text form, from 1.
    pub line: Option<usize>,
}

impl std::error::Error for Fault {}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kernel '{}': {}", self.kernel, self.kind)?;
        self.line.map_or(Ok(()), |line| write!(f, " (line {line} of its text)"))
    }
}

/// What can go wrong in a run. `by` names the instance, or the thread and block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// An index outside its view.
    #[error("index {index} is outside '{view}' of {len} elements, in {by}")]
    OutOfBounds {
        /// The view's name.
        view: String,
        /// The index.
        index: i64,
        /// The view's number of elements.
        len: u64,
        /// Who did it.
        by: String,
    },
    /// A read of shared memory that nobody wrote.
    #[error("'{view}[{index}]' is read before it is written, in {by}")]
    Uninitialised {
        /// The view's name.
        view: String,
        /// The index.
        index: i64,
        /// Who did it.
        by: String,
    },
    /// Two accesses to one element, one of them a write, that nothing orders.
    #[error("race on '{view}[{index}]': {first} and {second} are not ordered by a barrier")]
    Race {
        /// The view's name.
        view: String,
        /// The index.
        index: i64,
        /// The earlier access: what, by whom, in which line.
        first: String,
        /// The later access.
        second: String,
    },
    /// A barrier that only some threads of the block (or warp) reach.
    #[error("a barrier is reached by {reached} of {expected} threads{of}")]
    DivergentBarrier {
        /// Threads that reach it.
        reached: usize,
        /// Threads that have not ended.
        expected: usize,
        /// Of which block or warp.
        of: String,
    },
    /// A shuffle or vote in which only some threads of a warp take part.
    #[error("{reached} of {expected} threads of a warp take part in a {what}, in {by}")]
    PartialWarp {
        /// Shuffle or vote.
        what: &'static str,
        /// Threads that take part.
        reached: usize,
        /// Threads of the warp.
        expected: usize,
        /// One that does.
        by: String,
    },
    /// The kernel ran longer than it was allowed to.
    #[error("still running after {0} statements")]
    TooLong(u64),
    /// The call does not fit the kernel's parameters.
    #[error("{0}")]
    BadCall(String),
}

impl Fault {
    /// A call that does not fit.
    pub fn bad_call(kernel: &Kernel, what: impl Into<String>) -> Fault {
        Fault { kernel: kernel.name.clone(), kind: FaultKind::BadCall(what.into()), line: None }
    }
}

/// Checks a call against a kernel's parameters.
pub fn check_args(kernel: &Kernel, args: &[Arg<'_>]) -> Result<(), Fault> {
    let fail = |what: String| Err(Fault::bad_call(kernel, what));
    if args.len() != kernel.params.len() {
        return fail(format!("called with {} arguments, has {} parameters", args.len(), kernel.params.len()));
    }
    for (param, arg) in kernel.params.iter().zip(args) {
        if param.access.writes() != matches!(arg, Arg::Write(_)) {
            return fail(format!("'{}' is for {:?}, the argument is not", param.name, param.access));
        }
        let needed = param.len as u128 * param.scalar.bytes() as u128;
        if needed > arg.bytes() as u128 {
            return fail(format!("'{}' needs {needed} bytes, the argument has {}", param.name, arg.bytes()));
        }
    }
    Ok(())
}
