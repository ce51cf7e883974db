//! The pages of a part of a column: a dictionary, perhaps, then pages of values.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Checked;
use super::compression::decompress;
use super::footer::Chunk;
use super::thrift::{Reader, SHORT};
use super::values::{Dictionary, Texts};

/// A header is read with so many bytes at first; one with statistics of long texts takes more, up to the limit.
const HEADER_BYTES: u64 = 4 << 10;
const LARGEST_HEADER: u64 = 16 << 20;
/// Most values in a page, which has some thousands: more are taken for damage.
const MOST_VALUES: u64 = 1 << 24;

/// Kind of a page that holds a dictionary.
const DICTIONARY: i64 = 2;

/// Reads page after page.
pub(super) struct Pages<'a> {
    file: &'a File,
    chunk: &'a Chunk,
    optional: bool,
    at: u64,
    values: u64,
    dictionary: Dictionary,
    /// Largest page, in bytes.
    limit: u64,
}

/// A page of values, decompressed.
pub(super) struct Page {
    values: u64,
    encoding: i64,
    /// Which values are there, if some may be missing.
    levels: Option<Vec<u8>>,
    bytes: Vec<u8>,
    /// Offset of the values in `bytes`.
    start: usize,
}

#[derive(Default)]
struct Header {
    kind: i64,
    length: u64,
    compressed: u64,
    values: u64,
    encoding: i64,
    level_encoding: i64,
    /// Of the second version of pages, which has levels before what is compressed.
    level_bytes: u64,
    repetition_bytes: u64,
    is_compressed: bool,
}

impl<'a> Pages<'a> {
    pub(super) fn new(file: &'a File, chunk: &'a Chunk, optional: bool, limit: u64) -> Pages<'a> {
        Pages { file, chunk, optional, at: chunk.start, values: 0, dictionary: Dictionary::default(), limit }
    }

    pub(super) fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// The next page of values.
    pub(super) fn next(&mut self) -> Checked<Option<Page>> {
        while self.values < self.chunk.values {
            let header = self.header()?;
            let codec = self.chunk.codec;
            let Header { compressed, length, values, .. } = header;
            if compressed > self.chunk.end - self.at || values > MOST_VALUES {
                return Err(format!(
                    "a page of {compressed} bytes ({length} decompressed, {values} values) is too large to be true"
                ));
            }
            // A dictionary stays while pages are read, with an index of its entries.
            let limit = if header.kind == DICTIONARY { self.limit / 4 } else { self.limit };
            // What cannot be compressed grows a little.
            if length > limit || compressed > limit + limit / 8 {
                let what = format!("a page has {compressed} bytes, {length} decompressed");
                return Err(super::too_large(&what, limit));
            }
            let mut bytes = vec![0; header.compressed as usize];
            self.file.read_exact_at(&mut bytes, self.at).map_err(|error| format!("it cannot be read: {error}"))?;
            self.at += header.compressed;
            let length = header.length as usize;
            match header.kind {
                0 | 3 => self.values += header.values,
                DICTIONARY => {
                    self.dictionary = Dictionary::default();
                    self.dictionary = Dictionary::new(decompress(codec, bytes, length)?, header.values)?;
                    continue;
                }
                // Pages of an index, which nothing here needs.
                _ => continue,
            }
            let short = || "a page is shorter than what should be in it".to_owned();
            let (mut levels, bytes, mut start) = if header.kind == 3 {
                let before = header.repetition_bytes.saturating_add(header.level_bytes);
                if before > bytes.len() as u64 || before > header.length {
                    return Err(short());
                }
                let levels = bytes[header.repetition_bytes as usize..before as usize].to_vec();
                bytes.drain(..before as usize);
                let codec = if header.is_compressed { codec } else { 0 };
                // No values, no bytes: not even those of an empty compressed page.
                let length = length - before as usize;
                (Some(levels), if length == 0 { vec![] } else { decompress(codec, bytes, length)? }, 0)
            } else {
                (None, decompress(codec, bytes, length)?, 0)
            };
            if !self.optional {
                levels = None;
            } else if header.kind == 0 {
                if header.level_encoding != 3 {
                    return Err("a page has levels in an encoding that is not supported".into());
                }
                let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
                let size = u32::from_le_bytes(*size) as usize;
                levels = Some(rest.get(..size).ok_or_else(short)?.to_vec());
                start = 4 + size;
            }
            return Ok(Some(Page { values: header.values, encoding: header.encoding, levels, bytes, start }));
        }
        Ok(None)
    }

    fn header(&mut self) -> Checked<Header> {
        let left = self.chunk.end - self.at;
        let mut size = HEADER_BYTES;
        loop {
            let mut bytes = vec![0; size.min(left) as usize];
            self.file.read_exact_at(&mut bytes, self.at).map_err(|error| format!("it cannot be read: {error}"))?;
            let mut reader = Reader::new(&bytes);
            match header(&mut reader) {
                Ok(header) => {
                    self.at += reader.at() as u64;
                    return Ok(header);
                }
                Err(wrong) if wrong == SHORT && size < left && size < LARGEST_HEADER => size *= 16,
                Err(wrong) => return Err(wrong),
            }
        }
    }
}

fn header(reader: &mut Reader<'_>) -> Checked<Header> {
    let mut header = Header { is_compressed: true, kind: -1, ..Header::default() };
    reader.fields(|reader, field, _| {
        match field {
            1 => header.kind = reader.number()?,
            2 => header.length = reader.count()?,
            3 => header.compressed = reader.count()?,
            // Of pages, dictionaries, and pages of the second version.
            5 | 7 => reader.fields(|reader, inner, _| {
                match inner {
                    1 => header.values = reader.count()?,
                    2 => header.encoding = reader.number()?,
                    3 if field == 5 => header.level_encoding = reader.number()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            8 => reader.fields(|reader, field, kind| {
                match field {
                    1 => header.values = reader.count()?,
                    4 => header.encoding = reader.number()?,
                    5 => header.level_bytes = reader.count()?,
                    6 => header.repetition_bytes = reader.count()?,
                    // The kind of the field is its value.
                    7 => header.is_compressed = kind == 1,
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

impl Page {
    /// The texts of the page, in order.
    pub(super) fn texts<'a>(&'a self, dictionary: &'a Dictionary) -> Checked<Texts<'a>> {
        Texts::new(self.values, self.encoding, self.levels.as_deref(), &self.bytes[self.start..], dictionary)
    }
}
