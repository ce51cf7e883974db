//! Thrift's compact protocol, as far as Parquet's headers need it.

use crate::{Error, Result};

/// Maximum nesting depth of structs; Parquet has five levels.
const MAX_DEPTH: usize = 16;

/// Types of fields. Integers of all widths are read as `INT`.
pub(crate) const TRUE: u8 = 1;
pub(crate) const FALSE: u8 = 2;
const BYTE: u8 = 3;
pub(crate) const INT: u8 = 5;
const LONG: u8 = 6;
const DOUBLE: u8 = 7;
pub(crate) const BINARY: u8 = 8;
pub(crate) const LIST: u8 = 9;
const SET: u8 = 10;
pub(crate) const STRUCT: u8 = 12;

/// Decoder.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Number of bytes read.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Error::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let taken = self.bytes[self.at..].get(..count).ok_or(Error::Truncated)?;
        self.at += count;
        Ok(taken)
    }

    /// Reads an unsigned varint.
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::damaged("a header has a number of more than 64 bits"))
    }

    /// Reads a zigzag-encoded integer of 16, 32 or 64 bits.
    pub(crate) fn number(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads an integer that is a count, a size or an offset.
    pub(crate) fn count(&mut self) -> Result<u64> {
        let number = self.number()?;
        u64::try_from(number).map_err(|_| Error::damaged(format!("a header has the negative count {number}")))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let length = self.varint()?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    /// Reads the header of a list: number and type of its elements.
    fn list(&mut self) -> Result<(usize, u8)> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
        // An element takes at least one byte.
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(Error::Truncated);
        }
        Ok((count as usize, byte & 15))
    }

    /// Calls `field` with the id and type of each field of a struct; it reads the value, or returns
    /// `false` to skip it.
    pub(crate) fn fields(&mut self, mut field: impl FnMut(&mut Self, i16, u8) -> Result<bool>) -> Result<()> {
        let mut last = 0i16;
        loop {
            let byte = self.byte()?;
            let kind = match byte & 15 {
                0 => return Ok(()),
                4..=6 => INT,
                other => other,
            };
            last = if byte >> 4 == 0 { self.number()? as i16 } else { last.wrapping_add(i16::from(byte >> 4)) };
            if !field(self, last, kind)? {
                self.skip(kind, 0)?;
            }
        }
    }

    /// Reads the header of a list of structs and returns their number. Each is then read by
    /// [`Reader::fields`].
    pub(crate) fn structs(&mut self) -> Result<usize> {
        let (count, kind) = self.list()?;
        if count > 0 && kind != STRUCT {
            return Err(Error::damaged("a header has a list of another type where a list of structs is expected"));
        }
        Ok(count)
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<()> {
        if depth == MAX_DEPTH {
            return Err(Error::damaged("a header is nested too deeply"));
        }
        match kind {
            TRUE | FALSE => {}
            BYTE => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            DOUBLE => drop(self.take(8)?),
            BINARY => {
                let length = self.varint()?;
                self.take(length)?;
            }
            LIST | SET => {
                let (count, kind) = self.list()?;
                for _ in 0..count {
                    // In lists, unlike in fields, a boolean takes a byte.
                    self.skip(if matches!(kind, TRUE | FALSE) { BYTE } else { kind }, depth + 1)?;
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
            other => return Err(Error::damaged(format!("a header has a value of unknown type {other}"))),
        }
        Ok(())
    }
}

/// Encoder of structs; field ids must increase within each.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    last: i64,
    open: Vec<i64>,
}

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn number(&mut self, value: i64) {
        self.varint((value << 1 ^ value >> 63) as u64);
    }

    /// The difference of field ids is less than 16 in all of Parquet.
    fn field(&mut self, field: i64, kind: u8) {
        self.bytes.push(((field - self.last) as u8) << 4 | kind);
        self.last = field;
    }

    pub(crate) fn int(&mut self, field: i64, value: i64) -> &mut Writer {
        self.field(field, INT);
        self.number(value);
        self
    }

    pub(crate) fn long(&mut self, field: i64, value: u64) -> &mut Writer {
        self.field(field, LONG);
        self.number(value as i64);
        self
    }

    pub(crate) fn text(&mut self, field: i64, text: &str) -> &mut Writer {
        self.field(field, BINARY);
        self.binary(text);
        self
    }

    fn binary(&mut self, text: &str) {
        self.varint(text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }

    fn list_of(&mut self, field: i64, count: usize, kind: u8) {
        self.field(field, LIST);
        if count < 15 {
            self.bytes.push((count as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            self.varint(count as u64);
        }
    }

    pub(crate) fn ints(&mut self, field: i64, values: &[i64]) -> &mut Writer {
        self.list_of(field, values.len(), INT);
        values.iter().for_each(|value| self.number(*value));
        self
    }

    pub(crate) fn texts(&mut self, field: i64, texts: &[&str]) -> &mut Writer {
        self.list_of(field, texts.len(), BINARY);
        texts.iter().for_each(|text| self.binary(text));
        self
    }

    /// Begins a list of `count` structs, each started by [`Writer::element`].
    pub(crate) fn list(&mut self, field: i64, count: usize) -> &mut Writer {
        self.list_of(field, count, STRUCT);
        self
    }

    /// Begins a struct in a list.
    pub(crate) fn element(&mut self) -> &mut Writer {
        self.open.push(self.last);
        self.last = 0;
        self
    }

    /// Begins a struct that is a field.
    pub(crate) fn begin(&mut self, field: i64) -> &mut Writer {
        self.field(field, STRUCT);
        self.element()
    }

    /// Ends a struct.
    pub(crate) fn end(&mut self) -> &mut Writer {
        self.bytes.push(0);
        self.last = self.open.pop().unwrap_or(0);
        self
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}
