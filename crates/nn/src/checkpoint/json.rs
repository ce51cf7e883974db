//! Reading JSON that nobody vouches for: sizes are bounded before memory is asked for, and a name given twice is an error.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use super::shown;
use crate::files::open;
use crate::{Error, Result};

/// The largest `config.json`, `state.json` and the like: they hold settings and names, not data.
pub(crate) const MAX_JSON_BYTES: u64 = 64 << 20;

/// An object whose names are all different; `serde_json` alone would keep the last of several.
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
                        Err(error) => return Err(A::Error::custom(format!("{}: {error}", shown(&name)))),
                    };
                    match all.entry(name) {
                        Entry::Vacant(place) => place.insert(value),
                        Entry::Occupied(twice) => {
                            return Err(A::Error::custom(format!("{} is there twice", shown(twice.key()))));
                        }
                    };
                }
                Ok(Unique(all))
            }
        }
        deserializer.deserialize_map(Names(PhantomData))
    }
}

/// The contents of a file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, bytes) = open(path)?;
    if bytes > limit {
        return Err(Error::file(path, format!("is {bytes} bytes long; at most {limit} are expected")));
    }
    let mut contents = Vec::new();
    let out_of_memory = |_| Error::OutOfMemory { what: path.display().to_string(), bytes };
    contents.try_reserve_exact(bytes as usize).map_err(out_of_memory)?;
    // The file may have grown since it was asked for its size.
    file.take(bytes).read_to_end(&mut contents).map_err(Error::io("read", path))?;
    Ok(contents)
}

/// A JSON file of at most [`MAX_JSON_BYTES`].
pub(crate) fn read_value(path: &Path) -> Result<serde_json::Value> {
    let text = read_bounded(path, MAX_JSON_BYTES)?;
    serde_json::from_slice(&text).map_err(|error| Error::file(path, format!("is not JSON: {error}")))
}
