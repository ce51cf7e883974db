//! Folder of a dataset. Its files are replaced atomically ([`Replacement`]).

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bornite_support::files::{self, AtomicFile};
use bornite_support::input_limit;

use super::{Error, Result};

/// Folder that a dataset is written to.
#[derive(Clone, Debug)]
pub struct DatasetDir {
    folder: PathBuf,
    /// Remaining bytes on the simulated disk, in tests.
    free_bytes: Option<Arc<AtomicU64>>,
}

/// File being written under a temporary name, buffered in 64 KiB blocks.
pub(super) struct PendingFile(BufWriter<Limited>);

/// File with an optional limit on the bytes that can be written.
struct Limited {
    file: AtomicFile,
    free_bytes: Option<Arc<AtomicU64>>,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(free_bytes) = &self.free_bytes {
            let left = free_bytes.load(Ordering::Relaxed);
            if left < bytes.len() as u64 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            free_bytes.store(left - bytes.len() as u64, Ordering::Relaxed);
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DatasetDir {
    /// A folder that exists or will be created.
    pub fn new(folder: &Path) -> DatasetDir {
        DatasetDir { folder: folder.into(), free_bytes: None }
    }

    /// Creates the folder if it does not exist.
    pub fn create(&self) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(Error::io("create the folder", &self.folder))
    }

    /// Simulates a disk with this many free bytes, for tests.
    pub fn with_free_bytes(mut self, bytes: u64) -> DatasetDir {
        self.free_bytes = Some(Arc::new(AtomicU64::new(bytes)));
        self
    }

    /// Fails if files that do not belong to a dataset would be overwritten.
    pub(super) fn require_no_unrelated_files(&self) -> Result<()> {
        let is_dataset_file = |name: &str| {
            let names = ["README.md", "stats.json", "report.html", "progress.json", "generation_stats.json"];
            names.contains(&name) || name.starts_with("cuda_synth_")
        };
        let names = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let rows = names(&self.path("data")).next().map(|_| "data".to_owned());
        let mut found =
            names(&self.folder).map(|name| name.to_string_lossy().into_owned()).filter(|name| is_dataset_file(name));
        match found.next().or(rows) {
            None => Ok(()),
            Some(name) => Err(Error::InvalidRequest(format!(
                "{} exists, does not belong to a dataset and would be overwritten: choose another folder",
                self.path(&name).display()
            ))),
        }
    }

    /// Path within the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts writing a file, replacing any existing one.
    pub(super) fn begin_file(&self, name: &str) -> Result<PendingFile> {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io("create the folder", folder))?;
        }
        let file = AtomicFile::create_without_cleanup(&path).map_err(Error::io("write", &path))?;
        Ok(PendingFile(BufWriter::with_capacity(1 << 16, Limited { file, free_bytes: self.free_bytes.clone() })))
    }

    /// Writes a complete file.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut part = self.begin_file(name)?;
        part.write_all(bytes).and_then(|()| part.finish()).map_err(Error::io("write", &self.path(name)))
    }

    /// Writes a complete small file, one of many, without syncing, which would dominate the time.
    /// Files lost in a machine crash are detected by their checksums.
    pub(super) fn write_unsynced(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut part = self.begin_file(name)?;
        let written = part.write_all(bytes).and_then(|()| part.into_replacement()?.commit_unsynced());
        written.map_err(Error::io("write", &self.path(name)))
    }

    /// Reads a complete file, if it exists.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let absent = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        match read(&self.path(name), input_limit()?.saturating_mul(2)) {
            Err(Error::Io { cause, .. }) if absent(cause.kind()) => Ok(None),
            bytes => bytes.map(Some),
        }
    }

    /// Removes temporary files of killed runs. No other run may be writing to the folder.
    pub(super) fn sweep(&self, folder: &str) {
        files::remove_stale_temporaries(&self.path(folder));
    }
}

/// Opens a regular file and returns its size.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    require_regular_file(path)?;
    let file = File::open(path).map_err(Error::io("read", path))?;
    let bytes = file.metadata().map_err(Error::io("read", path))?.len();
    Ok((file, bytes))
}

/// Reads a regular file of at most `limit` bytes.
pub(super) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, bytes) = open(path)?;
    if bytes > limit {
        return Err(Error::too_large(path, "the file has", limit));
    }
    let mut contents = Vec::with_capacity(bytes as usize);
    // The file may have grown meanwhile.
    file.take(bytes).read_to_end(&mut contents).map_err(Error::io("read", path))?;
    Ok(contents)
}

/// Fails if the path exists but is not a regular file: opening a pipe would block.
pub(super) fn require_regular_file(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(Error::damaged(path, "not a regular file")),
        _ => Ok(()),
    }
}

impl PendingFile {
    /// Syncs the contents, then renames the file to its final name.
    pub(super) fn finish(self) -> io::Result<()> {
        self.into_replacement()?.commit()
    }

    fn into_replacement(self) -> io::Result<AtomicFile> {
        Ok(self.0.into_inner().map_err(io::IntoInnerError::into_error)?.file)
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
