//! Datasets of kernels: random well-typed programs printed as Python, IR, CUDA C++ and C++, each
//! verified.
//!
//! | to see | look in |
//! |---|---|
//! | program trees and their printers | [`program`] |
//! | random program generation, category by category | [`mod@generate`] |
//! | the independent reference evaluator | [`evaluate`] |
//! | test inputs of a kernel | [`inputs`] |
//! | texts and metadata of a row | [`row`] |
//! | verification levels of a row: types, compile, run, gpu | [`mod@verify`] |
//! | coverage of operations by operand type | [`coverage`] |
//! | deduplication and splits | [`distinct`] |
//! | incorrect variants of rows | [`fault`] |
//! | rows from handwritten kernels | [`ingest`] |
//! | datasets as files: written, resumed, read, checked | [`files`] |
//! | prompt-answer pairs for training, and checks of answers | [`task`] |
//!
//! This crate must not know of training or the command line.
//!
//! ```
//! use bornite_data::{Category, Level, generate_in, verify};
//! let row = generate_in(7, 0, Category::ALL).unwrap();
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
pub use row::{Row, generate, generate_in};
pub use verify::{Level, Rejection, verify};
