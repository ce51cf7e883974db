//! The measurement harness of `bornite bench`: times closures and reports the results as a table,
//! JSON or an HTML page.
//!
//! It knows nothing of tensors, kernels or GPUs: the caller passes an op, a function that waits for
//! it, and the bytes and flops of one call.
//!
//! | topic | items |
//! |---|---|
//! | timing | [`measure`](measure()), [`Config`] |
//! | statistics | [`Measurement`] |
//! | reports and their JSON | [`BenchReport`], [`BenchRow`], [`Machine`] |
//! | the text table | `table.rs`, by `Display` of [`BenchReport`] |
//! | the HTML page | [`BenchReport::html`] |
//! | comparison with PyTorch and others | [`peer`] |
//! | comparison with an earlier report | [`baseline`] |
//!
//! ```
//! use bornite_bench::{BenchReport, BenchRow, Config, Machine, measure, rotations};
//!
//! let sets = vec![vec![1.0_f32; 1 << 16]; rotations(4 << 16, 1 << 20)];
//! let mut total = 0.0;
//! let measurement = measure(
//!     &Config::quick(),
//!     |i| {
//!         total += sets[i % sets.len()].iter().sum::<f32>();
//!         Ok::<(), std::convert::Infallible>(())
//!     },
//!     || Ok(()), // a CPU op is done when it returns; on a GPU, wait for the stream here
//! )?;
//!
//! let mut report = BenchReport::new(Machine::detect(vec![]), Config::quick());
//! report.rows.push(BenchRow::new("sum_f32_65536", "cpu", measurement).with_bytes(4 << 16));
//! println!("{report}");
//! # Ok::<(), std::convert::Infallible>(())
//! ```

pub mod baseline;
mod error;
mod html;
mod measure;
mod measurement;
pub mod peer;
mod report;
mod row;
mod table;

pub use bornite_support::Machine;
pub use error::Error;
pub use measure::{Config, measure, rotations};
pub use measurement::Measurement;
pub use report::{BenchReport, FORMAT, PeakRates};
pub use row::{Accuracy, BaselineRatio, BenchRow, NaiveRatio, PeerRatio, StepPart, TrainingFigures};
