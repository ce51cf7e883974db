//! The kernel cache on disk: machine code under a hash of everything that it depends on.
//!
//! The cache is an optimization and never required: whatever is wrong with the folder, the disk or
//! an entry, a kernel is compiled again, and [`CacheStatus`] has the reason. `key` identifies
//! entries, `entry` is their file format, `entry_files` lists them, `compile` connects the cache to
//! NVRTC. Processes share the folder without synchronization: files are written atomically, and
//! equal names have equal contents, so the last writer may win.

mod compile;
mod entry;
mod entry_files;
mod key;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

pub use compile::{Compiler, Nvrtc, WarmSummary, compile_cached};
pub use entry::FORMAT_VERSION;
pub use key::{CacheKey, KernelSource};

use bornite_support::Error as SupportError;
pub use bornite_support::cache::{
    CACHE_DIR_VARIABLE, CACHE_SIZE_VARIABLE, CACHE_VARIABLE, CacheSettings, KERNEL_CACHE_DIR_VARIABLE,
    SHARED_CACHE_DIR_VARIABLE,
};
use bornite_support::files;

use entry::EntryRead;
use entry_files::{EntryFile, list_entry_files};

use crate::{Cubin, Error, Result};

/// Folder of the entries within the cache's folder.
const SUBFOLDER: &str = "kernels";

/// Number of writes after which the folder is scanned again, since other processes write there too.
const WRITES_PER_SCAN: u32 = 256;

/// An open kernel cache, shared by threads.
pub struct Cache {
    /// Folder of the entries, or the reason why there is none.
    folder: std::result::Result<PathBuf, String>,
    shared: Option<std::result::Result<PathBuf, String>>,
    limit_bytes: u64,
    size: Mutex<FolderSize>,
    last_error: Mutex<Option<String>>,
    hits: AtomicU64,
    misses: AtomicU64,
    rebuilt: AtomicU64,
    evicted: AtomicU64,
    in_flight: compile::InFlight,
}

/// Size of the folder as far as this process knows.
#[derive(Default)]
struct FolderSize {
    bytes: u64,
    /// Writes until the folder is scanned again.
    writes_left: u32,
}

/// State of a cache, for `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Folder of the entries, or the reason why there is none.
    pub folder: std::result::Result<PathBuf, String>,
    /// The shared folder, or the reason why it is not used.
    pub shared: Option<std::result::Result<PathBuf, String>>,
    /// Maximum total size of the entries.
    pub limit_bytes: u64,
    /// Last error of writing or removing an entry.
    pub last_error: Option<String>,
}

/// Contents of a cache, and counts since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Number of entries in the folder.
    pub entries: u64,
    /// Total size of the entries.
    pub bytes: u64,
    /// Requests answered without compiling.
    pub hits: u64,
    /// Requests that found nothing.
    pub misses: u64,
    /// Misses because of a damaged file.
    pub rebuilt: u64,
    /// Entries removed because of the size limit.
    pub evicted: u64,
}

/// An entry of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// The kernel's name; `None` if the file is damaged.
    pub name: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// Size of the file.
    pub bytes: u64,
    /// Time of the last write or read.
    pub used: SystemTime,
}

impl Cache {
    /// Opens a cache. Never fails: if the folder cannot be used, nothing is stored and
    /// [`status`](Cache::status) has the reason.
    pub fn open(settings: CacheSettings) -> Cache {
        let CacheSettings { enabled, folder, shared, limit_bytes } = settings;
        let disabled = || Err(format!("disabled by {CACHE_VARIABLE}=off"));
        let folder = match folder {
            _ if !enabled => disabled(),
            None => Err(format!("neither HOME nor XDG_CACHE_HOME is set; set {CACHE_DIR_VARIABLE} to a folder")),
            Some(folder) => open_folder(&folder),
        };
        let shared = shared.map(|shared| {
            if !enabled {
                return disabled();
            }
            let within = shared.join(SUBFOLDER);
            files::check_shared_folder(&shared).and_then(|()| files::check_shared_folder(&within)).map(|()| within)
        });
        if let Ok(folder) = &folder {
            files::remove_stale_temporaries(folder);
        }
        Cache {
            folder,
            shared,
            limit_bytes,
            size: Mutex::default(),
            last_error: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            rebuilt: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            in_flight: compile::InFlight::default(),
        }
    }

