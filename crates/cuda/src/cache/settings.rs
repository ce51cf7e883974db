//! Where the cache is, how large it may grow, whether it is used: from the environment or set in code.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::{Error, Result};

/// `on` (the default) or `off`.
pub const CACHE_VARIABLE: &str = "BORNITE_CACHE";
/// The cache's folder; `$XDG_CACHE_HOME/bornite`, then `~/.cache/bornite` without it.
pub const CACHE_DIR_VARIABLE: &str = "BORNITE_CACHE_DIR";
/// Another name for [`CACHE_DIR_VARIABLE`], which wins over it.
pub const KERNEL_CACHE_DIR_VARIABLE: &str = "BORNITE_KERNEL_CACHE_DIR";
/// A second folder laid out like the first, looked into before it and never written.
pub const SHARED_CACHE_DIR_VARIABLE: &str = "BORNITE_SHARED_CACHE_DIR";
/// The most the cache may take on disk, as `500 MB` or `2 GiB`.
pub const CACHE_SIZE_VARIABLE: &str = "BORNITE_CACHE_SIZE";

const DEFAULT_LIMIT_BYTES: u64 = 2 << 30;

/// How a [`Cache`](super::Cache) is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether anything is kept or looked up on disk.
    pub enabled: bool,
    /// The folder; `None` where the environment names none.
    pub folder: Option<PathBuf>,
    /// A folder to look into first and never to write.
    pub shared: Option<PathBuf>,
    /// The most that the entries may take.
    pub limit_bytes: u64,
}

impl Settings {
    /// The defaults, in a folder of one's own choice.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Settings {
        Settings { enabled: true, folder: Some(folder.into()), shared: None, limit_bytes: DEFAULT_LIMIT_BYTES }
    }

    /// Reads the process's environment.
    pub fn from_environment() -> Result<Settings> {
        Settings::from_lookup(|variable| std::env::var_os(variable))
    }

    /// Reads an environment given as a function. An empty variable counts as none.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Settings> {
        let get = |variable: &str| lookup(variable).filter(|value| !value.is_empty());
        let bad = |variable: &'static str, value: &OsString, what: String| Error::Setting {
            variable,
            value: value.to_string_lossy().into_owned(),
            what,
        };
        let enabled = match get(CACHE_VARIABLE) {
            None => true,
            Some(value) if value == "on" => true,
            Some(value) if value == "off" => false,
            Some(value) => return Err(bad(CACHE_VARIABLE, &value, "use 'on' or 'off'".into())),
        };
        let limit_bytes = match get(CACHE_SIZE_VARIABLE) {
            None => DEFAULT_LIMIT_BYTES,
            Some(value) => parse_bytes(&value.to_string_lossy()).map_err(|what| {
                let off = if what == TOO_SMALL {
                    format!("; {CACHE_VARIABLE}=off switches the cache off")
                } else {
                    "".into()
                };
                bad(CACHE_SIZE_VARIABLE, &value, what + &off)
            })?,
        };
        // Made absolute now: the process may change its folder later.
        let path = |variable: &'static str| match get(variable) {
            None => Ok(None),
            Some(value) => match std::path::absolute(&value) {
                Ok(path) => Ok(Some(path)),
                Err(error) => Err(bad(variable, &value, error.to_string())),
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
        Ok(Settings { enabled, folder, shared: path(SHARED_CACHE_DIR_VARIABLE)?, limit_bytes })
    }
}

const TOO_SMALL: &str = "a size must be at least 1 byte";

/// Reads a size such as `500 MB` (millions), `2 GiB` or `2G` (powers of 1024). A bare number is refused: whoever writes
/// `2` does not mean two bytes.
pub(crate) fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let form = || "write a number and a unit, such as '500 MB' or '2 GiB'".to_string();
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(form)?;
    let number: f64 = text[..unit_at].parse().map_err(|_| form())?;
    let unit = match text[unit_at..].trim().to_ascii_lowercase().as_str() {
        "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "k" | "kib" => 1024f64,
        "m" | "mib" => 1024f64.powi(2),
        "g" | "gib" => 1024f64.powi(3),
        "t" | "tib" => 1024f64.powi(4),
        other => return Err(format!("'{other}' is not a unit; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")),
    };
    let bytes = number * unit;
    match bytes {
        _ if bytes < 1.0 => Err(TOO_SMALL.into()),
        _ if bytes >= 2f64.powi(63) => Err("no disk is that large".into()),
        _ => Ok(bytes as u64),
    }
}
