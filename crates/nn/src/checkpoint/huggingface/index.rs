//! `model.safetensors.index.json`: which file of a model in several files holds which tensor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checkpoint::json::Unique;
use crate::checkpoint::names::{check_tensor_name, is_plain_file_name};
use crate::checkpoint::shown;

/// The name of the index in a model's folder.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// An index whose names were checked: every file is one right beside it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    /// The file of each tensor.
    pub files: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RawIndex {
    weight_map: Unique<String>,
}

#[derive(Serialize)]
struct WrittenIndex<'a> {
    metadata: Metadata,
    weight_map: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Metadata {
    total_size: u64,
}

impl Index {
    /// Reads an index. The error says what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Index, String> {
        let raw: RawIndex = serde_json::from_slice(text).map_err(|error| format!("is not an index: {error}"))?;
        for (name, file) in &raw.weight_map.0 {
            check_tensor_name(name)?;
            if !is_plain_file_name(file) || !file.ends_with(".safetensors") {
                let (name, file) = (shown(name), shown(file));
                return Err(format!("tensor {name} is said to be in {file}, not a safetensors file of this folder"));
            }
        }
        Ok(Index { files: raw.weight_map.0 })
    }

    /// The index as it is written.
    pub(crate) fn text(&self, total_bytes: u64) -> Vec<u8> {
        let written = WrittenIndex { metadata: Metadata { total_size: total_bytes }, weight_map: &self.files };
        // Strings and an integer cannot fail to be written.
        serde_json::to_vec_pretty(&written).unwrap_or_default()
    }
}
