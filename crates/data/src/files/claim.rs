//! Who makes which shards of a folder: a lock that the system takes back when a process ends, however it ends. Where a file system
//! has no locks, runs are trusted.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use super::place::plain;
use super::{Error, Place, Result};

const FOLDER: &str = ".making";
/// Held while claims are looked at, so that two that begin together see each other.
const DOOR: &str = ".making/door.lock";

/// The right to make some shards, until it is dropped.
pub(super) struct Claim<'a> {
    place: &'a Place,
    name: String,
    /// Locked.
    _file: File,
}

fn name(shards: &Range<u32>) -> String {
    format!("{FOLDER}/claim-{:05}-{:05}.lock", shards.start, shards.end)
}

fn shards_of(name: &str) -> Option<Range<u32>> {
    let (start, end) = name.strip_prefix("claim-")?.strip_suffix(".lock")?.split_once('-')?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

/// The door, locked; it may be taken away while one waits for it.
fn door(place: &Place) -> Result<File> {
    let (folder, path) = (place.path(FOLDER), place.path(DOOR));
    loop {
        fs::create_dir_all(&folder).map_err(Error::io("make the folder", &folder))?;
        plain(&path)?;
        let file = match OpenOptions::new().create(true).truncate(false).write(true).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            file => file.map_err(Error::io("write", &path))?,
        };
        if file.lock().is_err() {
            return Ok(file);
        }
        let same = |there: fs::Metadata| file.metadata().is_ok_and(|mine| mine.ino() == there.ino());
        if fs::metadata(&path).is_ok_and(same) {
            return Ok(file);
        }
    }
}

impl Claim<'_> {
    /// Claims shards, unless a run that goes on has one of them. No other run is let in until `begin` is done.
    pub(super) fn take<T>(
        place: &Place,
        shards: Range<u32>,
        begin: impl FnOnce() -> Result<T>,
    ) -> Result<(Claim<'_>, T)> {
        let door = door(place)?;
        let folder = place.path(FOLDER);
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))?.flatten() {
            let Some(others) = shards_of(&entry.file_name().to_string_lossy()) else { continue };
            if others.start >= shards.end || shards.start >= others.end {
                continue;
            }
            plain(&entry.path())?;
            // For writing too: over a network, locks are of those who may write.
            let Ok(file) = OpenOptions::new().read(true).write(true).open(entry.path()) else { continue };
            match file.try_lock() {
                // Whoever it was is gone.
                Ok(()) => drop(fs::remove_file(entry.path())),
                Err(TryLockError::WouldBlock) => {
                    let mut who = String::new();
                    let _ = file.take(256).read_to_string(&mut who);
                    return Err(Error::Asked(format!(
                        "{} is making shards {} to {} of the dataset in {}: wait until it ends, or name another folder",
                        if who.is_empty() { "another run" } else { &who },
                        others.start,
                        others.end - 1,
                        place.path("").display()
                    )));
                }
                Err(TryLockError::Error(_)) => {}
            }
        }
        let (name, host) = (name(&shards), fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default());
        let path = place.path(&name);
        plain(&path)?;
        let mut file = File::create(&path).map_err(Error::io("write", &path))?;
        let _ = file.try_lock();
        let on = if host.trim().is_empty() { String::new() } else { format!(" on {}", host.trim()) };
        let _ = write!(file, "process {}{on}", std::process::id());
        let claim = Claim { place, name, _file: file };
        match begin() {
            Ok(begun) => Ok((claim, begun)),
            Err(error) => {
                // The door is shut from within until here, and a claim that goes away looks at it again.
                drop(door);
                Err(error)
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // With a finished dataset it is gone already.
        if !self.place.path(FOLDER).is_dir() {
            return;
        }
        let Ok(_door) = door(self.place) else { return };
        let _ = fs::remove_file(self.place.path(&self.name));
        let _ = fs::remove_file(self.place.path(DOOR));
        // Only where nothing else is in it.
        let _ = fs::remove_dir(self.place.path(FOLDER));
    }
}
