//! Parameters as safetensors files and as named tensors.

use std::collections::BTreeMap;
use std::path::Path;

use bornite::{DType, Tensor, var::Arena};

use super::{ParameterInfo, Params};
use crate::checkpoint::{Tensors, nearest, quoted, safetensors};
use crate::error::located;
use crate::{Error, Result};

/// Name of the buffer that counts the batches of a batch norm: an integer in PyTorch's files.
pub(crate) const BATCH_COUNT: &str = "num_batches_tracked";

/// True for the batch count of a layer.
fn is_batch_count(name: &str) -> bool {
    name.strip_suffix(BATCH_COUNT).is_some_and(|layer| layer.is_empty() || layer.ends_with('.'))
}

impl Params {
    /// Saves the parameters and buffers of this scope to a safetensors file, which is written
    /// atomically. Names are relative to the scope.
    ///
    /// ```
    /// use bornite::Device;
    /// use bornite_nn::{Params, layers::Linear};
    /// # fn main() -> bornite_nn::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("bornite-params-{}.safetensors", std::process::id()));
    /// let params = Params::new(Device::cpu(), 1);
    /// let layer = Linear::new(&params.at("head"), 4, 2);
    /// params.save(&path)?;
    ///
    /// let other = Params::new(Device::cpu(), 2);
    /// let layer = Linear::new(&other.at("head"), 4, 2);
    /// other.load(&path)?;
    /// assert_eq!(other.get("head.weight")?.to_vec::<f32>()?, params.get("head.weight")?.to_vec::<f32>()?);
    /// # std::fs::remove_file(&path).unwrap();
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        located(|| {
            let metadata = BTreeMap::from([("format".to_string(), "bornite".to_string())]);
            let mut tensors = self.tensors()?;
            for (_, count) in tensors.iter_mut().filter(|(name, _)| is_batch_count(name)) {
                *count = count.cast(DType::I64);
            }
            safetensors::write_file(path, &tensors, &metadata)
        })
    }

    /// Loads the parameters and buffers of this scope from a safetensors file, such as one of
    /// [`Params::save`] or of PyTorch. Names and shapes must match; 16-bit and 64-bit floats are
    /// converted to f32. After an error, nothing has changed. Before the first use, no initial
    /// values are computed for them, and other scopes can still declare parameters.
    #[track_caller]
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        located(|| {
            let path = path.as_ref();
            let tensors = safetensors::Safetensors::open(path)?.tensors(self.device())?;
            self.load_tensors(&tensors).map_err(|error| match error.kind {
                crate::ErrorKind::Config(what) => Error::file(path, what),
                _ => error,
            })
        })
    }

    /// Returns the values of the parameters and buffers of this scope, by their names in it.
    #[track_caller]
    pub fn tensors(&self) -> Result<Tensors> {
        located(|| {
            if let Some(loaded) = self.loaded()? {
                return Ok(loaded);
            }
            let values = self.values()?;
            let named = |arena: &Arena| -> Vec<(String, Tensor)> {
                let names = arena.segments().map(|(name, _)| self.relative(name).map(str::to_owned));
                names.zip(arena.tensors()).filter_map(|(name, tensor)| Some((name?, tensor))).collect()
            };
            let arenas = [Some(&values.parameters), values.buffers.as_ref()];
            Ok(arenas.into_iter().flatten().flat_map(named).collect())
        })
    }

    /// Replaces the values of all parameters and buffers of this scope, by their names in it: see
    /// [`Params::load`].
    #[track_caller]
    pub fn load_tensors(&self, tensors: &Tensors) -> Result<()> {
        located(|| {
            let (declared, mut found) = (self.declared()?, Tensors::new());
            for ParameterInfo { name: full, shape, .. } in &declared {
                let Some(name) = self.relative(full) else { continue };
                let tensor = match tensors.get(name) {
                    Some(tensor) => tensor,
                    // Files of earlier releases and of PyTorch 0.4 have no counts.
                    None if is_batch_count(name) => &Tensor::zeros(shape, DType::F32, self.device()),
                    None => return Err(missing(name, tensors)),
                };
                found.insert(full.clone(), self.converted(name, shape, tensor)?);
            }
            if let Some(name) = tensors.keys().find(|name| !found.contains_key(&self.name_of(name))) {
                let near = nearest(name, declared.iter().filter_map(|info| self.relative(&info.name)));
                let hint = near.map(|near| format!(" (did you mean {}?)", quoted(near))).unwrap_or_default();
                let what =
                    format!("there is a tensor {}, but the model has no parameter with this name{hint}", quoted(name));
                return Err(Error::config(what));
            }
            let values = {
                let mut state = self.state();
                if state.values.is_none() {
                    state.loaded.append(&mut found);
                }
                state.values.clone()
            };
            let arenas = values.iter().flat_map(|values| [Some(&values.parameters), values.buffers.as_ref()]);
            for arena in arenas.flatten() {
                let named = arena.segments().filter_map(|(name, _)| Some((name, found.get(name)?)));
                let named: Vec<(&str, &Tensor)> = named.collect();
                if !named.is_empty() {
                    arena.load(&named)?;
                }
            }
            self.note_change();
            Ok(())
        })
    }

    /// Declarations of all parameters and buffers.
    fn declared(&self) -> Result<Vec<ParameterInfo>> {
        let state = self.state();
        state.check()?;
        Ok(state.list.iter().chain(&state.buffers).cloned().collect())
    }

    /// Values of this scope if all of them were loaded and none was used yet.
    fn loaded(&self) -> Result<Option<Tensors>> {
        let (declared, state) = (self.declared()?, self.state());
        let names = declared.iter().filter_map(|info| Some((self.relative(&info.name)?, &info.name)));
        let value = |(name, full): (&str, &String)| Some((name.to_owned(), state.loaded.get(full)?.clone()));
        let found: Option<Tensors> = names.map(value).collect();
        Ok(found.filter(|found| !found.is_empty()))
    }

    /// A tensor of a file in the dtype and on the device of the parameters.
    fn converted(&self, name: &str, shape: &[usize], tensor: &Tensor) -> Result<Tensor> {
        let (found, dtype) = (tensor.shape()?, tensor.dtype()?);
        if found != shape || !(dtype.is_float() || is_batch_count(name) && dtype.is_int()) {
            let what = format!("tensor {} is {dtype}{found:?}; the model needs f32{shape:?}", quoted(name));
            return Err(Error::config(what));
        }
        let tensor = tensor.to(self.device()).cast(DType::F32);
        tensor.realize()?;
        Ok(tensor)
    }
}

fn missing(name: &str, tensors: &Tensors) -> Error {
    let near = nearest(name, tensors.keys().map(|name| &name[..]));
    let hint = near.map(|near| format!("; the most similar name is {}", quoted(near))).unwrap_or_default();
    Error::config(format!("there is no tensor {}, which the model needs{hint}", quoted(name)))
}
