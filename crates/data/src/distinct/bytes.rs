//! Serialization of fingerprints, so that a resumed run need not regenerate earlier rows.

use super::{LANES, Sketch};

/// Bytes of a serialized fingerprint.
pub const SKETCH_BYTES: usize = 16 + 2 * LANES;

impl Sketch {
    /// Serializes the fingerprint.
    pub fn to_bytes(&self) -> [u8; SKETCH_BYTES] {
        let mut bytes = [0; SKETCH_BYTES];
        bytes[..8].copy_from_slice(&self.exact.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.skeleton.to_le_bytes());
        for (to, lane) in bytes[16..].chunks_exact_mut(2).zip(self.lanes) {
            to.copy_from_slice(&lane.to_le_bytes());
        }
        bytes
    }

    /// Deserializes a fingerprint.
    pub fn from_bytes(bytes: &[u8; SKETCH_BYTES]) -> Sketch {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let lanes = std::array::from_fn(|n| u16::from_le_bytes([bytes[16 + 2 * n], bytes[17 + 2 * n]]));
        Sketch { exact: word(0), skeleton: word(8), lanes }
    }
}
