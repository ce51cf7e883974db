//! Parameters by path name, and what a forward pass is given.
//!
//! A layer is a plain struct of [`Param`]s, handles that it gets when it is made in a [`Scope`]. The values are elsewhere,
//! in one flat arena ([`bornite::var::Arena`]) a kind: a forward pass looks them up in a [`Context`]. So a model can be trained,
//! run in 16 bits, saved and loaded without knowing anything of it.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bornite::{DType, Device, Generator, Tensor, ops::checkpoint, var::Arena};

use crate::dropout;
use crate::error::{Result, located};

/// How a parameter starts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Normal numbers of this standard deviation.
    Normal(f64),
    /// Evenly spread over ±√(6 / (inputs + outputs)), for layers with tanh or none.
    Xavier,
    /// Normal numbers of standard deviation √(2 / inputs), for layers with ReLU.
    Kaiming,
}

/// What is known of a parameter beside its value.
#[derive(Clone, PartialEq, Debug)]
pub struct Declared {
    /// The path, such as `blocks.0.attention.out.weight`.
    pub name: String,
    /// Its shape. Of matrices the first axis is that of outputs.
    pub shape: Vec<usize>,
    /// How it starts.
    pub init: Init,
}

impl Declared {
    /// Whether weight decay is for it: matrices, not norms and biases.
    pub fn decays(&self) -> bool {
        self.shape.len() >= 2
    }
}

/// A parameter's number in the order of declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Param(usize);

/// The parameters of a model, as its layers declare them.
///
/// ```
/// use bornite_nn::{Declarations, Init, layers::Linear};
/// let mut all = Declarations::new();
/// let layer = Linear::new(&mut all.scope("head"), 4, 2, Init::Normal(0.02), true);
/// let names: Vec<&str> = all.iter().map(|p| &p.name[..]).collect();
/// assert_eq!(names, ["head.weight", "head.bias"]);
/// # let _ = layer;
/// ```
#[derive(Clone, Default, Debug)]
pub struct Declarations(Vec<Declared>);

impl Declarations {
    /// No parameters yet.
    pub fn new() -> Declarations {
        Declarations::default()
    }

    /// Where parameters of a name are declared.
    pub fn scope(&mut self, name: &str) -> Scope<'_> {
        Scope { all: self, path: name.into() }
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Declared> {
        self.0.iter()
    }

    /// How many numbers there are in all.
    pub fn elements(&self) -> usize {
        self.0.iter().map(|p| p.shape.iter().product::<usize>()).sum()
    }

    /// New parameters in f32, matrices first. The same for a seed on every device.
    #[track_caller]
    pub fn arena(&self, seed: u64, device: Device) -> Result<Arena> {
        located(|| {
            let generator = Generator::new(seed);
            let tensors: Vec<Tensor> = self.0.iter().map(|p| start(p, &generator, device)).collect();
            let named: Vec<(&str, &Tensor)> = self.0.iter().zip(&tensors).map(|(p, t)| (&p.name[..], t)).collect();
            Ok(Arena::grouped(&named, |_, shape| usize::from(shape.len() < 2))?)
        })
    }

    /// A number for each, for [`Arena::spread`].
    pub fn each(&self, number: impl Fn(&Declared) -> f64) -> Vec<f64> {
        self.0.iter().map(number).collect()
    }
}

fn start(p: &Declared, generator: &Generator, device: Device) -> Tensor {
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

/// A place in the tree of names.
pub struct Scope<'a> {
    all: &'a mut Declarations,
    path: String,
}

impl Scope<'_> {
    /// The place of that name below this one.
    pub fn scope(&mut self, name: impl std::fmt::Display) -> Scope<'_> {
        let path = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
        Scope { all: self.all, path }
    }

    /// Declares a parameter.
    pub fn parameter(&mut self, name: &str, shape: &[usize], init: Init) -> Param {
        let name = self.scope(name).path;
        self.all.0.push(Declared { name, shape: shape.to_vec(), init });
        Param(self.all.0.len() - 1)
    }

    /// How many parameters there are so far, in this scope and all others.
    pub fn count(&self) -> usize {
        self.all.0.len()
    }
}

/// What a forward pass is given beside its input: the parameters' values and, in training, random numbers for dropout.
pub struct Context {
    values: Vec<Tensor>,
    /// The number of the first of these values.
    first: usize,
    /// Seed and offset on the device, and how many draws there were.
    random: Option<(Tensor, AtomicU64)>,
    /// What stands for a parameter that has no value here.
    missing: OnceLock<Tensor>,
}

