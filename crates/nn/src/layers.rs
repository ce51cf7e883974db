//! Layers: plain structs of parameters with a `forward`.

use bornite::Tensor;

use crate::parameters::{Context, Init, Param, Scope};

/// x · weightᵀ + bias, with the weight as `[outputs, inputs]`.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    weight: Param,
    bias: Option<Param>,
}

impl Linear {
    /// Declares `weight` and, if wanted, `bias`, which starts as zeros.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, outputs: usize, init: Init, bias: bool) -> Linear {
        let weight = scope.parameter("weight", &[outputs, inputs], init);
        Linear { weight, bias: bias.then(|| scope.parameter("bias", &[outputs], Init::Zeros)) }
    }

    /// The layer's outputs for rows of inputs.
    #[track_caller]
    pub fn forward(&self, context: &Context, x: &Tensor) -> Tensor {
        x.linear(context.get(self.weight), self.bias.map(|bias| context.get(bias)))
    }
}

/// A row of numbers for each of some things.
#[derive(Clone, Copy, Debug)]
pub struct Embedding {
    weight: Param,
}

impl Embedding {
    /// Declares `weight`, of `[count, width]`.
    pub fn new(scope: &mut Scope<'_>, count: usize, width: usize, init: Init) -> Embedding {
        Embedding { weight: scope.parameter("weight", &[count, width], init) }
    }

    /// The rows of these numbers.
    #[track_caller]
    pub fn forward(&self, context: &Context, index: &Tensor) -> Tensor {
        context.get(self.weight).embedding(index)
    }

    /// The table.
    pub fn table<'a>(&self, context: &'a Context) -> &'a Tensor {
        context.get(self.weight)
    }
}

/// How rows are brought to one size.
#[derive(Clone, Copy, Debug)]
pub enum Norm {
    /// Less the mean, by the standard deviation, then scaled and shifted.
    Layer {
        /// Scale.
        weight: Param,
        /// Shift.
        bias: Param,
        /// Added to the variance.
        eps: f64,
    },
    /// By the root of the mean square, then scaled.
    Rms {
        /// Scale.
        weight: Param,
        /// Added to the mean square.
        eps: f64,
    },
}

impl Norm {
    /// A layer norm over the last axis.
    pub fn layer(scope: &mut Scope<'_>, width: usize, eps: f64) -> Norm {
        let weight = scope.parameter("weight", &[width], Init::Ones);
        Norm::Layer { weight, bias: scope.parameter("bias", &[width], Init::Zeros), eps }
    }

    /// A root-mean-square norm over the last axis.
    pub fn rms(scope: &mut Scope<'_>, width: usize, eps: f64) -> Norm {
        Norm::Rms { weight: scope.parameter("weight", &[width], Init::Ones), eps }
    }

    /// The rows, normed.
    #[track_caller]
    pub fn forward(&self, context: &Context, x: &Tensor) -> Tensor {
        match *self {
            Norm::Layer { weight, bias, eps } => x.layer_norm(context.get(weight), context.get(bias), eps),
            Norm::Rms { weight, eps } => x.rms_norm(context.get(weight), eps),
        }
    }
}
