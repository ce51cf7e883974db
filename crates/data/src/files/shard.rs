//! Shards: one file per split, and a record of their contents.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::time::Instant;

use bornite_parquet::{TableWriter, Value, zstd};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::place::{self, Part, Place};
use super::plan::Reached;
use super::record::columns;
use super::{Cell, Counts, Error, Format, Record, Result, SetHash, Settings, pairs};
use crate::Rejected;
use crate::coverage::Pair;
use crate::verify::code::Missed;

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
pub struct Lost {
    /// Row id.
    pub id: String,
    /// Kind of failure, as in the statistics.
    pub why: String,
    /// Description of the failure.
    pub what: String,
}

/// Maximum number of compiler failures listed per shard; all are counted.
const MOST_LOST: usize = 100;

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
    pub reached: Reached,
    /// Time taken, in milliseconds.
    pub millis: u64,
    /// First rows on which the compiler failed.
    #[serde(default)]
    pub lost: Vec<Lost>,
}

enum Sink {
    Table(TableWriter<Part>),
    Lines(Part),
}

struct Open {
    path: String,
    sink: Sink,
    rows: u64,
}

impl Sink {
    fn push(&mut self, record: &Record) -> io::Result<()> {
        match self {
            Sink::Table(writer) => {
                let value = |(_, cell)| match cell {
                    &Cell::Int(value) => Value::Int(value),
                    Cell::Text(text) => Value::Text(text),
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
pub(super) struct Writer<'a> {
    place: &'a Place,
    settings: &'a Settings,
    shard: u32,
    open: Vec<Open>,
    files: Vec<FileRecord>,
    hash: SetHash,
    pub counts: Counts,
    lost: Vec<Lost>,
    started: Instant,
}

/// File name of a split, within the folder.
fn file_name(settings: &Settings, split: &str, shard: u32, extension: &str) -> String {
    format!("data/{split}-{shard:05}-of-{:05}.{extension}", settings.shards)
}

impl<'a> Writer<'a> {
    pub(super) fn new(place: &'a Place, settings: &'a Settings, shard: u32) -> Result<Writer<'a>> {
        let mut open = vec![];
        if settings.format != Format::SeedJson {
            for split in SPLITS {
                // Rows are written uncompressed first and compressed at the end.
                let extension = if settings.format == Format::JsonlZst { "jsonl" } else { settings.format.extension() };
                let path = file_name(settings, split, shard, extension);
                let part = place.begin_file(&path)?;
                let sink = if settings.format == Format::Parquet {
                    let writer = TableWriter::new(columns(settings), part);
                    Sink::Table(writer.map_err(Error::io("write", &place.path(&path)))?)
                } else {
                    Sink::Lines(part)
                };
                open.push(Open { path, sink, rows: 0 });
            }
        }
        let (files, hash, counts) = (vec![], SetHash::default(), Counts::default());
        Ok(Writer { place, settings, shard, open, files, hash, counts, lost: vec![], started: Instant::now() })
    }

    /// Counts a rejected row.
    pub(super) fn reject(&mut self, id: String, why: &Rejected) {
        let reason = match why {
            Rejected::Text(_) => "text",
            Rejected::Source(_) => "source",
            Rejected::Undecided { .. } => "undecided",
            Rejected::Invalid(_) => "invalid",
            Rejected::Blunt { .. } => "blunt",
            Rejected::Constant { .. } => "constant",
            Rejected::Unused { .. } => "unused",
            Rejected::Dead(_) => "dead",
            Rejected::Compile(_) => "compile",
            Rejected::Compiler { kind, .. } => kind,
            Rejected::Report { .. } => "report",
            Rejected::Differs { .. } => "differs",
        };
        self.counts.reject(reason);
        if let Rejected::Compiler { kind, what } = why {
            self.lose(id, &Missed { why: (*kind).into(), what: what.clone() });
        }
    }

    /// Lists a row on which the compiler failed.
    pub(super) fn lose(&mut self, id: String, missed: &Missed) {
        if self.lost.len() < MOST_LOST {
            self.lost.push(Lost { id, why: missed.why.clone(), what: missed.what.clone() });
        }
    }

    /// Writes a row; `number` is the number of its program.
    pub(super) fn push(&mut self, record: &Record, pairs: &[Pair], hash: SetHash, number: u64) -> Result<()> {
        self.hash.add(hash);
        self.counts.add(record, pairs);
        let split = record.text("split");
        let Some(split_index) = SPLITS.iter().position(|name| *name == split).filter(|n| *n < self.open.len()) else {
            let path = pairs::file_name(number);
            let text = pairs::pair(record);
            self.place.write_unsynced(&path, text.as_bytes())?;
            self.files.push(FileRecord {
                path,
                split: split.to_owned(),
                rows: 1,
                bytes: text.len() as u64,
                sha256: hex(&Sha256::digest(&text)),
            });
            return Ok(());
        };
        let Open { path, sink, rows } = &mut self.open[split_index];
        *rows += 1;
        sink.push(record).map_err(Error::io("write", &self.place.path(path)))
    }

    /// Finishes all files; they exist under their final names when this returns.
    pub(super) fn finish(mut self, reached: Reached) -> Result<ShardRecord> {
        for (open, split) in self.open.into_iter().zip(SPLITS) {
            let Open { mut path, sink, rows } = open;
            sink.finish().map_err(Error::io("write", &self.place.path(&path)))?;
            if self.settings.format == Format::JsonlZst {
                let plain = self.place.path(&path);
                path = file_name(self.settings, split, self.shard, self.settings.format.extension());
                let mut part = self.place.begin_file(&path)?;
                let from = BufReader::new(place::open(&plain)?.0);
                let packed = zstd::compress(from, &mut part).and_then(|()| part.finish());
                packed.map_err(Error::io("write", &self.place.path(&path)))?;
                std::fs::remove_file(&plain).map_err(Error::io("remove", &plain))?;
            }
            let (bytes, sha256) = checksum(&self.place.path(&path))?;
            self.files.push(FileRecord { path, split: split.to_owned(), rows, bytes, sha256 });
        }
        let Writer { shard, files, hash, counts, lost, started, .. } = self;
        Ok(ShardRecord { shard, files, hash, counts, reached, millis: started.elapsed().as_millis() as u64, lost })
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Size and SHA-256 of a file.
pub(super) fn checksum(path: &Path) -> Result<(u64, String)> {
    let (mut file, _) = place::open(path)?;
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
pub(super) fn damage(place: &Place, file: &FileRecord) -> Option<String> {
    let path = place.path(&file.path);
    if let Ok(metadata) = std::fs::metadata(&path)
        && metadata.is_file()
        && metadata.len() != file.bytes
    {
        return Some(format!("the file has {} bytes, but {} were written", metadata.len(), file.bytes));
    }
    match checksum(&path) {
        Err(Error::Damaged { what, .. }) => Some(what),
        Err(Error::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => Some("the file is missing".into()),
        Err(error) => Some(error.to_string()),
        Ok((_, sha256)) if sha256 != file.sha256 => Some("the checksum does not match".into()),
        Ok(_) => None,
    }
}
