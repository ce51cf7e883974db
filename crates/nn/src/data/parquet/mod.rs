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

use std::fs::File;
use std::path::Path;

use super::documents::{Piece, Sink};
use crate::{Error, Result};

/// What is wrong with a file, without its name.
type Wrong = String;
type Checked<T> = std::result::Result<T, Wrong>;

/// Hands the texts of a column to `sink`, those that are there.
pub(super) fn read(path: &Path, column: &str, sink: Sink<'_>) -> Result<()> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let wrong = |what: Wrong| Error::file(path, what);
    let found = footer::read(&file, column).map_err(wrong)?;
    let mut row = 0u64;
    for chunk in &found.chunks {
        let mut pages = page::Pages::new(&file, chunk, found.optional);
        while let Some(page) = pages.next().map_err(wrong)? {
            let mut texts = page.texts(pages.dictionary()).map_err(wrong)?;
            while let Some(text) = texts.next().map_err(wrong)? {
                row += texts.take_skipped();
                match String::from_utf8(text) {
                    Ok(text) => sink(Piece::whole(text))?,
                    Err(_) => return Err(wrong(format!("row {row} of the column '{column}' is not UTF-8 text"))),
                }
                row += 1;
            }
            row += texts.take_skipped();
        }
    }
    Ok(())
}
