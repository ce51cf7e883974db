//! Training: what changes a model's parameters, and the run around it.
//!
//! `learner.rs` makes steps and knows nothing of files or time; `prepare.rs` and `run.rs` are the loop around it; `config.rs` and `keys.rs` are
//! what a run is told; `folder.rs` is what it leaves behind, with `metrics.rs`, `events.rs` and `plot.rs`.

mod config;
mod estimate;
mod events;
mod folder;
mod keys;
mod learner;
mod metrics;
mod model;
mod plot;
mod precision;
mod prepare;
mod run;

pub use config::{DataSection, ModelSection, OptimiserSection, Position, RateSection, RunConfig, TrainSection};
pub use estimate::{Load, Memory, address_space, available, flops_a_token, parameters, peak_flops, size};
pub use folder::{Trained, named_tokenizer};
pub use keys::{KEYS, Key, Kind};
pub use learner::{Learner, Learning, Measured, Outcome};
pub use metrics::{Line, lines};
pub use precision::{LossScale, Precision};
pub use run::{Beginning, Event, Finished, Observer, run};
