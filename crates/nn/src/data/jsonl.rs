//! One JSON object a line.

use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::documents::{Piece, Sink, not_utf8};
use crate::{Error, Result};

/// A longer line is taken for a file that has no lines.
const LONGEST_BYTES: u64 = 256 << 20;
/// So many fields are named in a message.
const NAMED: usize = 20;

pub(super) fn read(mut reader: impl BufRead, path: &Path, field: &str, sink: Sink<'_>) -> Result<()> {
    let (mut line, mut number, mut before) = (vec![], 0u64, 0u64);
    loop {
        line.clear();
        let bytes =
            reader.by_ref().take(LONGEST_BYTES).read_until(b'\n', &mut line).map_err(Error::io("read", path))?;
        if bytes == 0 {
            return Ok(());
        }
        number += 1;
        if bytes as u64 == LONGEST_BYTES {
            return Err(Error::file(path, format!("line {number} has more than {} MiB", LONGEST_BYTES >> 20)));
        }
        let text = match std::str::from_utf8(&line) {
            Ok(text) => text,
            Err(error) => {
                let at = error.valid_up_to();
                return Err(not_utf8(path, before + at as u64, number, line.get(at).copied()));
            }
        };
        before += bytes as u64;
        if text.trim().is_empty() {
            continue;
        }
        let mut parser = serde_json::Deserializer::from_str(text);
        let found = Field(field).deserialize(&mut parser).and_then(|found| parser.end().map(|()| found));
        let found = found.map_err(|error| Error::file(path, format!("line {number} is not a JSON object: {error}")))?;
        match found {
            Found::Value(Value::String(text)) => sink(Piece::whole(text))?,
            // No text is no document.
            Found::Value(Value::Null) => {}
            Found::Value(other) => {
                let kind = kind(&other);
                return Err(Error::file(path, format!("line {number}: the field '{field}' is {kind}, not a string")));
            }
            Found::Names(names) => {
                return Err(Error::file(
                    path,
                    format!("line {number} has no field '{field}'; {}", there_are("fields", &names)),
                ));
            }
        }
    }
}

/// What there is in place of what was asked for.
pub(super) fn there_are(what: &str, names: &[String]) -> String {
    if names.is_empty() {
        return format!("it has no {what} at all");
    }
    let mut list: Vec<String> = names.iter().take(NAMED).map(|name| format!("'{name}'")).collect();
    if names.len() > NAMED {
        list.push(format!("and {} more", names.len() - NAMED));
    }
    format!("its {what} are {}", list.join(", "))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

enum Found {
    Value(Value),
    /// The fields that are there instead.
    Names(Vec<String>),
}

/// Takes one field of an object and skips the others without making anything of them.
struct Field<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Found, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Found, M::Error> {
        let (mut value, mut names) = (None, vec![]);
        while let Some(name) = map.next_key::<String>()? {
            if name == self.0 {
                value = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
                if names.len() <= NAMED {
                    names.push(name);
                }
            }
        }
        Ok(value.map_or(Found::Names(names), Found::Value))
    }
}
