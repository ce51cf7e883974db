//! Declarations of parameters, and the arena that holds their values.

use std::collections::HashMap;

use bornite::{Device, Generator, Result, Tensor, var::Arena};

use super::Init;
use crate::checkpoint::Tensors;

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
        self.shape.iter().fold(1, |product, &length| product.saturating_mul(length))
    }
}

/// Creates an f32 arena of these parameters, matrices first, with the values in `loaded` or else
/// initial values, which a seed determines on every device. `pad` applies
/// [`ParameterInfo::row_multiple`].
pub(super) fn arena(list: &[ParameterInfo], loaded: &Tensors, seed: u64, device: Device, pad: bool) -> Result<Arena> {
    let generator = Generator::new(seed);
    // Created for all parameters, so that loaded ones do not change the numbers of the others.
    // Tensors that are not read are not computed.
    let initial: Vec<Tensor> = list.iter().map(|p| p.init.tensor(&p.shape, &generator, device)).collect();
    let values = list.iter().zip(&initial).map(|(p, initial)| (&p.name[..], loaded.get(&p.name).unwrap_or(initial)));
    let multiples: HashMap<&str, usize> = list.iter().map(|p| (&p.name[..], p.row_multiple)).collect();
    let row_multiple = |name: &str| if pad { multiples.get(name).copied().unwrap_or(1) } else { 1 };
    let group = |_: &str, shape: &[usize]| usize::from(shape.len() < 2);
    Arena::padded(&values.collect::<Vec<_>>(), group, |name, _| row_multiple(name))
}
