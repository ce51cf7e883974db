//! Checkpoints: the complete state of a run, in folders that are written atomically.
//!
//! A checkpoint is a folder of `weights.safetensors`, `state.safetensors` (optimizer state, master
//! copies, …), `state.json` (step, data cursor, config, …) and `manifest.json` (sizes and
//! checksums). [`CheckpointStore`] saves them so that `latest` can be loaded after any crash;
//! [`load`] verifies everything that it reads.
//!
//! ```
//! use bornite::{Device, Tensor};
//! use bornite_nn::checkpoint::{Checkpoint, Keep, CheckpointStore, Tensors, load_latest};
//! # fn main() -> bornite_nn::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("bornite-doc-{}", std::process::id()));
//! let w = Tensor::from_slice(&[0.5f32, 0.25], &[2], Device::cpu());
//! let mut store = CheckpointStore::open(&folder, Keep { last: 3, best: true })?;
//! let state = serde_json::json!({ "seed": 42 });
//! store.save(&Checkpoint::new(100, Tensors::from([("w".into(), w)]), state), Some(1.75))?;
//!
//! let loaded = load_latest(&folder, Device::cpu(), false)?;
//! assert_eq!((loaded.checkpoint.step, loaded.name.as_str()), (100, "step-00000100"));
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! A save passes `store.rs` (folders, pointers, retention; `find.rs` reads them) → `write.rs`
//! (files) → `disk.rs` (system calls). `hugging_face/` reads and writes models of other libraries.
//! Nothing here knows models or training.

mod disk;
mod find;
mod host;
pub mod hugging_face;
mod json;
mod load;
mod manifest;
mod names;
pub mod safetensors;
mod store;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use bornite::Tensor;
use serde::de::DeserializeOwned;

pub use disk::{Disk, SystemDisk};
pub use find::{LoadedCheckpoint, best, checkpoints, latest, load_latest, load_latest_of, newest};
pub(crate) use json::{read_bounded, small};
pub use load::{CheckpointContents, load};
pub use manifest::{CheckpointFile, CheckpointManifest, FORMAT_VERSION, FilePart};
pub(crate) use names::{nearest, quoted};
pub use store::{CheckpointStore, Keep, SavedCheckpoint};

use crate::error::located;
use crate::{Error, Result};

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

pub(crate) const WEIGHTS: &str = "weights.safetensors";
pub(crate) const STATE_TENSORS: &str = "state.safetensors";
pub(crate) const STATE: &str = "state.json";
pub(crate) const MANIFEST: &str = "manifest.json";

/// State of a run that is saved and loaded.
#[derive(Clone)]
pub struct Checkpoint {
    /// Training step after which it is saved.
    pub step: u64,
    /// Parameters of the model.
    pub weights: Tensors,
    /// Other tensors by group, such as moments and master copies. Group names contain no `/`.
    pub groups: BTreeMap<String, Tensors>,
    /// State that is not a tensor. Floats are restored exactly; JSON has no NaN or infinity.
    pub state: serde_json::Value,
}

impl Checkpoint {
    /// Creates a checkpoint of weights and state, without groups.
    pub fn new(step: u64, weights: Tensors, state: serde_json::Value) -> Checkpoint {
        Checkpoint { step, weights, groups: BTreeMap::new(), state }
    }

    /// Deserializes the state.
    #[track_caller]
    pub fn state_as<T: DeserializeOwned>(&self) -> Result<T> {
        located(|| {
            T::deserialize(&self.state)
                .map_err(|error| Error::file(Path::new(STATE), format!("the run's state: {error}")))
        })
    }

    /// Returns the tensors of all groups, named `group/name`.
    fn grouped(&self) -> Result<Tensors> {
        let mut all = Tensors::new();
        for (group, tensors) in &self.groups {
            if group.is_empty() || group.contains('/') {
                let what = format!("{} is not a valid group name: it is empty or contains '/'", quoted(group));
                return Err(Error::file(Path::new(STATE_TENSORS), what));
            }
            all.extend(tensors.iter().map(|(name, tensor)| (format!("{group}/{name}"), tensor.clone())));
        }
        Ok(all)
    }
}

/// `state.json`.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFile {
    version: u64,
    step: u64,
    /// All groups, also those without tensors.
    groups: Vec<String>,
    #[serde(deserialize_with = "json::small")]
    state: serde_json::Value,
}
