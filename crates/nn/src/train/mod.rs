//! Training: optimizer steps and the training loop.
//!
//! `learner.rs` runs steps and knows nothing about files or time; `prepare.rs` and `run.rs` are the
//! loop around it. `config.rs`, `keys.rs` and `model.rs` are the settings; `folder.rs`,
//! `metrics.rs`, `events.rs` and `plot.rs` write the run's folder; `workload.rs` estimates memory
//! and flops; `benchmark.rs` times steps. Nothing here prints: callers pass an [`Observer`].

mod benchmark;
mod config;
mod events;
mod folder;
mod gpu_time;
mod keys;
mod learner;
mod metrics;
mod model;
mod plot;
mod precision;
mod prepare;
mod run;
mod tuning;
mod workload;

pub use benchmark::{StepBenchmark, benchmark_steps};
pub use config::{
    DataSection, ModelSection, OptimizerSection, PositionSetting, RunConfig, ScheduleSection, TrainSection,
};
pub use folder::{TrainedModel, named_tokenizer};
pub use keys::{ConfigKey, KEYS, RETIRED_KEYS, ValueKind};
pub use learner::{Learner, LearnerOptions, PendingStep, StepResult};
pub use metrics::{StepMetrics, read_metrics};
pub use precision::{LossScale, Precision};
pub use run::{Observer, RunInfo, RunSummary, TrainEvent, run};
pub use workload::{
    MemoryEstimate, Workload, address_space_limit, available_bytes, flops_per_token, format_bytes, parameter_count,
    peak_flops,
};
