//! Lengths as bit-packed differences (DELTA_BINARY_PACKED).

use std::ops::Range;

use crate::runs::bits;
use crate::thrift::Reader;
use crate::values::short;
use crate::{Error, Result};

/// Blocks of differences have 128 values, by most writers.
const LARGEST_BLOCK: u64 = 1 << 20;

/// Position in a sequence of lengths, decoded one at a time: a few bytes can hold millions. The bytes are passed to
/// each call.
#[derive(Clone)]
pub(crate) struct Differences {
    parts: usize,
    per_part: usize,
    /// Values that are still to come.
    left: usize,
    /// The last value; before the first one, that one.
    value: i64,
    started: bool,
    /// Start of the current part, or of the next block.
    at: usize,
    least: i64,
    /// Widths of the current part and of those after it in its block.
    widths: Range<usize>,
    /// Values of the current part that were read.
    read: usize,
}

impl Differences {
    /// Lengths from the byte `at` on, at most `most`, and the offset of the bytes after them.
    pub(crate) fn new(bytes: &[u8], at: usize, most: u64) -> Result<(Differences, usize)> {
        let mut reader = Reader::new(&bytes[at..]);
        let mut number = || reader.varint().map_err(|_| short());
        let (block, parts, total) = (number()?, number()?, number()?);
        let value = reader.number().map_err(|_| short())?;
        let per_part = block.checked_div(parts).unwrap_or(0);
        if block > LARGEST_BLOCK || per_part == 0 || !per_part.is_multiple_of(8) || total > most {
            let what = format!("a page has {total} of {most} values in blocks of {block} in {parts} parts");
            return Err(Error::damaged(format!("{what}, which is impossible")));
        }
        let (parts, per_part, left, at) = (parts as usize, per_part as usize, total as usize, at + reader.at());
        let start = Differences { parts, per_part, left, value, started: false, at, least: 0, widths: 0..0, read: 0 };
        let mut walk = Differences { left: left.saturating_sub(1), started: true, ..start.clone() };
        while walk.left > 0 {
            walk.begin_part(bytes)?;
            walk.left -= walk.per_part.min(walk.left);
            walk.end_part(bytes);
        }
        Ok((start, walk.at))
    }

    /// Reads the header of a block if the one before is over, and checks that the part is there.
    fn begin_part(&mut self, bytes: &[u8]) -> Result<()> {
        if self.widths.is_empty() {
            let mut reader = Reader::new(&bytes[self.at..]);
            self.least = reader.number().map_err(|_| short())?;
            let start = self.at + reader.at();
            let end = start.checked_add(self.parts).filter(|end| *end <= bytes.len()).ok_or_else(short)?;
            (self.widths, self.at) = (start..end, end);
        }
        let width = self.width(bytes);
        let count = self.per_part.min(self.left);
        if width > 64 || self.part(bytes).len() * 8 < width * count {
            return Err(short());
        }
        Ok(())
    }

    /// Bits per difference of the current part.
    fn width(&self, bytes: &[u8]) -> usize {
        bytes[self.widths.clone()].first().map_or(0, |&width| usize::from(width))
    }

    /// Packed differences of the current part; the last one of a page may be cut short.
    fn part<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let size = self.width(bytes) * self.per_part / 8;
        &bytes[self.at..bytes.len().min(self.at + size)]
    }

    fn end_part(&mut self, bytes: &[u8]) {
        self.at += self.part(bytes).len();
        self.widths.start += 1;
        self.read = 0;
    }

    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.left == 0 {
            return Err(short());
        }
        if std::mem::replace(&mut self.started, true) {
            if self.read == 0 {
                self.begin_part(bytes)?;
            }
            let width = self.width(bytes);
            let difference = bits(self.part(bytes), self.read * width, width) as i64;
            self.value = self.value.wrapping_add(self.least).wrapping_add(difference);
            self.read += 1;
            if self.read == self.per_part {
                self.end_part(bytes);
            }
        }
        self.left -= 1;
        usize::try_from(self.value).map_err(|_| Error::damaged("a page has a text of negative length"))
    }
}
