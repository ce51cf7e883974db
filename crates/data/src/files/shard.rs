//! A shard: a file of each split, and a record of what is in them.

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

/// The splits, in the order of their files.
pub(super) const SPLITS: [&str; 4] = ["train", "validation", "test", "held_out"];

/// A file of a dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRecord {
    /// Within the folder.
    pub path: String,
    /// The split; of a file with one row, its own.
    pub split: String,
    /// Rows in it.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
}

/// A row that cost a compiler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lost {
    /// Its id.
    pub id: String,
    /// What happened, as statistics name it.
    pub why: String,
    /// What happened, in words.
    pub what: String,
}

/// Rows that are named as such in a shard; all are counted.
const MOST_LOST: usize = 100;

/// What is known of a shard that is done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardRecord {
    /// Its number, from 0.
    pub shard: u32,
    /// Its files.
    pub files: Vec<FileRecord>,
    /// Of its rows.
    pub hash: SetHash,
    /// Of its rows.
    pub counts: Counts,
    /// How far the plan was at its end.
    pub reached: Reached,
    /// Milliseconds that it took.
    pub millis: u64,
    /// The first rows that cost a compiler, and are left out.
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
    begun: Instant,
}

/// The file of a split, within the folder.
fn file_name(settings: &Settings, split: &str, shard: u32, ending: &str) -> String {
    format!("data/{split}-{shard:05}-of-{:05}.{ending}", settings.shards)
}

impl<'a> Writer<'a> {
    pub(super) fn new(place: &'a Place, settings: &'a Settings, shard: u32) -> Result<Writer<'a>> {
        let mut open = vec![];
        if settings.format != Format::SeedJson {
            for split in SPLITS {
                // What is compressed as a whole is first written as it is.
                let ending = if settings.format == Format::JsonlZst { "jsonl" } else { settings.format.ending() };
                let path = file_name(settings, split, shard, ending);
                let part = place.begin(&path)?;
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
        Ok(Writer { place, settings, shard, open, files, hash, counts, lost: vec![], begun: Instant::now() })
    }

    /// Leaves out a row that is none.
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

    /// Names a row that a compiler was lost on.
    pub(super) fn lose(&mut self, id: String, missed: &Missed) {
        if self.lost.len() < MOST_LOST {
            self.lost.push(Lost { id, why: missed.why.clone(), what: missed.what.clone() });
        }
    }

    /// Writes a row; `number` is that of its program.
    pub(super) fn push(&mut self, record: &Record, pairs: &[Pair], hash: SetHash, number: u64) -> Result<()> {
        self.hash.add(hash);
        self.counts.add(record, pairs);
        let split = record.text("split");
        let Some(at) = SPLITS.iter().position(|name| *name == split).filter(|at| *at < self.open.len()) else {
            let path = pairs::file_name(number);
            let text = pairs::pair(record);
            self.place.write_quickly(&path, text.as_bytes())?;
            self.files.push(FileRecord {
                path,
                split: split.to_owned(),
                rows: 1,
                bytes: text.len() as u64,
                sha256: hex(&Sha256::digest(&text)),
            });
            return Ok(());
        };
        let Open { path, sink, rows } = &mut self.open[at];
        *rows += 1;
        sink.push(record).map_err(Error::io("write", &self.place.path(path)))
    }

    /// Ends all files; they are there under their names when this returns.
    pub(super) fn finish(mut self, reached: Reached) -> Result<ShardRecord> {
        for (open, split) in self.open.into_iter().zip(SPLITS) {
            let Open { mut path, sink, rows } = open;
            sink.finish().map_err(Error::io("write", &self.place.path(&path)))?;
            if self.settings.format == Format::JsonlZst {
                let plain = self.place.path(&path);
                path = file_name(self.settings, split, self.shard, self.settings.format.ending());
                let mut part = self.place.begin(&path)?;
                let from = BufReader::new(place::open(&plain)?.0);
                let packed = zstd::compress(from, &mut part).and_then(|()| part.finish());
                packed.map_err(Error::io("write", &self.place.path(&path)))?;
                std::fs::remove_file(&plain).map_err(Error::io("remove", &plain))?;
            }
            let (bytes, sha256) = checksum(&self.place.path(&path))?;
            self.files.push(FileRecord { path, split: split.to_owned(), rows, bytes, sha256 });
        }
        let Writer { shard, files, hash, counts, lost, begun, .. } = self;
        Ok(ShardRecord { shard, files, hash, counts, reached, millis: begun.elapsed().as_millis() as u64, lost })
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

/// Why a file is not the one that was written; `None` if it is.
pub(super) fn wrong(place: &Place, file: &FileRecord) -> Option<String> {
    let path = place.path(&file.path);
    if let Ok(there) = std::fs::metadata(&path)
        && there.is_file()
        && there.len() != file.bytes
    {
        return Some(format!("it has {} bytes, {} were written", there.len(), file.bytes));
    }
    match checksum(&path) {
        Err(Error::Damaged { what, .. }) => Some(what),
        Err(Error::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => Some("it is missing".into()),
        Err(error) => Some(error.to_string()),
        Ok((_, sha256)) if sha256 != file.sha256 => Some("its checksum is not that of what was written".into()),
        Ok(_) => None,
    }
}
