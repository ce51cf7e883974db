//! Arguments of a kernel launch on the host, and the faults that a run can report. Shared by the
//! interpreter and the CPU backend.

use crate::{Kernel, LaunchMode, Scalar, Value};

/// Argument for one parameter: a buffer of 64-bit words, so that every element type is aligned, or
/// a value. All views come first, then all values, in the kernel's order.
#[derive(Debug)]
pub enum Arg<'a> {
    /// Buffer for a read-only view.
    Read(&'a [u64]),
    /// Buffer for a view that is written, or read and written.
    Write(&'a mut [u64]),
    /// Components of a value parameter.
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

/// Loads the scalar at byte offset `byte`; [`crate::Layout`] gives the offset of each component of
/// an element.
pub fn load_scalar(words: &[u64], byte: usize, scalar: Scalar) -> Value {
    // Mask off the following bytes: any nonzero one would make a bool true.
    let mask = u64::MAX >> (64 - scalar.bytes() * 8);
    Value::from_bits(scalar, words[byte / 8] >> (byte % 8 * 8) & mask)
}

/// Stores a scalar at byte offset `byte`.
pub fn store_scalar(words: &mut [u64], byte: usize, value: Value) {
    let (word, shift) = (&mut words[byte / 8], byte % 8 * 8);
    let mask = u64::MAX >> (64 - value.scalar().bytes() * 8);
    *word = *word & !(mask << shift) | value.bits() << shift;
}

/// Fault of a kernel: the kind, and the line of the text form if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// The kind of fault, with its details.
    pub kind: FaultKind,
    /// Line of the kernel's text form, from 1.
    pub line: Option<usize>,
}

impl std::error::Error for Fault {}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kernel '{}': {}", self.kernel, self.kind)?;
        match (self.earlier_line(), self.line) {
            (Some(earlier), Some(line)) if earlier != line => {
                write!(f, " (lines {earlier} and {line} of the IR text)")
            }
            (_, Some(line)) => write!(f, " (line {line} of the IR text)"),
            (_, None) => Ok(()),
        }
    }
}

/// Kind of fault. `thread` names the thread and block, or the instance of a `ParallelFor`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// Index out of bounds of its view.
    #[error("{}index {index} is outside '{view}' of {len} elements, in {thread}", accessed(view, indices))]
    OutOfBounds {
        /// Name of the view, and the dimension if it has several: `tile, dimension 1`.
        view: String,
        /// The index.
        index: i64,
        /// Number of elements along the dimension.
        len: u64,
        /// All indices of the access, if the view has several dimensions and they are known.
        indices: Box<[i64]>,
        /// The faulting thread.
        thread: String,
    },
    /// Vector access whose first element is not aligned to the vector's width.
    #[error(
        "misaligned access to '{view}': a vector of {width} elements starts at element {index}, which is not a multiple of {width}, in {thread}"
    )]
    Misaligned {
        /// Name of the view.
        view: String,
        /// Offset of the first element, in elements.
        index: i64,
        /// Number of elements accessed at once.
        width: u8,
        /// The faulting thread.
        thread: String,
    },
    /// Read of shared memory or of a local array that has not been written.
    #[error("'{}' is read before it is written, in {thread}", element(view, indices))]
    Uninitialized {
        /// Name of the array.
        view: String,
        /// The index along each dimension.
        indices: Box<[i64]>,
        /// The faulting thread.
        thread: String,
    },
    /// Data race: two unordered accesses to one element, at least one of them a write.
    #[error("race on '{}': {} and {second} are not ordered by a barrier", element(view, indices), first.access)]
    Race {
        /// Name of the view.
        view: String,
        /// The index along each dimension.
        indices: Box<[i64]>,
        /// The earlier access.
        first: Box<EarlierAccess>,
        /// The later access, at the fault's line: its kind, thread and block.
        second: String,
    },
    /// Barrier that is reached by only some threads of the block or warp.
    #[error("divergent barrier: reached by {reached} of {expected} threads{scope}")]
    DivergentBarrier {
        /// Number of threads that reach the barrier.
        reached: usize,
        /// Number of threads that have not returned.
        expected: usize,
        /// Block or warp, as a phrase such as " of warp 0".
        scope: String,
    },
    /// Shuffle or vote in which only some threads of a warp participate.
    #[error("{reached} of {expected} threads of a warp take part in a {operation}, in {thread}")]
    PartialWarp {
        /// "shuffle" or "vote".
        operation: &'static str,
        /// Number of participating threads.
        reached: usize,
        /// Number of threads of the warp.
        expected: usize,
        /// A participating thread.
        thread: String,
    },
    /// Integer division by zero, or one whose quotient overflows.
    #[error("undefined integer division: {a} / {b}, in {thread}")]
    Division {
        /// The dividend.
        a: String,
        /// The divisor.
        b: String,
        /// The faulting thread.
        thread: String,
    },
    /// Failed assertion.
    #[error("'{message}' does not hold, in {thread}")]
    AssertionFailed {
        /// The assertion's message or source text.
        message: String,
        /// The faulting thread.
        thread: String,
    },
    /// Statement limit exceeded.
    #[error("still running after {0} statements")]
    StatementLimit(u64),
    /// Arguments that do not match the kernel's parameters, or a kernel that cannot be run.
    #[error("{0}")]
    InvalidCall(String),
}

