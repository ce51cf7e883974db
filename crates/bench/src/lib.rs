//! The measurement harness behind `bornite bench`: it times closures, and turns the times into a
//! report that people and programs can read.
//!
//! It must not know tensors, kernels or GPUs. A caller passes an op, a way to wait for it, and the
//! bytes and flops that one call moves; everything else is arithmetic on times.
//!
//! | to see | look in |
//! |---|---|
//! | how a call is timed | [`measure`](measure()), [`Config`] |
//! | what is kept of the times | [`Measurement`] |
//! | what a report holds, its JSON and its format | [`Report`], [`Row`], [`Machine`] |
//! | the text table | `table.rs`, by `Display` of [`Report`] |
//! | ratios against PyTorch and others | [`peer`] |
//!
//! ```
//! use bornite_bench::{Config, Machine, Report, Row, measure, rotations};
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
//! let mut report = Report::new(Machine::detect(vec![]), Config::quick());
//! report.rows.push(Row::new("sum_f32_65536", "cpu", measurement).with_bytes(4 << 16));
//! println!("{report}");
//! # Ok::<(), std::convert::Infallible>(())
//! ```

mod error;
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
pub use report::{FORMAT, Report};
pub use row::{PeerRatio, Row};
