//! The header of a safetensors file: JSON that says of each tensor its dtype, its shape and where its bytes are.
//!
//! All of it is checked before a tensor is read: what passes names every byte of the file exactly once, with lengths that
//! fit the file. Memory in proportion to the header's own length is all that this takes.

use std::collections::BTreeMap;
use std::fmt;

use bornite::DType;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::checkpoint::json::Unique;
use crate::checkpoint::names::{check_tensor_name, shown};

/// The name of dtypes in files, and the order in which their tensors are written: large alignments first.
pub(crate) const DTYPES: [(DType, &str); 13] = [
    (DType::U64, "U64"),
    (DType::I64, "I64"),
    (DType::F64, "F64"),
    (DType::F32, "F32"),
    (DType::U32, "U32"),
    (DType::I32, "I32"),
    (DType::BF16, "BF16"),
    (DType::F16, "F16"),
    (DType::U16, "U16"),
    (DType::I16, "I16"),
    (DType::I8, "I8"),
    (DType::U8, "U8"),
    (DType::Bool, "BOOL"),
];

/// More axes than this are a mistake or an attack.
const MAX_RANK: usize = 32;

/// The key that is not a tensor.
pub(crate) const METADATA: &str = "__metadata__";

/// What a reader puts up with.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The longest header. 100 MB, the format's own limit, is more than a million tensors.
    pub max_header_bytes: u64,
    /// Accepts tensors that do not begin at a multiple of their element's size, which some writers make. They are read,
    /// not mapped, so nothing comes of it.
    pub misaligned: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { max_header_bytes: 100_000_000, misaligned: false }
    }
}

/// One tensor of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// First byte, counted from the end of the header.
    pub begin: u64,
    /// Byte after the last one.
    pub end: u64,
}

impl Entry {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.begin
    }
}

/// A header that was checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Strings that the writer added.
    pub metadata: BTreeMap<String, String>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, Entry>,
}

impl Header {
    /// Reads the JSON of a header that `data_bytes` bytes of tensors follow. The error says what is wrong with it.
    pub fn parse(json: &[u8], data_bytes: u64, rules: &Rules) -> Result<Header, String> {
        if json.first() != Some(&b'{') {
            return Err("the header does not begin with '{'".into());
        }
        let raw: RawHeader = serde_json::from_slice(json).map_err(|error| format!("the header: {error}"))?;
        let mut tensors = BTreeMap::new();
        for (name, raw) in raw.tensors.0 {
            let entry = check_tensor_name(&name).and_then(|()| raw.check(&name, data_bytes, rules))?;
            tensors.insert(name, entry);
        }
        check_places(&tensors, data_bytes)?;
        Ok(Header { metadata: raw.metadata.0, tensors })
    }
}

/// Every byte of the data must belong to exactly one tensor.
fn check_places(tensors: &BTreeMap<String, Entry>, data_bytes: u64) -> Result<(), String> {
    let mut places: Vec<(u64, u64, &str)> = tensors.iter().map(|(name, e)| (e.begin, e.end, name.as_str())).collect();
    places.sort_unstable();
    let (mut reached, mut last) = (0, None);
    for (begin, end, name) in places {
        let before = last.map_or("the start".into(), shown);
        if begin > reached {
            return Err(format!(
                "bytes {reached} to {begin}, between {before} and {}, belong to no tensor",
                shown(name)
            ));
        }
        if begin < reached {
            return Err(format!("tensors {before} and {} overlap at byte {begin}", shown(name)));
        }
        (reached, last) = (end, Some(name));
    }
    if reached == data_bytes {
        Ok(())
    } else {
        Err(format!("the tensors end at byte {reached} of the data, which has {data_bytes}"))
    }
}

