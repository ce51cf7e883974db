//! Checkpoints: all that a run needs to go on as if it had never stopped, in folders that are whole or not there.
//!
//! A checkpoint is a folder of `weights.safetensors`, `state.safetensors` (moments, master copies, …), `state.json` (step,
//! random numbers, data cursor, config, …) and `manifest.json` (sizes and checksums). [`Store`] saves them so that
//! `latest` can be loaded whatever happens; [`load`] believes nothing that it has not checked.
//!
//! ```
//! use bornite::{Device, Tensor};
//! use bornite_nn::checkpoint::{Checkpoint, Keep, Store, Tensors, load_latest};
//! # fn main() -> bornite_nn::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("bornite-doc-{}", std::process::id()));
//! let w = Tensor::from_slice(&[0.5f32, 0.25], &[2], Device::cpu());
//! let mut store = Store::open(&folder, Keep { last: 3, best: true })?;
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
//! From a save to the disk: `store.rs` (folders, pointers, what is kept; `find.rs` reads them) → `write.rs` (files) → `disk.rs` (calls). Models of
//! other libraries come and go through `huggingface.rs`.

mod disk;
mod find;
mod host;
pub mod huggingface;
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
pub use find::{Loaded, best, checkpoints, latest, load_latest, load_latest_of, newest};
pub(crate) use json::{read_bounded, small};
pub use load::{Contents, load};
pub use manifest::{FORMAT_VERSION, FileRecord, Manifest, Part};
pub(crate) use names::{nearest, shown};
pub use store::{Keep, Saved, Store};

use crate::error::located;
use crate::{Error, Result};

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

pub(crate) const WEIGHTS: &str = "weights.safetensors";
pub(crate) const STATE_TENSORS: &str = "state.safetensors";
pub(crate) const STATE: &str = "state.json";
pub(crate) const MANIFEST: &str = "manifest.json";

/// What is saved and loaded.
#[derive(Clone)]
pub struct Checkpoint {
    /// The training step after which it is taken.
    pub step: u64,
    /// The model's parameters.
    pub weights: Tensors,
    /// Other tensors of the run by group: first and second moments, master copies. A group's name has no `/`.
    pub groups: BTreeMap<String, Tensors>,
    /// Everything that is not a tensor. Floats come back to the bit; JSON has no NaN and no infinity.
    pub state: serde_json::Value,
}

impl Checkpoint {
    /// A checkpoint of weights and state; groups can be added.
    pub fn new(step: u64, weights: Tensors, state: serde_json::Value) -> Checkpoint {
        Checkpoint { step, weights, groups: BTreeMap::new(), state }
    }

    /// The state as the type that it was made of.
    #[track_caller]
    pub fn state_as<T: DeserializeOwned>(&self) -> Result<T> {
        located(|| {
            T::deserialize(&self.state)
                .map_err(|error| Error::file(Path::new(STATE), format!("the run's state: {error}")))
        })
    }

    /// The tensors of all groups as one list, named `group/name`.
    fn grouped(&self) -> Result<Tensors> {
        let mut all = Tensors::new();
        for (group, tensors) in &self.groups {
            if group.is_empty() || group.contains('/') {
                let what = format!("{} cannot be the name of a group: it is empty or has a '/'", shown(group));
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
    /// Also those without tensors.
    groups: Vec<String>,
    #[serde(deserialize_with = "json::small")]
    state: serde_json::Value,
}
