//! What a save asks of the file system, as a trait: tests put a disk in its place that fails at any one of these calls.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Files and folders as the system has them. Every method does what its name says, at once.
pub trait Disk: Send + Sync {
    /// Makes a folder, whose parent is there.
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    /// Makes a file that was not there, for writing.
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }

    /// Writes all of `bytes` at a place of a file.
    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    /// Waits until a file's contents are on the disk.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    /// Waits until the names in a folder are on the disk.
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        match File::open(path)?.sync_all() {
            // Some network file systems do not know this of folders, and need no asking.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
            result => result,
        }
    }

    /// Renames a file, replacing another, or a folder, replacing none.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Removes a file, or a folder with all that is in it; links are not followed.
    fn remove(&self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
    }
}

/// The system's own.
pub struct SystemDisk;

impl Disk for SystemDisk {}
