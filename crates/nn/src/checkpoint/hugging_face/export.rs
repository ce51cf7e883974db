//! Writes a model's folder atomically: into a temporary folder, which is renamed after it is
//! synced.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use bornite::Tensor;

use super::{CONFIG, MODEL, ShardIndex, TensorMapping, index};
use crate::checkpoint::disk::{Disk, SystemDisk};
use crate::checkpoint::names::listed;
use crate::checkpoint::safetensors::layout;
use crate::checkpoint::write::{write_file, write_tensors};
use crate::checkpoint::{Tensors, quoted};
use crate::error::located;
use crate::{Error, Result};

/// A model to export.
pub struct ModelExport<'a> {
    /// `config.json`.
    pub config: &'a serde_json::Value,
    /// Tensors by our names.
    pub tensors: &'a Tensors,
    /// Mapping of each tensor.
    pub mappings: &'a [TensorMapping],
    /// Names and contents of further files, such as `tokenizer.json`.
    pub files: &'a [(&'a str, String)],
    /// Maximum size of a weights file; a larger tensor gets its own file.
    pub max_file_bytes: u64,
}

impl ModelExport<'_> {
    /// Writes the folder atomically; it must not exist or be empty.
    #[track_caller]
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<()> {
        located(|| {
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
            fs::create_dir_all(parent).map_err(Error::io("create folder", parent))?;
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let prefix = format!(".saving-{name}-");
            remove_stale(parent, &prefix);
            let temporary = parent.join(format!("{prefix}{}", std::process::id()));
            let disk = SystemDisk;
            disk.create_folder(&temporary).map_err(Error::io("create folder", &temporary))?;
            // Shows other processes that this export is running.
            let _lock = File::open(&temporary).and_then(|folder| Ok(folder.try_lock().map(|()| folder)?));
            let written = self.fill(&disk, &temporary).and_then(|()| {
                disk.rename(&temporary, folder).map_err(Error::io("create", folder))?;
                disk.sync_folder(parent).map_err(Error::io("write", parent))
            });
            if written.is_err() {
                let _ = fs::remove_dir_all(&temporary);
            }
            written
        })
    }

    fn fill(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        let shards = self.shards(folder)?;
        // `transformers` requires this metadata.
        let metadata = [("format".to_string(), "pt".to_string())].into();
        let (mut index, mut total_bytes) = (ShardIndex::default(), 0);
        for (n, shard) in shards.iter().enumerate() {
            let name = match shards.len() {
                1 => MODEL.to_string(),
                count => format!("model-{:05}-of-{count:05}.safetensors", n + 1),
            };
            // Transposed tensors are in memory twice while their file is written.
            let mut converted = Tensors::new();
            for (mapping, tensor) in shard {
                converted.insert(mapping.theirs.clone(), mapping.convert(&mapping.ours, (*tensor).clone())?);
                index.files.insert(mapping.theirs.clone(), name.clone());
            }
            let layout = layout(&converted, &metadata)?;
            total_bytes += layout.bytes - layout.header.len() as u64;
            write_tensors(disk, folder, &[(name, layout)])?;
        }
        if shards.len() > 1 {
            write_file(disk, folder, index::INDEX, &index.text(total_bytes))?;
        }
        let config =
            serde_json::to_vec_pretty(self.config).map_err(|e| Error::file(&folder.join(CONFIG), e.to_string()))?;
        write_file(disk, folder, CONFIG, &config)?;
        for (name, contents) in self.files {
            write_file(disk, folder, name, contents.as_bytes())?;
        }
        disk.sync_folder(folder).map_err(Error::io("write", folder))
    }

    /// Assigns the tensors to files, in the order of their exported names.
    fn shards(&self, folder: &Path) -> Result<Vec<Vec<(&TensorMapping, &Tensor)>>> {
        let mappings: BTreeMap<&str, &TensorMapping> =
            self.mappings.iter().map(|mapping| (mapping.ours.as_str(), mapping)).collect();
        let mut theirs = BTreeMap::new();
        for (name, tensor) in self.tensors {
            let Some(mapping) = mappings.get(name.as_str()) else {
                let what = format!("there is no name mapping for our {}", listed(&[name], mappings.keys().copied()));
                return Err(Error::file(folder, what));
            };
            if theirs.insert(&mapping.theirs, (*mapping, tensor)).is_some() {
                return Err(Error::file(
                    folder,
                    format!("two of our tensors are mapped to {}", quoted(&mapping.theirs)),
                ));
            }
        }
        let (mut shards, mut last, mut bytes) = (vec![], vec![], 0);
        for (mapping, tensor) in theirs.into_values() {
            let more = tensor.bytes().map_err(Error::tensor(&mapping.ours))? as u64;
            if bytes > 0 && bytes + more > self.max_file_bytes {
                shards.push(std::mem::take(&mut last));
                bytes = 0;
            }
            bytes += more;
            last.push((mapping, tensor));
        }
        shards.push(last);
        Ok(shards)
    }
}

/// Removes folders of exports that died, whose locks are free.
fn remove_stale(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        if File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
