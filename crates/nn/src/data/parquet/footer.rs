//! Where a column lies: the end of the file says.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::jsonl::there_are;
use super::Checked;
use super::thrift::Reader;

const MAGIC: &[u8] = b"PAR1";
const BYTE_ARRAY: i64 = 6;
const TYPES: [&str; 8] = ["booleans", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "text", "bytes of fixed length"];

/// Most elements of a schema: far more columns than tables have.
const MOST_ELEMENTS: usize = 1 << 16;

/// What is read of a column.
pub(super) struct Column {
    /// Whether a value may be missing.
    pub optional: bool,
    pub chunks: Vec<Chunk>,
}

/// A part of a column, one for each group of rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    pub codec: i64,
    pub values: u64,
    /// Where its pages lie in the file: within it, that much is checked.
    pub start: u64,
    pub end: u64,
}

/// A column or a group of columns.
#[derive(Default)]
struct Element {
    kind: Option<i64>,
    repetition: i64,
    name: String,
    children: u64,
}

/// Finds a column in a file whose footer has at most `limit` bytes.
pub(super) fn read(file: &File, column: &str, limit: u64) -> Checked<Column> {
    let io = |error: std::io::Error| format!("it cannot be read: {error}");
    let bytes = file.metadata().map_err(io)?.len();
    let (mut head, mut tail) = ([0; 4], [0; 8]);
    let not = || "this is not a Parquet file, or only a part of one".to_owned();
    if bytes < 12 {
        return Err(not());
    }
    file.read_exact_at(&mut head, 0).map_err(io)?;
    file.read_exact_at(&mut tail, bytes - 8).map_err(io)?;
    if &tail[4..] == b"PARE" {
        return Err("the file is encrypted, which is not supported".into());
    }
    if head != MAGIC || &tail[4..] != MAGIC {
        return Err(not());
    }
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if length > bytes - 12 {
        return Err(format!("its footer should have {length} bytes, more than the file"));
    }
    if length > limit {
        return Err(super::too_large(&format!("its footer has {length} bytes"), limit));
    }
    let mut footer = vec![0; length as usize];
    file.read_exact_at(&mut footer, bytes - 8 - length).map_err(io)?;

    let mut schema = vec![];
    Reader::new(&footer).fields(|reader, field, _| {
        if field == 2 {
            reader.structs(|reader, n| {
                if n >= MOST_ELEMENTS {
                    return Err(format!("its schema has more than {MOST_ELEMENTS} elements"));
                }
                schema.push(element(reader)?);
                Ok(())
            })?;
        }
        Ok(field == 2)
    })?;
    let (leaf, optional) = find(&schema, column)?;
    // A second pass, since only one chunk of each group is kept: a small footer can describe very many.
    let mut chunks = vec![];
    Reader::new(&footer).fields(|reader, field, _| {
        if field == 4 {
            reader.structs(|reader, _| {
                let chunk = row_group(reader, leaf, bytes)?;
                chunks.push(
                    chunk.ok_or_else(|| {
                        format!("a group of rows has no part of the column '{column}' within the file")
                    })?,
                );
                Ok(())
            })?;
        }
        Ok(field == 4)
    })?;
    Ok(Column { optional, chunks })
}

fn element(reader: &mut Reader<'_>) -> Checked<Element> {
    let mut element = Element::default();
    reader.fields(|reader, field, _| {
        match field {
            1 => element.kind = Some(reader.number()?),
            3 => element.repetition = reader.number()?,
            4 => element.name = reader.text()?,
            5 => element.children = reader.count()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(element)
}

/// The place of a column among the leaves of the schema, and whether values may be missing.
fn find(schema: &[Element], column: &str) -> Checked<(usize, bool)> {
    let mut names = vec![];
    let mut leaf = 0;
    // The first element is the root. Depth of groups: how many elements are still to come at each level.
    let mut open: Vec<u64> = vec![];
    for element in schema.iter().skip(1) {
        let top = open.is_empty();
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if top {
            names.push(element.name.clone());
            if element.name == column {
                return match (element.kind, element.repetition) {
                    (Some(BYTE_ARRAY), 0 | 1) if element.children == 0 => Ok((leaf, element.repetition == 1)),
                    (Some(kind), 0 | 1) if element.children == 0 => {
                        let kind =
                            usize::try_from(kind).ok().and_then(|kind| TYPES.get(kind)).unwrap_or(&"something unknown");
                        Err(format!("the column '{column}' holds {kind}, not text"))
                    }
                    _ => Err(format!("the column '{column}' holds lists or structures, not text")),
                };
            }
        }
        if element.children == 0 {
            leaf += 1;
        } else {
            open.push(element.children);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
    }
    Err(format!("there is no column '{column}'; {}", there_are("columns", &names)))
}

/// The chunk of the column `leaf` in a group of rows; `None` if it lies outside the file.
fn row_group(reader: &mut Reader<'_>, leaf: usize, bytes: u64) -> Checked<Option<Chunk>> {
    let mut found = None;
    reader.fields(|reader, field, _| {
        if field == 1 {
            reader.structs(|reader, n| {
                reader.fields(|reader, field, _| {
                    if field == 3 {
                        let chunk = column_chunk(reader, bytes)?;
                        found = if n == leaf { chunk } else { found.take() };
                    }
                    Ok(field == 3)
                })
            })?;
        }
        Ok(field == 1)
    })?;
    Ok(found)
}

fn column_chunk(reader: &mut Reader<'_>, bytes: u64) -> Checked<Option<Chunk>> {
    let mut chunk = Chunk::default();
    let (mut length, mut data, mut dictionary) = (0, 0, None);
    reader.fields(|reader, field, _| {
        match field {
            4 => chunk.codec = reader.number()?,
            5 => chunk.values = reader.count()?,
            7 => length = reader.count()?,
            9 => data = reader.count()?,
            11 => dictionary = Some(reader.count()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // Some writers leave a zero where there is no dictionary.
    chunk.start = dictionary.filter(|&at| at > 0).map_or(data, |at| at.min(data));
    let end = chunk.start.checked_add(length).filter(|end| *end <= bytes);
    Ok(end.map(|end| Chunk { end, ..chunk }))
}
