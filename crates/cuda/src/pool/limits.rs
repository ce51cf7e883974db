//! How much the pool may hold, and sizes as people write them.

use std::fmt;

use crate::{Error, Result};

/// How much a pool may hold. All of the device, kept for ever, unless said otherwise.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Limits {
    /// Share of the device's memory that segments may take, 0 to 1.
    pub fraction: f64,
    /// Bytes that segments may take.
    pub bytes: Option<u64>,
    /// Free bytes kept for reuse; segments above it go back to the device.
    pub cache_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { fraction: 1.0, bytes: None, cache_bytes: None }
    }
}

/// What bounds a pool's segments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cap {
    /// The device's memory.
    Device,
    /// A share of the device's memory.
    Fraction(f64),
    /// A number of bytes.
    Bytes,
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cap::Device => write!(f, "all of the device's memory"),
            Cap::Fraction(fraction) => write!(f, "the pool's limit, {fraction} of the device's memory"),
            Cap::Bytes => write!(f, "the pool's byte limit"),
        }
    }
}

impl Limits {
    /// The bytes that segments may take on a device of `total_bytes`, and what says so.
    pub fn cap(&self, total_bytes: u64) -> (u64, Cap) {
        let mut cap = (total_bytes, Cap::Device);
        if self.fraction < 1.0 {
            cap = ((total_bytes as f64 * self.fraction) as u64, Cap::Fraction(self.fraction));
        }
        match self.bytes {
            Some(bytes) if bytes < cap.0 => (bytes, Cap::Bytes),
            _ => cap,
        }
    }
}

/// Refuses what is no share of a whole.
pub(super) fn checked_fraction(fraction: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&fraction) { Ok(fraction) } else { Err(Error::BadFraction { given: fraction }) }
}

/// A number of bytes such as `2GB`, `512 MiB`, `1.5g` or `4096`. As is the custom for GPU memory, units are powers of
/// 1024 however they are spelled.
///
/// ```
/// assert_eq!(bornite_cuda::parse_bytes("1.5g").unwrap(), 3 << 29);
/// assert_eq!(bornite_cuda::parse_bytes("512 MiB").unwrap(), bornite_cuda::parse_bytes("512MB").unwrap());
/// assert!(bornite_cuda::parse_bytes("2 parsecs").is_err());
/// ```
pub fn parse_bytes(text: &str) -> Result<u64> {
    let bad = |what: String| Error::BadSize { text: text.into(), what };
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    if trimmed.starts_with('-') {
        return Err(bad("it is negative".into()));
    }
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && decimals.is_empty() {
        return Err(bad("it does not begin with a number".into()));
    }
    if decimals.contains('.') {
        return Err(bad(format!("'{number}' has more than one point")));
    }
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad(format!("'{unit}' is not a unit; there are B, KB, MB, GB and TB, or KiB to TiB"))),
    };
    let large = || bad("it is larger than any memory".into());
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| large())? };
    let whole = u128::from(whole) << shift;
    // Beyond the 18th decimal nothing of a byte is left, even of a TiB.
    let decimals = &decimals[..decimals.len().min(18)];
    let part = decimals.bytes().fold(0u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let part = (part << shift) / 10u128.pow(decimals.len() as u32);
    u64::try_from(whole + part).map_err(|_| large())
}

/// A size in the largest unit that it fills.
pub(super) fn human(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        None => format!("{bytes} B"),
        Some((shift, unit)) => format!("{:.2} {unit}", bytes as f64 / (1u64 << shift) as f64),
    }
}
