//! Layout of a file to be written: header and offset of each tensor. Tensors are ordered as in the
//! reference implementation (largest elements first, then by name), so that equal tensors give
//! equal files.

use std::collections::BTreeMap;
use std::fmt::Write;

use bornite::{DType, Tensor};

use super::header::{DTYPES, METADATA, TensorInfo};
use crate::checkpoint::Tensors;
use crate::checkpoint::names::check_tensor_name;
use crate::{Error, Result};

/// Header and tensors of a file, in order.
pub(crate) struct Layout<'a> {
    /// First bytes of the file: length of the header, header.
    pub header: Vec<u8>,
    /// Name, tensor and byte range of each, relative to the end of the header.
    pub tensors: Vec<(&'a str, &'a Tensor, TensorInfo)>,
    /// Size of the file.
    pub bytes: u64,
}

/// Computes the layout of a file of `tensors`, without computing their values.
pub(crate) fn layout<'a>(tensors: &'a Tensors, metadata: &BTreeMap<String, String>) -> Result<Layout<'a>> {
    let rank = |dtype: DType| DTYPES.iter().position(|(known, _)| *known == dtype).unwrap_or(DTYPES.len());
    let mut order = vec![];
    for (name, tensor) in tensors {
        check_tensor_name(name).map_err(|what| Error::file("safetensors".as_ref(), what))?;
        let dtype = tensor.dtype().map_err(Error::tensor(name))?;
        let shape = tensor.shape().map_err(Error::tensor(name))?.to_vec();
        let bytes = tensor.bytes().map_err(Error::tensor(name))? as u64;
        order.push((rank(dtype), name.as_str(), tensor, TensorInfo { dtype, shape, begin: 0, end: bytes }));
    }
    order.sort_by_key(|(rank, name, ..)| (*rank, *name));

    let mut json = String::from("{");
    if !metadata.is_empty() {
        let strings = serde_json::Value::from_iter(metadata.iter().map(|(k, v)| (k.clone(), v.clone())));
        push(&mut json, METADATA, &strings.to_string());
    }
    let mut offset = 0;
    let mut placed = vec![];
    for (rank, name, tensor, mut entry) in order {
        (entry.begin, entry.end) = (offset, offset + entry.end);
        offset = entry.end;
        let lengths: Vec<String> = entry.shape.iter().map(usize::to_string).collect();
        let (dtype, shape, TensorInfo { begin, end, .. }) = (DTYPES[rank].1, lengths.join(","), &entry);
        push(&mut json, name, &format!(r#"{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{begin},{end}]}}"#));
        placed.push((name, tensor, entry));
    }
    json.push('}');
    // Padding to a multiple of 8 aligns the data for readers that map files.
    while json.len() % 8 != 0 {
        json.push(' ');
    }
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json.bytes());
    let bytes = header.len() as u64 + offset;
    Ok(Layout { header, tensors: placed, bytes })
}

fn push(json: &mut String, name: &str, value: &str) {
    let comma = if json.len() > 1 { "," } else { "" };
    // Writing to a string cannot fail.
    let _ = write!(json, "{comma}{}:{value}", serde_json::Value::from(name));
}
