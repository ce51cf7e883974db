//! What a kernel is called with on the host, and what can go wrong while it runs. Shared by all host readers.

use crate::{Kernel, Launch, Scalar, Value};

/// What is passed for one parameter: memory in 64-bit words, so that every element type is aligned, or a value. All views
/// come first, then all values, in the kernel's order.
#[derive(Debug)]
pub enum Arg<'a> {
    /// For a parameter that is read.
    Read(&'a [u64]),
    /// For a parameter that is written, or read and written.
    Write(&'a mut [u64]),
    /// For a value parameter, its components.
    Value(&'a [Value]),
}

impl Arg<'_> {
    fn bytes(&self) -> usize {
        match self {
            Arg::Read(words) => words.len() * 8,
            Arg::Write(words) => words.len() * 8,
            Arg::Value(_) => 0,
        }
    }
}

/// The scalar at a byte of memory; where a component of an element lies, [`crate::Layout`] says.
pub fn load_scalar(words: &[u64], byte: usize, scalar: Scalar) -> Value {
    // Without the bytes after it: any of them would make a bool true.
    let mask = u64::MAX >> (64 - scalar.bytes() * 8);
    Value::from_bits(scalar, words[byte / 8] >> (byte % 8 * 8) & mask)
}

/// Sets the scalar at a byte of memory.
pub fn store_scalar(words: &mut [u64], byte: usize, value: Value) {
    let (word, shift) = (&mut words[byte / 8], byte % 8 * 8);
    let mask = u64::MAX >> (64 - value.scalar().bytes() * 8);
    *word = *word & !(mask << shift) | value.bits() << shift;
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
    #[error("index {index} is outside '{view}' of {len} elements, in {thread}")]
    OutOfBounds {
        /// The view's name.
        view: String,
        /// The index.
        index: i64,
        /// The view's number of elements.
        len: u64,
        /// Who did it.
        thread: String,
    },
    /// A wide access whose place is not a multiple of its width.
    #[error(
        "{width} elements of '{view}' are accessed at once from {index}, which is no multiple of {width}, in {thread}"
    )]
    Misaligned {
        /// The view's name.
        view: String,
        /// The place in memory of the first element, counted in elements.
        index: i64,
        /// How many at once.
        width: u8,
        /// Who did it.
        thread: String,
    },
    /// A read of shared memory that nobody wrote.
    #[error("'{view}[{index}]' is read before it is written, in {thread}")]
    Uninitialized {
        /// The view's name.
        view: String,
        /// The index.
        index: i64,
        /// Who did it.
        thread: String,
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
    #[error("a barrier is reached by {reached} of {expected} threads{scope}")]
    DivergentBarrier {
        /// Threads that reach it.
        reached: usize,
        /// Threads that have not ended.
        expected: usize,
        /// Of which block or warp.
        scope: String,
    },
    /// A shuffle or vote in which only some threads of a warp take part.
    #[error("{reached} of {expected} threads of a warp take part in a {operation}, in {thread}")]
    PartialWarp {
        /// Shuffle or vote.
        operation: &'static str,
        /// Threads that take part.
        reached: usize,
        /// Threads of the warp.
        expected: usize,
        /// One that does.
        thread: String,
    },
    /// A quotient of integers that does not exist or does not fit its type.
    #[error("{a} is divided by {b}, in {thread}")]
    Division {
        /// The dividend.
        a: String,
        /// The divisor.
        b: String,
        /// Who did it.
        thread: String,
    },
    /// Something that the program claims is not so.
    #[error("'{message}' does not hold, in {thread}")]
    AssertionFailed {
        /// The claim in words, or as it is written.
        message: String,
        /// Who did it.
        thread: String,
    },
    /// The kernel ran longer than it was allowed to.
    #[error("still running after {0} statements")]
    StatementLimit(u64),
    /// The call does not fit the kernel's parameters.
    #[error("{0}")]
    InvalidCall(String),
}

impl Fault {
    /// A call that does not fit.
    pub fn invalid_call(kernel: &Kernel, what: impl Into<String>) -> Fault {
        Fault { kernel: kernel.name.clone(), kind: FaultKind::InvalidCall(what.into()), line: None }
    }
}

/// Checks a call against a kernel's parameters; the first component of each value, which extents are resolved by.
pub fn check_args(kernel: &Kernel, args: &[Arg<'_>]) -> Result<Vec<Value>, Fault> {
    let fail = |what: String| Err(Fault::invalid_call(kernel, what));
    let expected = kernel.params.len() + kernel.values.len();
    if args.len() != expected {
        return fail(format!("called with {} arguments, has {expected} parameters", args.len()));
    }
    let (views, values) = args.split_at(kernel.params.len());
    let mut firsts = vec![];
    for (param, arg) in kernel.values.iter().zip(values) {
        let Arg::Value(components) = arg else {
            return fail(format!("'{}' is a value, the argument is not", param.name));
        };
        let found: Vec<Scalar> = components.iter().map(|value| value.scalar()).collect();
        if found != param.ty.components(&kernel.structs) {
            return fail(format!("'{}' is {}, the argument is not", param.name, param.ty.name(&kernel.structs)));
        }
        firsts.extend(components.first());
    }
    let largest = if kernel.index == Scalar::I32 { i32::MAX as u64 } else { i64::MAX as u64 };
    if let Launch::ParallelFor { count } = kernel.launch
        && (count.resolve(&firsts) < 0 || count.resolve(&firsts) as u64 > largest)
    {
        return fail(format!("{} instances are not a number of instances", count.resolve(&firsts)));
    }
    for (param, arg) in kernel.params.iter().zip(views) {
        if matches!(arg, Arg::Value(_)) || param.access.writes() != matches!(arg, Arg::Write(_)) {
            return fail(format!("'{}' is for {:?}, the argument is not", param.name, param.access));
        }
        if param.dims.iter().any(|dim| dim.extent.resolve(&firsts) < 0) {
            return fail(format!("'{}' has a negative extent", param.name));
        }
        let fits = kernel.memory_span(&param.dims, &firsts).is_some_and(|span| span.elements <= largest);
        match kernel.view_bytes(param, &firsts) {
            Some(needed) if fits && needed <= arg.bytes() => {}
            Some(needed) if fits => {
                return fail(format!("'{}' needs {needed} bytes, the argument has {}", param.name, arg.bytes()));
            }
            _ => return fail(format!("'{}' has more elements than {} holds", param.name, kernel.index)),
        }
    }
    Ok(firsts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_is_its_own_bytes() {
        for scalar in Scalar::ALL {
            for byte in (0..16).step_by(scalar.bytes()) {
                let mut words = [u64::MAX; 2];
                store_scalar(&mut words, byte, Value::int(scalar, 0));
                assert_eq!(load_scalar(&words, byte, scalar), Value::int(scalar, 0), "{scalar} at {byte}");
                let mut words = [0; 2];
                store_scalar(&mut words, byte, Value::int(scalar, 1));
                assert_eq!(load_scalar(&words, byte, scalar), Value::int(scalar, 1), "{scalar} at {byte}");
            }
        }
    }
}
