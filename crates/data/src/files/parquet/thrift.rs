//! Thrift's compact protocol: written field by field, read as a tree.

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Writes structures; fields must rise within each.
#[derive(Default)]
pub(super) struct Writer {
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

    /// Fields are less than 16 apart in all that Parquet has.
    fn field(&mut self, field: i64, kind: u8) {
        self.bytes.push(((field - self.last) as u8) << 4 | kind);
        self.last = field;
    }

    pub(super) fn int(&mut self, field: i64, value: i64) -> &mut Writer {
        self.field(field, I32);
        self.number(value);
        self
    }

    pub(super) fn long(&mut self, field: i64, value: u64) -> &mut Writer {
        self.field(field, I64);
        self.number(value as i64);
        self
    }

    pub(super) fn text(&mut self, field: i64, text: &str) -> &mut Writer {
        self.field(field, BINARY);
        self.varint(text.len() as u64);
        self.bytes.extend(text.as_bytes());
        self
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

    pub(super) fn ints(&mut self, field: i64, values: &[i64]) -> &mut Writer {
        self.list_of(field, values.len(), I32);
        values.iter().for_each(|value| self.number(*value));
        self
    }

    pub(super) fn texts(&mut self, field: i64, texts: &[&str]) -> &mut Writer {
        self.list_of(field, texts.len(), BINARY);
        for text in texts {
            self.varint(text.len() as u64);
            self.bytes.extend(text.as_bytes());
        }
        self
    }

    /// A list of so many structures, each to be written by [`Writer::element`].
    pub(super) fn list(&mut self, field: i64, count: usize) -> &mut Writer {
        self.list_of(field, count, STRUCT);
        self
    }

    /// Begins a structure of a list.
    pub(super) fn element(&mut self) -> &mut Writer {
        self.open.push(self.last);
        self.last = 0;
        self
    }

    /// Begins a structure that is a field.
    pub(super) fn begin(&mut self, field: i64) -> &mut Writer {
        self.field(field, STRUCT);
        self.element()
    }

    /// Ends a structure.
    pub(super) fn end(&mut self) -> &mut Writer {
        self.bytes.push(0);
        self.last = self.open.pop().unwrap_or(0);
        self
    }

    pub(super) fn done(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// A value that was read.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    Struct(Vec<(i64, Value<'a>)>),
}

impl<'a> Value<'a> {
    pub(super) fn field(&self, field: i64) -> Option<&Value<'a>> {
        match self {
            Value::Struct(fields) => fields.iter().find(|(n, _)| *n == field).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(super) fn count(&self, field: i64) -> Option<u64> {
        match self.field(field)? {
            Value::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    pub(super) fn items(&self, field: i64) -> &[Value<'a>] {
        match self.field(field) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }

    pub(super) fn text(&self, field: i64) -> Option<&'a str> {
        match self.field(field)? {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Structures within structures; Parquet has five.
const DEEPEST: usize = 12;

/// Reads one structure from the front of some bytes, and leaves what follows it.
pub(super) fn read<'a>(bytes: &mut &'a [u8]) -> Option<Value<'a>> {
    structure(bytes, 0)
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(bytes)?;
        value |= u64::from(next & 0x7f) << shift;
        if next < 0x80 {
            return Some(value);
        }
    }
    None
}

fn number(bytes: &mut &[u8]) -> Option<i64> {
    let value = varint(bytes)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

fn structure<'a>(bytes: &mut &'a [u8], depth: usize) -> Option<Value<'a>> {
    let (mut fields, mut last) = (vec![], 0);
    loop {
        let head = byte(bytes)?;
        if head & 15 == 0 {
            return Some(Value::Struct(fields));
        }
        last = if head >> 4 == 0 { number(bytes)? } else { last + i64::from(head >> 4) };
        let value = match head & 15 {
            truth @ (1 | 2) => Value::Int((truth == 1) as i64),
            kind => value(bytes, kind, depth + 1)?,
        };
        fields.push((last, value));
    }
}

fn value<'a>(bytes: &mut &'a [u8], kind: u8, depth: usize) -> Option<Value<'a>> {
    if depth > DEEPEST {
        return None;
    }
    Some(match kind {
        1..=3 => Value::Int(byte(bytes)? as i64),
        4..=6 => Value::Int(number(bytes)?),
        7 => Value::Bytes(bytes.split_off(..8)?),
        BINARY => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Value::Bytes(bytes.split_off(..length)?)
        }
        LIST | 10 => {
            let head = byte(bytes)?;
            let count = if head >> 4 == 15 { varint(bytes)? } else { u64::from(head >> 4) };
            // An element takes a byte at least.
            if count > bytes.len() as u64 {
                return None;
            }
            Value::List((0..count).map(|_| value(bytes, head & 15, depth + 1)).collect::<Option<_>>()?)
        }
        STRUCT => structure(bytes, depth)?,
        _ => return None,
    })
}
