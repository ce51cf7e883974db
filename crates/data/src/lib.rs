//! Datasets of kernels: random well-typed programs, written as Python, IR, CUDA C++ and C++, each verified.
//!
//! | to see | look in |
//! |---|---|
//! | what a program is, and how it is printed | [`program`] |
//! | how programs are made, category by category | [`mod@generate`] |
//! | what a program computes, by a judge of its own | [`evaluate`] |
//! | what a kernel is given in a check | [`inputs`] |
//! | texts and metadata of a row | [`row`] |
//! | how a row is checked: types, run | [`mod@verify`] |
//! | which operations meet which types | [`coverage`] |
//! | which rows are alike | [`distinct`] |
//! | wrong twins of rows | [`fault`] |
//! | rows of kernels that people wrote | [`ingest`] |
//! | datasets as files: made, resumed, read, checked | [`files`] |
//! | short kernels to learn from, and what an answer is worth | [`task`] |
//!
//! This crate must not know of training or the command line.
//!
//! ```
//! use bornite_data::{Category, Level, make, verify};
//! let row = make(7, 0, Category::ALL).unwrap();
//! assert!(row.cuda.contains("__global__"));
//! verify(&row, Level::Run).unwrap();
//! ```

mod category;
pub mod coverage;
pub mod distinct;
pub mod evaluate;
pub mod fault;
pub mod files;
pub mod generate;
pub mod ingest;
pub mod inputs;
pub mod program;
pub mod row;
pub mod task;
pub mod verify;

pub use bornite_support::random::Random;
pub use category::Category;
pub use row::{Row, generate, make};
pub use verify::{Level, Rejected, verify};
