//! Decoder of the RLE and bit-packing hybrid encoding of small integers.

use crate::Result;
use crate::thrift::Reader;
use crate::values::truncated_page;

/// Reads `width` bits, at most 64, at the bit offset `at`; bits after the end are 0.
pub(crate) fn bits(bytes: &[u8], at: usize, width: usize) -> u64 {
    if width == 0 {
        return 0;
    }
    let mut window = 0u128;
    let (first, last) = (at / 8, (at + width).div_ceil(8));
    for (n, &byte) in bytes.iter().take(last).skip(first).enumerate() {
        window |= u128::from(byte) << (8 * n);
    }
    (window >> (at % 8)) as u64 & (u64::MAX >> (64 - width.min(64)))
}

/// Position in a sequence of runs. The bytes are passed to each call.
pub(crate) struct RleDecoder {
    at: usize,
    width: usize,
    run: Run,
}

enum Run {
    Repeated { value: u32, remaining: u64 },
    Packed { bit: usize, remaining: u64 },
}

impl RleDecoder {
    /// Decoder of integers of `width` bits that start at the byte `at`.
    pub(crate) fn new(at: usize, width: usize) -> RleDecoder {
        RleDecoder { at, width, run: Run::Repeated { value: 0, remaining: 0 } }
    }

    /// Starts the next run if the current one is finished.
    fn advance(&mut self, bytes: &[u8]) -> Result<()> {
        while let Run::Repeated { remaining: 0, .. } | Run::Packed { remaining: 0, .. } = self.run {
            let mut reader = Reader::new(&bytes[self.at..]);
            let header = reader.varint().map_err(|_| truncated_page())?;
            self.at += reader.position();
            let rest = &bytes[self.at..];
            if header & 1 == 0 {
                let size = self.width.div_ceil(8);
                let value = bits(rest.get(..size).ok_or_else(truncated_page)?, 0, size * 8) as u32;
                self.at += size;
                self.run = Run::Repeated { value, remaining: header >> 1 };
            } else {
                // Groups of eight values; a truncated last group has as many as fit.
                let groups = header >> 1;
                let size = groups.saturating_mul(self.width as u64).min(rest.len() as u64) as usize;
                let fit = (size * 8).checked_div(self.width).map_or(u64::MAX, |fit| fit as u64);
                let remaining = groups.saturating_mul(8).min(fit);
                if remaining == 0 {
                    return Err(truncated_page());
                }
                self.run = Run::Packed { bit: self.at * 8, remaining };
                self.at += size;
            }
        }
        Ok(())
    }

    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<u32> {
        self.advance(bytes)?;
        Ok(match &mut self.run {
            Run::Repeated { value, remaining } => {
                *remaining -= 1;
                *value
            }
            Run::Packed { bit, remaining } => {
                *remaining -= 1;
                *bit += self.width;
                bits(bytes, *bit - self.width, self.width) as u32
            }
        })
    }

    /// Skips at most `max` zeros of the current run and returns their number.
    pub(crate) fn skip_zeros(&mut self, bytes: &[u8], max: u64) -> Result<u64> {
        self.advance(bytes)?;
        match &mut self.run {
            Run::Repeated { value: 0, remaining } => {
                let skipped = max.min(*remaining);
                *remaining -= skipped;
                Ok(skipped)
            }
            _ => Ok(0),
        }
    }
}