/// The earlier access of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierAccess {
    /// Its kind, thread and block.
    pub access: String,
    /// Line of the kernel's text form, from 1.
    pub line: Option<usize>,
}

impl FaultKind {
    /// Returns the name of the kind, such as `race`.
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::OutOfBounds { .. } => "out_of_bounds",
            FaultKind::Misaligned { .. } => "misaligned",
            FaultKind::Uninitialized { .. } => "uninitialized",
            FaultKind::Race { .. } => "race",
            FaultKind::DivergentBarrier { .. } => "divergent_barrier",
            FaultKind::PartialWarp { .. } => "partial_warp",
            FaultKind::Division { .. } => "division",
            FaultKind::AssertionFailed { .. } => "assertion",
            FaultKind::StatementLimit(_) => "statement_limit",
            FaultKind::InvalidCall(_) => "invalid_call",
        }
    }
}

/// Formats an element as C++ does: `tile[1][3]`.
fn element(view: &str, indices: &[i64]) -> String {
    indices.iter().fold(view.to_owned(), |text, index| format!("{text}[{index}]"))
}

/// Formats the accessed element as the beginning of a message, if its indices are known.
fn accessed(view: &str, indices: &[i64]) -> String {
    let name = view.split(',').next().unwrap_or(view);
    if indices.is_empty() { String::new() } else { format!("'{}': ", element(name, indices)) }
}

impl Fault {
    /// Returns the line of the earlier access of a race, in the kernel's text form.
    pub fn earlier_line(&self) -> Option<usize> {
        if let FaultKind::Race { first, .. } = &self.kind { first.line } else { None }
    }

    /// Creates a fault for arguments that do not match the kernel.
    pub fn invalid_call(kernel: &Kernel, message: impl Into<String>) -> Fault {
        Fault { kernel: kernel.name.clone(), kind: FaultKind::InvalidCall(message.into()), line: None }
    }
}

/// Validates arguments against a kernel's parameters. Returns the first component of each value,
/// which resolves dynamic extents.
pub fn check_args(kernel: &Kernel, args: &[Arg<'_>]) -> Result<Vec<Value>, Fault> {
    let fail = |message: String| Err(Fault::invalid_call(kernel, message));
    let expected = kernel.params.len() + kernel.values.len();
    if args.len() != expected {
        return fail(format!("expected {}, found {}", counted(expected, "argument"), args.len()));
    }
    let (views, values) = args.split_at(kernel.params.len());
    let mut firsts = vec![];
    for (param, arg) in kernel.values.iter().zip(values) {
        let Arg::Value(components) = arg else {
            return fail(format!("'{}' is passed by value; expected an Arg::Value", param.name));
        };
        let found: Vec<Scalar> = components.iter().map(|value| value.scalar()).collect();
        if found != param.ty.components(&kernel.structs) {
            let (ty, name) = (param.ty.name(&kernel.structs), &param.name);
            return fail(format!("'{name}' has type {ty}; the argument has components {found:?}"));
        }
        firsts.extend(components.first());
    }
    let largest = if kernel.index == Scalar::I32 { i32::MAX as u64 } else { i64::MAX as u64 };
    if let LaunchMode::ParallelFor { count } = kernel.launch
        && (count.resolve(&firsts) < 0 || count.resolve(&firsts) as u64 > largest)
    {
        return fail(format!("instance count {} is not in the range 0 to {largest}", count.resolve(&firsts)));
    }
    for (param, arg) in kernel.params.iter().zip(views) {
        if matches!(arg, Arg::Value(_)) || param.access.writes() != matches!(arg, Arg::Write(_)) {
            let expected = if param.access.writes() { "Arg::Write" } else { "Arg::Read" };
            return fail(format!("'{}' has access mode {:?}; expected an {expected}", param.name, param.access));
        }
        if param.dims.iter().any(|dim| dim.extent.resolve(&firsts) < 0) {
            return fail(format!("'{}' has a negative extent", param.name));
        }
        let fits = kernel.memory_span(&param.dims, &firsts).is_some_and(|span| span.elements <= largest);
        match kernel.view_bytes(param, &firsts) {
            Some(needed) if fits && needed <= arg.bytes() => {}
            Some(needed) if fits => {
                return fail(format!("'{}' needs {needed} bytes; the argument has {}", param.name, arg.bytes()));
            }
            _ => {
                return fail(format!(
                    "'{}' has more elements than the index type {} can address",
                    param.name, kernel.index
                ));
            }
        }
    }
    Ok(firsts)
}

/// Formats a count with its noun: `1 argument`, `2 arguments`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_stored_and_loaded_at_any_offset() {
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
