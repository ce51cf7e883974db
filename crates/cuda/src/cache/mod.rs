//! The kernel cache on disk: machine code under a hash of everything that decides it.
//!
//! The cache saves time and is never needed: whatever is wrong with folder, disk or entry, a kernel is compiled again
//! and the reason kept in [`CacheStatus`]. `settings` says where, `key` names entries, `entry` is their format, `folder`
//! their files, `compile` joins them to NVRTC. Processes share the folder without talking: a file appears whole, by
//! rename, and equal names mean equal contents, so the last writer may win.

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

/// Entries' place within the cache's folder, which has room for other things.
const SUBFOLDER: &str = "kernels";

/// After so many writes the folder is measured again, since other processes write there too.
const WRITES_PER_SCAN: u32 = 256;

/// An open kernel cache, for any number of threads.
pub struct Cache {
    /// Where entries are, or why nowhere.
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

/// What the folder holds as far as this process knows.
#[derive(Default)]
struct FolderSize {
    bytes: u64,
    /// Writes until the folder is measured again.
    writes_left: u32,
}

/// What a cache is in a position to do, for `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Where entries are kept, or why nothing is.
    pub folder: std::result::Result<PathBuf, String>,
    /// The shared folder in use, or why the one that was named is not.
    pub shared: Option<std::result::Result<PathBuf, String>>,
    /// The most that the entries may take.
    pub limit_bytes: u64,
    /// Why an entry could not be written or removed, the last time that happened.
    pub last_error: Option<String>,
}

/// What a cache holds, and what it did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Entries in the folder.
    pub entries: u64,
    /// Their size.
    pub bytes: u64,
    /// Requests answered without compiling.
    pub hits: u64,
    /// Requests that found nothing.
    pub misses: u64,
    /// Misses, of those above, where there was a file that could not be trusted.
    pub rebuilt: u64,
    /// Entries removed to stay within the limit.
    pub evicted: u64,
}

/// An entry of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// The kernel's name; `None` where the file is damaged.
    pub name: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// When it was last written or read.
    pub used: SystemTime,
}

impl Cache {
    /// Opens a cache. Never fails: where the folder cannot be used, nothing is kept and [`status`](Cache::status) says
    /// why.
    pub fn open(settings: CacheSettings) -> Cache {
        let CacheSettings { enabled, folder, shared, limit_bytes } = settings;
        let off = || Err(format!("switched off by {CACHE_VARIABLE}=off"));
        let folder = match folder {
            _ if !enabled => off(),
            None => Err(format!("neither HOME nor XDG_CACHE_HOME says where; set {CACHE_DIR_VARIABLE} to a folder")),
            Some(folder) => open_folder(&folder),
        };
        let shared = shared.map(|shared| {
            if !enabled {
                return off();
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

    /// The process's cache, opened on first use with [`CacheSettings::current`]. Fails only where a setting cannot be read.
    pub fn global() -> Result<&'static Cache> {
        static CACHE: OnceLock<Result<Cache>> = OnceLock::new();
        CACHE.get_or_init(|| Ok(Cache::open(CacheSettings::freeze()?))).as_ref().map_err(Error::clone)
    }

    /// Where the cache is, or why there is none.
    pub fn status(&self) -> CacheStatus {
        CacheStatus {
            folder: self.folder.clone(),
            shared: self.shared.clone(),
            limit_bytes: self.limit_bytes,
            last_error: lock(&self.last_error).clone(),
        }
    }

    /// The machine code kept under a key: the shared folder's, else our own. What is damaged, cut short, foreign or of
    /// another format version counts as not there.
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

    /// Keeps machine code under a key, in place of what is there. Returns whether that worked; if not, the reason is in
    /// [`status`](Cache::status).
    pub fn put(&self, key: &CacheKey, name: &str, cubin: &Cubin) -> bool {
        let Ok(folder) = &self.folder else { return false };
        let payload = cubin.bytes();
        let head = entry::encode_header(key, name, payload);
        let bytes = head.as_ref().map_or(u64::MAX, |head| (head.len() + payload.len()) as u64);
        let Some(head) = head.filter(|_| bytes <= self.limit_bytes) else {
            let limit = self.limit_bytes;
            self.record_error(format!("kernel '{name}' is larger than all of the cache may be ({limit} bytes)"));
            return false;
        };
        let write = || files::write_cache_file(folder, &key.file_name(), &[&head, payload]);
        let written = match write() {
            // Somebody cleared the cache by hand, folder and all.
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
            Err(error) => self.record_error(format!("kernel '{name}' was not kept in {}: {error}", folder.display())),
        }
        written.is_ok()
    }

    /// What the folder holds, and what this cache did.
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

    /// The entries of the folder, those used longest ago first. Reads every one of them.
    pub fn entries(&self) -> Result<Vec<CacheEntry>> {
        let folder = self.own_folder()?;
        let entries = list_entry_files(folder).map_err(|error| self.io_error("list", folder, &error))?;
        let entries = entries.into_iter().map(|EntryFile { path, bytes, used }| {
            let name = entry::name(&path);
            CacheEntry { name, path, bytes, used }
        });
        Ok(entries.collect())
    }

    /// Removes every entry of the folder (not of the shared one) and what killed writers left. Returns how many
    /// entries.
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

    /// Removes what was used longest ago once the entries are too many.
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
            // A little room is made at once: measuring at every write would take longer than the write. What was
            // written last stays in any case.
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
        // The same trouble at every kernel is told once.
        if before.as_ref() != Some(&message) {
            bornite_support::log!(Warn, "kernel cache: {message}");
        }
    }
}

/// Makes and checks the cache's folder and the one for entries within it.
fn open_folder(folder: &Path) -> std::result::Result<PathBuf, String> {
    let within = folder.join(SUBFOLDER);
    files::open_private_folder(folder)?;
    files::open_private_folder(&within)?;
    Ok(within)
}

/// A lock whose holder panicked still guards plain values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
