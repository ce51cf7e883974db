//! Models as Hugging Face's libraries keep them: a folder of `config.json`, `model.safetensors` (or several files and an
//! index) and `tokenizer.json`.
//!
//! This knows files and names, not models: a table of [`Pair`]s says which of our tensors is which of theirs.

mod export;
mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bornite::{Device, Tensor};

pub use export::Export;
pub use index::Index;

use super::json::{read_bounded, read_value};
use super::names::listed;
use super::safetensors::{Entry, Rules, Safetensors};
use super::{Tensors, shown};
use crate::error::located;
use crate::{Error, Result};

const CONFIG: &str = "config.json";
const MODEL: &str = "model.safetensors";
pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// The largest `config.json` and the like: some hundred keys.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The largest index: more than 100,000 tensors.
const MAX_INDEX_BYTES: u64 = 16 << 20;

/// One tensor by both names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// Our name.
    pub ours: String,
    /// Their name.
    pub theirs: String,
    /// Whether a matrix is kept the other way round there.
    pub transpose: bool,
}

impl Pair {
    /// A row of a table.
    pub fn new(ours: impl Into<String>, theirs: impl Into<String>, transpose: bool) -> Pair {
        Pair { ours: ours.into(), theirs: theirs.into(), transpose }
    }

    /// What shape the tensor has on the other side.
    fn turned(&self, shape: &[usize]) -> Option<Vec<usize>> {
        match (self.transpose, shape) {
            (false, _) => Some(shape.to_vec()),
            (true, [rows, columns]) => Some(vec![*columns, *rows]),
            (true, _) => None,
        }
    }

    /// The tensor on the other side.
    fn turn(&self, name: &str, tensor: Tensor) -> Result<Tensor> {
        if !self.transpose {
            return Ok(tensor);
        }
        // Detached, it does not keep what it was made of.
        let turned = tensor.t().detach();
        turned.realize().map_err(Error::tensor(name))?;
        Ok(turned)
    }
}

/// A model's folder whose headers and index were checked.
pub struct Model {
    folder: PathBuf,
    config: serde_json::Value,
    files: Vec<Safetensors<File>>,
    /// The file of each tensor.
    places: BTreeMap<String, usize>,
}

