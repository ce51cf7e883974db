//! Sizes in bytes as text.

use crate::{Error, Result};

/// Parses a number of bytes such as `2GB`, `512 MiB`, `1.5g` or `4096`. As usual for GPU memory,
/// all units are powers of 1024.
///
/// ```
/// assert_eq!(bornite_support::parse_bytes("1.5g").unwrap(), 3 << 29);
/// assert_eq!(bornite_support::parse_bytes("512 MiB").unwrap(), bornite_support::parse_bytes("512MB").unwrap());
/// assert!(bornite_support::parse_bytes("2 parsecs").is_err());
/// ```
pub fn parse_bytes(text: &str) -> Result<u64> {
    let invalid = |reason: String| Error::InvalidSize { text: text.into(), reason };
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    if trimmed.starts_with('-') {
        return Err(invalid("it is negative".into()));
    }
    let (integer, decimals) = number.split_once('.').unwrap_or((number, ""));
    if integer.is_empty() && decimals.is_empty() {
        return Err(invalid("it does not begin with a number".into()));
    }
    if decimals.contains('.') {
        return Err(invalid(format!("'{number}' has more than one decimal point")));
    }
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(invalid(format!("'{unit}' is not a unit; there are B, KB, MB, GB and TB, or KiB to TiB"))),
    };
    let large = || invalid("it is too large".into());
    let integer: u64 = if integer.is_empty() { 0 } else { integer.parse().map_err(|_| large())? };
    let integer = u128::from(integer) << shift;
    // Decimals after the 18th are less than a byte, even of a TiB.
    let decimals = &decimals[..decimals.len().min(18)];
    let part = decimals.bytes().fold(0u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let part = (part << shift) / 10u128.pow(decimals.len() as u32);
    u64::try_from(integer + part).map_err(|_| large())
}

/// Formats a size in the largest unit that is not above it.
pub fn format_bytes(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        None => format!("{bytes} B"),
        Some((shift, unit)) => format!("{:.2} {unit}", bytes as f64 / (1u64 << shift) as f64),
    }
}
