//! Parquet files of texts and numbers, none missing: what a dataset of kernels needs, and no more.
//!
//! A group of rows has one page a column, in the plain encoding, compressed with zstd. Headers are in Thrift's compact
//! protocol (`thrift.rs`). `read.rs` reads what is written here.

mod read;
mod thrift;

use std::io::Write;

pub(super) use read::read;
use thrift::Writer as Thrift;

use super::zstd;

const MAGIC: &[u8] = b"PAR1";
const INT64: i64 = 2;
const BYTE_ARRAY: i64 = 6;
const UTF8: i64 = 0;
const UINT_64: i64 = 14;
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const ZSTD: i64 = 6;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// 64 bits without a sign.
    Int,
}

/// A group of rows is written once it has so many bytes.
const GROUP_BYTES: usize = 8 << 20;

struct Chunk {
    offset: u64,
    raw: u64,
    packed: u64,
}

struct Group {
    rows: u64,
    chunks: Vec<Chunk>,
}

/// Writes a file, group by group.
pub(super) struct Writer {
    columns: Vec<(&'static str, Kind)>,
    values: Vec<Vec<u8>>,
    rows: u64,
    at: u64,
    groups: Vec<Group>,
}

impl Writer {
    /// Begins a file.
    pub(super) fn new(columns: Vec<(&'static str, Kind)>, to: &mut dyn Write) -> std::io::Result<Writer> {
        to.write_all(MAGIC)?;
        let values = vec![vec![]; columns.len()];
        Ok(Writer { columns, values, rows: 0, at: MAGIC.len() as u64, groups: vec![] })
    }

    /// A value of the row that is being written.
    pub(super) fn text(&mut self, column: usize, text: &str) {
        self.values[column].extend((text.len() as u32).to_le_bytes());
        self.values[column].extend(text.as_bytes());
    }

    /// A value of the row that is being written.
    pub(super) fn int(&mut self, column: usize, value: u64) {
        self.values[column].extend(value.to_le_bytes());
    }

    /// Ends a row.
    pub(super) fn end_row(&mut self, to: &mut dyn Write) -> std::io::Result<()> {
        self.rows += 1;
        let bytes: usize = self.values.iter().map(Vec::len).sum();
        if bytes >= GROUP_BYTES { self.end_group(to) } else { Ok(()) }
    }

    fn end_group(&mut self, to: &mut dyn Write) -> std::io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut chunks = vec![];
        for values in &mut self.values {
            let page = zstd::compressed(values);
            let mut header = Thrift::default();
            header.int(1, 0).int(2, values.len() as i64).int(3, page.len() as i64);
            header.begin(5).int(1, self.rows as i64).int(2, PLAIN).int(3, RLE).int(4, RLE).end();
            let header = header.done();
            to.write_all(&header)?;
            to.write_all(&page)?;
            let packed = (header.len() + page.len()) as u64;
            chunks.push(Chunk { offset: self.at, raw: (header.len() + values.len()) as u64, packed });
            self.at += packed;
            values.clear();
        }
        self.groups.push(Group { rows: std::mem::take(&mut self.rows), chunks });
        Ok(())
    }

    /// Ends the file.
    pub(super) fn finish(mut self, to: &mut dyn Write) -> std::io::Result<()> {
        self.end_group(to)?;
        let mut footer = Thrift::default();
        footer.int(1, 1);
        footer.list(2, self.columns.len() + 1);
        footer.element().text(4, "schema").int(5, self.columns.len() as i64).end();
        for (name, kind) in &self.columns {
            let (ty, converted) = if *kind == Kind::Text { (BYTE_ARRAY, UTF8) } else { (INT64, UINT_64) };
            footer.element().int(1, ty).int(3, 0).text(4, name).int(6, converted).end();
        }
        footer.long(3, self.groups.iter().map(|group| group.rows).sum::<u64>());
        footer.list(4, self.groups.len());
        for group in &self.groups {
            footer.element().list(1, group.chunks.len());
            for (chunk, (name, kind)) in group.chunks.iter().zip(&self.columns) {
                footer.element().long(2, chunk.offset).begin(3);
                footer.int(1, if *kind == Kind::Text { BYTE_ARRAY } else { INT64 });
                footer.ints(2, &[PLAIN, RLE]).texts(3, &[name]).int(4, ZSTD);
                footer.long(5, group.rows).long(6, chunk.raw).long(7, chunk.packed).long(9, chunk.offset);
                footer.end().end();
            }
            footer.long(2, group.chunks.iter().map(|chunk| chunk.raw).sum::<u64>()).long(3, group.rows).end();
        }
        footer.text(6, concat!("bornite ", env!("CARGO_PKG_VERSION")));
        let footer = footer.done();
        to.write_all(&footer)?;
        to.write_all(&(footer.len() as u32).to_le_bytes())?;
        to.write_all(MAGIC)
    }
}
