//! Files of the caches on disk: private folders, atomic writes, removal of stale temporary files.
//!
//! Knows file names and sizes, not the contents of entries.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use crate::cache::CACHE_DIR_VARIABLE;

const TEMPORARY_PREFIX: &str = ".writing-";
/// Age from which on a temporary file is stale even if it is locked or locks do not work: no write
/// takes this long.
const STALE_AGE: Duration = Duration::from_secs(3600);

/// Creates a folder that only this user can write to, or validates the existing one.
pub fn open_private_folder(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let remedy = format!("set {CACHE_DIR_VARIABLE} to a folder that only you can write to");
    if let Err(error) = fs::metadata(path)
        && error.kind() == ErrorKind::NotFound
    {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
        created.map_err(|error| format!("{shown} cannot be created ({error}); {remedy}"))?;
    }
    let found = fs::metadata(path).map_err(|error| format!("{shown} cannot be used ({error}); {remedy}"))?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() {
        Err(format!("{shown} is not a folder; {remedy}"))
    } else if found.uid() != user {
        Err(format!("{shown} belongs to user {}, but this process runs as user {user}; {remedy}", found.uid()))
    } else if found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o7777;
        Err(format!(
            "other users can write to {shown} (mode {mode:04o}), so its kernels cannot be trusted; \
             {remedy}, or run `chmod go-w` on it if only you use it"
        ))
    } else {
        Ok(())
    }
}

/// Validates a folder that others prepared. Its owner and group are trusted; a folder that anyone
/// can write to is an error.
pub fn check_shared_folder(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let found = fs::metadata(path).map_err(|error| format!("{shown} cannot be used ({error})"))?;
    if !found.is_dir() {
        Err(format!("{shown} is not a folder"))
    } else if found.mode() & 0o002 != 0 {
        let mode = found.mode() & 0o7777;
        Err(format!(
            "anyone can write to {shown} (mode {mode:04o}), so its kernels cannot be trusted; run `chmod o-w` on it"
        ))
    } else {
        Ok(())
    }
}

/// Writes a file that only this user can read, atomically: at every moment its name has the old
/// contents or all of `parts`.
pub fn write_private_file(folder: &Path, file_name: &str, parts: &[&[u8]]) -> io::Result<()> {
    let mut temporary = TemporaryFile::create(folder, 0o600)?;
    for part in parts {
        temporary.file.write_all(part)?;
    }
    // Timestamps set by the file system have a resolution of some milliseconds, which is too coarse
    // for the order of use.
    temporary.file.set_modified(SystemTime::now())?;
    temporary.rename(&folder.join(file_name), true)
}

/// A file that is written under a temporary name and renamed once it is complete. Dropped before
/// that, it leaves nothing behind.
///
/// ```
/// use std::io::Write;
/// use bornite_support::files::AtomicFile;
/// # fn main() -> std::io::Result<()> {
/// let path = std::env::temp_dir().join(format!("replaced-{}", std::process::id()));
/// std::fs::write(&path, "old")?;
/// let mut new = AtomicFile::create(&path)?;
/// new.write_all(b"new")?;
/// assert_eq!(std::fs::read(&path)?, b"old");
/// new.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"new");
/// # std::fs::remove_file(&path)
/// # }
/// ```
pub struct AtomicFile {
    temporary: TemporaryFile,
    path: PathBuf,
}

impl AtomicFile {
    /// Starts a file, with the permissions of the one that it replaces. A symbolic link of that
    /// name is replaced itself; a folder, device or pipe is an error.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<AtomicFile> {
        let path = path.into();
        let found = fs::symlink_metadata(&path).ok();
        if found.as_ref().is_some_and(|found| !found.is_file() && !found.is_symlink()) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
        }
        // Temporary files of writers that were killed.
        remove_stale_temporaries(folder(&path));
        let temporary = match found.filter(fs::Metadata::is_file) {
            Some(found) => {
                let temporary = TemporaryFile::create(folder(&path), 0o600)?;
                temporary.file.set_permissions(found.permissions())?;
                temporary
            }
            None => TemporaryFile::create(folder(&path), 0o666)?,
        };
        Ok(AtomicFile { temporary, path })
    }

    /// Starts a file without looking for stale temporary files, for folders with very many files
    /// whose owner removes those. Whatever has the name is replaced, also a device or a pipe; a
    /// folder is an error when the file is committed.
    pub fn create_without_cleanup(path: impl Into<PathBuf>) -> io::Result<AtomicFile> {
        let path = path.into();
        Ok(AtomicFile { temporary: TemporaryFile::create(folder(&path), 0o666)?, path })
    }

    /// Syncs the contents to disk and renames the file to its final name.
    pub fn commit(self) -> io::Result<()> {
        self.temporary.rename(&self.path, true)
    }

    /// Renames the file to its final name without syncing. After a crash of the machine it may be
    /// empty or truncated.
    pub fn commit_unsynced(self) -> io::Result<()> {
        self.temporary.rename(&self.path, false)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.file.flush()
    }
}

