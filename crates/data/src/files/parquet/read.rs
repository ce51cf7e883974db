//! Files that were written here, read back group by group.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::thrift::{self, Value};
use super::{BYTE_ARRAY, INT64, MAGIC, PLAIN, ZSTD};
use crate::files::record::Cell;
use crate::files::{Error, Result, zstd};

/// Pages have eight megabytes, and the row that ends them. More than this is taken for damage.
const LARGEST_PAGE: u64 = 1 << 30;

/// Calls `see` with the names of the columns and each row, until it says `false`.
pub(in crate::files) fn read(path: &Path, see: &mut dyn FnMut(&[String], Vec<Cell>) -> Result<bool>) -> Result<()> {
    let file = File::open(path).map_err(Error::io("read", path))?;
    let size = file.metadata().map_err(Error::io("read", path))?.len();
    let at = |from: u64, length: u64| -> Result<Vec<u8>> {
        if from.checked_add(length).is_none_or(|end| end > size) || length > LARGEST_PAGE {
            return Err(Error::damaged(path, "this is not a Parquet file, or only a part of one"));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, from).map_err(Error::io("read", path))?;
        Ok(bytes)
    };
    let tail = at(size.saturating_sub(8), 8.min(size))?;
    let length = tail.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as u64;
    if size < 12 || &tail[4..] != MAGIC || length > size - 12 {
        return Err(Error::damaged(path, "this is not a Parquet file, or only a part of one"));
    }
    let bytes = at(size - 8 - length, length)?;
    let other = || Error::damaged(path, "this Parquet file was not written by `bornite data`");
    let footer = thrift::read(&mut &bytes[..]).ok_or_else(other)?;
    let columns: Option<Vec<(String, bool)>> = (footer.items(2).iter().skip(1))
        .map(|column| {
            let kind = column.count(1)? as i64;
            (kind == BYTE_ARRAY || kind == INT64).then_some((column.text(4)?.to_owned(), kind == BYTE_ARRAY))
        })
        .collect();
    let columns = columns.ok_or_else(other)?;
    let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    for group in footer.items(4) {
        let rows = group.count(3).ok_or_else(other)?;
        let chunks: Option<Vec<&Value<'_>>> = group.items(1).iter().map(|chunk| chunk.field(3)).collect();
        let chunks = chunks.filter(|chunks| chunks.len() == columns.len()).ok_or_else(other)?;
        let mut cells = vec![];
        for (chunk, (_, text)) in chunks.into_iter().zip(&columns) {
            let (from, packed) = (chunk.count(9).ok_or_else(other)?, chunk.count(7).ok_or_else(other)?);
            if chunk.count(4) != Some(ZSTD as u64) {
                return Err(other());
            }
            let bytes = at(from, packed)?;
            let mut rest = &bytes[..];
            let header = thrift::read(&mut rest).ok_or_else(other)?;
            let raw = header.count(2).filter(|raw| *raw <= LARGEST_PAGE).ok_or_else(other)?;
            let encoding = header.field(5).and_then(|page| page.count(2));
            if encoding != Some(PLAIN as u64) {
                return Err(other());
            }
            let page = zstd::decompressed(rest, raw as usize).map_err(|what| Error::damaged(path, what))?;
            let short = || Error::damaged(path, "a page is shorter than what should be in it");
            cells.push(values(&page, rows, *text).ok_or_else(short)?.into_iter());
        }
        for _ in 0..rows {
            let row: Option<Vec<Cell>> = cells.iter_mut().map(Iterator::next).collect();
            if !see(&names, row.ok_or_else(other)?)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn values(mut page: &[u8], rows: u64, text: bool) -> Option<Vec<Cell>> {
    let mut cells = vec![];
    for _ in 0..rows {
        cells.push(if text {
            let length = u32::from_le_bytes(*page.split_off(..4)?.first_chunk()?);
            Cell::Text(String::from_utf8(page.split_off(..length as usize)?.to_vec()).ok()?)
        } else {
            Cell::Int(u64::from_le_bytes(*page.split_off(..8)?.first_chunk()?))
        });
    }
    Some(cells)
}
