//! Helpers: tables in memory and random numbers.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bornite_parquet::{ColumnType, ColumnValue, Result, TableReader, TableWriter};
use bornite_support::random::Random;

#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Text(String),
    Int(u64),
}

/// Random generator: a new seed for every run, repeatable with `BORNITE_TEST_SEED`.
pub fn random() -> Random {
    let from_environment = std::env::var("BORNITE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 =
        from_environment.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64));
    println!("BORNITE_TEST_SEED={seed}");
    Random::new(seed)
}

#[allow(dead_code)] // not used by all tests
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

/// Tables written by pyarrow, in every encoding and compression.
pub fn arrow() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/goldens/parquet")
}

/// Returns an open, unlinked file with these bytes.
pub fn file_of(bytes: &[u8]) -> File {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(bytes).unwrap();
    file
}

pub fn write_table(columns: &[(String, ColumnType)], rows: &[Vec<Cell>]) -> Vec<u8> {
    let mut writer = TableWriter::new(columns.iter().cloned(), vec![]).unwrap();
    for row in rows {
        let values = row.iter().map(|cell| match cell {
            Cell::Text(text) => ColumnValue::Text(text),
            Cell::Int(value) => ColumnValue::Int(*value),
        });
        writer.row(&values.collect::<Vec<_>>()).unwrap();
    }
    writer.finish().unwrap()
}

pub type TableContents = (Vec<String>, Vec<Vec<Cell>>);

pub fn read_rows(bytes: &[u8], limit_bytes: u64) -> Result<TableContents> {
    let table = TableReader::open(file_of(bytes), limit_bytes)?;
    let names = table.columns().map(str::to_owned).collect();
    let (mut rows, mut read) = (table.rows()?, vec![]);
    while let Some(row) = rows.next_row()? {
        let cells = row.into_iter().map(|value| match value {
            ColumnValue::Text(text) => Cell::Text(text.into()),
            ColumnValue::Int(value) => Cell::Int(value),
        });
        read.push(cells.collect());
    }
    Ok((names, read))
}
