//! Records on disk: one JSON file a key, in the folder `tuning` beside the kernel cache.
//!
//! A file appears whole, by rename, and holds one key, so processes that tune side by side lose nothing of each
//! other. What cannot be read, is damaged or is of another format counts as not there; a newer format's file is left
//! alone.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{TuningKey, TuningRecord};
use crate::files;
use crate::{Error, Result};

/// Version of the files' format. Files of another one are not read, and not replaced where they are newer.
pub const FORMAT_VERSION: u32 = 1;

const SUBFOLDER: &str = "tuning";
const SUFFIX: &str = ".tuning.json";

#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    record: TuningRecord,
}

/// The part of a file that says whether the rest can be read.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// A folder of records, or why there is none.
pub struct TuningStore {
    folder: std::result::Result<PathBuf, String>,
}

/// Size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreStats {
    /// Records.
    pub entries: u64,
    /// Their size.
    pub bytes: u64,
}

impl TuningStore {
    /// Opens the folder that these settings name. Never fails: see [`TuningStore::folder`].
    pub fn open(settings: &crate::cache::CacheSettings) -> TuningStore {
        let folder = match &settings.folder {
            _ if !settings.enabled => Err(format!("switched off by {}=off", crate::cache::CACHE_VARIABLE)),
            None => Err("neither HOME nor XDG_CACHE_HOME says where".into()),
            Some(root) => files::open_private_folder(root)
                .and_then(|()| files::open_private_folder(&root.join(SUBFOLDER)))
                .map(|()| root.join(SUBFOLDER)),
        };
        if let Ok(folder) = &folder {
            files::remove_stale_temporaries(folder);
        }
        TuningStore { folder }
    }

    /// A store that keeps nothing.
    pub fn disabled() -> TuningStore {
        TuningStore { folder: Err("nothing is to be kept".into()) }
    }

    /// Where records are kept, or why nowhere.
    pub fn folder(&self) -> std::result::Result<&Path, &str> {
        self.folder.as_deref().map_err(String::as_str)
    }

    /// The record of a key, if a whole one of this format is there.
    pub fn get(&self, key: &TuningKey) -> Option<TuningRecord> {
        let text = fs::read(self.path(key)?).ok()?;
        let record = parse(&text)?;
        (record.key == *key).then_some(record)
    }

    /// Keeps a record. Says why not, where that fails; nothing depends on it.
    pub fn put(&self, record: &TuningRecord) -> std::result::Result<(), String> {
        let folder = self.folder.as_ref().map_err(String::clone)?;
        let Some(path) = self.path(&record.key) else { return Ok(()) };
        let newer = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Head>(&text).ok());
        if let Some(Head { format }) = newer
            && format > FORMAT_VERSION
        {
            return Err(format!("{} is of the newer format {format}", path.display()));
        }
        let file = File { format: FORMAT_VERSION, record: record.clone() };
        let text = serde_json::to_vec_pretty(&file).map_err(|error| error.to_string())?;
        files::write_cache_file(folder, &file_name(&record.key), &[&text])
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Every record that can be read.
    pub fn records(&self) -> Vec<TuningRecord> {
        let texts = self.files().into_iter().filter_map(|(path, _)| fs::read(path).ok());
        texts.filter_map(|text| parse(&text)).collect()
    }

    /// Number of records and their bytes.
    pub fn stats(&self) -> StoreStats {
        let files = self.files();
        StoreStats { entries: files.len() as u64, bytes: files.iter().map(|(_, bytes)| bytes).sum() }
    }

    /// Removes every record; says how many.
    pub fn clear(&self) -> Result<u64> {
        if let Err(reason) = &self.folder {
            return Err(Error::CacheUnavailable { reason: reason.clone() });
        }
        let files = self.files();
        for (path, _) in &files {
            files::remove_if_exists(path).map_err(|error| Error::CacheUnavailable {
                reason: format!("cannot remove {}: {error}", path.display()),
            })?;
        }
        Ok(files.len() as u64)
    }

    fn path(&self, key: &TuningKey) -> Option<PathBuf> {
        Some(self.folder.as_ref().ok()?.join(file_name(key)))
    }

    /// Our files and their sizes, by name.
    fn files(&self) -> Vec<(PathBuf, u64)> {
        let Ok(folder) = &self.folder else { return vec![] };
        let mut files: Vec<(PathBuf, u64)> = (fs::read_dir(folder).into_iter().flatten().flatten())
            .filter(|entry| entry.file_name().to_string_lossy().ends_with(SUFFIX))
            .filter_map(|entry| Some((entry.path(), entry.metadata().ok().filter(fs::Metadata::is_file)?.len())))
            .collect();
        files.sort();
        files
    }
}

fn file_name(key: &TuningKey) -> String {
    format!("{}{SUFFIX}", key.hash())
}

fn parse(text: &[u8]) -> Option<TuningRecord> {
    // The version first: a newer file's record may not even parse.
    let head: Head = serde_json::from_slice(text).ok()?;
    if head.format != FORMAT_VERSION {
        return None;
    }
    Some(serde_json::from_slice::<File>(text).ok()?.record)
}
