//! Effective limit of a memory pool.

use std::fmt;

use bornite_support::memory::PoolLimits;

/// Limit that bounds a pool's segments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cap {
    /// The device's memory.
    Device,
    /// A fraction of the device's memory.
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

impl Cap {
    /// Returns the bytes that segments may take on a device of `total_bytes`, and the limit that
    /// applies.
    pub fn of(limits: &PoolLimits, total_bytes: u64) -> (u64, Cap) {
        let mut cap = (total_bytes, Cap::Device);
        if limits.fraction < 1.0 {
            cap = ((total_bytes as f64 * limits.fraction) as u64, Cap::Fraction(limits.fraction));
        }
        match limits.bytes {
            Some(bytes) if bytes < cap.0 => (bytes, Cap::Bytes),
            _ => cap,
        }
    }
}
