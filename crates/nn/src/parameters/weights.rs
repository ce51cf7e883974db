//! Weights that forward passes run on: the parameters, or a 16-bit copy of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bornite::{
    DType,
    var::{Arena, commit},
};

use super::{Context, Params};
use crate::Result;

/// Weights of a model in some dtype. Clones share the copy.
#[derive(Clone)]
pub(crate) struct Weights {
    params: Params,
    /// f32.
    pub parameters: Arena,
    /// The parameters, or a copy in another dtype.
    pub values: Arena,
    dtype: DType,
    /// [`Params::version`] of the copy; `u64::MAX` before the first [`Weights::update`].
    copied_version: Arc<AtomicU64>,
}

impl Weights {
    /// Allocates a copy, unless `dtype` is f32. [`Weights::update`] sets its values.
    pub fn new(params: &Params, dtype: DType) -> Result<Weights> {
        let parameters = params.values()?.parameters;
        let values = match dtype {
            DType::F32 => parameters.clone(),
            _ => parameters.like(dtype, 0.0)?,
        };
        let (params, copied_version) = (params.clone(), Arc::new(AtomicU64::new(u64::MAX)));
        Ok(Weights { params, parameters, values, dtype, copied_version })
    }

    /// Rounds the parameters into the copy, if there is one and they have changed.
    pub fn update(&self) -> Result<()> {
        let version = self.params.version();
        if self.dtype != DType::F32 && self.copied_version.load(Ordering::Relaxed) != version {
            commit(&[], vec![self.values.set(self.parameters.get().cast(self.dtype))])?;
            self.copied_version.store(version, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes a training step that has changed the parameters and the copy.
    pub fn note_step(&self) {
        self.copied_version.store(self.params.note_step(), Ordering::Relaxed);
    }

    /// Runs a forward pass on the weights, in evaluation mode.
    pub fn run<R>(&self, forward: impl FnOnce() -> R) -> R {
        Context::new(self.values.padded_tensors()).run(&self.params, forward)
    }
}
