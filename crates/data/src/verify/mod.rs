//! Checks of rows, level by level. A run needs no NVRTC: it has the checks of `types`, not those of `compile`.

pub mod code;
pub mod compile;
pub mod gpu;
mod memory;
mod run;
mod signature;
mod worker;
mod workers;

use crate::Row;
pub use run::{Checked, Expected, Limits, against, against_within, expected, source_against};
pub use worker::serve;
pub use workers::{Crew, Workers};

/// What a row is checked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// The CUDA text is understood and its IR is well typed.
    Types,
    /// NVRTC compiles the CUDA text.
    Compile,
    /// The CUDA text, executed with checks, gives what the source means.
    Run,
    /// A GPU gives what the source means.
    Gpu,
}

impl Level {
    /// The name on the command line and in rows.
    pub fn name(self) -> &'static str {
        match self {
            Level::Types => "types",
            Level::Compile => "compile",
            Level::Run => "run",
            Level::Gpu => "gpu",
        }
    }

    /// The level of that name.
    pub fn named(name: &str) -> Option<Level> {
        [Level::Types, Level::Compile, Level::Run, Level::Gpu].into_iter().find(|level| level.name() == name)
    }
}

/// Why a program is no row.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Rejected {
    /// The CUDA text is not understood.
    #[error("the CUDA text is not understood: {0}")]
    Text(String),
    /// The Python source is not understood.
    #[error("the source is not understood: {0}")]
    Source(String),
    /// No inputs were found on which every comparison is decided.
    #[error("rounding decides a comparison on input {input}")]
    Undecided {
        /// The input.
        input: usize,
    },
    /// The program does what no program should.
    #[error("the program is wrong: {0}")]
    Invalid(String),
    /// Bounds are so wide that wrong results would pass.
    #[error("the bound {bound} of an element of size {size} would let wrong results pass")]
    Blunt {
        /// The bound.
        bound: f64,
        /// The size of the element.
        size: f64,
    },
    /// What comes out does not depend on what goes in, so that nearly any text would pass.
    #[error("'{array}' ends up the same whatever the inputs are")]
    Constant {
        /// The array.
        array: String,
    },
    /// A parameter that changes no output beyond rounding, whatever it holds.
    #[error("'{input}' moves no output beyond rounding")]
    Unused {
        /// The array or number.
        input: String,
    },
    /// A statement that no input reaches, a condition that goes one way, or an expression that computes nothing.
    #[error("dead code: {0}")]
    Dead(String),
    /// NVRTC refuses the text.
    #[error("NVRTC refuses the text: {0}")]
    Compile(String),
    /// NVRTC does not come to an end with the text: it crashes, hangs or eats memory.
    #[error("NVRTC was lost on the text: {what}")]
    Compiler {
        /// What happened, as statistics name it.
        kind: &'static str,
        /// What happened, in words.
        what: String,
    },
    /// The interpreter reports something.
    #[error("input {input}: {report}")]
    Report {
        /// What kind of finding it is: bounds, race, uninitialised and so on.
        kind: &'static str,
        /// The input.
        input: usize,
        /// What is reported.
        report: String,
        /// The line of the CUDA text.
        line: Option<u32>,
    },
    /// A result differs.
    #[error("input {input}: '{array}[{element}]' is {found}, expected {expected} ± {bound}")]
    Differs {
        /// The input.
        input: usize,
        /// The array.
        array: String,
        /// The component.
        element: usize,
        /// What the CUDA text gives.
        found: f64,
        /// What the source means.
        expected: f64,
        /// How far it may be off.
        bound: f64,
    },
}

/// Checks a row at the levels `types` and `run`. Those that need NVRTC or a GPU take many rows at once:
/// [`compile::to_ptx`] and [`gpu::check`].
pub fn verify(row: &Row, level: Level) -> Result<Checked, Rejected> {
    // That the text is understood was found when the row was made.
    if level < Level::Run { Ok(Checked::default()) } else { run::check(row) }
}
