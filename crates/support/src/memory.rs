//! Limits on the memory of a GPU: from the environment or set in code.

use std::ffi::OsString;

use crate::{Error, Result, parse_bytes};

/// Limits of a memory pool. By default it may use all device memory and cache all that is freed.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct PoolLimits {
    /// Fraction of the device's memory that segments may take, 0 to 1.
    pub fraction: f64,
    /// Maximum bytes that segments may take; `None` for no limit.
    pub bytes: Option<u64>,
    /// Maximum free bytes cached for reuse; free segments beyond it go back to the device.
    pub cache_bytes: Option<u64>,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits { fraction: 1.0, bytes: None, cache_bytes: None }
    }
}

/// Validates a fraction: a number from 0 to 1.
pub fn validate_fraction(fraction: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&fraction) { Ok(fraction) } else { Err(Error::InvalidFraction { value: fraction }) }
}

/// Fraction of the device's memory that the pool may take, such as `0.9`.
pub const FRACTION_VARIABLE: &str = "BORNITE_MEMORY_FRACTION";
/// Bytes that the pool may take, such as `20GB`.
pub const LIMIT_VARIABLE: &str = "BORNITE_MEMORY_LIMIT";
/// Free bytes that the pool may cache for reuse, such as `2GB`.
pub const CACHE_VARIABLE: &str = "BORNITE_MEMORY_CACHE";
/// `1`: guard bytes after each block and a pattern over freed blocks; slow. `0` or unset: off.
pub const DEBUG_VARIABLE: &str = "BORNITE_MEMORY_DEBUG";

/// Settings of a device's memory pool.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PoolSettings {
    /// Limits.
    pub limits: PoolLimits,
    /// If set, debug mode is on.
    pub debug: bool,
}

impl PoolSettings {
    /// Reads the settings from the environment variables of the process.
    pub fn from_environment() -> Result<PoolSettings> {
        PoolSettings::from_lookup(|variable| std::env::var_os(variable))
    }

    /// Reads the settings from variables that `lookup` returns. An empty variable counts as unset.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<PoolSettings> {
        let get = |variable: &str| {
            lookup(variable).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
        };
        let invalid =
            |variable, value: &str, reason: String| Error::InvalidSetting { variable, value: value.into(), reason };
        let bytes = |variable: &'static str| match get(variable) {
            None => Ok(None),
            Some(value) => parse_bytes(&value).map(Some).map_err(|error| invalid(variable, &value, error.to_string())),
        };
        let fraction = match get(FRACTION_VARIABLE) {
            None => 1.0,
            Some(value) => {
                let number: f64 = value.trim().parse().map_err(|_| {
                    invalid(FRACTION_VARIABLE, &value, "use a number between 0 and 1, such as 0.9".into())
                })?;
                validate_fraction(number).map_err(|error| invalid(FRACTION_VARIABLE, &value, error.to_string()))?
            }
        };
        let debug = match get(DEBUG_VARIABLE).as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(value) => return Err(invalid(DEBUG_VARIABLE, value, "use 1 or 0".into())),
        };
        let limits = PoolLimits { fraction, bytes: bytes(LIMIT_VARIABLE)?, cache_bytes: bytes(CACHE_VARIABLE)? };
        Ok(PoolSettings { limits, debug })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<PoolSettings> {
        PoolSettings::from_lookup(|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn variables_are_read_with_their_units() {
        assert_eq!(read(&[]).unwrap(), PoolSettings::default());
        assert_eq!(read(&[(FRACTION_VARIABLE, ""), (DEBUG_VARIABLE, "0")]).unwrap(), PoolSettings::default());
        let settings = read(&[
            (FRACTION_VARIABLE, " 0.8 "),
            (LIMIT_VARIABLE, "20GB"),
            (CACHE_VARIABLE, "512 MiB"),
            (DEBUG_VARIABLE, "1"),
        ]);
        let limits = PoolLimits { fraction: 0.8, bytes: Some(20 << 30), cache_bytes: Some(512 << 20) };
        assert_eq!(settings.unwrap(), PoolSettings { limits, debug: true });
    }

    #[test]
    fn bad_values_name_their_variable() {
        for (variable, value, expected) in [
            (FRACTION_VARIABLE, "most", "between 0 and 1"),
            (FRACTION_VARIABLE, "1.5", "between 0 and 1"),
            (FRACTION_VARIABLE, "-0.1", "between 0 and 1"),
            (FRACTION_VARIABLE, "NaN", "between 0 and 1"),
            (LIMIT_VARIABLE, "lots", "not a size"),
            (LIMIT_VARIABLE, "-1GB", "negative"),
            (CACHE_VARIABLE, "2 parsecs", "'parsecs' is not a unit"),
            (DEBUG_VARIABLE, "yes", "use 1 or 0"),
        ] {
            let text = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{variable}={value}: ")) && text.contains(expected), "{text}");
        }
    }
}
