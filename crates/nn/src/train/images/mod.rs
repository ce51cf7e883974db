//! Training of image classifiers in a run's folder, and trained classifiers.
//!
//! `run.rs` trains by [`Fit`](super::Fit), with the settings of `settings.rs`; `trained.rs` loads a
//! run and predicts; `evaluation.rs` counts confusions of classes, and `report.rs` writes a page
//! with them and the images that were classified wrongly. Text is trained by `../run.rs`.

mod evaluation;
mod report;
mod run;
mod settings;
mod trained;

pub use evaluation::{ImageEvaluation, WrongImage};
pub use report::write_report;
pub use run::{ImageRunInfo, ImageRunSummary, train_images};
pub use trained::{ImageRun, TrainedImages};
