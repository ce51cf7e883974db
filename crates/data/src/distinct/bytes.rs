//! Serialization of fingerprints, so that a resumed run need not regenerate earlier rows.

use super::{Fingerprint, MINHASHES};

/// Bytes of a serialized fingerprint.
pub const FINGERPRINT_BYTES: usize = 16 + 2 * MINHASHES;

impl Fingerprint {
    /// Serializes the fingerprint.
    pub fn to_bytes(&self) -> [u8; FINGERPRINT_BYTES] {
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes[..8].copy_from_slice(&self.exact.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.skeleton.to_le_bytes());
        for (to, slot) in bytes[16..].chunks_exact_mut(2).zip(self.minhashes) {
            to.copy_from_slice(&slot.to_le_bytes());
        }
        bytes
    }

    /// Deserializes a fingerprint.
    pub fn from_bytes(bytes: &[u8; FINGERPRINT_BYTES]) -> Fingerprint {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let minhashes = std::array::from_fn(|n| u16::from_le_bytes([bytes[16 + 2 * n], bytes[17 + 2 * n]]));
        Fingerprint { exact: word(0), skeleton: word(8), minhashes }
    }
}
