//! The folder on disk: which one is safe to use, files that appear whole or not at all, strays, and removal of what was
//! used longest ago. Knows file names and sizes, not what entries hold.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use crate::cache::CACHE_DIR_VARIABLE;

const TEMPORARY_PREFIX: &str = ".writing-";
/// No write takes this long: what is older was left behind, also where locks do not work.
const STALE_AGE: Duration = Duration::from_secs(3600);

/// Makes a folder that only this user can write to, or says why the one that is there cannot be used.
pub fn open_private_folder(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let remedy = format!("set {CACHE_DIR_VARIABLE} to a folder that only you can write to");
    if let Err(error) = fs::metadata(path)
        && error.kind() == ErrorKind::NotFound
    {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
        created.map_err(|error| format!("{shown} cannot be made ({error}); {remedy}"))?;
    }
    let found = fs::metadata(path).map_err(|error| format!("{shown} cannot be used ({error}); {remedy}"))?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() {
        Err(format!("{shown} is not a folder; {remedy}"))
    } else if found.uid() != user {
        Err(format!("{shown} belongs to user {}, not to user {user}, who runs this; {remedy}", found.uid()))
    } else if found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o7777;
        Err(format!(
            "others may write to {shown} (mode {mode:04o}), so its kernels cannot be trusted; \
             {remedy}, or run `chmod go-w` on it if it is yours alone"
        ))
    } else {
        Ok(())
    }
}

/// Says why a folder that others prepared cannot be used. Owner and group are whom its user chose to trust.
pub fn check_shared_folder(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let found = fs::metadata(path).map_err(|error| format!("{shown} cannot be used ({error})"))?;
    if !found.is_dir() {
        Err(format!("{shown} is not a folder"))
    } else if found.mode() & 0o002 != 0 {
        let mode = found.mode() & 0o7777;
        Err(format!(
            "anyone may write to {shown} (mode {mode:04o}), so its kernels cannot be trusted; run `chmod o-w` on it"
        ))
    } else {
        Ok(())
    }
}

/// Writes a file of a cache so that, whatever happens, its name holds what it held before or all of `parts`.
pub fn write_cache_file(folder: &Path, file_name: &str, parts: &[&[u8]]) -> io::Result<()> {
    let mut temporary = TemporaryFile::create(folder, 0o600)?;
    for part in parts {
        temporary.file.write_all(part)?;
    }
    // The kernel's own stamps are some milliseconds coarse; those of later reads are not.
    temporary.file.set_modified(SystemTime::now())?;
    temporary.rename(&folder.join(file_name), true)
}

/// A file that is written beside its path and takes that name once it is complete. Dropped before, it leaves nothing behind.
///
/// ```
/// use std::io::Write;
/// use bornite_support::files::Replacement;
/// # fn main() -> std::io::Result<()> {
/// let path = std::env::temp_dir().join(format!("replaced-{}", std::process::id()));
/// std::fs::write(&path, "old")?;
/// let mut new = Replacement::create(&path)?;
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
    /// Begins a file, with the permissions of the one that it will replace. A symbolic link of that name will be
    /// replaced itself; a folder, device or pipe is an error.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<AtomicFile> {
        let path = path.into();
        let found = fs::symlink_metadata(&path).ok();
        if found.as_ref().is_some_and(|found| !found.is_file() && !found.is_symlink()) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a plain file"));
        }
        // Of writers that were killed.
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

    /// Begins a file of a folder that its owner sweeps: the folder, which may have very many files, is not listed.
    /// Whatever has the name will be replaced, also a device or a pipe; only a folder is an error, when the file is
    /// committed.
    pub fn create_without_cleanup(path: impl Into<PathBuf>) -> io::Result<AtomicFile> {
        let path = path.into();
        Ok(AtomicFile { temporary: TemporaryFile::create(folder(&path), 0o666)?, path })
    }

    /// Gives the file its name, once the disk has its contents.
    pub fn commit(self) -> io::Result<()> {
        self.temporary.rename(&self.path, true)
    }

    /// Gives the file its name without waiting for the disk. After a crash of the machine it may be empty or cut short.
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

/// Replaces a file by one with these contents; at every moment its name holds the old contents or the new ones.
pub fn write_atomic(path: impl Into<PathBuf>, contents: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(contents)?;
    file.commit()
}

/// The folder that a path is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file being written, locked as long as its writer lives and removed unless renamed.
struct TemporaryFile {
    path: PathBuf,
    file: File,
    renamed: bool,
}

impl TemporaryFile {
    fn create(folder: &Path, mode: u32) -> io::Result<TemporaryFile> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Names can be taken by a process of the same number in another container, or left by one long gone.
        for _ in 0..1000 {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{TEMPORARY_PREFIX}{}-{count}", std::process::id()));
            let file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            let temporary = TemporaryFile { path, file, renamed: false };
            // Where locks do not work, age alone tells strays.
            let _ = temporary.file.lock();
            // A sweep between the two calls above found the file unlocked and took it for a stray.
            if temporary.file.metadata()?.nlink() > 0 {
                return Ok(temporary);
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, "no name for a temporary file is free"))
    }

    fn rename(mut self, path: &Path, sync: bool) -> io::Result<()> {
        if sync {
            // A rename may reach the disk before the data it names, and then a crash leaves an empty file.
            self.file.sync_all()?;
        }
        fs::rename(&self.path, path)?;
        self.renamed = true;
        if sync {
            // Some file systems cannot do this. It guards against a file lost with the power.
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

/// Removes the files of writers that were killed. A lock tells better than a process number whether the writer lives:
/// numbers are used again, and mean nothing across containers and machines.
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

/// Removes a file; one that is gone already counts as removed.
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
    fn only_plain_files_and_links_are_replaced() {
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
        // A file that is not finished leaves nothing behind.
        drop(AtomicFile::create(&plain).unwrap());
        assert_eq!((fs::read_dir(&folder).unwrap().count(), fs::read(&plain).unwrap()), (3, b"one".to_vec()));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_its_owner_sweeps_is_not_listed() {
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
