//! Limit on the memory that one part of an input file may take.
//!
//! Small files can decompress to any size, so every reader of untrusted files checks this limit
//! before it allocates.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::settings::read;
use crate::{Result, parse_bytes};

/// Maximum size of a page, row or line of an input file, such as `128 MiB` ([`parse_bytes`]).
pub const INPUT_LIMIT_VARIABLE: &str = "BORNITE_INPUT_LIMIT";

const DEFAULT_BYTES: u64 = 128 << 20;
/// A smaller limit would reject ordinary files.
const MIN_BYTES: u64 = 1 << 20;

/// The limit set by [`set_input_limit`]; 0 if none was.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// Sets the limit for this process, overriding `BORNITE_INPUT_LIMIT`. Values below 1 MiB count as 1
/// MiB.
pub fn set_input_limit(bytes: u64) {
    LIMIT.store(bytes.max(MIN_BYTES), Ordering::Relaxed);
}

/// Maximum size in bytes of a page, row or line of an input file after decompression.
pub fn input_limit() -> Result<u64> {
    match LIMIT.load(Ordering::Relaxed) {
        0 => read(INPUT_LIMIT_VARIABLE, DEFAULT_BYTES, parse_limit),
        bytes => Ok(bytes),
    }
}

pub(crate) fn parse_limit(value: &str) -> std::result::Result<u64, String> {
    match parse_bytes(value) {
        Ok(bytes) if bytes >= MIN_BYTES => Ok(bytes),
        Ok(_) => Err("use 1 MiB or more".into()),
        Err(crate::Error::InvalidSize { reason, .. }) => Err(reason),
        Err(other) => Err(other.to_string()),
    }
}
