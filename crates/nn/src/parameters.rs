//! Named parameters, and the context of a forward pass.
//!
//! A layer is a plain struct of [`ParameterId`]s, which a [`ParameterScope`] hands out when the
//! layer is created. The values are in a flat [`bornite::var::Arena`]; a forward pass looks them up
//! in a [`Context`]. So training, 16-bit copies and checkpoints need no knowledge of the model.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bornite::{DType, Device, Generator, Tensor, ops::checkpoint, var::Arena};

use crate::dropout;
use crate::error::{Result, located};

/// Initialization of a parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Normal distribution with this standard deviation.
    Normal(f64),
    /// Xavier: uniform in ±√(6 / (inputs + outputs)), for layers with tanh or no activation.
    Xavier,
    /// Kaiming: normal distribution with standard deviation √(2 / inputs), for layers with ReLU.
    Kaiming,
}

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
    /// [`ParameterScope::pad_rows`].
    pub row_multiple: usize,
}

impl ParameterInfo {
    /// Returns true if weight decay applies: for matrices, not for norms and biases.
    pub fn has_weight_decay(&self) -> bool {
        self.shape.len() >= 2
    }
}

/// Index of a parameter in a [`ParameterList`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParameterId(usize);

/// Parameters of a model, in the order in which its layers declare them.
///
/// ```
/// use bornite_nn::{ParameterList, Init, layers::Linear};
/// let mut all = ParameterList::new();
/// let layer = Linear::new(&mut all.scope("head"), 4, 2, Init::Normal(0.02), true);
/// let names: Vec<&str> = all.iter().map(|p| &p.name[..]).collect();
/// assert_eq!(names, ["head.weight", "head.bias"]);
/// # let _ = layer;
/// ```
#[derive(Clone, Default, Debug)]
pub struct ParameterList(Vec<ParameterInfo>);

impl ParameterList {
    /// Creates an empty list.
    pub fn new() -> ParameterList {
        ParameterList::default()
    }

    /// Returns the scope of a name, in which a layer declares its parameters.
    pub fn scope(&mut self, name: &str) -> ParameterScope<'_> {
        ParameterScope { list: self, path: name.into(), row_multiple: 1 }
    }

    /// Iterates over the parameters in order.
    pub fn iter(&self) -> impl Iterator<Item = &ParameterInfo> {
        self.0.iter()
    }

    /// Returns the total number of elements.
    pub fn elements(&self) -> usize {
        self.0.iter().map(|p| p.shape.iter().product::<usize>()).sum()
    }

    /// Creates an f32 arena of initialized parameters, matrices first. A seed gives the same values
    /// on every device.
    #[track_caller]
    pub fn arena(&self, seed: u64, device: Device) -> Result<Arena> {
        located(|| self.arena_of(&self.initial_values(seed, device)))
    }

    /// As [`ParameterList::arena`], with padding as on a GPU: see [`ParameterScope::pad_rows`].
    #[track_caller]
    pub fn padded_arena(&self, seed: u64, device: Device) -> Result<Arena> {
        located(|| self.arena_with_padding(&self.initial_values(seed, device), true))
    }

    fn initial_values(&self, seed: u64, device: Device) -> Vec<Tensor> {
        let generator = Generator::new(seed);
        self.0.iter().map(|p| initialize(p, &generator, device)).collect()
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

fn initialize(p: &ParameterInfo, generator: &Generator, device: Device) -> Tensor {
    let normal = |deviation: f64| Tensor::randn(&p.shape, DType::F32, generator, device) * deviation;
    let (outputs, inputs) = match p.shape[..] {
        [outputs, ref inputs @ ..] => (outputs as f64, inputs.iter().product::<usize>() as f64),
        [] => (1.0, 1.0),
    };
    match p.init {
        Init::Zeros => Tensor::zeros(&p.shape, DType::F32, device),
        Init::Ones => Tensor::ones(&p.shape, DType::F32, device),
        Init::Normal(deviation) => normal(deviation),
        Init::Kaiming => normal((2.0 / inputs.max(1.0)).sqrt()),
        Init::Xavier => {
            let bound = (6.0 / (inputs + outputs)).sqrt();
            Tensor::rand(&p.shape, DType::F32, generator, device) * (2.0 * bound) - bound
        }
    }
}

/// A prefix of parameter names.
pub struct ParameterScope<'a> {
    list: &'a mut ParameterList,
    path: String,
    row_multiple: usize,
}

impl ParameterScope<'_> {
    /// Returns the scope of a name below this one.
    pub fn scope(&mut self, name: impl std::fmt::Display) -> ParameterScope<'_> {
        let path = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
        ParameterScope { list: self.list, path, row_multiple: self.row_multiple }
    }

    /// Pads the first axis of parameters declared from now on to this multiple in the memory of a
    /// GPU, whose matrix products are faster with even sizes. The padding is zero. It is part of
    /// [`Arena::padded_tensors`], which a training step reads; checkpoints do not contain it.
    pub fn pad_rows(self, multiple: usize) -> Self {
        ParameterScope { row_multiple: multiple, ..self }
    }

    /// Declares a parameter.
    pub fn parameter(&mut self, name: &str, shape: &[usize], init: Init) -> ParameterId {
        let (name, row_multiple) = (self.scope(name).path, self.row_multiple);
        self.list.0.push(ParameterInfo { name, shape: shape.to_vec(), init, row_multiple });
        ParameterId(self.list.0.len() - 1)
    }

    /// Returns the number of parameters declared so far, in all scopes.
    pub fn count(&self) -> usize {
        self.list.0.len()
    }
}

