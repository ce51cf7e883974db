//! Shards: one file per split, and a record of their contents.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::time::Instant;

use bornite_parquet::{ColumnValue, TableWriter, zstd};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::dir::{self, DatasetDir, PendingFile};
use super::distinct_rows::CandidateCounts;
use super::record::columns;
use super::{Cell, Counts, DatasetFormat, DatasetSettings, Error, Result, RowRecord, SetHash, pairs};
use crate::Rejection;
use crate::coverage::OpTypePair;
use crate::verify::code::CodeFailure;

/// Splits, in file order.
pub(super) const SPLITS: [&str; 4] = ["train", "validation", "test", "held_out"];

/// A file of a dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRecord {
    /// Path within the folder.
    pub path: String,
    /// Split of the rows; for a single-row file, the split of that row.
    pub split: String,
    /// Number of rows.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// A row on which the compiler failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RowFailure {
    /// Row id.
    pub id: String,
    /// Kind of failure, as in the statistics.
    #[serde(alias = "why")]
    pub kind: String,
    /// Description of the failure.
    #[serde(alias = "what")]
    pub message: String,
}

/// Maximum number of compiler failures listed per shard; all are counted.
const MAX_LISTED_FAILURES: usize = 100;

/// Record of a finished shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardRecord {
    /// Shard number, from 0.
    pub shard: u32,
    /// Files of the shard.
    pub files: Vec<FileRecord>,
    /// Hash of its rows.
    pub hash: SetHash,
    /// Statistics of its rows.
    pub counts: Counts,
    /// Candidates tried up to the end of the shard.
    #[serde(alias = "reached")]
    pub candidate_counts: CandidateCounts,
    /// Time taken, in milliseconds.
    pub millis: u64,
    /// First rows on which the compiler failed.
    #[serde(default, alias = "lost")]
    pub compiler_failures: Vec<RowFailure>,
}

enum Sink {
    Table(TableWriter<PendingFile>),
    Lines(PendingFile),
}

struct OpenFile {
    path: String,
    sink: Sink,
    rows: u64,
}

impl Sink {
    fn push(&mut self, record: &RowRecord) -> io::Result<()> {
        match self {
            Sink::Table(writer) => {
                let value = |(_, cell)| match cell {
                    &Cell::Int(value) => ColumnValue::Int(value),
                    Cell::Text(text) => ColumnValue::Text(text),
                };
                writer.row(&record.cells().map(value).collect::<Vec<_>>())
            }
            Sink::Lines(part) => part.write_all(record.json().as_bytes()),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Sink::Table(writer) => writer.finish()?.finish(),
            Sink::Lines(part) => part.finish(),
        }
    }
}

/// Writes a shard.
pub(super) struct ShardWriter<'a> {
    dir: &'a DatasetDir,
    settings: &'a DatasetSettings,
    shard: u32,
    open: Vec<OpenFile>,
    files: Vec<FileRecord>,
    hash: SetHash,
    pub counts: Counts,
    compiler_failures: Vec<RowFailure>,
    started: Instant,
}

/// File name of a split, within the folder.
fn file_name(settings: &DatasetSettings, split: &str, shard: u32, extension: &str) -> String {
    format!("data/{split}-{shard:05}-of-{:05}.{extension}", settings.shards)
}

