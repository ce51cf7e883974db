//! File locks that assign shards of a dataset to processes. The operating system releases a lock
//! when its process ends. On file systems without locks, concurrent runs are not detected.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use super::dir::require_regular_file;
use super::{DatasetDir, Error, Result};

const FOLDER: &str = ".making";
/// Held while claims are read and created, so that two processes starting at once see each other.
const CLAIMS_LOCK: &str = ".making/door.lock";

/// Exclusive right to write some shards, until dropped.
pub(super) struct Claim<'a> {
    dir: &'a DatasetDir,
    name: String,
    /// Kept open to hold the lock.
    _file: File,
}

fn name(shards: &Range<u32>) -> String {
    format!("{FOLDER}/claim-{:05}-{:05}.lock", shards.start, shards.end)
}

fn shards_of(name: &str) -> Option<Range<u32>> {
    let (start, end) = name.strip_prefix("claim-")?.strip_suffix(".lock")?.split_once('-')?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

/// Locks the claims folder. The lock file may be removed while waiting for it.
fn lock_claims(dir: &DatasetDir) -> Result<File> {
    let (folder, path) = (dir.path(FOLDER), dir.path(CLAIMS_LOCK));
    loop {
        fs::create_dir_all(&folder).map_err(Error::io("create the folder", &folder))?;
        require_regular_file(&path)?;
        let file = match OpenOptions::new().create(true).truncate(false).write(true).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            file => file.map_err(Error::io("write", &path))?,
        };
        if file.lock().is_err() {
            return Ok(file);
        }
        let same = |metadata: fs::Metadata| file.metadata().is_ok_and(|mine| mine.ino() == metadata.ino());
        if fs::metadata(&path).is_ok_and(same) {
            return Ok(file);
        }
    }
}

impl Claim<'_> {
    /// Claims shards unless a running process has one of them. No other process can claim shards
    /// until `begin` returns.
    pub(super) fn take<T>(
        dir: &DatasetDir,
        shards: Range<u32>,
        begin: impl FnOnce() -> Result<T>,
    ) -> Result<(Claim<'_>, T)> {
        let claims_lock = lock_claims(dir)?;
        let folder = dir.path(FOLDER);
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))?.flatten() {
            let Some(others) = shards_of(&entry.file_name().to_string_lossy()) else { continue };
            if others.start >= shards.end || shards.start >= others.end {
                continue;
            }
            require_regular_file(&entry.path())?;
            // Opened for writing too: on network file systems, an exclusive lock needs write
            // access.
            let Ok(file) = OpenOptions::new().read(true).write(true).open(entry.path()) else { continue };
            match file.try_lock() {
                // The process that held it has ended.
                Ok(()) => drop(fs::remove_file(entry.path())),
                Err(TryLockError::WouldBlock) => {
                    let mut owner = String::new();
                    let _ = file.take(256).read_to_string(&mut owner);
                    return Err(Error::InvalidRequest(format!(
                        "{} is writing shards {} to {} of the dataset in {}: wait until it ends, or choose another folder",
                        if owner.is_empty() { "another run" } else { &owner },
                        others.start,
                        others.end - 1,
                        dir.path("").display()
                    )));
                }
                Err(TryLockError::Error(_)) => {}
            }
        }
        let (name, host) = (name(&shards), fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default());
        let path = dir.path(&name);
        require_regular_file(&path)?;
        let mut file = File::create(&path).map_err(Error::io("write", &path))?;
        let _ = file.try_lock();
        let on = if host.trim().is_empty() { String::new() } else { format!(" on {}", host.trim()) };
        let _ = write!(file, "process {}{on}", std::process::id());
        let claim = Claim { dir, name, _file: file };
        match begin() {
            Ok(value) => Ok((claim, value)),
            Err(error) => {
                // Dropping the claim locks the claims folder again, so release it first.
                drop(claims_lock);
                Err(error)
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Finishing the dataset removes the folder.
        if !self.dir.path(FOLDER).is_dir() {
            return;
        }
        let Ok(_claims_lock) = lock_claims(self.dir) else { return };
        let _ = fs::remove_file(self.dir.path(&self.name));
        let _ = fs::remove_file(self.dir.path(CLAIMS_LOCK));
        // Succeeds only if the folder is empty.
        let _ = fs::remove_dir(self.dir.path(FOLDER));
    }
}
