//! Writer of tables, row group by row group.

use std::io::{Error, ErrorKind, Result, Write};

use crate::thrift::Writer as Thrift;
use crate::{ColumnType, ColumnValue, MAGIC, code, zstd};

/// Size from which a row group is written.
const ROW_GROUP_BYTES: usize = 8 << 20;
/// Maximum length of a text: the format limits pages to 2 GiB.
const MAX_TEXT_BYTES: usize = 1 << 30;

struct Chunk {
    offset: u64,
    uncompressed_bytes: u64,
    compressed_bytes: u64,
}

struct RowGroup {
    rows: u64,
    chunks: Vec<Chunk>,
}

/// Writer of a file. The output is deterministic.
pub struct TableWriter<W> {
    columns: Vec<(String, ColumnType)>,
    output: W,
    /// Encoded values of the current row group, one buffer per column.
    values: Vec<Vec<u8>>,
    rows: u64,
    at: u64,
    groups: Vec<RowGroup>,
}

impl<W: Write> TableWriter<W> {
    /// Starts a file with these columns.
    pub fn new<N: Into<String>>(
        columns: impl IntoIterator<Item = (N, ColumnType)>,
        mut output: W,
    ) -> Result<TableWriter<W>> {
        let columns: Vec<_> = columns.into_iter().map(|(name, kind)| (name.into(), kind)).collect();
        if columns.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "a table needs at least one column"));
        }
        output.write_all(MAGIC)?;
        let values = vec![vec![]; columns.len()];
        Ok(TableWriter { columns, output, values, rows: 0, at: MAGIC.len() as u64, groups: vec![] })
    }

    /// Appends a row: one value per column, of the column's type.
    pub fn row(&mut self, row: &[ColumnValue<'_>]) -> Result<()> {
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if row.len() != self.columns.len() {
            let (found, expected) = (row.len(), self.columns.len());
            return invalid(format!(
                "a row has {found} value{}; expected {expected}",
                if found == 1 { "" } else { "s" }
            ));
        }
        for (value, (name, kind)) in row.iter().zip(&self.columns) {
            if value.column_type() != *kind {
                return invalid(format!("the column '{name}' has values of type {kind:?}, not {value:?}"));
            }
            if let ColumnValue::Text(text) = value
                && text.len() > MAX_TEXT_BYTES
            {
                return invalid(format!(
                    "a text of the column '{name}' has {} bytes; the maximum is {MAX_TEXT_BYTES}",
                    text.len()
                ));
            }
        }
        for (value, output) in row.iter().zip(&mut self.values) {
            match value {
                ColumnValue::Text(text) => {
                    output.extend((text.len() as u32).to_le_bytes());
                    output.extend(text.as_bytes());
                }
                ColumnValue::Int(value) => output.extend(value.to_le_bytes()),
            }
        }
        self.rows += 1;
        let bytes: usize = self.values.iter().map(Vec::len).sum();
        if bytes >= ROW_GROUP_BYTES { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut chunks = vec![];
        for values in &mut self.values {
            let page = zstd::compress_to_vec(values);
            let mut header = Thrift::default();
            header.int(1, code::DATA_PAGE).int(2, values.len() as i64).int(3, page.len() as i64);
            header.begin(5).int(1, self.rows as i64).int(2, code::PLAIN).int(3, code::RLE).int(4, code::RLE).end();
            let header = header.finish();
            self.output.write_all(&header)?;
            self.output.write_all(&page)?;
            let compressed_bytes = (header.len() + page.len()) as u64;
            chunks.push(Chunk {
                offset: self.at,
                uncompressed_bytes: (header.len() + values.len()) as u64,
                compressed_bytes,
            });
            self.at += compressed_bytes;
            values.clear();
        }
        self.groups.push(RowGroup { rows: std::mem::take(&mut self.rows), chunks });
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
            footer.element().int(1, physical_type(*kind)).int(3, 0).text(4, name).int(6, converted).end();
        }
        footer.long(3, self.groups.iter().map(|group| group.rows).sum::<u64>());
        footer.list(4, self.groups.len());
        for group in &self.groups {
            footer.element().list(1, group.chunks.len());
            for (chunk, (name, kind)) in group.chunks.iter().zip(&self.columns) {
                footer.element().long(2, chunk.offset).begin(3);
                footer.int(1, physical_type(*kind));
                footer.ints(2, &[code::PLAIN, code::RLE]).texts(3, &[name]).int(4, code::ZSTD);
                footer
                    .long(5, group.rows)
                    .long(6, chunk.uncompressed_bytes)
                    .long(7, chunk.compressed_bytes)
                    .long(9, chunk.offset);
                footer.end().end();
            }
            footer
                .long(2, group.chunks.iter().map(|chunk| chunk.uncompressed_bytes).sum::<u64>())
                .long(3, group.rows)
                .end();
        }
        footer.text(6, concat!("bornite ", env!("CARGO_PKG_VERSION")));
        let footer = footer.finish();
        self.output.write_all(&footer)?;
        self.output.write_all(&(footer.len() as u32).to_le_bytes())?;
        self.output.write_all(MAGIC)?;
        Ok(self.output)
    }
}

/// Returns the physical type of the values in the file.
fn physical_type(kind: ColumnType) -> i64 {
    match kind {
        ColumnType::Text => code::BYTE_ARRAY,
        ColumnType::Int => code::INT64,
    }
}
