//! One column of text of a Parquet file.
//!
//! Just what that takes, and it is little: the footer (`footer.rs`, in Thrift's compact protocol, `thrift.rs`), pages
//! (`page.rs`) and the encodings that strings have in them (`values.rs`). The crate `parquet` reads everything else too, but
//! for Snappy, the compression that most files have, it needs a crate under a licence that deny.toml does not allow.
//!
//! Files come from anywhere: every length is compared with what is there before it is believed.

mod compression;
mod footer;
mod page;
mod thrift;
mod values;

use std::cell::Cell;

use bornite_support::INPUT_LIMIT_VARIABLE;

use super::documents::{Sink, pieces};
use super::source::SourceFile;
use crate::tokenizer::Split;
use crate::train::size;
use crate::{Error, Result, files};

/// What is wrong with a file, without its name.
type Wrong = String;
type Checked<T> = std::result::Result<T, Wrong>;

/// Text of a file may have this many times the bytes of the file: a dictionary repeats texts at a bit or less each.
const MOST_EXPANSION: u64 = 1000;
/// Bytes that every text counts as in addition to its own: there may be very many empty ones.
const TEXT_BYTES: u64 = 64;
/// Texts between two reports of the position, each of which asks for a stop.
const LOOK_ROWS: u64 = 1 << 10;

fn too_large(what: &str, limit: u64) -> Wrong {
    format!("{what}, more than {}; raise {INPUT_LIMIT_VARIABLE} if you trust the file", size(limit.into()))
}

/// Hands the texts of a column to `sink`, those that are there. No more than a few times `limit` bytes are in memory.
pub(super) fn read(
    source: &SourceFile,
    split: Split,
    limit: u64,
    stop: &dyn Fn() -> bool,
    position: &Cell<u64>,
    sink: Sink<'_>,
) -> Result<()> {
    let (path, column) = (&source.path, &source.field);
    let (file, bytes) = files::open(path)?;
    let wrong = |what: Wrong| Error::file(path, what);
    let found = footer::read(&file, column, limit / 4).map_err(wrong)?;
    let most = limit.max(bytes.saturating_mul(MOST_EXPANSION));
    let rows = found.chunks.iter().fold(0u64, |sum, chunk| sum.saturating_add(chunk.values)).max(1);
    let start = position.get();
    let (mut row, mut seen, mut total) = (0u64, 0u64, 0u64);
    for chunk in &found.chunks {
        let mut pages = page::Pages::new(&file, chunk, found.optional, limit);
        while let Some(page) = pages.next().map_err(wrong)? {
            let mut texts = page.texts(pages.dictionary()).map_err(wrong)?;
            while let Some(text) = texts.next().map_err(wrong)? {
                total = total.saturating_add(text.len() as u64 + TEXT_BYTES);
                if total > most {
                    let what = format!("its {bytes} bytes decompress to more than {} of text", size(most.into()));
                    return Err(wrong(too_large(&what, limit)));
                }
                seen += 1;
                if seen.is_multiple_of(LOOK_ROWS) || text.len() as u64 > LOOK_ROWS {
                    if stop() {
                        return Err(Error::stopped());
                    }
                    // As far as the rows are, with this one: where their bytes are depends on the other columns.
                    let part = u128::from(bytes) * u128::from((row + 1).min(rows)) / u128::from(rows);
                    position.set(start + part as u64);
                }
                match std::str::from_utf8(text) {
                    Ok(text) => pieces(text, split, sink)?,
                    Err(_) => {
                        let row = row + texts.take_skipped();
                        return Err(wrong(format!("row {row} of the column '{column}' is not UTF-8 text")));
                    }
                }
                row += 1 + texts.take_skipped();
            }
            row += texts.take_skipped();
        }
    }
    position.set(start + bytes);
    Ok(())
}
