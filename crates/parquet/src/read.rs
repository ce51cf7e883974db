//! Reader of tables: one text column, or rows of all columns.

use std::fs::File;

use bornite_support::{format_bytes, list_names, quoted};

use crate::column::ColumnReader;
use crate::footer::{Column, Footer, RowGroups};
use crate::{ColumnType, ColumnValue, Error, Result};

/// Maximum ratio of the values' bytes to the file's: a dictionary can repeat texts at a bit or less
/// each.
const MAX_EXPANSION: u64 = 1000;
/// Overhead counted per value: a file can have very many empty ones.
const VALUE_BYTES: u64 = 64;

/// An open file.
pub struct TableReader {
    file: File,
    file_bytes: u64,
    limit_bytes: u64,
    footer: Footer,
}

impl TableReader {
    /// Opens a file and reads its schema. Pages may have `limit_bytes` bytes after decompression,
    /// the footer and dictionaries a quarter of that; the memory use is a few times `limit_bytes`.
    pub fn open(file: File, limit_bytes: u64) -> Result<TableReader> {
        let file_bytes = file.metadata()?.len();
        let footer = Footer::read(&file, file_bytes, limit_bytes / 4)?;
        Ok(TableReader { file, file_bytes, limit_bytes, footer })
    }

    /// Names of the columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.footer.columns.iter().map(|column| &column.name[..])
    }

    /// Returns a reader of the non-null values of a text column.
    pub fn texts(&self, column: &str) -> Result<TextColumn<'_>> {
        let Some(found) = self.footer.columns.iter().find(|found| found.name == column) else {
            let names: Vec<&str> = self.columns().collect();
            let what = format!("it has no column {}; {}", quoted(column), list_names("columns", &names));
            return Err(Error::Column(what));
        };
        match found.kind {
            Ok(ColumnType::Text) => {}
            Ok(ColumnType::Int) => return Err(not_text(found, "INT64")),
            Err(name) => return Err(not_text(found, name)),
        }
        let leaves = found.leaf..found.leaf + 1;
        let (mut groups, mut row_count) = (self.footer.groups(leaves.clone())?, 0u64);
        while let Some(group) = groups.next()? {
            row_count = row_count.saturating_add(group.chunk(0, found)?.values);
        }
        Ok(TextColumn {
            groups: self.footer.groups(leaves)?,
            values: ColumnReader::new(&self.file, found, ColumnType::Text),
            column: found,
            row_count,
            total: OutputBudget::new(self),
        })
    }

    /// Returns a reader of complete rows. All columns must be text or 64-bit integers without
    /// nulls.
    pub fn rows(&self) -> Result<RowReader<'_>> {
        let columns = &self.footer.columns;
        if columns.is_empty() {
            return Err(Error::Unsupported("its schema has no columns".into()));
        }
        let mut values = Vec::with_capacity(columns.len());
        for column in columns {
            let name = quoted(&column.name);
            let kind = column.kind.map_err(|kind| {
                Error::Unsupported(format!("the column {name} has type {kind}, which is not supported in rows"))
            })?;
            if column.optional {
                let what = format!("the column {name} is nullable, which is not supported in rows");
                return Err(Error::Unsupported(what));
            }
            values.push((kind, ColumnReader::new(&self.file, column, kind)));
        }
        let groups = self.footer.groups(0..columns.len())?;
        Ok(RowReader { columns, groups, values, remaining: 0, held_bytes: 0, total: OutputBudget::new(self) })
    }
}

fn not_text(column: &Column, kind: &str) -> Error {
    Error::Column(format!("the column {} has type {kind}, not text", quoted(&column.name)))
}

/// Limit on the amount of returned data, so that a small file cannot expand without bound.
struct OutputBudget {
    bytes: u64,
    max: u64,
    file_bytes: u64,
    limit_bytes: u64,
}

