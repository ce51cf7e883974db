//! Datasets as files: a folder that is made shard by shard, resumed, read and checked.
//!
//! | to see | look in |
//! |---|---|
//! | what decides a dataset | [`Settings`] |
//! | how rows are made, compared and written | `make.rs`, which takes rows from `plan.rs` and gives them to `shard.rs` |
//! | the columns of a row, its line of JSON and its hash | [`Record`]; columns on request: [`Extra`] |
//! | how rows are checked and compiled meanwhile | `judge.rs` |
//! | Parquet and zstd | [`bornite_parquet`] |
//! | pairs as single JSON files, and checks of such pairs from elsewhere | `pairs.rs`, `structure.rs` |
//! | what stands in the folder beside the rows | `finish.rs`, `card.rs`, `page.rs`, `counts.rs`, `coverage.rs` |
//! | who may write | `claim.rs` |
//! | datasets read back | [`Dataset`], `check.rs` |
//!
//! A file appears whole, by rename. A shard is done once its record is there, and the dataset once `manifest.json` is.

mod card;
mod check;
mod claim;
mod counts;
mod coverage;
mod extra;
mod finish;
mod ingested;
mod judge;
mod make;
mod page;
mod pairs;
mod place;
mod plan;
mod read;
mod record;
mod settings;
mod shard;
mod structure;

pub use check::{Finding, Report, check};
pub use counts::Counts;
pub use coverage::coverage;
pub use extra::Extra;
pub use finish::Manifest;
pub use ingested::{duplicates, write_ingested};
pub use make::{Asked, Made, Part, Progress, make, settings};
pub use pairs::{check_pairs, is_pairs};
pub use place::Place;
pub use plan::Reached;
pub use read::Dataset;
pub use record::{Cell, Record, SetHash};
pub use settings::{Format, Settings, nearest_name};
pub use shard::{FileRecord, Lost, ShardRecord};
pub use structure::{PairReport, StructureCheck, check_pair};

use std::path::{Path, PathBuf};

use bornite_support::INPUT_LIMIT_VARIABLE;

/// What went wrong with a dataset.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be.
    #[error("{0}")]
    Asked(String),
    /// A file or folder could not be read or written.
    #[error("could not {what} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        cause: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A setting.
    #[error(transparent)]
    Support(#[from] bornite_support::Error),
    /// Of NVRTC or a GPU.
    #[error(transparent)]
    Cuda(#[from] bornite_cuda::Error),
    /// Of processes that compile.
    #[error("{0}")]
    Worker(String),
    /// It was asked to stop; what is done is kept.
    #[error("stopped")]
    Stopped,
}

impl Error {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |cause| Error::Io { what, path: path.into(), cause }
    }

    /// A part of a file that would take more memory than it may.
    fn too_large(path: &Path, what: &str, limit: u64) -> Error {
        let what = format!("{what} more than {limit} bytes; raise {INPUT_LIMIT_VARIABLE} if you trust the file");
        Error::damaged(path, what)
    }

    fn damaged(path: &Path, what: impl Into<String>) -> Error {
        Error::Damaged { path: path.into(), what: what.into() }
    }
}

type Result<T> = std::result::Result<T, Error>;
