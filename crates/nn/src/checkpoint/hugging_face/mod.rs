//! Model folders of Hugging Face's libraries: `config.json`, `model.safetensors` (or several files
//! and an index) and `tokenizer.json`.
//!
//! Handles files and names only: [`TensorMapping`]s map our tensors to theirs.
//! `model::hugging_face` knows the architectures.

mod export;
mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bornite::{Device, Tensor};

pub use export::ModelExport;
pub use index::ShardIndex;

use super::json::{read_bounded, read_value};
use super::names::listed;
use super::safetensors::{ReadOptions, Safetensors, TensorInfo};
use super::{Tensors, quoted};
use crate::error::located;
use crate::{Error, Result};

const CONFIG: &str = "config.json";
const MODEL: &str = "model.safetensors";
pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// Maximum size of `config.json` and similar files.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Maximum size of an index: more than 100,000 tensors.
const MAX_INDEX_BYTES: u64 = 16 << 20;

/// Mapping of one of our tensors to one of theirs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMapping {
    /// Our name.
    pub ours: String,
    /// Their name.
    pub theirs: String,
    /// The matrix is stored transposed in their format.
    pub transpose: bool,
}

impl TensorMapping {
    /// Creates a mapping.
    pub fn new(ours: impl Into<String>, theirs: impl Into<String>, transpose: bool) -> TensorMapping {
        TensorMapping { ours: ours.into(), theirs: theirs.into(), transpose }
    }

    /// Converts a shape between the two formats.
    fn converted_shape(&self, shape: &[usize]) -> Option<Vec<usize>> {
        match (self.transpose, shape) {
            (false, _) => Some(shape.to_vec()),
            (true, [rows, columns]) => Some(vec![*columns, *rows]),
            (true, _) => None,
        }
    }

    /// Converts a tensor between the two formats.
    fn convert(&self, name: &str, tensor: Tensor) -> Result<Tensor> {
        if !self.transpose {
            return Ok(tensor);
        }
        // Detached, so that the original can be freed.
        let transposed = tensor.t().detach();
        transposed.realize().map_err(Error::tensor(name))?;
        Ok(transposed)
    }
}

/// A model's folder with validated headers and index.
pub struct HuggingFaceModel {
    folder: PathBuf,
    config: serde_json::Value,
    files: Vec<Safetensors<File>>,
    /// Index into `files` for each tensor.
    file_of: BTreeMap<String, usize>,
}

