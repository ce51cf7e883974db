//! Judging kernels: is a candidate correct, free of faults and honest?
//!
//! A [`JudgeTask`] has a candidate (CUDA C++, Python syntax or IR), a reference or expected arrays,
//! sizes to draw from and arguments in terms of them. [`Judge`] runs the candidate in the checking
//! interpreter on several drawn shapes and compares its outputs with bounds on what any correct
//! implementation can compute. The [`Verdict`] serializes as one line of JSON.
//!
//! | to see | look in |
//! |---|---|
//! | tasks and verdicts as JSON | [`JudgeTask`], [`Verdict`] |
//! | floats with error bounds, for any order of evaluation | `ball.rs`, `functions.rs` |
//! | evaluation of a reference's IR with error bounds | `evaluate/` |
//! | drawn shapes and inputs | `inputs.rs` |
//! | expected results | `expected.rs` |
//! | candidates that do not compute | `cheats.rs` |
//! | many tasks, in worker processes with limits | [`JudgePool`], [`serve`] |
//!
//! This crate must not know of GPUs, tensors or the command line.

mod ball;
mod cheats;
mod compare;
mod evaluate;
mod expected;
mod expression;
mod functions;
mod inputs;
mod judge;
mod pool;
mod run;
mod source;
mod task;
mod verdict;

pub use expression::Sizes;
pub use judge::{Judge, JudgeOptions, LaunchTimer, TimedLaunch};
pub use pool::{JudgePool, JudgePoolConfig, serve};
pub use task::{
    ArgList, ArgSource, ExpectedCase, ExtentList, JudgeProblem, JudgeTask, KernelLanguage, KernelSource, LaunchSpec,
    SizeChoice, SizeExpression,
};
pub use verdict::{Comparison, Difference, JudgeOutcome, Verdict};
