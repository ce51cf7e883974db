//! Tuning records on disk: one JSON file per key, in the folder `tuning` next to the kernel cache.
//!
//! Files are written atomically and hold one key each, so concurrent processes lose no records.
//! Files that cannot be read, are damaged or have another format version are ignored; files of a
//! newer format are not overwritten.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{TuningKey, TuningRecord};
use crate::files;
use crate::{Error, Result};

/// Version of the file format. Files of another version are not read, and not replaced if they are
/// newer.
pub const FORMAT_VERSION: u32 = 1;

const SUBFOLDER: &str = "tuning";
const SUFFIX: &str = ".tuning.json";

#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    record: TuningRecord,
}

/// First part of a file, read to check the version.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// Folder of tuning records, or the reason why there is none.
pub struct TuningStore {
    folder: std::result::Result<PathBuf, String>,
}

/// Size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreStats {
    /// Number of records.
    pub entries: u64,
    /// Total size of the records.
    pub bytes: u64,
}

impl TuningStore {
    /// Opens the folder that the settings name. Never fails: see [`TuningStore::folder`].
    pub fn open(settings: &crate::cache::CacheSettings) -> TuningStore {
        let folder = match &settings.folder {
            _ if !settings.enabled => Err(format!("disabled by {}=off", crate::cache::CACHE_VARIABLE)),
            None => Err("neither HOME nor XDG_CACHE_HOME is set".into()),
            Some(root) => files::open_private_folder(root)
                .and_then(|()| files::open_private_folder(&root.join(SUBFOLDER)))
                .map(|()| root.join(SUBFOLDER)),
        };
        if let Ok(folder) = &folder {
            files::remove_stale_temporaries(folder);
        }
        TuningStore { folder }
    }

    /// Creates a store that saves nothing.
    pub fn disabled() -> TuningStore {
        TuningStore { folder: Err("disabled".into()) }
    }

    /// Returns the folder of the records, or the reason why there is none.
    pub fn folder(&self) -> std::result::Result<&Path, &str> {
        self.folder.as_deref().map_err(String::as_str)
    }

    /// Returns the record of a key, if there is a valid one of this format.
    pub fn get(&self, key: &TuningKey) -> Option<TuningRecord> {
        let text = fs::read(self.path(key)?).ok()?;
        let record = parse(&text)?;
        (record.key == *key).then_some(record)
    }

    /// Saves a record. On failure returns the reason, which callers may ignore.
    pub fn put(&self, record: &TuningRecord) -> std::result::Result<(), String> {
        let folder = self.folder.as_ref().map_err(String::clone)?;
        let Some(path) = self.path(&record.key) else { return Ok(()) };
        let newer = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Head>(&text).ok());
        if let Some(Head { format }) = newer
            && format > FORMAT_VERSION
        {
            return Err(format!("{} has the newer format {format}", path.display()));
        }
        let file = File { format: FORMAT_VERSION, record: record.clone() };
        let text = serde_json::to_vec_pretty(&file).map_err(|error| error.to_string())?;
        files::write_private_file(folder, &file_name(&record.key), &[&text])
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns all readable records.
    pub fn records(&self) -> Vec<TuningRecord> {
        let texts = self.files().into_iter().filter_map(|(path, _)| fs::read(path).ok());
        texts.filter_map(|text| parse(&text)).collect()
    }

    /// Returns the number of records and their size.
    pub fn stats(&self) -> StoreStats {
        let files = self.files();
        StoreStats { entries: files.len() as u64, bytes: files.iter().map(|(_, bytes)| bytes).sum() }
    }

    /// Removes all records and returns their number.
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

    /// Files of this store with their sizes, sorted by name.
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
    // The version comes first: the record of a newer file may not parse.
    let head: Head = serde_json::from_slice(text).ok()?;
    if head.format != FORMAT_VERSION {
        return None;
    }
    Some(serde_json::from_slice::<File>(text).ok()?.record)
}
