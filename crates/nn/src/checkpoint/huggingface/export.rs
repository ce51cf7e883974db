//! Writes a model's folder: in another one beside it first, which is renamed when the disk has all of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use bornite::Tensor;

use super::{CONFIG, Index, MODEL, Pair, index};
use crate::checkpoint::disk::{Disk, SystemDisk};
use crate::checkpoint::names::listed;
use crate::checkpoint::safetensors::layout;
use crate::checkpoint::write::{write_tensors, write_whole};
use crate::checkpoint::{Tensors, shown};
use crate::error::located;
use crate::{Error, Result};

/// A model to be written.
pub struct Export<'a> {
    /// `config.json`.
    pub config: &'a serde_json::Value,
    /// Our tensors.
    pub tensors: &'a Tensors,
    /// Their names there; one row for each.
    pub table: &'a [Pair],
    /// Names and contents of other files, such as `tokenizer.json`.
    pub files: &'a [(&'a str, String)],
    /// Files do not get larger than this, but for a tensor that is.
    pub max_file_bytes: u64,
}

impl Export<'_> {
    /// Writes the folder, which must not be there or be empty: it appears whole or not at all.
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
            fs::create_dir_all(parent).map_err(Error::io("make folder", parent))?;
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let prefix = format!(".saving-{name}-");
            sweep(parent, &prefix);
            let temporary = parent.join(format!("{prefix}{}", std::process::id()));
            let disk = SystemDisk;
            disk.create_folder(&temporary).map_err(Error::io("make folder", &temporary))?;
            // Tells others that it is alive.
            let _lock = File::open(&temporary).and_then(|folder| Ok(folder.try_lock().map(|()| folder)?));
            let written = self.fill(&disk, &temporary).and_then(|()| {
                disk.rename(&temporary, folder).map_err(Error::io("make", folder))?;
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
        for (name, contents) in self.files {
            write_whole(disk, folder, name, contents.as_bytes())?;
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

/// Removes folders of exports that died: nobody holds their locks.
fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        if File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
