//! Reading untrusted JSON: sizes are checked before memory is allocated, and duplicate names are
//! errors.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::quoted;
use crate::files::open;
use crate::{Error, ErrorKind, Result};

/// Maximum size of `state.json` and similar files: they contain settings and names, not data.
pub(crate) const MAX_JSON_BYTES: u64 = 64 << 20;

/// An object without duplicate names; `serde_json` alone would use the last one.
#[derive(Debug, Default)]
pub(crate) struct Unique<V>(pub BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Names<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Names<V> {
            type Value = Unique<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Unique<V>, A::Error> {
                let mut all = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let value = match map.next_value() {
                        Ok(value) => value,
                        Err(error) => return Err(A::Error::custom(format!("{}: {error}", quoted(&name)))),
                    };
                    match all.entry(name) {
                        Entry::Vacant(entry) => entry.insert(value),
                        Entry::Occupied(entry) => {
                            return Err(A::Error::custom(format!("{} is duplicated", quoted(entry.key()))));
                        }
                    };
                }
                Ok(Unique(all))
            }
        }
        deserializer.deserialize_map(Names(PhantomData))
    }
}

/// Maximum number of nested values that [`small`] reads.
const MAX_VALUES: usize = 1 << 20;

/// Deserializes a JSON value with a limited number of nested values: a list of digits would take
/// sixteen times the memory of its text.
pub(crate) fn small<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Value, D::Error> {
    Budget(&mut { MAX_VALUES }).deserialize(deserializer)
}

/// Remaining number of values.
struct Budget<'a>(&'a mut usize);

impl<'de> DeserializeSeed<'de> for Budget<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        let Some(left) = self.0.checked_sub(1) else {
            return Err(D::Error::custom(format!("more than {MAX_VALUES} values")));
        };
        *self.0 = left;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Budget<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Value, A::Error> {
        let mut values = vec![];
        while let Some(value) = list.next_element_seed(Budget(self.0))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            values.insert(name, map.next_value_seed(Budget(self.0))?);
        }
        Ok(Value::Object(values))
    }
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, bytes) = open(path)?;
    if bytes > limit {
        return Err(Error::file(path, format!("has {bytes} bytes; at most {limit} are supported")));
    }
    let mut contents = Vec::new();
    let out_of_memory = |_| ErrorKind::OutOfMemory { purpose: path.display().to_string(), bytes };
    contents.try_reserve_exact(bytes as usize).map_err(out_of_memory)?;
    // The file may have grown since its size was read.
    file.take(bytes).read_to_end(&mut contents).map_err(Error::io("read", path))?;
    Ok(contents)
}

/// Reads a JSON file of at most `limit` bytes.
pub(crate) fn read_value(path: &Path, limit: u64) -> Result<Value> {
    let text = read_bounded(path, limit)?;
    serde_json::from_slice(&text).map_err(|error| Error::file(path, format!("is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_match_serde_json_and_large_ones_are_rejected() {
        let read = |text: &str| small(&mut serde_json::Deserializer::from_str(text));
        for text in
            ["null", "true", "-7", "18446744073709551615", "0.1", "\"a\\n\"", "[1,[],{}]", r#"{"a":{"b":[null]}}"#]
        {
            assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert_eq!(read(&list(MAX_VALUES - 1)).unwrap().as_array().unwrap().len(), MAX_VALUES - 1);
        for text in [list(MAX_VALUES), format!("[{}]", vec![list(MAX_VALUES / 2); 3].join(","))] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains("more than 1048576 values"), "{error}");
        }
    }
}
