//! File footer: the schema and the locations of the column chunks.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use bornite_support::quoted;

use crate::thrift::{BINARY, INT, LIST, Reader, STRUCT};
use crate::{ColumnType, Error, MAGIC, Result, code};

const TYPES: [&str; 8] = ["booleans", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "text", "fixed-length byte arrays"];

/// Maximum number of elements of a schema: far more columns than tables have.
const MAX_SCHEMA_ELEMENTS: usize = 1 << 16;

/// Footer of a file. Row groups are decoded one at a time: a small footer can describe very many.
pub(crate) struct Footer {
    bytes: Vec<u8>,
    pub columns: Vec<Column>,
    /// Offset of the list of row groups in `bytes`.
    groups: Option<usize>,
    file_bytes: u64,
}

/// Top-level column, which may be a group of nested ones.
pub(crate) struct Column {
    pub name: String,
    /// Type of the values; the error is the name of an unsupported type.
    pub kind: std::result::Result<ColumnType, &'static str>,
    /// True if values may be null.
    pub optional: bool,
    /// Index of its first column chunk in each row group.
    pub leaf: usize,
}

/// Values of one column in one row group.
#[derive(Clone, Copy, Default)]
pub(crate) struct Chunk {
    pub codec: i64,
    pub values: u64,
    /// Byte range of its pages in the file, which has at least `end` bytes.
    pub start: u64,
    pub end: u64,
}

/// Element of a schema: a column or a group of columns.
#[derive(Default)]
struct SchemaElement {
    kind: Option<i64>,
    repetition: i64,
    name: String,
    children: u64,
}

