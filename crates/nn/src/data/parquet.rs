//! Documents in one text column of a Parquet file.

use std::cell::Cell;

use bornite_parquet::{Error as TableError, Table};

use super::documents::{Sink, pieces};
use super::source::SourceFile;
use crate::tokenizer::Split;
use crate::{Error, Result, files};

/// Texts between two reports of the position, each of which asks for a stop.
const LOOK_ROWS: u64 = 1 << 10;

/// Hands the texts of a column to `sink`, without missing ones. A few times `limit` bytes are in memory at most.
pub(super) fn read(
    source: &SourceFile,
    split: Split,
    limit: u64,
    stop: &dyn Fn() -> bool,
    position: &Cell<u64>,
    sink: Sink<'_>,
) -> Result<()> {
    let path = &source.path;
    let (file, bytes) = files::open(path)?;
    let wrong = |error: TableError| match error {
        TableError::Io(error) => Error::io("read", path)(error),
        error => Error::file(path, error.to_string()),
    };
    let table = Table::open(file, limit).map_err(wrong)?;
    let mut texts = table.texts(&source.field).map_err(wrong)?;
    let (start, row_count, mut seen, mut row) = (position.get(), texts.row_count().max(1), 0u64, 0u64);
    while let Some(text) = texts.next_text().map_err(wrong)? {
        seen += 1;
        if seen.is_multiple_of(LOOK_ROWS) || text.len() as u64 > LOOK_ROWS {
            if stop() {
                return Err(Error::stopped());
            }
            // In proportion to the rows, with this one: where their bytes are depends on the other columns.
            let part = u128::from(bytes) * u128::from((row + 1).min(row_count)) / u128::from(row_count);
            position.set(start + part as u64);
        }
        pieces(text, split, sink)?;
        row = texts.row();
    }
    position.set(start + bytes);
    Ok(())
}
