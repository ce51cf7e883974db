//! Decoder of DELTA_BINARY_PACKED: lengths as bit-packed differences.

use std::ops::Range;

use crate::rle::bits;
use crate::thrift::Reader;
use crate::values::truncated_page;
use crate::{Error, Result};

/// Maximum number of values in a block; most writers use 128.
const MAX_BLOCK_VALUES: u64 = 1 << 20;

/// Position in a sequence of lengths, decoded one at a time: a few bytes can encode millions. The
/// bytes are passed to each call.
#[derive(Clone)]
pub(crate) struct DeltaDecoder {
    miniblocks: usize,
    values_per_miniblock: usize,
    /// Values that are not decoded yet.
    remaining: usize,
    /// The last decoded value; before the first call, the first value.
    value: i64,
    started: bool,
    /// Offset of the current miniblock, or of the next block.
    at: usize,
    min_delta: i64,
    /// Offsets of the bit widths of the current miniblock and of those after it in its block.
    widths: Range<usize>,
    /// Values of the current miniblock that were decoded.
    read: usize,
}

impl DeltaDecoder {
    /// Decoder of at most `max` lengths that start at the byte `at`. Also returns the offset of the
    /// bytes after them.
    pub(crate) fn new(bytes: &[u8], at: usize, max: u64) -> Result<(DeltaDecoder, usize)> {
        let mut reader = Reader::new(&bytes[at..]);
        let mut number = || reader.varint().map_err(|_| truncated_page());
        let (block, miniblocks, total) = (number()?, number()?, number()?);
        let value = reader.number().map_err(|_| truncated_page())?;
        let values_per_miniblock = block.checked_div(miniblocks).unwrap_or(0);
        if block > MAX_BLOCK_VALUES
            || values_per_miniblock == 0
            || !values_per_miniblock.is_multiple_of(8)
            || total > max
        {
            let what = format!(
                "a page declares {total} lengths for {max} values, in blocks of {block} with {miniblocks} miniblocks"
            );
            return Err(Error::damaged(format!("{what}, which is impossible")));
        }
        let (miniblocks, values_per_miniblock, remaining, at) =
            (miniblocks as usize, values_per_miniblock as usize, total as usize, at + reader.position());
        let start = DeltaDecoder {
            miniblocks,
            values_per_miniblock,
            remaining,
            value,
            started: false,
            at,
            min_delta: 0,
            widths: 0..0,
            read: 0,
        };
        let mut walk = DeltaDecoder { remaining: remaining.saturating_sub(1), started: true, ..start.clone() };
        while walk.remaining > 0 {
            walk.begin_miniblock(bytes)?;
            walk.remaining -= walk.values_per_miniblock.min(walk.remaining);
            walk.end_miniblock(bytes);
        }
        Ok((start, walk.at))
    }

    /// Reads the header of the next block if the current one is finished, and checks that the
    /// miniblock is complete.
    fn begin_miniblock(&mut self, bytes: &[u8]) -> Result<()> {
        if self.widths.is_empty() {
            let mut reader = Reader::new(&bytes[self.at..]);
            self.min_delta = reader.number().map_err(|_| truncated_page())?;
            let start = self.at + reader.position();
            let end =
                start.checked_add(self.miniblocks).filter(|end| *end <= bytes.len()).ok_or_else(truncated_page)?;
            (self.widths, self.at) = (start..end, end);
        }
        let width = self.width(bytes);
        let count = self.values_per_miniblock.min(self.remaining);
        if width > 64 || self.miniblock(bytes).len() * 8 < width * count {
            return Err(truncated_page());
        }
        Ok(())
    }

    /// Bit width of the current miniblock.
    fn width(&self, bytes: &[u8]) -> usize {
        bytes[self.widths.clone()].first().map_or(0, |&width| usize::from(width))
    }

    /// Packed differences of the current miniblock; the last one of a page may be truncated.
    fn miniblock<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let size = self.width(bytes) * self.values_per_miniblock / 8;
        &bytes[self.at..bytes.len().min(self.at + size)]
    }

    fn end_miniblock(&mut self, bytes: &[u8]) {
        self.at += self.miniblock(bytes).len();
        self.widths.start += 1;
        self.read = 0;
    }

    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.remaining == 0 {
            return Err(truncated_page());
        }
        if std::mem::replace(&mut self.started, true) {
            if self.read == 0 {
                self.begin_miniblock(bytes)?;
            }
            let width = self.width(bytes);
            let difference = bits(self.miniblock(bytes), self.read * width, width) as i64;
            self.value = self.value.wrapping_add(self.min_delta).wrapping_add(difference);
            self.read += 1;
            if self.read == self.values_per_miniblock {
                self.end_miniblock(bytes);
            }
        }
        self.remaining -= 1;
        usize::try_from(self.value).map_err(|_| Error::damaged("a page has a negative text length"))
    }
}
