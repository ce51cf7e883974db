//! Foundation of the CPU and GPU parts of Bornite: settings of the process, logging, the profiler,
//! the tuner, atomic file writes, limits on input, parts of jobs, progress displays, charts and
//! pages of reports.
//!
//! Nothing here knows of kernels, tensors or CUDA.

pub mod cache;
pub mod chart;
mod error;
pub mod files;
mod input;
pub mod log;
mod machine;
pub mod memory;
mod names;
pub mod page;
mod part;
pub mod profile;
pub mod progress;
pub mod random;
pub mod settings;
mod size;
pub mod tune;
mod wait;
pub mod worker;

#[doc(hidden)]
pub use tracing;

pub use error::{Error, Result};
pub use input::{INPUT_LIMIT_VARIABLE, input_limit, set_input_limit};
pub use machine::Machine;
pub use names::{MAX_LISTED, list_names, quoted};
pub use part::JobPart;
pub use size::{format_bytes, parse_bytes};
pub use wait::{device_wait_time, time_device_wait};
