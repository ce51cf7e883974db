//! Where the cache is, how large it may grow, whether it is used: from the environment or set in code.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result, parse_bytes};

/// `on` (the default) or `off`.
pub const CACHE_VARIABLE: &str = "BORNITE_CACHE";
/// The cache's folder; `$XDG_CACHE_HOME/bornite`, then `~/.cache/bornite` without it.
pub const CACHE_DIR_VARIABLE: &str = "BORNITE_CACHE_DIR";
/// Another name for [`CACHE_DIR_VARIABLE`], which wins over it.
pub const KERNEL_CACHE_DIR_VARIABLE: &str = "BORNITE_KERNEL_CACHE_DIR";
/// A second folder laid out like the first, looked into before it and never written.
pub const SHARED_CACHE_DIR_VARIABLE: &str = "BORNITE_SHARED_CACHE_DIR";
/// The most the cache may take on disk, as `500 MB` or `2 GiB` ([`parse_bytes`]).
pub const CACHE_SIZE_VARIABLE: &str = "BORNITE_CACHE_SIZE";

const DEFAULT_LIMIT_BYTES: u64 = 2 << 30;

/// Settings made in code for the process, and whether a cache was already opened with the process's settings.
static PROCESS_SETTINGS: Mutex<(Option<CacheSettings>, bool)> = Mutex::new((None, false));

/// Settings of the caches on disk: compiled kernels and tuning results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Whether anything is kept or looked up on disk.
    pub enabled: bool,
    /// The folder; `None` where the environment names none.
    pub folder: Option<PathBuf>,
    /// A folder to look into first and never to write.
    pub shared: Option<PathBuf>,
    /// The most that the entries may take.
    pub limit_bytes: u64,
}

impl CacheSettings {
    /// The defaults, in a folder of one's own choice.
    pub fn in_folder(folder: impl Into<PathBuf>) -> CacheSettings {
        CacheSettings { enabled: true, folder: Some(folder.into()), shared: None, limit_bytes: DEFAULT_LIMIT_BYTES }
    }

    /// Makes these the settings of the process's kernel cache and [`Tuner`](crate::tune::Tuner). Takes
    /// precedence over the environment. An error once one of them is open: call this before the first kernel is compiled.
    ///
    /// ```
    /// use bornite_support::cache::Settings;
    /// # fn main() -> bornite_support::Result<()> {
    /// Settings { limit_bytes: 500 << 20, ..Settings::from_environment()? }.set_for_process()?;
    /// assert_eq!(Settings::to_open()?.limit_bytes, 500 << 20);
    /// assert!(Settings::from_environment()?.set_for_process().is_err()); // too late
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_for_process(self) -> Result<()> {
        let mut process = lock(&PROCESS_SETTINGS);
        if process.1 {
            return Err(Error::CacheUnavailable {
                reason:
                    "it is open, so its settings cannot be set any more; set them before the first kernel is compiled"
                        .into(),
            });
        }
        process.0 = Some(self);
        Ok(())
    }

    /// The settings of the process: those of [`set_for_process`](Settings::set_for_process), else the environment's.
    pub fn current() -> Result<CacheSettings> {
        lock(&PROCESS_SETTINGS).0.clone().map_or_else(CacheSettings::from_environment, Ok)
    }

    /// As [`current`](Settings::of_process), for what stays open with them.
    pub fn freeze() -> Result<CacheSettings> {
        lock(&PROCESS_SETTINGS).1 = true;
        CacheSettings::current()
    }

    /// Reads the process's environment.
    pub fn from_environment() -> Result<CacheSettings> {
        CacheSettings::from_lookup(|variable| std::env::var_os(variable))
    }

    /// Reads an environment given as a function. An empty variable counts as none.
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
                    let off = format!("a cache of no bytes keeps nothing; {CACHE_VARIABLE}=off switches it off");
                    return Err(invalid(CACHE_SIZE_VARIABLE, &value, off));
                }
                Ok(bytes) => bytes,
                Err(error) => return Err(invalid(CACHE_SIZE_VARIABLE, &value, error.to_string())),
            },
        };
        // Made absolute now: the process may change its folder later.
        let path = |variable: &'static str| match get(variable) {
            None => Ok(None),
            Some(value) => match std::path::absolute(&value) {
                Ok(path) => Ok(Some(path)),
                Err(error) => Err(invalid(variable, &value, error.to_string())),
            },
        };
        // The XDG specification has relative paths ignored.
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