/// Context of a forward pass: the parameters' values and, in training, the random state of dropout.
pub struct Context {
    values: Vec<Tensor>,
    /// Index of the first value.
    first: usize,
    /// Seed and offset on the device, and the number of draws so far.
    random: Option<(Tensor, AtomicU64)>,
    /// Error tensor returned for parameters without a value.
    missing: OnceLock<Tensor>,
}

impl Context {
    /// Creates a context for inference, from values in the order of declaration, as
    /// [`Arena::tensors`] and [`Arena::padded_tensors`] return them.
    pub fn new(values: Vec<Tensor>) -> Context {
        Context { values, first: 0, random: None, missing: OnceLock::new() }
    }

    /// Creates a context for training. Dropout draws from `state`, two u64: seed and offset. Every
    /// dropout layer takes the next offset and every block of [`Context::checkpoint`] the next
    /// 1,024, so the offsets of two batches must be at least 2²⁰ apart; draws beyond these take
    /// another seed.
    pub fn training(values: Vec<Tensor>, state: Tensor) -> Context {
        Context { random: Some((state, AtomicU64::new(0))), ..Context::new(values) }
    }

    /// Returns the value of a parameter; an error tensor if it is a parameter of another model or
    /// values are missing.
    #[track_caller]
    pub fn get(&self, param: ParameterId) -> &Tensor {
        let found = param.0.checked_sub(self.first).and_then(|n| self.values.get(n));
        found.unwrap_or_else(|| {
            let what = format!(
                "parameter {} has no value; there are values for parameters {} to {}. Pass all values of the model that \
                 declared it",
                param.0,
                self.first,
                (self.first + self.values.len()).saturating_sub(1),
            );
            self.missing.get_or_init(|| Tensor::failed("parameter", what))
        })
    }

    /// Activation checkpointing: runs `f` with the parameters of `range`, now and again in the
    /// backward pass. No intermediate result of `f` is saved in between.
    #[track_caller]
    pub fn checkpoint(
        &self,
        x: &Tensor,
        range: Range<usize>,
        f: impl Fn(&Context, &Tensor) -> Tensor + Send + Sync + 'static,
    ) -> Tensor {
        /// Dropout draws reserved for one call.
        const DRAWS: u64 = 1 << 10;
        let inputs: Vec<&Tensor> = std::iter::once(x).chain(range.clone().map(|n| self.get(ParameterId(n)))).collect();
        let random =
            self.random.as_ref().map(|(state, draws)| (state.clone(), draws.fetch_add(DRAWS, Ordering::Relaxed)));
        checkpoint(&inputs, move |inputs| {
            let [x, values @ ..] = inputs else {
                return Tensor::failed("checkpoint", "there are no inputs; expected x and parameter values");
            };
            let random = random.as_ref().map(|(state, draws)| (state.clone(), AtomicU64::new(*draws)));
            f(&Context { first: range.start, random, ..Context::new(values.to_vec()) }, x)
        })
    }

    /// Applies dropout with probability `p` in training; returns `x` otherwise.
    pub fn dropout(&self, x: &Tensor, p: f64) -> Tensor {
        match &self.random {
            Some((state, draws)) if p > 0.0 => {
                let device = state.device().unwrap_or(Device::cpu());
                let offset =
                    Tensor::from_slice(&dropout::draw_offset(draws.fetch_add(1, Ordering::Relaxed)), &[2], device);
                x.dropout_from(p, &(state + offset))
            }
            _ => x.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Gpt, GptConfig};

    #[test]
    fn missing_parameter_value_is_an_error() {
        let small = Gpt::new(GptConfig::gpt2(16, 8, 1, 2, 8)).unwrap();
        let large = Gpt::new(GptConfig::gpt2(16, 8, 3, 2, 8)).unwrap();
        let values = small.parameters().arena(1, Device::cpu()).unwrap().tensors();
        let tokens = Tensor::zeros(&[1, 8], DType::I64, Device::cpu());
        for count in [0, 1, values.len()] {
            for gpt in [large.clone(), large.clone().activation_checkpointing(true)] {
                let context = Context::new(values[..count].to_vec());
                let error = gpt.logits(&context, &tokens).to_vec::<f32>().unwrap_err().to_string();
                assert!(error.contains("Pass all values of the model that declared it"), "{count}: {error}");
            }
        }
        // A checkpointed part of a model has its own parameters only.
        let x = Tensor::zeros(&[4], DType::F32, Device::cpu());
        let strange = Context::new(values).checkpoint(&x, 2..4, |context, x| x + context.get(ParameterId(0)));
        assert!(strange.to_vec::<f32>().unwrap_err().to_string().contains("values for parameters 2 to 3"));
    }
}
