//! Decoders of the values of a page: plain, dictionary, delta lengths and delta byte arrays.

use std::ops::Range;

use crate::delta::DeltaDecoder;
use crate::rle::RleDecoder;
use crate::{ColumnType, Error, Result, code};

pub(crate) fn truncated_page() -> Error {
    Error::damaged("a page has fewer values than declared")
}

/// Dictionary of texts, which pages refer to by index.
#[derive(Default)]
pub(crate) struct Dictionary {
    bytes: Vec<u8>,
    /// Offset of the length prefix of each text.
    starts: Vec<u32>,
}

impl Dictionary {
    pub(crate) fn new(bytes: Vec<u8>, count: u64) -> Result<Dictionary> {
        // A text takes at least four bytes.
        if count > bytes.len() as u64 / 4 || bytes.len() > u32::MAX as usize {
            return Err(truncated_page());
        }
        let (mut starts, mut at) = (Vec::with_capacity(count as usize), 0);
        for _ in 0..count {
            starts.push(at as u32);
            at = text(&bytes, at)?.end;
        }
        Ok(Dictionary { bytes, starts })
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        (self.bytes.len() + 4 * self.starts.len()) as u64
    }

    fn get(&self, index: u32) -> Result<Range<usize>> {
        let start = self.starts.get(index as usize);
        let &start = start
            .ok_or_else(|| Error::damaged(format!("a page refers to entry {index}, which is not in its dictionary")))?;
        text(&self.bytes, start as usize)
    }
}

/// Byte range of the text whose length prefix is at `at`.
fn text(bytes: &[u8], at: usize) -> Result<Range<usize>> {
    let length = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(truncated_page)?;
    byte_range(bytes, at + 4, u32::from_le_bytes(*length) as usize)
}

/// Byte range of `length` bytes at `at`, if they are within the page.
fn byte_range(bytes: &[u8], at: usize, length: usize) -> Result<Range<usize>> {
    let end = at.checked_add(length).filter(|end| *end <= bytes.len()).ok_or_else(truncated_page)?;
    Ok(at..end)
}

/// Decoder of one encoding. Offsets are relative to the bytes of the page.
enum Decoder {
    Texts { at: usize },
    Ints { at: usize },
    Indices(RleDecoder),
    Lengths { lengths: DeltaDecoder, at: usize },
    Prefixes { prefixes: DeltaDecoder, lengths: DeltaDecoder, at: usize, last: Vec<u8> },
}

/// Definition levels: 1 for a value, 0 for a null.
pub(crate) struct DefinitionLevels {
    bytes: Vec<u8>,
    runs: RleDecoder,
}

impl DefinitionLevels {
    pub(crate) fn new(bytes: Vec<u8>) -> DefinitionLevels {
        DefinitionLevels { bytes, runs: RleDecoder::new(0, 1) }
    }
}

/// A decompressed page and the position in it.
pub(crate) struct Page {
    bytes: Vec<u8>,
    levels: Option<DefinitionLevels>,
    decoder: Decoder,
    /// Values that are not read yet, nulls included.
    remaining: u64,
    /// Byte range of the current value, in `bytes` or in the decoder's buffer.
    value: Range<usize>,
}

impl Page {
    /// Creates a page of `count` values, encoded from the byte `at` on.
    pub(crate) fn new(
        kind: ColumnType,
        encoding: i64,
        count: u64,
        levels: Option<DefinitionLevels>,
        bytes: Vec<u8>,
        at: usize,
    ) -> Result<Page> {
        let decoder = match (encoding, kind) {
            (code::PLAIN, ColumnType::Text) => Decoder::Texts { at },
            (code::PLAIN, ColumnType::Int) => Decoder::Ints { at },
            (code::PLAIN_DICTIONARY | code::RLE_DICTIONARY, ColumnType::Text) => match bytes.get(at) {
                Some(&width) if width > 32 => {
                    return Err(Error::damaged(format!(
                        "a page has dictionary indices of {width} bits; at most 32 are possible"
                    )));
                }
                Some(&width) => Decoder::Indices(RleDecoder::new(at + 1, usize::from(width))),
                // A page without values may be empty.
                None => Decoder::Texts { at },
            },
            (code::DELTA_LENGTH_BYTE_ARRAY, ColumnType::Text) => {
                let (lengths, at) = DeltaDecoder::new(&bytes, at, count)?;
                Decoder::Lengths { lengths, at }
            }
            (code::DELTA_BYTE_ARRAY, ColumnType::Text) => {
                let (prefixes, at) = DeltaDecoder::new(&bytes, at, count)?;
                let (lengths, at) = DeltaDecoder::new(&bytes, at, count)?;
                Decoder::Prefixes { prefixes, lengths, at, last: vec![] }
            }
            (other, _) => {
                let what = match kind {
                    ColumnType::Text => "texts",
                    ColumnType::Int => "integers",
                };
                let what = format!("a page has {what} in encoding {other}, which is not supported");
                return Err(Error::Unsupported(what));
            }
        };
        Ok(Page { bytes, levels, decoder, remaining: count, value: 0..0 })
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        (self.bytes.len() + self.levels.as_ref().map_or(0, |levels| levels.bytes.len())) as u64
    }

    /// Moves to the next value that is not null and adds the skipped rows to `row`; returns `false`
    /// at the end of the page.
    pub(crate) fn advance(&mut self, dictionary: &Dictionary, row: &mut u64) -> Result<bool> {
        while self.remaining > 0 {
            if let Some(DefinitionLevels { bytes, runs }) = &mut self.levels {
                let zeros = runs.skip_zeros(bytes, self.remaining)?;
                let missing = if zeros > 0 { zeros } else { u64::from(runs.next(bytes)? == 0) };
                if missing > 0 {
                    self.remaining -= missing;
                    *row += missing;
                    continue;
                }
            }
            self.value = self.decode(dictionary)?;
            self.remaining -= 1;
            *row += 1;
            return Ok(true);
        }
        Ok(false)
    }

    fn decode(&mut self, dictionary: &Dictionary) -> Result<Range<usize>> {
        let bytes = &self.bytes;
        let (value, at) = match &mut self.decoder {
            Decoder::Texts { at } => (text(bytes, *at)?, at),
            Decoder::Ints { at } => (byte_range(bytes, *at, 8)?, at),
            Decoder::Indices(indices) => return dictionary.get(indices.next(bytes)?),
            Decoder::Lengths { lengths, at } => (byte_range(bytes, *at, lengths.next(bytes)?)?, at),
            Decoder::Prefixes { prefixes, lengths, at, last } => {
                let prefix = prefixes.next(bytes)?;
                if prefix > last.len() {
                    return Err(truncated_page());
                }
                let rest = byte_range(bytes, *at, lengths.next(bytes)?)?;
                last.truncate(prefix);
                last.extend_from_slice(&bytes[rest.clone()]);
                *at = rest.end;
                return Ok(0..last.len());
            }
        };
        *at = value.end;
        Ok(value)
    }

    /// Bytes of the current value.
    pub(crate) fn value<'a>(&'a self, dictionary: &'a Dictionary) -> &'a [u8] {
        let bytes = match &self.decoder {
            Decoder::Indices(_) => &dictionary.bytes,
            Decoder::Prefixes { last, .. } => last,
            _ => &self.bytes,
        };
        &bytes[self.value.clone()]
    }
}
