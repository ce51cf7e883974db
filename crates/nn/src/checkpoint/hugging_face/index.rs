//! `model.safetensors.index.json`: the file of each tensor of a sharded model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checkpoint::json::Unique;
use crate::checkpoint::names::{check_tensor_name, is_plain_file_name};
use crate::checkpoint::quoted;

/// File name of the index.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// A validated index: every file is in the folder of the index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShardIndex {
    /// File of each tensor.
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

impl ShardIndex {
    /// Parses an index. The error describes the problem.
    pub fn parse(text: &[u8]) -> Result<ShardIndex, String> {
        let raw: RawIndex = serde_json::from_slice(text).map_err(|error| format!("is not a valid index: {error}"))?;
        for (name, file) in &raw.weight_map.0 {
            check_tensor_name(name)?;
            if !is_plain_file_name(file) || !file.ends_with(".safetensors") {
                let (name, file) = (quoted(name), quoted(file));
                return Err(format!(
                    "tensor {name} is listed in {file}, which is not a safetensors file of this folder"
                ));
            }
        }
        Ok(ShardIndex { files: raw.weight_map.0 })
    }

    /// Serializes the index.
    pub(crate) fn text(&self, total_bytes: u64) -> Vec<u8> {
        let written = WrittenIndex { metadata: Metadata { total_size: total_bytes }, weight_map: &self.files };
        // Strings and an integer cannot fail to serialize.
        serde_json::to_vec_pretty(&written).unwrap_or_default()
    }
}
