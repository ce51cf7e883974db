//! Names, shapes and initialization of a model's parameters, and the arena that holds them.

use std::collections::HashMap;

use bornite::{Device, Generator, Tensor, var::Arena};

use super::Init;
use crate::Result;
use crate::error::located;

/// Name, shape and initialization of a parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct ParameterInfo {
    /// Path, such as `blocks.0.attention.out.weight`.
    pub name: String,
    /// Shape; matrices are `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Initialization.
    pub init: Init,
    /// Multiple to which the first axis is padded in the memory of a GPU. See
    /// [`Params::pad_rows`](super::Params::pad_rows).
    pub row_multiple: usize,
}

impl ParameterInfo {
    /// Returns true if weight decay applies: for matrices, not for norms and biases.
    pub fn has_weight_decay(&self) -> bool {
        self.shape.len() >= 2
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Parameters of a model, in the order in which its layers declare them.
///
/// ```
/// use bornite::Device;
/// use bornite_nn::{Params, layers::Linear};
/// let params = Params::new(Device::cpu(), 0);
/// let layer = Linear::new(&params.at("head"), 4, 2);
/// let names: Vec<String> = params.list().iter().map(|p| p.name.clone()).collect();
/// assert_eq!(names, ["head.weight", "head.bias"]);
/// # let _ = layer;
/// ```
#[derive(Clone, Default, Debug)]
pub struct ParameterList(Vec<ParameterInfo>);

impl ParameterList {
    /// Iterates over the parameters in order.
    pub fn iter(&self) -> impl Iterator<Item = &ParameterInfo> {
        self.0.iter()
    }

    /// Returns the number of parameters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut ParameterInfo> {
        self.0.get_mut(index)
    }

    pub(crate) fn push(&mut self, info: ParameterInfo) {
        self.0.push(info);
    }

    /// Removes the last parameter.
    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    /// Returns the total number of elements.
    pub fn elements(&self) -> usize {
        self.0.iter().map(ParameterInfo::elements).sum()
    }

    /// Creates an f32 arena of initialized parameters, matrices first. A seed gives the same values
    /// on every device.
    #[track_caller]
    pub fn arena(&self, seed: u64, device: Device) -> Result<Arena> {
        located(|| self.arena_of(&self.initial_values(seed, device)))
    }

    /// As [`ParameterList::arena`], with padding as on a GPU: see
    /// [`Params::pad_rows`](super::Params::pad_rows).
    #[track_caller]
    pub fn padded_arena(&self, seed: u64, device: Device) -> Result<Arena> {
        located(|| self.arena_with_padding(&self.initial_values(seed, device), true))
    }

    fn initial_values(&self, seed: u64, device: Device) -> Vec<Tensor> {
        let generator = Generator::new(seed);
        self.0.iter().map(|p| p.init.tensor(&p.shape, &generator, device)).collect()
    }

    /// Creates an arena of these values of the parameters.
    pub(crate) fn arena_of(&self, values: &[Tensor]) -> Result<Arena> {
        let on_gpu = values.first().map(Tensor::device).transpose()?.is_some_and(|device| device.is_cuda());
        self.arena_with_padding(values, on_gpu)
    }

    fn arena_with_padding(&self, values: &[Tensor], pad: bool) -> Result<Arena> {
        let named: Vec<(&str, &Tensor)> = self.0.iter().zip(values).map(|(p, value)| (&p.name[..], value)).collect();
        let multiples: HashMap<&str, usize> = self.0.iter().map(|p| (&p.name[..], p.row_multiple)).collect();
        let row_multiple = |name: &str| if pad { multiples.get(name).copied().unwrap_or(1) } else { 1 };
        Ok(Arena::padded(&named, |_, shape| usize::from(shape.len() < 2), |name, _| row_multiple(name))?)
    }

    /// Returns one number per parameter, for [`Arena::expand_segment_values`].
    pub fn map(&self, number: impl Fn(&ParameterInfo) -> f64) -> Vec<f64> {
        self.0.iter().map(number).collect()
    }
}
