//! Models as Hugging Face's libraries keep them: a folder of `config.json`, `model.safetensors` (or several files and an
//! index) and `tokenizer.json`.
//!
//! This knows files and names, not models: a table of [`Pair`]s says which of our tensors is which of theirs.

mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bornite::{Device, Tensor};

pub use index::Index;

use super::disk::{Disk, SystemDisk};
use super::json::{MAX_JSON_BYTES, read_bounded, read_value};
use super::names::listed;
use super::safetensors::{Entry, Rules, Safetensors, layout};
use super::write::{write_tensors, write_whole};
use super::{Tensors, shown};
use crate::{Error, Result};

const CONFIG: &str = "config.json";
const MODEL: &str = "model.safetensors";
const TOKENIZER: &str = "tokenizer.json";

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
    pub fn open(folder: impl AsRef<Path>, rules: &Rules) -> Result<Model> {
        let folder = folder.as_ref();
        let found = fs::metadata(folder).map_err(Error::io("read model", folder))?;
        if !found.is_dir() {
            return Err(Error::file(folder, format!("is a file; give the folder with {CONFIG} and {MODEL}")));
        }
        let config = read_value(&folder.join(CONFIG))?;
        let path = folder.join(index::INDEX);
        let index = if path.exists() && !folder.join(MODEL).exists() {
            let text = read_bounded(&path, MAX_JSON_BYTES)?;
            Some(Index::parse(&text).map_err(|what| Error::File { path: path.clone(), what })?)
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
            return Err(Error::file(&path, format!("says that tensor {} is in {file}, where it is not", shown(name))));
        }
        Ok(Model { folder: folder.into(), config, files, places })
    }

    /// `config.json`.
    pub fn config(&self) -> &serde_json::Value {
        &self.config
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
    pub fn import(
        &mut self,
        table: &[Pair],
        shapes: &BTreeMap<String, Vec<usize>>,
        ignored: impl Fn(&str) -> bool,
        device: Device,
    ) -> Result<Tensors> {
        self.check(table, shapes, ignored)?;
        let mut imported = Tensors::new();
        for pair in table {
            if let Some(file) = self.places.get(&pair.theirs) {
                let tensor = self.files[*file].tensor(&pair.theirs, device)?;
                imported.insert(pair.ours.clone(), pair.turn(&pair.theirs, tensor)?);
            }
        }
        Ok(imported)
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

/// A model to be written.
pub struct Export<'a> {
    /// `config.json`.
    pub config: &'a serde_json::Value,
    /// Our tensors.
    pub tensors: &'a Tensors,
    /// Their names there; one row for each.
    pub table: &'a [Pair],
    /// A `tokenizer.json` to be copied.
    pub tokenizer: Option<&'a Path>,
    /// Files do not get larger than this, but for a tensor that is.
    pub max_file_bytes: u64,
}

impl Export<'_> {
    /// Writes the folder, which must not be there or be empty: it appears whole or not at all.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        match fs::read_dir(folder).map(Iterator::count) {
            Ok(entries) if entries > 0 => {
                return Err(Error::file(folder, "is not empty; remove it or export to another folder"));
            }
            Err(_) if fs::symlink_metadata(folder).is_ok_and(|found| !found.is_dir()) => {
                return Err(Error::file(folder, "is a file; export to another folder"));
            }
            _ => {}
        }
        let parent = folder.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(Error::io("make folder", parent))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let temporary = parent.join(format!(".saving-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&temporary);
        let disk = SystemDisk;
        let written = self.fill(&disk, &temporary).and_then(|()| {
            disk.rename(&temporary, folder).map_err(Error::io("make", folder))?;
            disk.sync_folder(parent).map_err(Error::io("write", parent))
        });
        if written.is_err() {
            let _ = fs::remove_dir_all(&temporary);
        }
        written
    }

    fn fill(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        disk.create_folder(folder).map_err(Error::io("make folder", folder))?;
        let shards = self.shards(folder)?;
        // What `transformers` looks for before it loads a file.
        let metadata = [("format".to_string(), "pt".to_string())].into();
        let (mut index, mut total_bytes) = (Index::default(), 0);
        for (n, shard) in shards.iter().enumerate() {
            let name = match shards.len() {
                1 => MODEL.to_string(),
                count => format!("model-{:05}-of-{count:05}.safetensors", n + 1),
            };
            // What is transposed is there twice for the time that its file is written.
            let mut turned = Tensors::new();
            for (pair, tensor) in shard {
                turned.insert(pair.theirs.clone(), pair.turn(&pair.ours, (*tensor).clone())?);
                index.files.insert(pair.theirs.clone(), name.clone());
            }
            let layout = layout(&turned, &metadata)?;
            total_bytes += layout.bytes - layout.header.len() as u64;
            write_tensors(disk, folder, &[(name, layout)])?;
        }
        if shards.len() > 1 {
            write_whole(disk, folder, index::INDEX, &index.text(total_bytes))?;
        }
        let config =
            serde_json::to_vec_pretty(self.config).map_err(|e| Error::file(&folder.join(CONFIG), e.to_string()))?;
        write_whole(disk, folder, CONFIG, &config)?;
        if let Some(tokenizer) = self.tokenizer {
            write_whole(disk, folder, TOKENIZER, &read_bounded(tokenizer, MAX_JSON_BYTES)?)?;
        }
        disk.sync_folder(folder).map_err(Error::io("write", folder))
    }

    /// The tensors in the order of their names there, cut into files.
    fn shards(&self, folder: &Path) -> Result<Vec<Vec<(&Pair, &Tensor)>>> {
        let rows: BTreeMap<&str, &Pair> = self.table.iter().map(|pair| (pair.ours.as_str(), pair)).collect();
        let mut theirs = BTreeMap::new();
        for (name, tensor) in self.tensors {
            let Some(pair) = rows.get(name.as_str()) else {
                let what = format!("the table of names has no row for our {}", listed(&[name], rows.keys().copied()));
                return Err(Error::file(folder, what));
            };
            if theirs.insert(&pair.theirs, (*pair, tensor)).is_some() {
                return Err(Error::file(
                    folder,
                    format!("two of our tensors are called {} there", shown(&pair.theirs)),
                ));
            }
        }
        let (mut shards, mut last, mut bytes) = (vec![], vec![], 0);
        for (pair, tensor) in theirs.into_values() {
            let more = tensor.bytes().map_err(Error::tensor(&pair.ours))? as u64;
            if bytes > 0 && bytes + more > self.max_file_bytes {
                shards.push(std::mem::take(&mut last));
                bytes = 0;
            }
            bytes += more;
            last.push((pair, tensor));
        }
        shards.push(last);
        Ok(shards)
    }
}
