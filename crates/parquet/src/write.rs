//! Tables written, row group by row group.

use std::io::{Error, ErrorKind, Result, Write};

use crate::thrift::Writer as Thrift;
use crate::{ColumnType, MAGIC, Value, code, zstd};

/// Size from which on a row group is written.
const GROUP_BYTES: usize = 8 << 20;
/// Longest text: pages have at most 2 GiB, by the format.
const LONGEST_TEXT: usize = 1 << 30;

struct Chunk {
    offset: u64,
    raw: u64,
    packed: u64,
}

struct Group {
    rows: u64,
    chunks: Vec<Chunk>,
}

/// Writer of a file. The same rows give the same bytes.
pub struct TableWriter<W> {
    columns: Vec<(String, ColumnType)>,
    to: W,
    /// Encoded values of the current row group, a buffer per column.
    values: Vec<Vec<u8>>,
    rows: u64,
    at: u64,
    groups: Vec<Group>,
}

impl<W: Write> TableWriter<W> {
    /// Begins a file with these columns.
    pub fn new<N: Into<String>>(
        columns: impl IntoIterator<Item = (N, ColumnType)>,
        mut to: W,
    ) -> Result<TableWriter<W>> {
        let columns: Vec<_> = columns.into_iter().map(|(name, kind)| (name.into(), kind)).collect();
        if columns.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "a table needs a column"));
        }
        to.write_all(MAGIC)?;
        let values = vec![vec![]; columns.len()];
        Ok(TableWriter { columns, to, values, rows: 0, at: MAGIC.len() as u64, groups: vec![] })
    }

    /// Adds a row: a value per column, of the column's type.
    pub fn row(&mut self, row: &[Value<'_>]) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if row.len() != self.columns.len() {
            let (found, expected) = (row.len(), self.columns.len());
            return wrong(format!("a row has {found} value{}; expected {expected}", if found == 1 { "" } else { "s" }));
        }
        for (value, (name, kind)) in row.iter().zip(&self.columns) {
            if value.column_type() != *kind {
                return wrong(format!("the column '{name}' has values of type {kind:?}, not {value:?}"));
            }
            if let Value::Text(text) = value
                && text.len() > LONGEST_TEXT
            {
                return wrong(format!(
                    "a text of the column '{name}' has {} bytes; at most {LONGEST_TEXT}",
                    text.len()
                ));
            }
        }
        for (value, to) in row.iter().zip(&mut self.values) {
            match value {
                Value::Text(text) => {
                    to.extend((text.len() as u32).to_le_bytes());
                    to.extend(text.as_bytes());
                }
                Value::Int(value) => to.extend(value.to_le_bytes()),
            }
        }
        self.rows += 1;
        let bytes: usize = self.values.iter().map(Vec::len).sum();
        if bytes >= GROUP_BYTES { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut chunks = vec![];
        for values in &mut self.values {
            let page = zstd::compressed(values);
            let mut header = Thrift::default();
            header.int(1, code::DATA_PAGE).int(2, values.len() as i64).int(3, page.len() as i64);
            header.begin(5).int(1, self.rows as i64).int(2, code::PLAIN).int(3, code::RLE).int(4, code::RLE).end();
            let header = header.done();
            self.to.write_all(&header)?;
            self.to.write_all(&page)?;
            let packed = (header.len() + page.len()) as u64;
            chunks.push(Chunk { offset: self.at, raw: (header.len() + values.len()) as u64, packed });
            self.at += packed;
            values.clear();
        }
        self.groups.push(Group { rows: std::mem::take(&mut self.rows), chunks });
        Ok(())
    }

    /// Writes the footer and returns the output, which is not flushed.
    pub fn finish(mut self) -> Result<W> {
        self.end_group()?;
        let mut footer = Thrift::default();
        footer.int(1, 1);
        footer.list(2, self.columns.len() + 1);
        footer.element().text(4, "schema").int(5, self.columns.len() as i64).end();
        for (name, kind) in &self.columns {
            let converted = match kind {
                ColumnType::Text => code::UTF8,
                ColumnType::Int => code::UINT_64,
            };
            footer.element().int(1, physical(*kind)).int(3, 0).text(4, name).int(6, converted).end();
        }
        footer.long(3, self.groups.iter().map(|group| group.rows).sum::<u64>());
        footer.list(4, self.groups.len());
        for group in &self.groups {
            footer.element().list(1, group.chunks.len());
            for (chunk, (name, kind)) in group.chunks.iter().zip(&self.columns) {
                footer.element().long(2, chunk.offset).begin(3);
                footer.int(1, physical(*kind));
                footer.ints(2, &[code::PLAIN, code::RLE]).texts(3, &[name]).int(4, code::ZSTD);
                footer.long(5, group.rows).long(6, chunk.raw).long(7, chunk.packed).long(9, chunk.offset);
                footer.end().end();
            }
            footer.long(2, group.chunks.iter().map(|chunk| chunk.raw).sum::<u64>()).long(3, group.rows).end();
        }
        footer.text(6, concat!("bornite ", env!("CARGO_PKG_VERSION")));
        let footer = footer.done();
        self.to.write_all(&footer)?;
        self.to.write_all(&(footer.len() as u32).to_le_bytes())?;
        self.to.write_all(MAGIC)?;
        Ok(self.to)
    }
}

/// Number of the type that values are stored as.
fn physical(kind: ColumnType) -> i64 {
    match kind {
        ColumnType::Text => code::BYTE_ARRAY,
        ColumnType::Int => code::INT64,
    }
}
