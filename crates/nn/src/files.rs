//! Files in folders that anyone may have written to: only regular files are opened, symbolic links
//! are not written through, and small files are replaced atomically.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::{Error, Result};

/// Description of a file that is not a regular one.
fn kind(found: FileType) -> &'static str {
    match found {
        f if f.is_dir() => "is a folder, not a file",
        f if f.is_symlink() => "is a symbolic link, not a plain file; remove it",
        f if f.is_fifo() => "is not a plain file, but a named pipe",
        f if f.is_socket() => "is not a plain file, but a socket",
        _ => "is not a plain file, but a device",
    }
}

/// Rejects what exists and is not a regular file, such as a pipe, which could block forever.
/// Symbolic links to regular files pass.
pub(crate) fn check_plain(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(Error::file(path, kind(found.file_type()))),
        _ => Ok(()),
    }
}

/// Opens a regular file for reading and returns its size. Anything else is rejected before it is
/// opened.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    check_plain(path)?;
    // Non-blocking, in case a pipe took its name in between.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(Error::io("read", path))?;
    let found = file.metadata().map_err(Error::io("read", path))?;
    if !found.is_file() {
        return Err(Error::file(path, kind(found.file_type())));
    }
    Ok((file, found.len()))
}

/// Opens a regular file for writing at its end, creating it if needed. Symbolic links are rejected:
/// their target may be anything.
pub(crate) fn append(path: &Path) -> Result<File> {
    open_to_write(path, OpenOptions::new().append(true).create(true))
}

/// Opens or creates a file that only serves as a lock; its contents are unchanged.
pub(crate) fn open_lock(path: &Path) -> Result<File> {
    open_to_write(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
}

fn open_to_write(path: &Path, options: &mut OpenOptions) -> Result<File> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return Err(Error::file(path, kind(found.file_type()))),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io("write", path)(error)),
        _ => {}
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    options.custom_flags(flags).open(path).map_err(Error::io("write", path))
}

/// Replaces a file atomically. A symbolic link, pipe, socket or device of that name is replaced
/// itself.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    let special = |found: fs::Metadata| !found.is_file() && !found.is_symlink() && !found.is_dir();
    if fs::symlink_metadata(path).is_ok_and(special) {
        fs::remove_file(path).map_err(Error::io("write", path))?;
    }
    bornite_support::files::write_atomic(path, contents).map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_links_are_not_written_through() {
        let folder = std::env::temp_dir().join(format!("bornite-plain-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        fs::write(at("plain"), "text").unwrap();
        for (link, target) in [("to-pipe", "pipe"), ("to-device", "/dev/zero"), ("to-plain", "plain")] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        for (name, expected) in [
            ("pipe", "is not a plain file, but a named pipe"),
            ("to-pipe", "a named pipe"),
            ("to-device", "is not a plain file, but a device"),
            ("socket", "but a socket"),
            ("", "is a folder"),
        ] {
            let error = open(&at(name)).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
            assert!(append(&at(name)).is_err() && open_lock(&at(name)).is_err(), "{name}");
        }
        assert_eq!(open(&at("to-plain")).unwrap().1, 4);
        let error = append(&at("to-plain")).unwrap_err().to_string();
        assert!(error.contains("to-plain: is a symbolic link"), "{error}");
        // A replacement replaces the link, whatever it leads to, and the pipe.
        for name in ["to-plain", "to-device", "pipe"] {
            replace(&at(name), b"new").unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"new", "{name}");
        }
        assert_eq!(fs::read(at("plain")).unwrap(), b"text");
        append(&at("fresh")).unwrap().write_all(b"a").unwrap();
        append(&at("fresh")).unwrap().write_all(b"b").unwrap();
        assert_eq!(fs::read(at("fresh")).unwrap(), b"ab");
        fs::remove_dir_all(&folder).unwrap();
    }
}
