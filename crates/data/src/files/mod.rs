//! Datasets on disk: a folder that is written shard by shard, resumed, read and checked.
//!
//! | to see | look in |
//! |---|---|
//! | settings that determine the rows | [`DatasetSettings`] |
//! | generating, deduplicating and writing rows | `make.rs`, which takes rows from `distinct_rows.rs` and passes them to `shard.rs` |
//! | columns, JSON line and hash of a row | [`RowRecord`]; extra columns: [`ExtraColumn`] |
//! | checking and compiling rows before they are written | `row_checker.rs` |
//! | Parquet and zstd | [`bornite_parquet`] |
//! | pairs as single JSON files, and structure checks of such pairs | `pairs.rs`, `structure.rs` |
//! | files next to the rows | `finish.rs`, `card.rs`, `html_report.rs`, `counts.rs`, `coverage.rs` |
//! | locks between processes | `claim.rs` |
//! | reading and checking a dataset | [`Dataset`], `check.rs` |
//!
//! Every file is written atomically, by rename. A shard is complete once its record exists, and the
//! dataset once `manifest.json` exists.

mod card;
mod check;
mod claim;
mod counts;
mod coverage;
mod dir;
mod distinct_rows;
mod extra;
mod finish;
mod html_report;
mod ingested;
mod make;
mod pairs;
mod read;
mod record;
mod row_checker;
mod settings;
mod shard;
mod structure;

pub use bornite_support::JobPart;
pub use check::{CheckReport, Finding, check};
pub use counts::Counts;
pub use coverage::coverage;
pub use dir::DatasetDir;
pub use distinct_rows::CandidateCounts;
pub use extra::ExtraColumn;
pub use finish::DatasetManifest;
pub use ingested::{duplicates, write_ingested};
pub use make::{MakeOptions, MakeOutcome, MakeProgress, make, settings};
pub use pairs::{check_pairs, is_pairs};
pub use read::Dataset;
pub use record::{Cell, RowRecord, SetHash};
pub use settings::{DatasetFormat, DatasetSettings, nearest_name};
pub use shard::{FileRecord, RowFailure, ShardRecord};
pub use structure::{PairReport, StructureCheck, check_pair};

use std::path::{Path, PathBuf};

use bornite_support::INPUT_LIMIT_VARIABLE;

/// Errors of datasets on disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is invalid.
    #[error("{0}")]
    InvalidRequest(String),
    /// A file or folder could not be read or written.
    #[error("could not {what} {}: {cause}", path.display())]
    Io {
        /// Attempted action.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        cause: std::io::Error,
    },
    /// A file has invalid contents.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        what: String,
    },
    /// Invalid setting of the process.
    #[error(transparent)]
    Support(#[from] bornite_support::Error),
    /// NVRTC or GPU error.
    #[error(transparent)]
    Cuda(#[from] bornite_cuda::Error),
    /// Error of a compiler worker.
    #[error("{0}")]
    Worker(String),
    /// The run was asked to stop; finished shards are kept.
    #[error("stopped")]
    Stopped,
}

impl Error {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |cause| Error::Io { what, path: path.into(), cause }
    }

    /// Part of a file that exceeds the input limit.
    fn too_large(path: &Path, what: &str, limit: u64) -> Error {
        let what = format!("{what} more than {limit} bytes; raise {INPUT_LIMIT_VARIABLE} if you trust the file");
        Error::damaged(path, what)
    }

    fn damaged(path: &Path, what: impl Into<String>) -> Error {
        Error::Damaged { path: path.into(), what: what.into() }
    }
}

type Result<T> = std::result::Result<T, Error>;
