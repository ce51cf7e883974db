//! Training: optimizer steps and the training loop.
//!
//! `builder.rs` and `optimizer_state.rs` have the optimizers, `compiled_step.rs` a training step of
//! any model, `pending.rs` its result, `fit.rs` the loop over epochs, `evaluate.rs` metrics.
//! `images/` trains image classifiers by it.
//! `engine.rs` and `step_traces.rs` run the steps, `data_parallel.rs` connects ranks. `prepare.rs`
//! and `run.rs` are the loop of `bornite train`, which reports to an `observer.rs`; of several
//! ranks, one reports: `rank_observer.rs`. `config.rs`, `keys.rs` and `model.rs` are the settings;
//! `folder.rs`, `metrics.rs`, `events.rs` and `plot.rs` write the run's folder; `workload.rs`
//! estimates memory and flops; `benchmark.rs` times steps. Nothing here prints: callers pass an
//! [`Observer`].

mod benchmark;
mod builder;
mod compiled_step;
mod config;
mod data_parallel;
mod engine;
mod evaluate;
mod events;
mod fit;
mod folder;
mod gpu_time;
mod gradient_exchange;
mod images;
mod keys;
#[cfg(test)]
mod launch_tests;
mod metrics;
mod model;
mod observer;
mod optimizer_state;
mod pending;
mod plot;
mod precision;
mod prepare;
mod rank_observer;
mod run;
mod step_traces;
mod tuning;
mod workload;

pub use benchmark::{StepBenchmark, benchmark_steps};
pub use builder::{
    Adagrad, AdagradAlgorithm, Adam, AdamAlgorithm, AdamW, AdamWAlgorithm, AnyAlgorithm, AnyOptimizer, Muon,
    MuonAlgorithm, OptimizerAlgorithm, OptimizerBuilder, RmsProp, RmsPropAlgorithm, Sgd, SgdAlgorithm,
};
pub use compiled_step::TrainStep;
pub use config::{
    DataSection, ModelSection, OptimizerSection, PositionSetting, RunConfig, ScheduleSection, TrainSection,
};
pub use data_parallel::DataParallel;
pub use evaluate::{BatchIterator, BatchSource, evaluate};
pub use fit::{EarlyStopping, EpochReport, Fit, FitEvent, FitReport};
pub use folder::{TrainedModel, named_tokenizer};
pub use images::{
    ImageEvaluation, ImageRun, ImageRunInfo, ImageRunSummary, TrainedImages, WrongImage, train_images, write_report,
};
pub use keys::{ConfigKey, KEYS, RETIRED_KEYS, ValueKind};
pub use metrics::{StepMetrics, read_metrics};
pub use observer::{Observer, RunInfo, RunSummary, TrainEvent};
pub use pending::{PendingStep, StepResult};
pub use precision::{LossScale, Precision};
pub use run::{run, run_data_parallel};
pub use workload::{
    MemoryEstimate, Workload, address_space_limit, available_bytes, flops_per_token, format_bytes, parameter_count,
    peak_flops,
};
