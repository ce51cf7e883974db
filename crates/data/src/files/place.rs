//! The folder of a dataset. Its files are replaced atomically ([`Replacement`]).

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bornite_support::files::{self, Replacement};
use bornite_support::input_limit;

use super::{Error, Result};

/// A folder that a dataset is written to.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
    /// Bytes that fit, where a test says so.
    room: Option<Arc<AtomicU64>>,
}

/// A file that is written beside its path, in blocks of 64 KiB.
pub(super) struct Part(BufWriter<Limited>);

/// A file on a disk that may be full.
struct Limited {
    file: Replacement,
    room: Option<Arc<AtomicU64>>,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(room) = &self.room {
            let left = room.load(Ordering::Relaxed);
            if left < bytes.len() as u64 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            room.store(left - bytes.len() as u64, Ordering::Relaxed);
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Place {
    /// A folder that is there or will be made.
    pub fn new(folder: &Path) -> Place {
        Place { folder: folder.into(), room: None }
    }

    /// Makes the folder if it is not there.
    pub fn create(&self) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(Error::io("make the folder", &self.folder))
    }

    /// The same on a disk that has room for so many bytes more: for tests.
    pub fn with_room(mut self, bytes: u64) -> Place {
        self.room = Some(Arc::new(AtomicU64::new(bytes)));
        self
    }

    /// Fails if files that are no dataset's would be written over.
    pub(super) fn unwritten(&self) -> Result<()> {
        let own = |name: &str| {
            let beside = ["README.md", "stats.json", "report.html", "progress.json", "generation_stats.json"];
            beside.contains(&name) || name.starts_with("cuda_synth_")
        };
        let names = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let rows = names(&self.path("data")).next().map(|_| "data".to_owned());
        let mut found = names(&self.folder).map(|name| name.to_string_lossy().into_owned()).filter(|name| own(name));
        match found.next().or(rows) {
            None => Ok(()),
            Some(name) => Err(Error::Asked(format!(
                "{} is there, is no dataset's, and would be written over: name another folder",
                self.path(&name).display()
            ))),
        }
    }

    /// A path within the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Begins a file, in place of whatever has its name.
    pub(super) fn begin(&self, name: &str) -> Result<Part> {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
        }
        let file = Replacement::overwrite(&path).map_err(Error::io("write", &path))?;
        Ok(Part(BufWriter::with_capacity(1 << 16, Limited { file, room: self.room.clone() })))
    }

    /// Writes a complete file.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut part = self.begin(name)?;
        part.write_all(bytes).and_then(|()| part.finish()).map_err(Error::io("write", &self.path(name)))
    }

    /// Writes a complete small file, one of many, without waiting for the disk, which would take most of the time.
    /// Files lost in a crash of the machine are found by their checksums.
    pub(super) fn write_quickly(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut part = self.begin(name)?;
        let written = part.write_all(bytes).and_then(|()| part.into_replacement()?.commit_unsynced());
        written.map_err(Error::io("write", &self.path(name)))
    }

    /// Reads a whole file, if it is there.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let absent = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        match read(&self.path(name), input_limit()?.saturating_mul(2)) {
            Err(Error::Io { cause, .. }) if absent(cause.kind()) => Ok(None),
            bytes => bytes.map(Some),
        }
    }

    /// Removes the files that killed runs had begun. No other run may be writing to the folder.
    pub(super) fn sweep(&self, folder: &str) {
        files::sweep(&self.path(folder));
    }
}

/// Opens a regular file and returns its size.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    plain(path)?;
    let file = File::open(path).map_err(Error::io("read", path))?;
    let bytes = file.metadata().map_err(Error::io("read", path))?.len();
    Ok((file, bytes))
}

/// Reads a regular file of at most `limit` bytes.
pub(super) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, bytes) = open(path)?;
    if bytes > limit {
        return Err(Error::too_large(path, "it has", limit));
    }
    let mut contents = Vec::with_capacity(bytes as usize);
    // It may have grown meanwhile.
    file.take(bytes).read_to_end(&mut contents).map_err(Error::io("read", path))?;
    Ok(contents)
}

/// Fails for what is there and no plain file: a pipe would be waited for.
pub(super) fn plain(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(Error::damaged(path, "it is no plain file")),
        _ => Ok(()),
    }
}

impl Part {
    /// Makes the file appear under its name, once the disk has its contents.
    pub(super) fn finish(self) -> io::Result<()> {
        self.into_replacement()?.commit()
    }

    fn into_replacement(self) -> io::Result<Replacement> {
        Ok(self.0.into_inner().map_err(io::IntoInnerError::into_error)?.file)
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