impl HuggingFaceModel {
    /// Opens a folder without reading tensors.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>, options: &ReadOptions) -> Result<HuggingFaceModel> {
        located(|| {
            let folder = folder.as_ref();
            let found = fs::metadata(folder).map_err(Error::io("read model", folder))?;
            if !found.is_dir() {
                return Err(Error::file(folder, format!("is a file; pass the folder with {CONFIG} and {MODEL}")));
            }
            let config = read_value(&folder.join(CONFIG), MAX_CONFIG_BYTES)?;
            let path = folder.join(index::INDEX);
            let index = if path.exists() && !folder.join(MODEL).exists() {
                let text = read_bounded(&path, MAX_INDEX_BYTES)?;
                Some(ShardIndex::parse(&text).map_err(|what| Error::file(&path, what))?)
            } else {
                None
            };
            let names: BTreeSet<&str> = match &index {
                Some(index) => index.files.values().map(String::as_str).collect(),
                None => [MODEL].into(),
            };
            let (mut files, mut file_of) = (vec![], BTreeMap::new());
            for file in names {
                let opened = Safetensors::open_with(folder.join(file), options)?;
                for name in opened.header().tensors.keys() {
                    if index.as_ref().is_some_and(|index| index.files.get(name).is_none_or(|other| other != file)) {
                        let what = format!("does not list tensor {} of {file}", quoted(name));
                        return Err(Error::file(&path, what));
                    }
                    file_of.insert(name.clone(), files.len());
                }
                files.push(opened);
            }
            if let Some(index) = &index
                && let Some((name, file)) = index.files.iter().find(|(name, _)| !file_of.contains_key(*name))
            {
                return Err(Error::file(
                    &path,
                    format!("lists tensor {} in {file}, which does not contain it", quoted(name)),
                ));
            }
            Ok(HuggingFaceModel { folder: folder.into(), config, files, file_of })
        })
    }

    /// Returns `config.json`.
    pub fn config(&self) -> &serde_json::Value {
        &self.config
    }

    /// Reads another JSON file of the folder, such as `generation_config.json`, if it exists.
    #[track_caller]
    pub fn json(&self, name: &str) -> Result<Option<serde_json::Value>> {
        located(|| {
            let path = self.folder.join(name);
            if path.exists() { read_value(&path, MAX_CONFIG_BYTES).map(Some) } else { Ok(None) }
        })
    }

    /// Returns the path of `tokenizer.json`, if it exists.
    pub fn tokenizer(&self) -> Option<PathBuf> {
        Some(self.folder.join(TOKENIZER)).filter(|path| path.is_file())
    }

    /// Iterates over the tensors by their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        let entry = |(name, file): (&'_ String, &usize)| self.files[*file].header().tensors.get_key_value(name);
        self.file_of.iter().filter_map(entry).map(|(name, entry)| (name.as_str(), entry))
    }

    /// Reads the mapped tensors, converted to our names and layouts. `shapes` are those of our
    /// model, all of which must be mapped; `ignored` selects their tensors that need no mapping.
    /// Nothing is read if names or shapes do not match.
    #[track_caller]
    pub fn import(
        &mut self,
        mappings: &[TensorMapping],
        shapes: &BTreeMap<String, Vec<usize>>,
        ignored: impl Fn(&str) -> bool,
        device: Device,
    ) -> Result<Tensors> {
        located(|| {
            self.check(mappings, shapes, ignored)?;
            let mut imported = Tensors::new();
            for mapping in mappings {
                if let Some(file) = self.file_of.get(&mapping.theirs) {
                    let tensor = self.files[*file].tensor(&mapping.theirs, device)?;
                    imported.insert(mapping.ours.clone(), mapping.convert(&mapping.theirs, tensor)?);
                }
            }
            Ok(imported)
        })
    }

    fn check(
        &self,
        mappings: &[TensorMapping],
        shapes: &BTreeMap<String, Vec<usize>>,
        ignored: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let invalid = |message: String| Err(Error::file(&self.folder, message));
        let mapped: BTreeSet<&str> = mappings.iter().map(|mapping| mapping.ours.as_str()).collect();
        let unmapped: Vec<&str> = shapes.keys().map(String::as_str).filter(|name| !mapped.contains(name)).collect();
        if !unmapped.is_empty() {
            let mapped = mapped.iter().copied();
            return invalid(format!("there is no name mapping for our {}", listed(&unmapped, mapped)));
        }
        let known: BTreeSet<&str> = mappings.iter().map(|mapping| mapping.theirs.as_str()).collect();
        let is_known = |name: &&str| known.contains(name) || ignored(name);
        let unexpected: Vec<&str> = self.file_of.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
        let missing: Vec<&str> = known.iter().copied().filter(|name| !self.file_of.contains_key(*name)).collect();
        let mut wrong = vec![];
        if !missing.is_empty() {
            wrong.push(format!("lacks {}", listed(&missing, unexpected.iter().copied())));
        }
        if !unexpected.is_empty() {
            // If names are missing, similar ones were already suggested.
            let suggested = if missing.is_empty() { known.into_iter().collect() } else { vec![] };
            wrong.push(format!("has unexpected {}", listed(&unexpected, suggested.into_iter())));
        }
        if !wrong.is_empty() {
            return invalid(format!("does not match the expected model: it {}", wrong.join(" and ")));
        }
        for mapping in mappings {
            let file = self.file_of.get(&mapping.theirs);
            let theirs = file.and_then(|n| self.files[*n].header().tensors.get(&mapping.theirs));
            let (Some(theirs), Some(ours)) = (theirs, shapes.get(&mapping.ours)) else {
                return invalid(format!(
                    "there is a name mapping for {}, which our model does not have",
                    quoted(&mapping.ours)
                ));
            };
            if mapping.converted_shape(&theirs.shape).as_ref() != Some(ours) {
                let transposed = if mapping.transpose { " (stored transposed)" } else { "" };
                let (name, found, our_name) = (quoted(&mapping.theirs), &theirs.shape, quoted(&mapping.ours));
                return invalid(format!(
                    "tensor {name} has shape {found:?}{transposed}; our {our_name} expects {ours:?}"
                ));
            }
        }
        Ok(())
    }
}