    /// Returns the cache of the process, opened on first use with [`CacheSettings::current`]. Fails
    /// only if a setting is invalid.
    pub fn global() -> Result<&'static Cache> {
        static CACHE: OnceLock<Result<Cache>> = OnceLock::new();
        CACHE.get_or_init(|| Ok(Cache::open(CacheSettings::freeze()?))).as_ref().map_err(Error::clone)
    }

    /// Returns the folders and the last error.
    pub fn status(&self) -> CacheStatus {
        CacheStatus {
            folder: self.folder.clone(),
            shared: self.shared.clone(),
            limit_bytes: self.limit_bytes,
            last_error: lock(&self.last_error).clone(),
        }
    }

    /// Returns the machine code of a key, from the shared folder or our own. Damaged, truncated or
    /// foreign files and those of another format version count as missing.
    pub fn get(&self, key: &CacheKey) -> Option<Cubin> {
        let file_name = key.file_name();
        let shared = self.shared.as_ref().and_then(|shared| shared.as_ref().ok()).map(|folder| (folder, false));
        let own = self.folder.as_ref().ok().map(|folder| (folder, true));
        let mut rejected = false;
        for (folder, touch) in [shared, own].into_iter().flatten() {
            match entry::read(&folder.join(&file_name), key, touch) {
                EntryRead::Payload(payload) => match Cubin::checked(payload) {
                    Ok(cubin) => {
                        self.count_hit();
                        return Some(cubin);
                    }
                    Err(_) => rejected = true,
                },
                EntryRead::Nothing => {}
                EntryRead::Rejected => rejected = true,
            }
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        self.rebuilt.fetch_add(rejected as u64, Ordering::Relaxed);
        None
    }

    /// Stores machine code under a key, replacing an existing entry. Returns true on success;
    /// otherwise the reason is in [`status`](Cache::status).
    pub fn put(&self, key: &CacheKey, name: &str, cubin: &Cubin) -> bool {
        let Ok(folder) = &self.folder else { return false };
        let payload = cubin.bytes();
        let head = entry::encode_header(key, name, payload);
        let bytes = head.as_ref().map_or(u64::MAX, |head| (head.len() + payload.len()) as u64);
        let Some(head) = head.filter(|_| bytes <= self.limit_bytes) else {
            let limit = self.limit_bytes;
            self.record_error(format!("kernel '{name}' is larger than the size limit of the cache ({limit} bytes)"));
            return false;
        };
        let write = || files::write_private_file(folder, &key.file_name(), &[&head, payload]);
        let written = match write() {
            // The folder was deleted while the cache was open.
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && folder.parent().is_some_and(|root| open_folder(root).is_ok()) =>
            {
                write()
            }
            written => written,
        };
        match &written {
            Ok(()) => self.evict_over_limit(folder, bytes),
            Err(error) => self.record_error(format!("kernel '{name}' was not saved in {}: {error}", folder.display())),
        }
        written.is_ok()
    }

    /// Returns the contents of the folder and the counts of this cache.
    pub fn stats(&self) -> CacheStats {
        let entries = self.folder.as_ref().map_or(vec![], |folder| list_entry_files(folder).unwrap_or_default());
        CacheStats {
            entries: entries.len() as u64,
            bytes: entries.iter().map(|file| file.bytes).sum(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            rebuilt: self.rebuilt.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    /// Returns the entries, least recently used first. Reads every file.
    pub fn entries(&self) -> Result<Vec<CacheEntry>> {
        let folder = self.own_folder()?;
        let entries = list_entry_files(folder).map_err(|error| self.io_error("list", folder, &error))?;
        let entries = entries.into_iter().map(|EntryFile { path, bytes, used }| {
            let name = entry::name(&path);
            CacheEntry { name, path, bytes, used }
        });
        Ok(entries.collect())
    }

    /// Removes all entries (not those of the shared folder) and stale temporary files. Returns the
    /// number of entries.
    pub fn clear(&self) -> Result<u64> {
        let folder = self.own_folder()?;
        files::remove_stale_temporaries(folder);
        let entries = list_entry_files(folder).map_err(|error| self.io_error("list", folder, &error))?;
        for file in &entries {
            files::remove_if_exists(&file.path).map_err(|error| self.io_error("remove", &file.path, &error))?;
        }
        *lock(&self.size) = FolderSize::default();
        Ok(entries.len() as u64)
    }

    fn own_folder(&self) -> Result<&Path> {
        self.folder.as_deref().map_err(|reason| SupportError::CacheUnavailable { reason: reason.clone() }.into())
    }

    fn io_error(&self, what: &str, path: &Path, error: &std::io::Error) -> Error {
        SupportError::CacheUnavailable { reason: format!("cannot {what} {}: {error}", path.display()) }.into()
    }

    /// Removes the least recently used entries if the cache is above its limit.
    fn evict_over_limit(&self, folder: &Path, written_bytes: u64) {
        let mut size = lock(&self.size);
        size.bytes = size.bytes.saturating_add(written_bytes);
        if size.writes_left > 0 && size.bytes <= self.limit_bytes {
            size.writes_left -= 1;
            return;
        }
        let entries = match list_entry_files(folder) {
            Ok(entries) => entries,
            Err(error) => return self.record_error(format!("cannot list {}: {error}", folder.display())),
        };
        let mut bytes: u64 = entries.iter().map(|file| file.bytes).sum();
        if bytes > self.limit_bytes {
            // Frees some extra room: scanning at every write would take longer than the write. The
            // latest entry always stays.
            let target = self.limit_bytes - self.limit_bytes / 16;
            for oldest in &entries[..entries.len() - 1] {
                if bytes <= target {
                    break;
                }
                match files::remove_if_exists(&oldest.path) {
                    Ok(()) => {
                        bytes -= oldest.bytes;
                        self.evicted.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => self.record_error(format!("cannot remove {}: {error}", oldest.path.display())),
                }
            }
        }
        *size = FolderSize { bytes, writes_left: WRITES_PER_SCAN };
    }

    fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    fn record_error(&self, message: String) {
        let before = lock(&self.last_error).replace(message.clone());
        // Repeated errors are logged once.
        if before.as_ref() != Some(&message) {
            bornite_support::log!(Warn, "kernel cache: {message}");
        }
    }
}

/// Creates and validates the cache's folder and its subfolder for entries.
fn open_folder(folder: &Path) -> std::result::Result<PathBuf, String> {
    let within = folder.join(SUBFOLDER);
    files::open_private_folder(folder)?;
    files::open_private_folder(&within)?;
    Ok(within)
}

/// A poisoned lock still guards valid values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
