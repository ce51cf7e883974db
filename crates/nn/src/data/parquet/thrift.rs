//! Thrift's compact protocol, as much as Parquet's headers need.

use super::Checked;

/// Structures within structures; Parquet has five.
const DEEPEST: usize = 16;

const BYTE: u8 = 3;
const BINARY: u8 = 8;
const STRUCT: u8 = 12;

/// Reads values one after the other.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The end of the bytes came first; the caller may have more of them.
pub(super) const SHORT: &str = "a header ends in the middle";

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Checked<u8> {
        let byte = *self.bytes.get(self.at).ok_or(SHORT)?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, count: usize) -> Checked<&'a [u8]> {
        let taken = self.bytes[self.at..].get(..count).ok_or(SHORT)?;
        self.at += count;
        Ok(taken)
    }

    /// A number in groups of seven bits.
    pub(super) fn varint(&mut self) -> Checked<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a header has a number of more than 64 bits".into())
    }

    /// A number of 16, 32 or 64 bits.
    pub(super) fn number(&mut self) -> Checked<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number that counts something.
    pub(super) fn count(&mut self) -> Checked<u64> {
        let number = self.number()?;
        u64::try_from(number).map_err(|_| format!("a header counts {number} of something"))
    }

    pub(super) fn text(&mut self) -> Checked<String> {
        let length = self.varint()?;
        Ok(String::from_utf8_lossy(self.take(usize::try_from(length).unwrap_or(usize::MAX))?).into_owned())
    }

    /// How many elements of which kind a list has.
    pub(super) fn list(&mut self) -> Checked<(usize, u8)> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
        // An element takes a byte at least.
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(SHORT.into());
        }
        Ok((count as usize, byte & 15))
    }

    /// Calls `field` with the number and kind of each field of a structure; it reads the value, or says `false`.
    pub(super) fn fields(&mut self, mut field: impl FnMut(&mut Self, i16, u8) -> Checked<bool>) -> Checked<()> {
        let mut last = 0i16;
        loop {
            let byte = self.byte()?;
            let kind = byte & 15;
            if kind == 0 {
                return Ok(());
            }
            last = if byte >> 4 == 0 { self.number()? as i16 } else { last.wrapping_add(i16::from(byte >> 4)) };
            if !field(self, last, kind)? {
                self.skip(kind, 0)?;
            }
        }
    }

    /// Calls `element` with the index of each structure of a list.
    pub(super) fn structs(&mut self, mut element: impl FnMut(&mut Self, usize) -> Checked<()>) -> Checked<()> {
        let (count, kind) = self.list()?;
        if count > 0 && kind != STRUCT {
            return Err("a header has other things where structures should be".into());
        }
        (0..count).try_for_each(|n| element(self, n))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Checked<()> {
        if depth == DEEPEST {
            return Err("a header is nested too deep".into());
        }
        match kind {
            1 | 2 => {}
            BYTE => {
                self.byte()?;
            }
            4..=6 => {
                self.varint()?;
            }
            7 => {
                self.take(8)?;
            }
            BINARY => {
                let length = self.varint()?;
                self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
            }
            9 | 10 => {
                let (count, kind) = self.list()?;
                for _ in 0..count {
                    // In lists, unlike in fields, truth takes a byte.
                    self.skip(if matches!(kind, 1 | 2) { BYTE } else { kind }, depth + 1)?;
                }
            }
            STRUCT => loop {
                let byte = self.byte()?;
                if byte & 15 == 0 {
                    break;
                }
                if byte >> 4 == 0 {
                    self.varint()?;
                }
                self.skip(byte & 15, depth + 1)?;
            },
            other => return Err(format!("a header has a value of unknown kind {other}")),
        }
        Ok(())
    }
}
