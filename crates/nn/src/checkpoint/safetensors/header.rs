//! Header of a safetensors file: JSON with dtype, shape and byte range of each tensor.
//!
//! It is validated before a tensor is read: every byte of the data belongs to exactly one tensor.
//! This takes memory in proportion to the header's length only.

use std::collections::BTreeMap;
use std::fmt;

use bornite::DType;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::checkpoint::json::Unique;
use crate::checkpoint::names::{check_tensor_name, quoted};

/// Names of dtypes in files, in the order in which their tensors are written: largest alignment
/// first.
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

/// Maximum number of axes; more are a mistake or an attack.
const MAX_RANK: usize = 32;

/// Key that is not a tensor.
pub(crate) const METADATA: &str = "__metadata__";

/// Options for reading a file.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Maximum size of the header. The default of 100 MB, the limit of the format, allows more than
    /// a million tensors.
    pub max_header_bytes: u64,
    /// Accepts tensors that are not aligned to their element size, which some writers produce.
    /// Since tensors are read, not mapped, this is safe.
    pub allow_misaligned: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { max_header_bytes: 100_000_000, allow_misaligned: false }
    }
}

/// Dtype, shape and byte range of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorInfo {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// First byte, relative to the end of the header.
    pub begin: u64,
    /// End of the byte range, exclusive.
    pub end: u64,
}

impl TensorInfo {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.begin
    }
}

/// A validated header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Metadata of the writer.
    pub metadata: BTreeMap<String, String>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
}

impl Header {
    /// Parses the JSON of a header, which `data_bytes` bytes of tensors follow. The error describes
    /// the problem.
    pub fn parse(json: &[u8], data_bytes: u64, options: &ReadOptions) -> Result<Header, String> {
        if json.first() != Some(&b'{') {
            return Err("the header does not begin with '{'".into());
        }
        let raw: RawHeader = serde_json::from_slice(json).map_err(|error| format!("the header: {error}"))?;
        let mut tensors = BTreeMap::new();
        for (name, raw) in raw.tensors.0 {
            let entry = check_tensor_name(&name).and_then(|()| raw.check(&name, data_bytes, options))?;
            tensors.insert(name, entry);
        }
        check_coverage(&tensors, data_bytes)?;
        Ok(Header { metadata: raw.metadata.0, tensors })
    }
}

/// Checks that every byte of the data belongs to exactly one tensor.
fn check_coverage(tensors: &BTreeMap<String, TensorInfo>, data_bytes: u64) -> Result<(), String> {
    let mut ranges: Vec<(u64, u64, &str)> = tensors.iter().map(|(name, e)| (e.begin, e.end, name.as_str())).collect();
    ranges.sort_unstable();
    let (mut reached, mut last) = (0, None);
    for (begin, end, name) in ranges {
        let previous = last.map_or("the start".into(), quoted);
        if begin > reached {
            return Err(format!(
                "bytes {reached} to {begin}, between {previous} and {}, belong to no tensor",
                quoted(name)
            ));
        }
        if begin < reached {
            return Err(format!("tensors {previous} and {} overlap at byte {begin}", quoted(name)));
        }
        (reached, last) = (end, Some(name));
    }
    if reached == data_bytes {
        Ok(())
    } else {
        Err(format!("the tensors end at byte {reached} of the data, which has {data_bytes}"))
    }
}

