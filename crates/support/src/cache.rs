//! Settings of the caches on disk (location, size limit, on or off), from the environment or set in
//! code.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result, parse_bytes};

/// `on` (the default) or `off`.
pub const CACHE_VARIABLE: &str = "BORNITE_CACHE";
/// Folder of the cache; default `$XDG_CACHE_HOME/bornite`, else `~/.cache/bornite`.
pub const CACHE_DIR_VARIABLE: &str = "BORNITE_CACHE_DIR";
/// Alias of [`CACHE_DIR_VARIABLE`], which takes precedence over it.
pub const KERNEL_CACHE_DIR_VARIABLE: &str = "BORNITE_KERNEL_CACHE_DIR";
/// A second folder with the same layout, searched first and never written.
pub const SHARED_CACHE_DIR_VARIABLE: &str = "BORNITE_SHARED_CACHE_DIR";
/// Maximum size of the cache on disk, such as `500 MB` or `2 GiB` ([`parse_bytes`]).
pub const CACHE_SIZE_VARIABLE: &str = "BORNITE_CACHE_SIZE";

const DEFAULT_LIMIT_BYTES: u64 = 2 << 30;

/// Settings made in code for the process, and whether a cache was already opened with the process's
/// settings.
static PROCESS_SETTINGS: Mutex<(Option<CacheSettings>, bool)> = Mutex::new((None, false));

/// Settings of the caches on disk: compiled kernels and tuning results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// If false, nothing is read from or written to disk.
    pub enabled: bool,
    /// Folder of the cache; `None` if the environment names none.
    pub folder: Option<PathBuf>,
    /// Read-only folder that is searched first.
    pub shared: Option<PathBuf>,
    /// Maximum total size of the entries.
    pub limit_bytes: u64,
}

impl CacheSettings {
    /// Default settings with the cache in `folder`.
    pub fn in_folder(folder: impl Into<PathBuf>) -> CacheSettings {
        CacheSettings { enabled: true, folder: Some(folder.into()), shared: None, limit_bytes: DEFAULT_LIMIT_BYTES }
    }

    /// Makes these the settings of the process's kernel cache and [`Tuner`](crate::tune::Tuner).
    /// They take precedence over the environment. Fails once one of the two is open: call this
    /// before the first kernel is compiled.
    ///
    /// ```
    /// use bornite_support::cache::CacheSettings;
    /// # fn main() -> bornite_support::Result<()> {
    /// CacheSettings { limit_bytes: 500 << 20, ..CacheSettings::from_environment()? }.set_for_process()?;
    /// assert_eq!(CacheSettings::freeze()?.limit_bytes, 500 << 20);
    /// assert!(CacheSettings::from_environment()?.set_for_process().is_err()); // too late
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_for_process(self) -> Result<()> {
        let mut process = lock(&PROCESS_SETTINGS);
        if process.1 {
            return Err(Error::CacheUnavailable {
                reason:
                    "it is already open, so its settings cannot be changed; set them before the first kernel is compiled"
                        .into(),
            });
        }
        process.0 = Some(self);
        Ok(())
    }

    /// Returns the settings of the process: those of
    /// [`set_for_process`](CacheSettings::set_for_process), else the environment's.
    pub fn current() -> Result<CacheSettings> {
        lock(&PROCESS_SETTINGS).0.clone().map_or_else(CacheSettings::from_environment, Ok)
    }

    /// Returns the settings of the process and rejects later changes to them. Called when a cache
    /// is opened.
    pub fn freeze() -> Result<CacheSettings> {
        lock(&PROCESS_SETTINGS).1 = true;
        CacheSettings::current()
    }

    /// Reads the settings from the environment variables of the process.
    pub fn from_environment() -> Result<CacheSettings> {
        CacheSettings::from_lookup(|variable| std::env::var_os(variable))
    }

    /// Reads the settings from variables that `lookup` returns. An empty variable counts as unset.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<CacheSettings> {
        let get = |variable: &str| lookup(variable).filter(|value| !value.is_empty());
        let invalid = |variable: &'static str, value: &OsString, reason: String| Error::InvalidSetting {
            variable,
            value: value.to_string_lossy().into_owned(),
            reason,
        };
        let enabled = match get(CACHE_VARIABLE) {
            None => true,
            Some(value) if value == "on" => true,
            Some(value) if value == "off" => false,
            Some(value) => return Err(invalid(CACHE_VARIABLE, &value, "use 'on' or 'off'".into())),
        };
        let limit_bytes = match get(CACHE_SIZE_VARIABLE) {
            None => DEFAULT_LIMIT_BYTES,
            Some(value) => match parse_bytes(&value.to_string_lossy()) {
                Ok(0) => {
                    let off = format!("the size must be above 0; use {CACHE_VARIABLE}=off to disable the cache");
                    return Err(invalid(CACHE_SIZE_VARIABLE, &value, off));
                }
                Ok(bytes) => bytes,
                Err(error) => return Err(invalid(CACHE_SIZE_VARIABLE, &value, error.to_string())),
            },
        };
        // Made absolute now: the process may change its working directory later.
        let path = |variable: &'static str| match get(variable) {
            None => Ok(None),
            Some(value) => match std::path::absolute(&value) {
                Ok(path) => Ok(Some(path)),
                Err(error) => Err(invalid(variable, &value, error.to_string())),
            },
        };
        // The XDG specification says to ignore relative paths.
        let home = |variable| get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = match path(CACHE_DIR_VARIABLE)?.or(path(KERNEL_CACHE_DIR_VARIABLE)?) {
            Some(folder) => Some(folder),
            None => home("XDG_CACHE_HOME")
                .or_else(|| home("HOME").map(|home| home.join(".cache")))
                .map(|caches| caches.join("bornite")),
        };
        Ok(CacheSettings { enabled, folder, shared: path(SHARED_CACHE_DIR_VARIABLE)?, limit_bytes })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
