//! Files that were written here, read back group by group.

use std::os::unix::fs::FileExt;
use std::path::Path;

use bornite_support::input_limit;

use super::thrift::{self, Value};
use super::{BYTE_ARRAY, INT64, MAGIC, PLAIN, ZSTD};
use crate::files::place::open;
use crate::files::record::Cell;
use crate::files::{Error, Result, zstd};

/// Largest header of a page. As a tree it takes up to forty times as much, as does the footer.
const LARGEST_HEADER: usize = 64 << 10;

/// Calls `see` with the names of the columns and each row, until it says `false`.
pub(in crate::files) fn read(path: &Path, see: &mut dyn FnMut(&[String], Vec<Cell>) -> Result<bool>) -> Result<()> {
    let (file, size) = open(path)?;
    let limit = input_limit()?;
    let at = |from: u64, length: u64, limit: u64| -> Result<Vec<u8>> {
        if from.checked_add(length).is_none_or(|end| end > size) {
            return Err(Error::damaged(path, "this is not a Parquet file, or only a part of one"));
        }
        if length > limit {
            return Err(Error::too_large(path, "its footer or a page has", limit));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, from).map_err(Error::io("read", path))?;
        Ok(bytes)
    };
    let tail = at(size.saturating_sub(8), 8.min(size), limit)?;
    let length = tail.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as u64;
    if size < 12 || &tail[4..] != MAGIC || length > size - 12 {
        return Err(Error::damaged(path, "this is not a Parquet file, or only a part of one"));
    }
    let bytes = at(size - 8 - length, length, limit / 32)?;
    let other = || Error::damaged(path, "this Parquet file was not written by `bornite data`");
    let footer = thrift::read(&mut &bytes[..]).ok_or_else(other)?;
    let columns: Option<Vec<(String, bool)>> = (footer.items(2).iter().skip(1))
        .map(|column| {
            let kind = column.count(1)? as i64;
            (kind == BYTE_ARRAY || kind == INT64).then_some((column.text(4)?.to_owned(), kind == BYTE_ARRAY))
        })
        .collect();
    let columns = columns.filter(|columns| !columns.is_empty()).ok_or_else(other)?;
    let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    for group in footer.items(4) {
        let rows = group.count(3).ok_or_else(other)?;
        let chunks: Option<Vec<&Value<'_>>> = group.items(1).iter().map(|chunk| chunk.field(3)).collect();
        let chunks = chunks.filter(|chunks| chunks.len() == columns.len()).ok_or_else(other)?;
        let mut pages = vec![];
        // All columns of a group are in memory at once.
        let mut left = limit;
        for (chunk, (_, text)) in chunks.into_iter().zip(&columns) {
            let (from, packed) = (chunk.count(9).ok_or_else(other)?, chunk.count(7).ok_or_else(other)?);
            if chunk.count(4) != Some(ZSTD as u64) {
                return Err(other());
            }
            let bytes = at(from, packed, limit)?;
            let mut head = &bytes[..bytes.len().min(LARGEST_HEADER)];
            let header = thrift::read(&mut head).ok_or_else(other)?;
            let rest = &bytes[bytes.len().min(LARGEST_HEADER) - head.len()..];
            let raw = header.count(2).ok_or_else(other)?;
            left = left.checked_sub(raw).ok_or_else(|| Error::too_large(path, "a group of rows has", limit))?;
            let encoding = header.field(5).and_then(|page| page.count(2));
            if encoding != Some(PLAIN as u64) {
                return Err(other());
            }
            let page = zstd::decompressed(rest, raw as usize).map_err(|what| Error::damaged(path, what))?;
            pages.push((page, 0, *text));
        }
        for _ in 0..rows {
            let row: Option<Vec<Cell>> = pages.iter_mut().map(|(page, at, text)| value(page, at, *text)).collect();
            let short = || Error::damaged(path, "a page is shorter than what should be in it");
            if !see(&names, row.ok_or_else(short)?)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The next value of a page, from `at` on.
fn value(page: &[u8], at: &mut usize, text: bool) -> Option<Cell> {
    let mut take = |count: usize| {
        let taken = page[*at..].get(..count)?;
        *at += count;
        Some(taken)
    };
    if !text {
        return Some(Cell::Int(u64::from_le_bytes(*take(8)?.first_chunk()?)));
    }
    let length = u32::from_le_bytes(*take(4)?.first_chunk()?);
    Some(Cell::Text(str::from_utf8(take(length as usize)?).ok()?.to_owned()))
}