/// A header as it stands in the file.
struct RawHeader {
    metadata: Unique<String>,
    tensors: Unique<RawEntry>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl RawEntry {
    fn check(self, name: &str, data_bytes: u64, rules: &Rules) -> Result<Entry, String> {
        let name = shown(name);
        let Some((dtype, _)) = DTYPES.into_iter().find(|(_, known)| *known == self.dtype) else {
            let known: Vec<&str> = DTYPES.into_iter().map(|(_, name)| name).collect();
            return Err(format!("tensor {name} has dtype {}, not one of {}", shown(&self.dtype), known.join(", ")));
        };
        if self.shape.len() > MAX_RANK {
            return Err(format!("tensor {name} has {} axes, more than {MAX_RANK}", self.shape.len()));
        }
        // Strides are products of lengths even where there are no elements: an axis of length 0 counts as 1.
        let count = |least: u64| self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d.max(least)));
        let size = |elements: u64| elements.checked_mul(dtype.bytes() as u64).filter(|&n| n <= isize::MAX as u64);
        let (Some(bytes), Some(_)) = (count(0).and_then(size), count(1).and_then(size)) else {
            return Err(format!("tensor {name} has shape {:?}, more than memory can hold", self.shape));
        };
        let (begin, end) = self.data_offsets;
        if begin > end || end > data_bytes {
            return Err(format!("tensor {name} is at bytes {begin} to {end} of {data_bytes}"));
        }
        if end - begin != bytes {
            let (found, shape) = (end - begin, &self.shape);
            return Err(format!("tensor {name} has {found} bytes; {shape:?} of {dtype} are {bytes}"));
        }
        if !rules.misaligned && begin % dtype.bytes() as u64 != 0 {
            return Err(format!(
                "tensor {name} begins at byte {begin}, not a multiple of {}, the size of {dtype}; \
                 `Rules::misaligned` accepts that",
                dtype.bytes()
            ));
        }
        let shape = self.shape.into_iter().map(|d| d as usize).collect();
        Ok(Entry { dtype, shape, begin, end })
    }
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;

        impl<'de> Visitor<'de> for Tensors {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let (mut metadata, mut tensors) = (None, BTreeMap::new());
                while let Some(name) = map.next_key::<String>()? {
                    let about = |error: A::Error| A::Error::custom(format!("{}: {error}", shown(&name)));
                    let twice = if name == METADATA {
                        metadata.replace(map.next_value().map_err(about)?).is_some()
                    } else {
                        let entry = map.next_value().map_err(about)?;
                        tensors.insert(name.clone(), entry).is_some()
                    };
                    if twice {
                        return Err(A::Error::custom(format!("{} is there twice", shown(&name))));
                    }
                }
                Ok(RawHeader { metadata: metadata.unwrap_or_default(), tensors: Unique(tensors) })
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_kept_and_names_the_tensor() {
        let one = |name: &str, rest: &str| format!(r#"{{"{name}":{{{rest}}}}}"#);
        let f32s = r#""dtype":"F32","shape":[2,2],"data_offsets":[0,16]"#;
        let two = |a: &str, b: &str| {
            let entry = |n: &str, at: &str| format!(r#""{n}":{{"dtype":"U8","shape":[8],"data_offsets":[{at}]}}"#);
            format!("{{{},{}}}", entry("a", a), entry("b", b))
        };
        let part = |from: &str, to: &str| one("w", &f32s.replace(from, to));
        for (json, bytes, said) in [
            (one("w", f32s), 16, ""),
            (format!("{}   ", one("w", f32s)), 16, ""),
            (two("0,8", "8,16"), 16, ""),
            (two("8,16", "0,8"), 16, ""),
            ("{}".into(), 0, ""),
            (r#"{"__metadata__":{"a":"b"}}"#.into(), 0, ""),
            (part("[2,2]", "[2,0]").replace("[0,16]", "[0,0]"), 0, ""),
            ("".into(), 0, "does not begin with '{'"),
            (" {}".into(), 0, "does not begin with '{'"),
            ("[]".into(), 0, "does not begin with '{'"),
            ("{}x".into(), 0, "trailing characters"),
            (one("w", f32s), 12, "'w' is at bytes 0 to 16 of 12"),
            (one("w", f32s), 20, "end at byte 16 of the data, which has 20"),
            (part("F32", "F8_E4M3"), 16, "'w' has dtype 'F8_E4M3', not one of U64, I64"),
            (part("[2,2]", "[2,3]"), 16, "'w' has 16 bytes; [2, 3] of f32 are 24"),
            (part("[2,2]", "[4294967296,4294967296,4]"), 16, "more than memory can hold"),
            (part("[2,2]", "[0,18446744073709551615,2]"), 16, "more than memory can hold"),
            (part("[2,2]", "[-1]"), 16, "'w': invalid value"),
            (part("[2,2]", "[2.0,2]"), 16, "'w': invalid type"),
            (part("[2,2]", "2"), 16, "'w': invalid type"),
            (part("[0,16]", "[16,0]"), 16, "'w' is at bytes 16 to 0"),
            (part("[0,16]", "[0,16,0]"), 16, "'w': "),
            (part("[0,16]", "[0]"), 16, "'w': "),
            (part("\"shape\"", "\"shapes\""), 16, "'w': unknown field `shapes`"),
            (part("\"dtype\":\"F32\",", ""), 16, "'w': missing field `dtype`"),
            (one("w", &format!("{f32s},\"shape\":[4]")), 16, "'w': duplicate field `shape`"),
            (two("0,8", "0,8"), 8, "tensors 'a' and 'b' overlap at byte 0"),
            (two("0,8", "4,12"), 12, "tensors 'a' and 'b' overlap at byte 4"),
            (two("0,8", "9,17"), 17, "bytes 8 to 9, between 'a' and 'b', belong to no tensor"),
            (two("1,9", "9,17"), 17, "bytes 0 to 1, between the start and 'a', belong to no tensor"),
            (two("0,8", "8,16").replace("\"b\"", "\"a\""), 16, "'a' is there twice"),
            (one("../w", f32s), 16, "'../w' leads out of its folder"),
            (one("w\\u0007", f32s), 16, "'w\\u{7}' has a control character"),
            (one("", f32s), 16, "'' is empty"),
            (r#"{"__metadata__":{"a":1}}"#.into(), 0, "'__metadata__': 'a': invalid type"),
            (r#"{"__metadata__":{"a":"","a":""}}"#.into(), 0, "'a' is there twice"),
            (r#"{"__metadata__":{},"__metadata__":{}}"#.into(), 0, "'__metadata__' is there twice"),
            ("{\"w\":".to_string() + &"[".repeat(100_000), 0, "'w': invalid type"),
        ] {
            match Header::parse(json.as_bytes(), bytes, &Rules::default()) {
                Ok(_) => assert!(said.is_empty(), "accepted: {json}"),
                Err(error) => assert!(!said.is_empty() && error.contains(said), "{error} instead of {said}"),
            }
        }
    }

    #[test]
    fn misaligned_tensors_are_read_where_that_is_allowed() {
        let json = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[],"data_offsets":[1,5]}}"#;
        let error = Header::parse(json, 5, &Rules::default()).unwrap_err();
        assert!(error.contains("'b' begins at byte 1, not a multiple of 4") && error.contains("misaligned"), "{error}");
        let header = Header::parse(json, 5, &Rules { misaligned: true, ..Rules::default() }).unwrap();
        assert_eq!(header.tensors["b"], Entry { dtype: DType::F32, shape: vec![], begin: 1, end: 5 });
    }
}
