//! Reader of one column, page by page. A column chunk has an optional dictionary page, then data
//! pages.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::compression::decompress;
use crate::footer::{Chunk, Column};
use crate::thrift::{FALSE, INT, Reader, STRUCT, TRUE};
use crate::values::{DefinitionLevels, Dictionary, Page};
use crate::{ColumnType, Error, Result, code};

/// Bytes read for a page header at first; a header with statistics of long texts takes more, up to
/// the limit.
const HEADER_BYTES: u64 = 4 << 10;
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// Maximum number of values in a page. Pages have some thousands; a larger count is taken for
/// damage.
const MAX_PAGE_VALUES: u64 = 1 << 24;

/// Position in a column.
pub(crate) struct ColumnReader<'a> {
    file: &'a File,
    kind: ColumnType,
    optional: bool,
    chunk: Chunk,
    /// Offset of the next page in the file.
    at: u64,
    /// Values in the pages of the chunk that are not read yet.
    remaining: u64,
    dictionary: Dictionary,
    page: Option<Page>,
    /// Number of rows up to and including the current one.
    row: u64,
}

struct Header {
    kind: i64,
    length: u64,
    compressed: u64,
    values: u64,
    encoding: i64,
    level_encoding: i64,
    /// Only in data page v2, where the levels precede the compressed part.
    level_bytes: u64,
    repetition_bytes: u64,
    is_compressed: bool,
}

impl<'a> ColumnReader<'a> {
    pub(crate) fn new(file: &'a File, column: &Column, kind: ColumnType) -> ColumnReader<'a> {
        let (dictionary, optional) = (Dictionary::default(), column.optional);
        ColumnReader {
            file,
            kind,
            optional,
            chunk: Chunk::default(),
            at: 0,
            remaining: 0,
            dictionary,
            page: None,
            row: 0,
        }
    }

    /// Continues with another chunk.
    pub(crate) fn start(&mut self, chunk: Chunk) {
        (self.at, self.remaining, self.chunk) = (chunk.start, chunk.values, chunk);
        (self.dictionary, self.page) = (Dictionary::default(), None);
    }

    /// Number of rows up to and including the current one, rows without a value included.
    pub(crate) fn row(&self) -> u64 {
        self.row
    }

    /// Memory taken by the current page and dictionary.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.dictionary.held_bytes() + self.page.as_ref().map_or(0, Page::held_bytes)
    }

    /// Bytes of the current value.
    pub(crate) fn value(&self) -> &[u8] {
        self.page.as_ref().map_or(&[], |page| page.value(&self.dictionary))
    }

    /// Moves to the next value that is not null; returns `false` at the end of the chunk. A page
    /// and the `held_elsewhere` bytes of other columns may take `limit` bytes in total.
    pub(crate) fn advance(&mut self, limit: u64, held_elsewhere: u64) -> Result<bool> {
        loop {
            if let Some(page) = &mut self.page
                && page.advance(&self.dictionary, &mut self.row)?
            {
                return Ok(true);
            }
            self.page = None;
            if self.remaining == 0 {
                return Ok(false);
            }
            self.load(limit, held_elsewhere)?;
        }
    }

    /// Reads the next page of the chunk.
    fn load(&mut self, limit: u64, held_elsewhere: u64) -> Result<()> {
        let header = self.header()?;
        let Header { kind, length, compressed, values, .. } = header;
        if compressed > self.chunk.end - self.at || values > MAX_PAGE_VALUES {
            return Err(Error::damaged(format!(
                "a page header declares {compressed} bytes ({length} decompressed, {values} values), which is impossible"
            )));
        }
        // A dictionary stays in memory while pages are read, with an index of its entries.
        let limit_bytes = if kind == code::DICTIONARY_PAGE { limit / 4 } else { limit };
        // Incompressible data grows a little.
        let grown = limit_bytes.saturating_add(limit_bytes / 8);
        if length > limit_bytes || length.saturating_add(held_elsewhere) > limit || compressed > grown {
            let beside = match held_elsewhere {
                0 => String::new(),
                bytes => format!(", in addition to {bytes} bytes of other columns"),
            };
            let what = format!("a page has {compressed} bytes, {length} decompressed{beside}");
            return Err(Error::TooLarge { what, limit_bytes });
        }
        let mut bytes = vec![0; compressed as usize];
        self.file.read_exact_at(&mut bytes, self.at)?;
        self.at += compressed;
        match kind {
            code::DATA_PAGE | code::DATA_PAGE_V2 if values > self.remaining => {
                let what =
                    format!("a page has {values} values, but only {} remain in its column chunk", self.remaining);
                return Err(Error::damaged(what));
            }
            code::DATA_PAGE => self.page = Some(self.data_page(&header, bytes)?),
            code::DATA_PAGE_V2 => self.page = Some(self.data_page_v2(&header, bytes)?),
            code::DICTIONARY_PAGE if self.kind == ColumnType::Text => {
                self.dictionary = Dictionary::default();
                let bytes = decompress(self.chunk.codec, bytes, length as usize)?;
                self.dictionary = Dictionary::new(bytes, values)?;
                return Ok(());
            }
            // Index pages, which are not needed, and dictionaries of integers, which are not
            // supported: their data page fails.
            _ => return Ok(()),
        }
        self.remaining -= values;
        Ok(())
    }