impl Footer {
    /// Reads the footer, which may have at most `limit_bytes` bytes.
    pub(crate) fn read(file: &File, file_bytes: u64, limit_bytes: u64) -> Result<Footer> {
        let (mut head, mut tail) = ([0; 4], [0; 8]);
        let not_parquet = || Error::damaged("not a Parquet file, or a truncated one");
        if file_bytes < 12 {
            return Err(not_parquet());
        }
        file.read_exact_at(&mut head, 0)?;
        file.read_exact_at(&mut tail, file_bytes - 8)?;
        if &tail[4..] == b"PARE" {
            return Err(Error::Unsupported("the file is encrypted, which is not supported".into()));
        }
        if head != MAGIC || &tail[4..] != MAGIC {
            return Err(not_parquet());
        }
        let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if length > file_bytes - 12 {
            return Err(Error::damaged(format!("its footer declares {length} bytes, more than the file has")));
        }
        if length > limit_bytes {
            return Err(Error::TooLarge { what: format!("its footer has {length} bytes"), limit_bytes });
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, file_bytes - 8 - length)?;

        let (mut schema, mut groups) = (vec![], None);
        Reader::new(&bytes).fields(|reader, field, kind| {
            match (field, kind) {
                (2, LIST) => {
                    let count = reader.structs()?;
                    if count > MAX_SCHEMA_ELEMENTS {
                        return Err(Error::damaged(format!("its schema has more than {MAX_SCHEMA_ELEMENTS} elements")));
                    }
                    schema = (0..count).map(|_| element(reader)).collect::<Result<_>>()?;
                }
                (4, LIST) => {
                    groups = Some(reader.position());
                    return Ok(false);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Footer { columns: columns(schema), bytes, groups, file_bytes })
    }

    /// Returns the row groups, with the column chunks of `leaves`.
    pub(crate) fn groups(&self, leaves: Range<usize>) -> Result<RowGroups<'_>> {
        let mut reader = Reader::new(self.groups.map_or(&[0], |at| &self.bytes[at..]));
        Ok(RowGroups { remaining: reader.structs()?, reader, leaves, file_bytes: self.file_bytes })
    }
}

fn element(reader: &mut Reader<'_>) -> Result<SchemaElement> {
    let mut element = SchemaElement::default();
    reader.fields(|reader, field, kind| {
        match (field, kind) {
            (1, INT) => element.kind = Some(reader.number()?),
            (3, INT) => element.repetition = reader.number()?,
            (4, BINARY) => element.name = reader.text()?,
            (5, INT) => element.children = reader.count()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(element)
}

/// Top-level columns of a schema.
fn columns(schema: Vec<SchemaElement>) -> Vec<Column> {
    let (mut columns, mut leaf) = (vec![], 0);
    // Remaining elements in each open group. The first element of the schema is the root.
    let mut open: Vec<u64> = vec![];
    for element in schema.into_iter().skip(1) {
        let SchemaElement { kind, repetition, name, children } = element;
        match open.last_mut() {
            Some(remaining) => *remaining -= 1,
            None => {
                let kind = match kind {
                    _ if children > 0 || !(0..=1).contains(&repetition) => Err("lists or structs"),
                    Some(code::BYTE_ARRAY) => Ok(ColumnType::Text),
                    Some(code::INT64) => Ok(ColumnType::Int),
                    Some(kind) => {
                        let name = usize::try_from(kind).ok().and_then(|kind| TYPES.get(kind).copied());
                        Err(name.unwrap_or("an unknown type"))
                    }
                    None => Err("lists or structs"),
                };
                columns.push(Column { name, kind, optional: repetition == 1, leaf });
            }
        }
        if children == 0 {
            leaf += 1;
        } else {
            open.push(children);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
    }
    columns
}

/// Decoder of row groups.
pub(crate) struct RowGroups<'a> {
    reader: Reader<'a>,
    remaining: usize,
    leaves: Range<usize>,
    file_bytes: u64,
}

/// A row group: some rows of all columns.
pub(crate) struct RowGroup {
    pub rows: Option<u64>,
    /// Column chunks of the requested leaves; `None` for one that is missing or outside the file.
    pub chunks: Vec<Option<Chunk>>,
}

impl RowGroup {
    /// Returns the column chunk of a requested column.
    pub(crate) fn chunk(&self, n: usize, column: &Column) -> Result<Chunk> {
        self.chunks.get(n).copied().flatten().ok_or_else(|| {
            let name = quoted(&column.name);
            Error::damaged(format!("a row group has no chunk of the column {name} within the file"))
        })
    }
}

impl RowGroups<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<RowGroup>> {
        if self.remaining == 0 {
            return Ok(None);
        }
        self.remaining -= 1;
        let mut group = RowGroup { rows: None, chunks: vec![None; self.leaves.len()] };
        self.reader.fields(|reader, field, kind| {
            match (field, kind) {
                (1, LIST) => {
                    for n in 0..reader.structs()? {
                        let chunk = column_chunk(reader, self.file_bytes)?;
                        if self.leaves.contains(&n) {
                            group.chunks[n - self.leaves.start] = chunk;
                        }
                    }
                }
                (3, INT) => group.rows = Some(reader.count()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Some(group))
    }
}

/// Reads the location of a column chunk; `None` if it lies outside the file.
fn column_chunk(reader: &mut Reader<'_>, file_bytes: u64) -> Result<Option<Chunk>> {
    let mut found = None;
    reader.fields(|reader, field, kind| {
        if (field, kind) != (3, STRUCT) {
            return Ok(false);
        }
        let mut chunk = Chunk::default();
        let (mut length, mut data, mut dictionary) = (0, 0, None);
        reader.fields(|reader, field, kind| {
            match (field, kind) {
                (4, INT) => chunk.codec = reader.number()?,
                (5, INT) => chunk.values = reader.count()?,
                (7, INT) => length = reader.count()?,
                (9, INT) => data = reader.count()?,
                (11, INT) => dictionary = Some(reader.count()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        // Some writers store 0 if there is no dictionary.
        chunk.start = dictionary.filter(|&at| at > 0).map_or(data, |at| at.min(data));
        let end = chunk.start.checked_add(length).filter(|end| *end <= file_bytes);
        found = end.map(|end| Chunk { end, ..chunk });
        Ok(true)
    })?;
    Ok(found)
}