impl OutputBudget {
    fn new(table: &TableReader) -> OutputBudget {
        let &TableReader { file_bytes, limit_bytes, .. } = table;
        OutputBudget {
            bytes: 0,
            max: limit_bytes.max(file_bytes.saturating_mul(MAX_EXPANSION)),
            file_bytes,
            limit_bytes,
        }
    }

    fn add(&mut self, value: &[u8]) -> Result<()> {
        self.bytes = self.bytes.saturating_add(value.len() as u64 + VALUE_BYTES);
        if self.bytes <= self.max {
            return Ok(());
        }
        let (file_bytes, max) = (self.file_bytes, format_bytes(self.max));
        let what = format!("its {file_bytes} bytes decompress to more than {max} of values");
        Err(Error::TooLarge { what, limit_bytes: self.limit_bytes })
    }
}

fn utf8<'a>(value: &'a [u8], row: u64, column: &Column) -> Result<&'a str> {
    std::str::from_utf8(value).map_err(|_| {
        let row = row.saturating_sub(1);
        Error::damaged(format!("row {row} of the column {} is not UTF-8 text", quoted(&column.name)))
    })
}

/// Values of one text column, in order.
pub struct TextColumn<'a> {
    column: &'a Column,
    groups: RowGroups<'a>,
    values: ColumnReader<'a>,
    row_count: u64,
    total: OutputBudget,
}

impl TextColumn<'_> {
    /// Number of rows of the table, according to its footer.
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Number of rows up to and including the last returned text, nulls included.
    pub fn row(&self) -> u64 {
        self.values.row()
    }

    /// Returns the next non-null text, borrowed from its page; `None` at the end.
    pub fn next_text(&mut self) -> Result<Option<&str>> {
        while !self.values.advance(self.total.limit_bytes, 0)? {
            let Some(group) = self.groups.next()? else { return Ok(None) };
            self.values.start(group.chunk(0, self.column)?);
        }
        let value = self.values.value();
        self.total.add(value)?;
        utf8(value, self.values.row(), self.column).map(Some)
    }
}

/// Rows of all columns, in order.
pub struct RowReader<'a> {
    columns: &'a [Column],
    groups: RowGroups<'a>,
    values: Vec<(ColumnType, ColumnReader<'a>)>,
    /// Rows of the current row group that are not read yet.
    remaining: u64,
    /// Memory taken by the current pages of all columns.
    held_bytes: u64,
    total: OutputBudget,
}

impl RowReader<'_> {
    /// Returns the next row, one value per column, borrowed from the pages; `None` at the end.
    pub fn next_row(&mut self) -> Result<Option<Vec<ColumnValue<'_>>>> {
        while self.remaining == 0 {
            let Some(group) = self.groups.next()? else { return Ok(None) };
            self.remaining = group.rows.ok_or_else(|| Error::damaged("a row group has no row count"))?;
            for (n, (column, (_, values))) in self.columns.iter().zip(&mut self.values).enumerate() {
                let chunk = group.chunk(n, column)?;
                if chunk.values != self.remaining {
                    let (rows, name) = (self.remaining, quoted(&column.name));
                    let what = format!("a row group of {rows} rows has {} values of the column {name}", chunk.values);
                    return Err(Error::damaged(what));
                }
                values.start(chunk);
            }
            self.held_bytes = 0;
        }
        self.remaining -= 1;
        for (_, values) in &mut self.values {
            let elsewhere = self.held_bytes.saturating_sub(values.held_bytes());
            if !values.advance(self.total.limit_bytes, elsewhere)? {
                return Err(Error::damaged("a row group has fewer values than rows"));
            }
            self.held_bytes = elsewhere + values.held_bytes();
            self.total.add(values.value())?;
        }
        let row = self.columns.iter().zip(&self.values).map(|(column, (kind, values))| match kind {
            ColumnType::Text => utf8(values.value(), values.row(), column).map(ColumnValue::Text),
            ColumnType::Int => {
                let bytes = values.value().first_chunk().copied().unwrap_or_default();
                Ok(ColumnValue::Int(u64::from_le_bytes(bytes)))
            }
        });
        row.collect::<Result<_>>().map(Some)
    }
}