impl Context {
    /// Values in the order of declaration, as [`Arena::tensors`] gives them; nothing is dropped.
    pub fn new(values: Vec<Tensor>) -> Context {
        Context { values, first: 0, random: None, missing: OnceLock::new() }
    }

    /// As [`Context::new`], in training: dropout draws from `state`, two u64, a seed and an offset. Every layer that drops
    /// takes the next offset and every block of [`Context::recomputed`] the next 1,024, so the offsets of two batches must be
    /// at least 2²⁰ apart; draws beyond these take another seed.
    pub fn training(values: Vec<Tensor>, state: Tensor) -> Context {
        Context { random: Some((state, AtomicU64::new(0))), ..Context::new(values) }
    }

    /// The value of a parameter. Where there is none, since it is one of another model or values are too few, that is an
    /// error in the tensor.
    #[track_caller]
    pub fn get(&self, param: Param) -> &Tensor {
        let found = param.0.checked_sub(self.first).and_then(|n| self.values.get(n));
        found.unwrap_or_else(|| {
            let what = format!(
                "number {} in the order of declaration was asked for, and there are values for {} to {}; give the values \
                 of the model that declared it, all of them",
                param.0,
                self.first,
                (self.first + self.values.len()).saturating_sub(1),
            );
            self.missing.get_or_init(|| Tensor::mistake("parameter", what))
        })
    }

    /// Runs `f` with a context of some parameters, now and in the gradient, where its input and these parameters are given
    /// anew: nothing that `f` computes on the way is kept in between.
    #[track_caller]
    pub fn recomputed(
        &self,
        x: &Tensor,
        range: Range<usize>,
        f: impl Fn(&Context, &Tensor) -> Tensor + Send + Sync + 'static,
    ) -> Tensor {
        /// Draws that a part of a model may make.
        const DRAWS: u64 = 1 << 10;
        let inputs: Vec<&Tensor> = std::iter::once(x).chain(range.clone().map(|n| self.get(Param(n)))).collect();
        let random =
            self.random.as_ref().map(|(state, draws)| (state.clone(), draws.fetch_add(DRAWS, Ordering::Relaxed)));
        checkpoint(&inputs, move |inputs| {
            let [x, values @ ..] = inputs else {
                return Tensor::mistake("recomputed", "there are no inputs; expected x and the values of parameters");
            };
            let random = random.as_ref().map(|(state, draws)| (state.clone(), AtomicU64::new(*draws)));
            f(&Context { first: range.start, random, ..Context::new(values.to_vec()) }, x)
        })
    }

    /// `x` with each element dropped with probability `p`, in training; else `x`.
    pub fn dropout(&self, x: &Tensor, p: f64) -> Tensor {
        match &self.random {
            Some((state, draws)) if p > 0.0 => {
                let device = state.device().unwrap_or(Device::cpu());
                let further =
                    Tensor::from_slice(&dropout::distance(draws.fetch_add(1, Ordering::Relaxed)), &[2], device);
                x.dropout_from(p, &(state + further))
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
    fn a_parameter_without_a_value_is_an_error_not_a_panic() {
        let small = Gpt::new(GptConfig::gpt2(16, 8, 1, 2, 8)).unwrap();
        let large = Gpt::new(GptConfig::gpt2(16, 8, 3, 2, 8)).unwrap();
        let values = small.parameters().arena(1, Device::cpu()).unwrap().tensors();
        let tokens = Tensor::zeros(&[1, 8], DType::I64, Device::cpu());
        for count in [0, 1, values.len()] {
            for gpt in [large.clone(), large.clone().recomputing(true)] {
                let context = Context::new(values[..count].to_vec());
                let error = gpt.logits(&context, &tokens).to_vec::<f32>().unwrap_err().to_string();
                assert!(error.contains("give the values of the model that declared it"), "{count}: {error}");
            }
        }
        // A part of a model that is computed again knows its own parameters only.
        let x = Tensor::zeros(&[4], DType::F32, Device::cpu());
        let strange = Context::new(values).recomputed(&x, 2..4, |context, x| x + context.get(Param(0)));
        assert!(strange.to_vec::<f32>().unwrap_err().to_string().contains("values for 2 to 3"));
    }
}
