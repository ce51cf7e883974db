//! Checksums of token files, one per piece, so that all cores hash one file and damage can be
//! located.
//!
//! A file is hashed once per process, and again only if its size, inode or change time changes.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::num::NonZero;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::{DataObserver, DataProgress};
use crate::tokenizer::hex;
use crate::{Error, Result};

/// Size of a piece; the last one of a file may be smaller.
pub(super) const PIECE_BYTES: u64 = 16 << 20;
/// Bytes that are read at once: fits into a core's cache.
const CHUNK_BYTES: u64 = 256 << 10;
/// Minimum age of a change: a more recent file could change again within the resolution of its
/// change time.
const MIN_CHANGE_AGE: Duration = Duration::from_secs(2);

/// SHA-256 of each piece of a file.
pub(super) type Pieces = Arc<Vec<String>>;

/// Identity of a file and its contents: device, inode, size, change time.
type FileVersion = (u64, u64, u64, i64, i64);

static CACHE: LazyLock<Mutex<HashMap<FileVersion, Pieces>>> = LazyLock::new(Mutex::default);

fn version(found: &Metadata) -> FileVersion {
    (found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec())
}

/// Computes the checksums of a file while it is written.
#[derive(Default)]
pub(super) struct ChecksumWriter {
    hash: Sha256,
    filled: u64,
    pieces: Vec<String>,
}

impl ChecksumWriter {
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let take = bytes.len().min((PIECE_BYTES - self.filled) as usize);
            self.hash.update(&bytes[..take]);
            self.filled += take as u64;
            bytes = &bytes[take..];
            if self.filled == PIECE_BYTES {
                self.end_piece();
            }
        }
    }

    fn end_piece(&mut self) {
        self.pieces.push(hex(&std::mem::take(&mut self.hash).finalize()));
        self.filled = 0;
    }

    pub(super) fn finish(mut self) -> Vec<String> {
        if self.filled > 0 {
            self.end_piece();
        }
        self.pieces
    }
}

/// Returns the checksums of an open file, computed on all cores unless this process has them
/// cached.
pub(super) fn of_file(file: &File, path: &Path, observer: &dyn DataObserver) -> Result<Pieces> {
    let found = file.metadata().map_err(Error::io("read", path))?;
    let lock = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pieces) = lock().get(&version(&found)) {
        return Ok(pieces.clone());
    }
    let pieces = Arc::new(hash(file, path, found.len(), observer)?);
    let changed = SystemTime::UNIX_EPOCH + Duration::new(found.ctime().max(0) as u64, found.ctime_nsec() as u32);
    if changed.elapsed().is_ok_and(|age| age > MIN_CHANGE_AGE) {
        lock().insert(version(&found), pieces.clone());
    }
    Ok(pieces)
}

/// State shared by the threads that hash a file.
struct Work<'a> {
    file: &'a File,
    bytes: u64,
    next: AtomicUsize,
    done: AtomicU64,
    cancelled: AtomicBool,
    pieces: Mutex<Vec<String>>,
    failed: Mutex<Option<std::io::Error>>,
}

impl Work<'_> {
    /// Hashes pieces until there are no more; `pause` is called after each chunk.
    fn run(&self, pause: &mut dyn FnMut(&Self)) {
        let mut chunk = vec![0; CHUNK_BYTES.min(self.bytes) as usize];
        let end = |piece: usize| (piece as u64).saturating_mul(PIECE_BYTES).min(self.bytes);
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            let (mut at, end) = (end(piece), end(piece.saturating_add(1)));
            if at == end {
                return;
            }
            let mut hash = Sha256::new();
            while at < end {
                let part = &mut chunk[..CHUNK_BYTES.min(end - at) as usize];
                if let Err(error) = self.file.read_exact_at(part, at) {
                    self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    self.cancelled.store(true, Ordering::Relaxed);
                }
                hash.update(&part);
                at += part.len() as u64;
                self.done.fetch_add(part.len() as u64, Ordering::Relaxed);
                pause(self);
                if self.cancelled.load(Ordering::Relaxed) {
                    return;
                }
            }
            self.pieces.lock().unwrap_or_else(PoisonError::into_inner)[piece] = hex(&hash.finalize());
        }
    }
}

fn hash(file: &File, path: &Path, bytes: u64, observer: &dyn DataObserver) -> Result<Vec<String>> {
    let count = bytes.div_ceil(PIECE_BYTES) as usize;
    let work = Work {
        file,
        bytes,
        next: AtomicUsize::new(0),
        done: AtomicU64::new(0),
        cancelled: AtomicBool::new(false),
        pieces: Mutex::new(vec![String::new(); count]),
        failed: Mutex::new(None),
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(count);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If a thread cannot be started, the others do its work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || work.run(&mut |_| {}));
        }
        work.run(&mut |work| {
            let done = work.done.load(Ordering::Relaxed);
            observer.on_progress(DataProgress { phase: "verifying", done, total: bytes, tokens: 0 });
            if observer.should_stop() {
                work.cancelled.store(true, Ordering::Relaxed);
            }
        });
    });
    if let Some(error) = work.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(Error::io("read", path)(error));
    }
    if work.cancelled.into_inner() {
        return Err(Error::stopped());
    }
    Ok(work.pieces.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ProgressFn;

    /// Checksums are reused only of a file that did not change, whether the last change was a
    /// moment or minutes ago.
    #[test]
    fn a_file_that_changed_is_hashed_again() {
        let path = std::env::temp_dir().join(format!("bornite-hashed-again-{}", std::process::id()));
        let sums = || of_file(&File::open(&path).unwrap(), &path, &ProgressFn::new(|_| {})).unwrap();
        std::fs::write(&path, [0; 4]).unwrap();
        assert!(!Arc::ptr_eq(&sums(), &sums()), "the next change may have the same change time");
        std::thread::sleep(MIN_CHANGE_AGE + Duration::from_millis(100));
        let finished = sums();
        assert!(Arc::ptr_eq(&finished, &sums()), "an unchanged file is hashed once");
        std::fs::write(&path, [1; 4]).unwrap();
        assert_ne!(finished, sums());
        std::fs::remove_file(&path).unwrap();
    }
}
