//! Keys of tuning results, and choices between candidates: plain values, stored on disk as they
//! are.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Everything that the best choice depends on. Another driver, GPU or release is another key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningKey {
    /// Operation, such as `matmul`.
    pub operation: String,
    /// Sizes, in an order defined by the operation.
    pub shape: Vec<u64>,
    /// Element type or types.
    pub dtype: String,
    /// The machine.
    pub platform: Platform,
}

/// Machine that a choice was tuned on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// The GPU's name, or the CPU's.
    pub device: String,
    /// The driver's version; empty on a CPU.
    pub driver: String,
    /// Libraries involved, with their versions.
    pub libraries: BTreeMap<String, String>,
    /// Bornite's version.
    pub bornite: String,
}

impl Platform {
    /// Creates a platform with a device name only.
    pub fn named(device: impl Into<String>) -> Platform {
        let bornite = env!("CARGO_PKG_VERSION").into();
        Platform { device: device.into(), driver: String::new(), libraries: BTreeMap::new(), bornite }
    }

    /// Creates the platform of this machine's processor, for the device name `device`.
    pub fn host(device: &str) -> Platform {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Platform::named(model.map_or(device.into(), |(_, model)| format!("{device}: {}", model.trim())))
    }
}

/// Returns a short hash of a text, such as a kernel's source.
pub fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

impl TuningKey {
    /// Hash of the complete key; the name of its file.
    pub(super) fn hash(&self) -> String {
        // Maps are ordered and strings are escaped, so the text is unique per key.
        let text = serde_json::to_vec(self).unwrap_or_default();
        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for TuningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        write!(f, "{} {} {} on {}", self.operation, shape.join("x"), self.dtype, self.platform.device)
    }
}

/// One candidate: named numbers, such as `block=256 tile=16 stages=3` or a library's
/// `algorithm=12`.
///
/// ```
/// use bornite_support::tune::Choice;
/// let choice = Choice::new().with("block", 256).with("tile", 16);
/// assert_eq!((choice.get("tile"), choice.get("stages")), (Some(16), None));
/// assert_eq!(choice.to_string(), "block=256 tile=16");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Choice(BTreeMap<String, i64>);

impl Choice {
    /// Creates a choice without numbers.
    pub fn new() -> Choice {
        Choice::default()
    }

    /// Sets a number.
    pub fn with(mut self, name: &str, number: i64) -> Choice {
        self.0.insert(name.into(), number);
        self
    }

    /// Returns a number by name.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "default");
        }
        let parts: Vec<String> = self.0.iter().map(|(name, number)| format!("{name}={number}")).collect();
        write!(f, "{}", parts.join(" "))
    }
}
