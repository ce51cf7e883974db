//! A dataset that is done, read row by row.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bornite_parquet::{Error as TableError, Table, Value};
use bornite_support::input_limit;

use super::place::open;
use super::{Cell, Error, Format, Manifest, Place, Record, Result};

/// A dataset that is done.
pub struct Dataset {
    pub(super) place: Place,
    /// What it is.
    pub manifest: Manifest,
}

impl Dataset {
    /// Opens the dataset of a folder.
    pub fn open(folder: &Path) -> Result<Dataset> {
        if !folder.is_dir() {
            return Err(Error::Asked(format!("{} is not a folder", folder.display())));
        }
        let place = Place::new(folder);
        match Manifest::read(&place)? {
            Some(manifest) => Ok(Dataset { place, manifest }),
            None if place.path(".making").is_dir() => Err(Error::Asked(format!(
                "the dataset in {0} is not finished: go on with `bornite data make --resume --out {0}`",
                folder.display()
            ))),
            None => Err(Error::Asked(format!("there is no dataset in {}: it has no manifest.json", folder.display()))),
        }
    }

    /// The path of a file of the dataset.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    /// Calls `see` with every row, shard by shard and split by split, until it says `false`.
    pub fn each(&self, see: &mut dyn FnMut(Record) -> Result<bool>) -> Result<()> {
        for file in self.manifest.shards.iter().flat_map(|shard| &shard.files) {
            let mut more = true;
            self.each_of(&file.path, &mut |record| {
                more = see(record)?;
                Ok(more)
            })?;
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Calls `see` with every row of a file, until it says `false`.
    pub(super) fn each_of(&self, file: &str, see: &mut dyn FnMut(Record) -> Result<bool>) -> Result<()> {
        let path = self.place.path(file);
        match self.manifest.settings.format {
            Format::Parquet => table(&path, see),
            Format::Jsonl => lines(&path, BufReader::new(open(&path)?.0), see),
            Format::JsonlZst => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(BufReader::new(open(&path)?.0))
                    .map_err(|error| Error::damaged(&path, format!("it is not zstd: {error}")))?;
                lines(&path, BufReader::new(decoder), see)
            }
            Format::SeedJson => Ok(()),
        }
    }

    /// The row of an id, of a number, or of a kernel's name.
    pub fn find(&self, id: &str) -> Result<Option<Record>> {
        let mut found = None;
        let number = id.parse::<u64>().ok();
        self.each(&mut |record| {
            let same = record.text("id") == id
                || number == Some(record.int("index"))
                || number.is_none() && record.text("name") == id;
            if same {
                found = Some(record);
            }
            Ok(!same)
        })?;
        Ok(found)
    }
}

/// Largest line of a row, or pair in a file of its own: a sixteenth of the limit, since a tree of JSON takes up to ten times
/// the memory of its text.
pub(super) fn row_limit() -> Result<u64> {
    Ok(input_limit()? / 16)
}

/// Calls `see` with every row of a Parquet file, until it says `false`.
fn table(path: &Path, see: &mut dyn FnMut(Record) -> Result<bool>) -> Result<()> {
    let wrong = |error: TableError| match error {
        TableError::Io(cause) => Error::io("read", path)(cause),
        TableError::Unsupported(what) => {
            Error::damaged(path, format!("{what}: this Parquet file was not written by `bornite data`"))
        }
        error => Error::damaged(path, error.to_string()),
    };
    let table = Table::open(open(path)?.0, input_limit()?).map_err(wrong)?;
    let names: Vec<String> = table.columns().map(str::to_owned).collect();
    let mut rows = table.rows().map_err(wrong)?;
    while let Some(row) = rows.next_row().map_err(wrong)? {
        let cells = row.into_iter().map(|value| match value {
            Value::Text(text) => text.into(),
            Value::Int(value) => Cell::Int(value),
        });
        if !see(Record::of(&names, cells.collect()))? {
            break;
        }
    }
    Ok(())
}

fn lines(path: &Path, mut from: impl BufRead, see: &mut dyn FnMut(Record) -> Result<bool>) -> Result<()> {
    let (longest, mut line) = (row_limit()?, vec![]);
    for n in 1u64.. {
        line.clear();
        let read = from.by_ref().take(longest).read_until(b'\n', &mut line).map_err(Error::io("read", path))?;
        if read == 0 {
            break;
        }
        if read as u64 == longest {
            return Err(Error::too_large(path, &format!("line {n} has"), longest));
        }
        let text = str::from_utf8(line.trim_ascii_end()).map_err(|error| error.to_string());
        let record = text.and_then(Record::from_json);
        if !see(record.map_err(|what| Error::damaged(path, format!("line {n}: {what}")))?)? {
            break;
        }
    }
    Ok(())
}