impl Model {
    /// Opens a folder. No tensor is read yet.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>, rules: &Rules) -> Result<Model> {
        located(|| {
            let folder = folder.as_ref();
            let found = fs::metadata(folder).map_err(Error::io("read model", folder))?;
            if !found.is_dir() {
                return Err(Error::file(folder, format!("is a file; give the folder with {CONFIG} and {MODEL}")));
            }
            let config = read_value(&folder.join(CONFIG), MAX_CONFIG_BYTES)?;
            let path = folder.join(index::INDEX);
            let index = if path.exists() && !folder.join(MODEL).exists() {
                let text = read_bounded(&path, MAX_INDEX_BYTES)?;
                Some(Index::parse(&text).map_err(|what| Error::file(&path, what))?)
            } else {
                None
            };
            let names: BTreeSet<&str> = match &index {
                Some(index) => index.files.values().map(String::as_str).collect(),
                None => [MODEL].into(),
            };
            let (mut files, mut places) = (vec![], BTreeMap::new());
            for file in names {
                let opened = Safetensors::open_by(folder.join(file), rules)?;
                for name in opened.header().tensors.keys() {
                    if index.as_ref().is_some_and(|index| index.files.get(name).is_none_or(|other| other != file)) {
                        let what = format!("does not say that tensor {} is in {file}, where it is", shown(name));
                        return Err(Error::file(&path, what));
                    }
                    places.insert(name.clone(), files.len());
                }
                files.push(opened);
            }
            if let Some(index) = &index
                && let Some((name, file)) = index.files.iter().find(|(name, _)| !places.contains_key(*name))
            {
                return Err(Error::file(
                    &path,
                    format!("says that tensor {} is in {file}, where it is not", shown(name)),
                ));
            }
            Ok(Model { folder: folder.into(), config, files, places })
        })
    }

    /// `config.json`.
    pub fn config(&self) -> &serde_json::Value {
        &self.config
    }

    /// Another JSON file of the folder, such as `generation_config.json`, where it has one.
    #[track_caller]
    pub fn json(&self, name: &str) -> Result<Option<serde_json::Value>> {
        located(|| {
            let path = self.folder.join(name);
            if path.exists() { read_value(&path, MAX_CONFIG_BYTES).map(Some) } else { Ok(None) }
        })
    }

    /// `tokenizer.json`, where the folder has one.
    pub fn tokenizer(&self) -> Option<PathBuf> {
        Some(self.folder.join(TOKENIZER)).filter(|path| path.is_file())
    }

    /// Their tensors by their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Entry)> {
        let entry = |(name, file): (&'_ String, &usize)| self.files[*file].header().tensors.get_key_value(name);
        self.places.iter().filter_map(entry).map(|(name, entry)| (name.as_str(), entry))
    }

    /// Reads the tensors of a table, named and turned as ours. `shapes` are those that our model needs, every name of
    /// which the table must have; `ignored` says which of their tensors need no row. Nothing is read if names or shapes
    /// do not fit.
    #[track_caller]
    pub fn import(
        &mut self,
        table: &[Pair],
        shapes: &BTreeMap<String, Vec<usize>>,
        ignored: impl Fn(&str) -> bool,
        device: Device,
    ) -> Result<Tensors> {
        located(|| {
            self.check(table, shapes, ignored)?;
            let mut imported = Tensors::new();
            for pair in table {
                if let Some(file) = self.places.get(&pair.theirs) {
                    let tensor = self.files[*file].tensor(&pair.theirs, device)?;
                    imported.insert(pair.ours.clone(), pair.turn(&pair.theirs, tensor)?);
                }
            }
            Ok(imported)
        })
    }

    fn check(
        &self,
        table: &[Pair],
        shapes: &BTreeMap<String, Vec<usize>>,
        ignored: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let refuse = |what: String| Err(Error::file(&self.folder, what));
        let rows: BTreeSet<&str> = table.iter().map(|pair| pair.ours.as_str()).collect();
        let unnamed: Vec<&str> = shapes.keys().map(String::as_str).filter(|name| !rows.contains(name)).collect();
        if !unnamed.is_empty() {
            let rows = rows.iter().copied();
            return refuse(format!("the table of names has no row for our {}", listed(&unnamed, rows)));
        }
        let known: BTreeSet<&str> = table.iter().map(|pair| pair.theirs.as_str()).collect();
        let is_known = |name: &&str| known.contains(name) || ignored(name);
        let unexpected: Vec<&str> = self.places.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
        let missing: Vec<&str> = known.iter().copied().filter(|name| !self.places.contains_key(*name)).collect();
        let mut wrong = vec![];
        if !missing.is_empty() {
            wrong.push(format!("lacks {}", listed(&missing, unexpected.iter().copied())));
        }
        if !unexpected.is_empty() {
            // Where a name is missing, the nearest one was suggested already.
            let suggested = if missing.is_empty() { known.into_iter().collect() } else { vec![] };
            wrong.push(format!("has {}, for which there is no use", listed(&unexpected, suggested.into_iter())));
        }
        if !wrong.is_empty() {
            return refuse(format!("is not the model that was asked for: it {}", wrong.join(" and ")));
        }
        for pair in table {
            let theirs = self.places.get(&pair.theirs).and_then(|n| self.files[*n].header().tensors.get(&pair.theirs));
            let (Some(theirs), Some(ours)) = (theirs, shapes.get(&pair.ours)) else {
                return refuse(format!(
                    "the table of names has a row for {}, which our model lacks",
                    shown(&pair.ours)
                ));
            };
            if pair.turned(&theirs.shape).as_ref() != Some(ours) {
                let turned = if pair.transpose { ", transposed" } else { "" };
                let (name, found, needed) = (shown(&pair.theirs), &theirs.shape, shown(&pair.ours));
                return refuse(format!("tensor {name} has shape {found:?}{turned}; our {needed} needs {ours:?}"));
            }
        }
        Ok(())
    }
}
