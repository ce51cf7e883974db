//! Where each tensor goes in a file that is about to be written, and its header. The order is that of the format's own
//! library (large elements first, then by name), so that equal tensors make equal files.

use std::collections::BTreeMap;
use std::fmt::Write;

use bornite::{DType, Tensor};

use super::header::{DTYPES, Entry, METADATA};
use crate::checkpoint::Tensors;
use crate::checkpoint::names::check_tensor_name;
use crate::{Error, Result};

/// A file's header and what follows it, in order.
pub(crate) struct Layout<'a> {
    /// The first bytes of the file: length of the header, header.
    pub header: Vec<u8>,
    /// Name, tensor and place of each, the places counted from the end of the header.
    pub tensors: Vec<(&'a str, &'a Tensor, Entry)>,
    /// Bytes of the whole file.
    pub bytes: u64,
}

/// Plans a file of `tensors`, whose shapes and dtypes are asked for but whose values are not computed.
pub(crate) fn layout<'a>(tensors: &'a Tensors, metadata: &BTreeMap<String, String>) -> Result<Layout<'a>> {
    let rank = |dtype: DType| DTYPES.iter().position(|(known, _)| *known == dtype).unwrap_or(DTYPES.len());
    let mut order = vec![];
    for (name, tensor) in tensors {
        check_tensor_name(name).map_err(|what| Error::file("safetensors".as_ref(), what))?;
        let dtype = tensor.dtype().map_err(Error::tensor(name))?;
        let shape = tensor.shape().map_err(Error::tensor(name))?.to_vec();
        let bytes = tensor.bytes().map_err(Error::tensor(name))? as u64;
        order.push((rank(dtype), name.as_str(), tensor, Entry { dtype, shape, begin: 0, end: bytes }));
    }
    order.sort_by_key(|(rank, name, ..)| (*rank, *name));

    let mut json = String::from("{");
    if !metadata.is_empty() {
        let strings = serde_json::Value::from_iter(metadata.iter().map(|(k, v)| (k.clone(), v.clone())));
        push(&mut json, METADATA, &strings.to_string());
    }
    let mut at = 0;
    let mut placed = vec![];
    for (rank, name, tensor, mut entry) in order {
        (entry.begin, entry.end) = (at, at + entry.end);
        at = entry.end;
        let lengths: Vec<String> = entry.shape.iter().map(usize::to_string).collect();
        let (dtype, shape, Entry { begin, end, .. }) = (DTYPES[rank].1, lengths.join(","), &entry);
        push(&mut json, name, &format!(r#"{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{begin},{end}]}}"#));
        placed.push((name, tensor, entry));
    }
    json.push('}');
    // Spaces up to a multiple of 8 align the data for readers that map files.
    while json.len() % 8 != 0 {
        json.push(' ');
    }
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json.bytes());
    let bytes = header.len() as u64 + at;
    Ok(Layout { header, tensors: placed, bytes })
}

fn push(json: &mut String, name: &str, value: &str) {
    let comma = if json.len() > 1 { "," } else { "" };
    // Writing to a string cannot fail.
    let _ = write!(json, "{comma}{}:{value}", serde_json::Value::from(name));
}