impl<'a> ShardWriter<'a> {
    pub(super) fn new(dir: &'a DatasetDir, settings: &'a DatasetSettings, shard: u32) -> Result<ShardWriter<'a>> {
        let mut open = vec![];
        if settings.format != DatasetFormat::SeedJson {
            for split in SPLITS {
                // Rows are written uncompressed first and compressed at the end.
                let extension =
                    if settings.format == DatasetFormat::JsonlZst { "jsonl" } else { settings.format.extension() };
                let path = file_name(settings, split, shard, extension);
                let part = dir.begin_file(&path)?;
                let sink = if settings.format == DatasetFormat::Parquet {
                    let writer = TableWriter::new(columns(settings), part);
                    Sink::Table(writer.map_err(Error::io("write", &dir.path(&path)))?)
                } else {
                    Sink::Lines(part)
                };
                open.push(OpenFile { path, sink, rows: 0 });
            }
        }
        let (files, hash, counts) = (vec![], SetHash::default(), Counts::default());
        Ok(ShardWriter {
            dir,
            settings,
            shard,
            open,
            files,
            hash,
            counts,
            compiler_failures: vec![],
            started: Instant::now(),
        })
    }

    /// Counts a rejected row.
    pub(super) fn reject(&mut self, id: String, why: &Rejection) {
        let reason = match why {
            Rejection::Cuda(_) => "cuda",
            Rejection::Python(_) => "python",
            Rejection::Undecided { .. } => "undecided",
            Rejection::Invalid(_) => "invalid",
            Rejection::LooseBound { .. } => "loose_bound",
            Rejection::ConstantOutput { .. } => "constant_output",
            Rejection::UnusedInput { .. } => "unused_input",
            Rejection::DeadCode(_) => "dead_code",
            Rejection::Compile(_) => "compile",
            Rejection::CompilerFailure { kind, .. } => kind,
            Rejection::Fault { .. } => "fault",
            Rejection::Mismatch { .. } => "mismatch",
        };
        self.counts.reject(reason);
        if let Rejection::CompilerFailure { kind, what } = why {
            self.record_failure(id, &CodeFailure { why: (*kind).into(), what: what.clone() });
        }
    }

    /// Lists a row on which the compiler failed.
    pub(super) fn record_failure(&mut self, id: String, failure: &CodeFailure) {
        if self.compiler_failures.len() < MAX_LISTED_FAILURES {
            self.compiler_failures.push(RowFailure { id, kind: failure.why.clone(), message: failure.what.clone() });
        }
    }

    /// Writes a row; `number` is the number of its program.
    pub(super) fn push(&mut self, record: &RowRecord, pairs: &[OpTypePair], hash: SetHash, number: u64) -> Result<()> {
        self.hash.add(hash);
        self.counts.add(record, pairs);
        let split = record.text("split");
        let Some(split_index) = SPLITS.iter().position(|name| *name == split).filter(|n| *n < self.open.len()) else {
            let path = pairs::file_name(number);
            let text = pairs::pair(record);
            self.dir.write_unsynced(&path, text.as_bytes())?;
            self.files.push(FileRecord {
                path,
                split: split.to_owned(),
                rows: 1,
                bytes: text.len() as u64,
                sha256: hex(&Sha256::digest(&text)),
            });
            return Ok(());
        };
        let OpenFile { path, sink, rows } = &mut self.open[split_index];
        *rows += 1;
        sink.push(record).map_err(Error::io("write", &self.dir.path(path)))
    }

    /// Finishes all files; they exist under their final names when this returns.
    pub(super) fn finish(mut self, reached: CandidateCounts) -> Result<ShardRecord> {
        for (open, split) in self.open.into_iter().zip(SPLITS) {
            let OpenFile { mut path, sink, rows } = open;
            sink.finish().map_err(Error::io("write", &self.dir.path(&path)))?;
            if self.settings.format == DatasetFormat::JsonlZst {
                let plain = self.dir.path(&path);
                path = file_name(self.settings, split, self.shard, self.settings.format.extension());
                let mut part = self.dir.begin_file(&path)?;
                let from = BufReader::new(dir::open(&plain)?.0);
                let packed = zstd::compress(from, &mut part).and_then(|()| part.finish());
                packed.map_err(Error::io("write", &self.dir.path(&path)))?;
                std::fs::remove_file(&plain).map_err(Error::io("remove", &plain))?;
            }
            let (bytes, sha256) = checksum(&self.dir.path(&path))?;
            self.files.push(FileRecord { path, split: split.to_owned(), rows, bytes, sha256 });
        }
        let ShardWriter { shard, files, hash, counts, compiler_failures: lost, started, .. } = self;
        Ok(ShardRecord {
            shard,
            files,
            hash,
            counts,
            candidate_counts: reached,
            millis: started.elapsed().as_millis() as u64,
            compiler_failures: lost,
        })
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Size and SHA-256 of a file.
pub(super) fn checksum(path: &Path) -> Result<(u64, String)> {
    let (mut file, _) = dir::open(path)?;
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = file.read(&mut buffer).map_err(Error::io("read", path))?;
        if count == 0 {
            return Ok((bytes, hex(&hash.finalize())));
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
    }
}

/// Returns why a file differs from what was written; `None` if it is intact.
pub(super) fn damage(dir: &DatasetDir, file: &FileRecord) -> Option<String> {
    let path = dir.path(&file.path);
    if let Ok(metadata) = std::fs::metadata(&path)
        && metadata.is_file()
        && metadata.len() != file.bytes
    {
        return Some(format!("the file has {} bytes, but {} were written", metadata.len(), file.bytes));
    }
    match checksum(&path) {
        Err(Error::Damaged { what, .. }) => Some(what),
        Err(Error::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => {
            Some("the file is missing".into())
        }
        Err(error) => Some(error.to_string()),
        Ok((_, sha256)) if sha256 != file.sha256 => Some("the checksum does not match".into()),
        Ok(_) => None,
    }
}
