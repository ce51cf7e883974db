//! JSON Lines: one JSON object per line.

use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

use bornite_support::{INPUT_LIMIT_VARIABLE, MAX_LISTED, list_names};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::documents::{Sink, not_utf8, pieces};
use crate::tokenizer::PreTokenizer;
use crate::train::format_bytes;
use crate::{Error, Result};

/// Passes the texts of a field to `sink`. A line may have a quarter of `limit` bytes, since text
/// with escapes is in memory three times while it is parsed.
pub(super) fn read(
    mut reader: impl BufRead,
    path: &Path,
    field: &str,
    pre_tokenizer: PreTokenizer,
    limit: u64,
    sink: Sink<'_>,
) -> Result<()> {
    let max_line_bytes = limit / 4;
    let (mut line, mut number, mut offset) = (vec![], 0u64, 0u64);
    loop {
        line.clear();
        let bytes =
            reader.by_ref().take(max_line_bytes).read_until(b'\n', &mut line).map_err(Error::io("read", path))?;
        if bytes == 0 {
            return Ok(());
        }
        number += 1;
        if bytes as u64 == max_line_bytes {
            let limit = format_bytes(max_line_bytes.into());
            let what = format!(
                "line {number} is longer than {limit}, a quarter of {INPUT_LIMIT_VARIABLE}; raise that variable"
            );
            return Err(Error::file(path, what));
        }
        let text = match std::str::from_utf8(&line) {
            Ok(text) => text,
            Err(error) => {
                let at = error.valid_up_to();
                return Err(not_utf8(path, offset + at as u64, number, line.get(at).copied()));
            }
        };
        offset += bytes as u64;
        if text.trim().is_empty() {
            continue;
        }
        let mut parser = serde_json::Deserializer::from_str(text);
        let found = Field(field).deserialize(&mut parser).and_then(|found| parser.end().map(|()| found));
        let found = found.map_err(|error| Error::file(path, format!("line {number} is not a JSON object: {error}")))?;
        match found {
            Found::Field(Content::Text(text)) => pieces(&text, pre_tokenizer, sink)?,
            // Null is not a document.
            Found::Field(Content::Null) => {}
            Found::Field(Content::Other(kind)) => {
                return Err(Error::file(path, format!("line {number}: the field '{field}' is {kind}, not a string")));
            }
            Found::Names(names) => {
                return Err(Error::file(
                    path,
                    format!("line {number} has no field '{field}'; {}", list_names("fields", &names)),
                ));
            }
        }
    }
}

/// Value of a field. Only text is stored: a tree of other values would take many times the bytes of
/// the line.
enum Content {
    Text(String),
    Null,
    Other(&'static str),
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Content, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<Content, E> {
                Ok(Content::Text(text.into()))
            }

            fn visit_unit<E>(self) -> std::result::Result<Content, E> {
                Ok(Content::Null)
            }

            fn visit_bool<E>(self, _: bool) -> std::result::Result<Content, E> {
                Ok(Content::Other("a boolean"))
            }

            fn visit_i64<E>(self, _: i64) -> std::result::Result<Content, E> {
                Ok(Content::Other("a number"))
            }

            fn visit_u64<E>(self, _: u64) -> std::result::Result<Content, E> {
                Ok(Content::Other("a number"))
            }

            fn visit_f64<E>(self, _: f64) -> std::result::Result<Content, E> {
                Ok(Content::Other("a number"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Content, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Content::Other("a list"))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Content, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Content::Other("an object"))
            }
        }
        from.deserialize_any(Any)
    }
}

enum Found {
    Field(Content),
    /// Names of the other fields.
    Names(Vec<String>),
}

/// Extracts one field of an object and skips the others without building them.
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
                if names.len() <= MAX_LISTED {
                    names.push(name);
                }
            }
        }
        Ok(value.map_or(Found::Names(names), Found::Field))
    }
}
