//! Reads a finished dataset row by row.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bornite_parquet::{ColumnValue, Error as TableError, TableReader};
use bornite_support::input_limit;

use super::dir::open;
use super::{Cell, DatasetDir, DatasetFormat, DatasetManifest, Error, Result, RowRecord};

/// A finished dataset.
pub struct Dataset {
    pub(super) dir: DatasetDir,
    /// Manifest of the dataset.
    pub manifest: DatasetManifest,
}

impl Dataset {
    /// Opens the dataset in a folder.
    pub fn open(folder: &Path) -> Result<Dataset> {
        if !folder.is_dir() {
            return Err(Error::InvalidRequest(format!("{} is not a folder", folder.display())));
        }
        let dir = DatasetDir::new(folder);
        match DatasetManifest::read(&dir)? {
            Some(manifest) => Ok(Dataset { dir, manifest }),
            None if dir.path(".making").is_dir() => Err(Error::InvalidRequest(format!(
                "the dataset in {0} is not finished: resume it with `bornite data make --resume --out {0}`",
                folder.display()
            ))),
            None => Err(Error::InvalidRequest(format!(
                "{} contains no dataset: manifest.json is missing",
                folder.display()
            ))),
        }
    }

    /// Path of a file of the dataset.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path(name)
    }

    /// Calls `visit` with every row, shard by shard and split by split, until it returns `false`.
    pub fn for_each(&self, visit: &mut dyn FnMut(RowRecord) -> Result<bool>) -> Result<()> {
        for file in self.manifest.shards.iter().flat_map(|shard| &shard.files) {
            let mut more = true;
            self.for_each_in(&file.path, &mut |record| {
                more = visit(record)?;
                Ok(more)
            })?;
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with every row of a file, until it returns `false`.
    pub(super) fn for_each_in(&self, file: &str, visit: &mut dyn FnMut(RowRecord) -> Result<bool>) -> Result<()> {
        let path = self.dir.path(file);
        match self.manifest.settings.format {
            DatasetFormat::Parquet => table(&path, visit),
            DatasetFormat::Jsonl => lines(&path, BufReader::new(open(&path)?.0), visit),
            DatasetFormat::JsonlZst => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(BufReader::new(open(&path)?.0))
                    .map_err(|error| Error::damaged(&path, format!("not valid zstd: {error}")))?;
                lines(&path, BufReader::new(decoder), visit)
            }
            DatasetFormat::SeedJson => Ok(()),
        }
    }

    /// Finds the row with this id, row number or kernel name.
    pub fn find(&self, id: &str) -> Result<Option<RowRecord>> {
        let mut found = None;
        let number = id.parse::<u64>().ok();
        self.for_each(&mut |record| {
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

/// Maximum bytes of a JSON row or pair: a sixteenth of the input limit, since a JSON tree takes up
/// to ten times the memory of its text.
pub(super) fn row_limit() -> Result<u64> {
    Ok(input_limit()? / 16)
}

/// Calls `visit` with every row of a Parquet file, until it returns `false`.
fn table(path: &Path, visit: &mut dyn FnMut(RowRecord) -> Result<bool>) -> Result<()> {
    let convert = |error: TableError| match error {
        TableError::Io(cause) => Error::io("read", path)(cause),
        TableError::Unsupported(what) => {
            Error::damaged(path, format!("{what}: this Parquet file was not written by `bornite data`"))
        }
        error => Error::damaged(path, error.to_string()),
    };
    let table = TableReader::open(open(path)?.0, input_limit()?).map_err(convert)?;
    let names: Vec<String> = table.columns().map(str::to_owned).collect();
    let mut rows = table.rows().map_err(convert)?;
    while let Some(row) = rows.next_row().map_err(convert)? {
        let cells = row.into_iter().map(|value| match value {
            ColumnValue::Text(text) => text.into(),
            ColumnValue::Int(value) => Cell::Int(value),
        });
        if !visit(RowRecord::from_cells(&names, cells.collect()))? {
            break;
        }
    }
    Ok(())
}

fn lines(path: &Path, mut from: impl BufRead, visit: &mut dyn FnMut(RowRecord) -> Result<bool>) -> Result<()> {
    let (max_bytes, mut line) = (row_limit()?, vec![]);
    for n in 1u64.. {
        line.clear();
        let read = from.by_ref().take(max_bytes).read_until(b'\n', &mut line).map_err(Error::io("read", path))?;
        if read == 0 {
            break;
        }
        if read as u64 == max_bytes {
            return Err(Error::too_large(path, &format!("line {n} has"), max_bytes));
        }
        let text = str::from_utf8(line.trim_ascii_end()).map_err(|error| error.to_string());
        let record = text.and_then(RowRecord::from_json);
        if !visit(record.map_err(|what| Error::damaged(path, format!("line {n}: {what}")))?)? {
            break;
        }
    }
    Ok(())
}