/// Writes a file atomically: at every moment its name has the old contents or the new ones.
pub fn write_atomic(path: impl Into<PathBuf>, contents: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(contents)?;
    file.commit()
}

/// Parent folder of a path.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file being written, locked while its writer lives and removed unless renamed.
struct TemporaryFile {
    path: PathBuf,
    file: File,
    renamed: bool,
}

impl TemporaryFile {
    fn create(folder: &Path, mode: u32) -> io::Result<TemporaryFile> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // A name can be taken by a process with the same id in another container, or left by an
        // earlier one.
        for _ in 0..1000 {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{TEMPORARY_PREFIX}{}-{count}", std::process::id()));
            let file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            let temporary = TemporaryFile { path, file, renamed: false };
            // Where locks do not work, only the age identifies stale files.
            let _ = temporary.file.lock();
            // Another process may have seen the file unlocked between the two calls above and
            // removed it as stale.
            if temporary.file.metadata()?.nlink() > 0 {
                return Ok(temporary);
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, "no free name for a temporary file"))
    }

    fn rename(mut self, path: &Path, sync: bool) -> io::Result<()> {
        if sync {
            // A rename may reach the disk before the data, and a crash would leave an empty file.
            self.file.sync_all()?;
        }
        fs::rename(&self.path, path)?;
        self.renamed = true;
        if sync {
            // Makes the rename durable. Some file systems do not support this.
            let _ = File::open(folder(path)).and_then(|folder| folder.sync_all());
        }
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes temporary files of writers that were killed. A lock shows whether the writer lives; a
/// process id does not, since ids are reused and differ between containers and machines.
pub fn remove_stale_temporaries(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path) else {
            continue;
        };
        let stale = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {
                let modified = entry.metadata().and_then(|metadata| metadata.modified());
                modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STALE_AGE))
            }
        };
        if stale {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Removes a file; a missing file counts as removed.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_regular_files_and_links_are_replaced() {
        let folder = std::env::temp_dir().join(format!("bornite-replace-{}", std::process::id()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        let (plain, link) = (folder.join("plain"), folder.join("link"));
        write_atomic(&plain, b"").unwrap();
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o640)).unwrap();
        write_atomic(&plain, b"one").unwrap();
        assert_eq!(fs::metadata(&plain).unwrap().mode() & 0o777, 0o640);
        fs::write(folder.join(".writing-1-1"), "of a process that was killed").unwrap();
        std::os::unix::fs::symlink("plain", &link).unwrap();
        write_atomic(&link, b"two").unwrap();
        assert_eq!((fs::read(&plain).unwrap(), fs::read(&link).unwrap()), (b"one".to_vec(), b"two".to_vec()));
        for path in [Path::new("/dev/null"), &folder.join("inner")] {
            assert_eq!(write_atomic(path, b"three").unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        // A file that is not committed leaves nothing behind.
        drop(AtomicFile::create(&plain).unwrap());
        assert_eq!((fs::read_dir(&folder).unwrap().count(), fs::read(&plain).unwrap()), (3, b"one".to_vec()));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn create_without_cleanup_leaves_stale_temporaries() {
        let folder = std::env::temp_dir().join(format!("bornite-overwrite-{}", std::process::id()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        let (socket, stale) = (folder.join("socket"), folder.join(".writing-1-1"));
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        fs::write(&stale, "of a process that was killed").unwrap();
        for (contents, sync) in [(b"one", true), (b"two", false)] {
            let mut file = AtomicFile::create_without_cleanup(&socket).unwrap();
            file.write_all(contents).unwrap();
            if sync {
                file.commit().unwrap()
            } else {
                file.commit_unsynced().unwrap()
            }
            assert_eq!(fs::read(&socket).unwrap(), contents);
        }
        assert!(AtomicFile::create_without_cleanup(folder.join("inner")).unwrap().commit().is_err());
        assert!(stale.exists());
        remove_stale_temporaries(&folder);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
