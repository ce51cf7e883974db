//! Verification levels of a row. `run` needs no NVRTC: it includes the checks of `types`, but not
//! those of `compile`.

pub mod code;
pub mod compile;
pub mod gpu;
mod memory;
mod run;
mod signature;
mod worker;
mod workers;

use crate::Row;
pub use run::{CheckStats, RunLimits, TestCase, check_cuda, check_cuda_within, check_python, test_cases};
pub use worker::serve;
pub use workers::{WorkerConfig, WorkerPool};

/// Verification level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// The CUDA front end accepts the text, and its IR is well typed.
    Types,
    /// NVRTC compiles the CUDA text.
    Compile,
    /// The CUDA text, run by the checking interpreter, matches the reference evaluator.
    Run,
    /// The CUDA text, run on a GPU, matches the reference evaluator.
    Gpu,
}

impl Level {
    /// Name on the command line and in rows.
    pub fn name(self) -> &'static str {
        match self {
            Level::Types => "types",
            Level::Compile => "compile",
            Level::Run => "run",
            Level::Gpu => "gpu",
        }
    }

    /// Returns the level with this name.
    pub fn from_name(name: &str) -> Option<Level> {
        [Level::Types, Level::Compile, Level::Run, Level::Gpu].into_iter().find(|level| level.name() == name)
    }
}

/// Reason why a program is rejected as a row.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Rejection {
    /// The CUDA front end rejects the text.
    #[error("the CUDA text is not supported: {0}")]
    Cuda(String),
    /// The Python front end rejects the source.
    #[error("the source is not supported: {0}")]
    Python(String),
    /// No inputs were found on which rounding decides no comparison.
    #[error("a comparison on input {input} depends on rounding")]
    Undecided {
        /// Input number.
        input: usize,
    },
    /// The program has an error, such as an index out of bounds or an overflow.
    #[error("invalid program: {0}")]
    Invalid(String),
    /// The error bound is so wide that incorrect results would pass.
    #[error("the error bound {bound} of an element of magnitude {size} is too wide to detect incorrect results")]
    LooseBound {
        /// The error bound.
        bound: f64,
        /// Magnitude of the element.
        size: f64,
    },
    /// An output that does not depend on the inputs, so that almost any text would pass.
    #[error("output '{array}' does not depend on the inputs")]
    ConstantOutput {
        /// Array name.
        array: String,
    },
    /// A parameter that changes no output beyond rounding.
    #[error("parameter '{input}' changes no output beyond rounding")]
    UnusedInput {
        /// Array or scalar parameter.
        input: String,
    },
    /// A statement that is never executed, a condition with a constant outcome, or an expression
    /// without effect.
    #[error("dead code: {0}")]
    DeadCode(String),
    /// NVRTC rejects the text.
    #[error("NVRTC rejects the text: {0}")]
    Compile(String),
    /// NVRTC crashed, hung or exceeded its memory limit on the text.
    #[error("NVRTC failed on the text: {what}")]
    CompilerFailure {
        /// Kind of failure, as in the statistics.
        kind: &'static str,
        /// Description of the failure.
        what: String,
    },
    /// The interpreter reports a fault.
    #[error("input {input}: {report}")]
    Fault {
        /// Fault class: bounds, race, uninitialised and so on.
        kind: &'static str,
        /// Input number.
        input: usize,
        /// The interpreter's report.
        report: String,
        /// Line of the CUDA text.
        line: Option<u32>,
    },
    /// A result differs from the reference.
    #[error("input {input}: '{array}[{element}]' is {found}, expected {expected} ± {bound}")]
    Mismatch {
        /// Input number.
        input: usize,
        /// Array name.
        array: String,
        /// Component index.
        element: usize,
        /// Result of the text.
        found: f64,
        /// Result of the reference evaluator.
        expected: f64,
        /// Error bound of the reference.
        bound: f64,
    },
}

/// Checks a row at the levels `types` and `run`. Those that need NVRTC or a GPU take many rows at
/// once: [`compile::to_ptx`] and [`gpu::check`].
pub fn verify(row: &Row, level: Level) -> Result<CheckStats, Rejection> {
    // The level `types` was checked when the row was created.
    if level < Level::Run { Ok(CheckStats::default()) } else { run::check(row) }
}
