//! Documents in one text column of a Parquet file.

use std::cell::Cell;

use bornite_parquet::{Error as TableError, TableReader};

use super::documents::{Sink, pieces};
use super::source::SourceFile;
use crate::tokenizer::PreTokenizer;
use crate::{Error, Result, files};

/// Texts between two updates of the position and checks for a stop.
const ROWS_PER_CHECK: u64 = 1 << 10;

/// Passes the texts of a column to `sink`, without nulls. Takes at most a few times `limit` bytes
/// of memory.
pub(super) fn read(
    source: &SourceFile,
    pre_tokenizer: PreTokenizer,
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
    let table = TableReader::open(file, limit).map_err(wrong)?;
    let mut texts = table.texts(&source.field).map_err(wrong)?;
    let (start, row_count, mut seen, mut row) = (position.get(), texts.row_count().max(1), 0u64, 0u64);
    while let Some(text) = texts.next_text().map_err(wrong)? {
        seen += 1;
        if seen.is_multiple_of(ROWS_PER_CHECK) || text.len() as u64 > ROWS_PER_CHECK {
            if stop() {
                return Err(Error::stopped());
            }
            // Estimated from the number of rows: the bytes of a row depend on the other columns.
            let done = u128::from(bytes) * u128::from((row + 1).min(row_count)) / u128::from(row_count);
            position.set(start + done as u64);
        }
        pieces(text, pre_tokenizer, sink)?;
        row = texts.row();
    }
    position.set(start + bytes);
    Ok(())
}
