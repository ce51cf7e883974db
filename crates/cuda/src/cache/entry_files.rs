//! Entry files of the kernel cache, by the time of their last use.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use super::key::is_entry;

/// File of an entry.
pub(super) struct EntryFile {
    pub path: PathBuf,
    pub bytes: u64,
    pub used: SystemTime,
}

/// Lists the entry files, least recently used first.
pub(super) fn list_entry_files(folder: &Path) -> io::Result<Vec<EntryFile>> {
    let mut found = vec![];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !is_entry(&entry.file_name().to_string_lossy()) {
            continue;
        }
        // Another process may have removed it in the meantime.
        if let Ok(metadata) = entry.metadata()
            && metadata.is_file()
        {
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push(EntryFile { path: entry.path(), bytes: metadata.len(), used });
        }
    }
    found.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
    Ok(found)
}