/// Unvalidated header.
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
    fn check(self, name: &str, data_bytes: u64, options: &ReadOptions) -> Result<TensorInfo, String> {
        let name = quoted(name);
        let Some((dtype, _)) = DTYPES.into_iter().find(|(_, known)| *known == self.dtype) else {
            let known: Vec<&str> = DTYPES.into_iter().map(|(_, name)| name).collect();
            return Err(format!("tensor {name} has dtype {}, not one of {}", quoted(&self.dtype), known.join(", ")));
        };
        if self.shape.len() > MAX_RANK {
            return Err(format!("tensor {name} has {} axes; the maximum is {MAX_RANK}", self.shape.len()));
        }
        // Strides are products of lengths even if there are no elements: an axis of length 0 counts
        // as 1.
        let count = |min: u64| self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d.max(min)));
        let size = |elements: u64| elements.checked_mul(dtype.bytes() as u64).filter(|&n| n <= isize::MAX as u64);
        let (Some(bytes), Some(_)) = (count(0).and_then(size), count(1).and_then(size)) else {
            return Err(format!("tensor {name} has shape {:?}, which is too large", self.shape));
        };
        let (begin, end) = self.data_offsets;
        if begin > end || end > data_bytes {
            return Err(format!("tensor {name} is at bytes {begin} to {end} of {data_bytes}"));
        }
        if end - begin != bytes {
            let (found, shape) = (end - begin, &self.shape);
            return Err(format!("tensor {name} has {found} bytes; {shape:?} of {dtype} are {bytes}"));
        }
        if !options.allow_misaligned && begin % dtype.bytes() as u64 != 0 {
            return Err(format!(
                "tensor {name} begins at byte {begin}, not a multiple of {}, the size of {dtype}; \
                 `ReadOptions::allow_misaligned` accepts that",
                dtype.bytes()
            ));
        }
        let shape = self.shape.into_iter().map(|d| d as usize).collect();
        Ok(TensorInfo { dtype, shape, begin, end })
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
                    let about = |error: A::Error| A::Error::custom(format!("{}: {error}", quoted(&name)));
                    let twice = if name == METADATA {
                        metadata.replace(map.next_value().map_err(about)?).is_some()
                    } else {
                        let entry = map.next_value().map_err(about)?;
                        tensors.insert(name.clone(), entry).is_some()
                    };
                    if twice {
                        return Err(A::Error::custom(format!("{} is duplicated", quoted(&name))));
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
    fn invalid_headers_are_rejected_with_the_name_of_the_tensor() {
        let one = |name: &str, rest: &str| format!(r#"{{"{name}":{{{rest}}}}}"#);
        let f32s = r#""dtype":"F32","shape":[2,2],"data_offsets":[0,16]"#;
        let two = |a: &str, b: &str| {
            let entry = |n: &str, at: &str| format!(r#""{n}":{{"dtype":"U8","shape":[8],"data_offsets":[{at}]}}"#);
            format!("{{{},{}}}", entry("a", a), entry("b", b))
        };
        let part = |from: &str, to: &str| one("w", &f32s.replace(from, to));
        for (json, bytes, expected) in [
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
            (part("[2,2]", "[4294967296,4294967296,4]"), 16, "which is too large"),
            (part("[2,2]", "[0,18446744073709551615,2]"), 16, "which is too large"),
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
            (two("0,8", "8,16").replace("\"b\"", "\"a\""), 16, "'a' is duplicated"),
            (one("../w", f32s), 16, "'../w' leads out of its folder"),
            (one("w\\u0007", f32s), 16, "'w\\u{7}' has a control character"),
            (one("", f32s), 16, "'' is empty"),
            (r#"{"__metadata__":{"a":1}}"#.into(), 0, "'__metadata__': 'a': invalid type"),
            (r#"{"__metadata__":{"a":"","a":""}}"#.into(), 0, "'a' is duplicated"),
            (r#"{"__metadata__":{},"__metadata__":{}}"#.into(), 0, "'__metadata__' is duplicated"),
            ("{\"w\":".to_string() + &"[".repeat(100_000), 0, "'w': invalid type"),
        ] {
            match Header::parse(json.as_bytes(), bytes, &ReadOptions::default()) {
                Ok(_) => assert!(expected.is_empty(), "accepted: {json}"),
                Err(error) => {
                    assert!(!expected.is_empty() && error.contains(expected), "{error} instead of {expected}")
                }
            }
        }
    }

    #[test]
    fn misaligned_tensors_are_accepted_if_allowed() {
        let json = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[],"data_offsets":[1,5]}}"#;
        let error = Header::parse(json, 5, &ReadOptions::default()).unwrap_err();
        assert!(error.contains("'b' begins at byte 1, not a multiple of 4") && error.contains("misaligned"), "{error}");
        let header = Header::parse(json, 5, &ReadOptions { allow_misaligned: true, ..ReadOptions::default() }).unwrap();
        assert_eq!(header.tensors["b"], TensorInfo { dtype: DType::F32, shape: vec![], begin: 1, end: 5 });
    }
}