    fn data_page(&self, header: &Header, bytes: Vec<u8>) -> Result<Page> {
        let bytes = decompress(self.chunk.codec, bytes, header.length as usize)?;
        let (mut levels, mut start) = (None, 0);
        if self.optional {
            if header.level_encoding != code::RLE {
                let what = "a page has definition levels in an encoding that is not supported";
                return Err(Error::Unsupported(what.into()));
            }
            let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(page_too_short)?;
            let size = u32::from_le_bytes(*size) as usize;
            levels = Some(DefinitionLevels::new(rest.get(..size).ok_or_else(page_too_short)?.to_vec()));
            start = 4 + size;
        }
        Page::new(self.kind, header.encoding, header.values, levels, bytes, start)
    }

    fn data_page_v2(&self, header: &Header, mut bytes: Vec<u8>) -> Result<Page> {
        let before = header.repetition_bytes.saturating_add(header.level_bytes);
        if before > bytes.len() as u64 || before > header.length {
            return Err(page_too_short());
        }
        let levels = bytes[header.repetition_bytes as usize..before as usize].to_vec();
        let levels = self.optional.then(|| DefinitionLevels::new(levels));
        bytes.drain(..before as usize);
        let codec = if header.is_compressed { self.chunk.codec } else { code::UNCOMPRESSED };
        let length = (header.length - before) as usize;
        // A page without values has no bytes, not even those of an empty compressed page.
        let bytes = if length == 0 { vec![] } else { decompress(codec, bytes, length)? };
        Page::new(self.kind, header.encoding, header.values, levels, bytes, 0)
    }

    fn header(&mut self) -> Result<Header> {
        let remaining = self.chunk.end - self.at;
        let mut size = HEADER_BYTES;
        loop {
            let mut bytes = vec![0; size.min(remaining) as usize];
            self.file.read_exact_at(&mut bytes, self.at)?;
            let mut reader = Reader::new(&bytes);
            match header(&mut reader) {
                Ok(header) => {
                    self.at += reader.position() as u64;
                    return Ok(header);
                }
                Err(Error::Truncated) if size < remaining && size < MAX_HEADER_BYTES => size *= 16,
                Err(error) => return Err(error),
            }
        }
    }
}

fn page_too_short() -> Error {
    Error::damaged("a page is shorter than its contents")
}

fn header(reader: &mut Reader<'_>) -> Result<Header> {
    let mut header = Header {
        kind: -1,
        length: 0,
        compressed: 0,
        values: 0,
        encoding: 0,
        level_encoding: 0,
        level_bytes: 0,
        repetition_bytes: 0,
        is_compressed: true,
    };
    reader.fields(|reader, field, kind| {
        match (field, kind) {
            (1, INT) => header.kind = reader.number()?,
            (2, INT) => header.length = reader.count()?,
            (3, INT) => header.compressed = reader.count()?,
            // Data page and dictionary page headers; data page v2 follows below.
            (5 | 7, STRUCT) => reader.fields(|reader, inner, kind| {
                match (inner, kind) {
                    (1, INT) => header.values = reader.count()?,
                    (2, INT) => header.encoding = reader.number()?,
                    (3, INT) if field == 5 => header.level_encoding = reader.number()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            (8, STRUCT) => reader.fields(|reader, field, kind| {
                match (field, kind) {
                    (1, INT) => header.values = reader.count()?,
                    (4, INT) => header.encoding = reader.number()?,
                    (5, INT) => header.level_bytes = reader.count()?,
                    (6, INT) => header.repetition_bytes = reader.count()?,
                    (7, TRUE | FALSE) => header.is_compressed = kind == TRUE,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(header)
}
