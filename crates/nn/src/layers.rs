//! Layers: plain structs of parameter ids with a `forward` method.

use bornite::Tensor;

use crate::parameters::{Context, Init, ParameterId, ParameterScope};

/// Linear layer: x · weightᵀ + bias, with a weight of `[outputs, inputs]`.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    weight: ParameterId,
    bias: Option<ParameterId>,
    outputs: usize,
}

impl Linear {
    /// Declares `weight` and, if `bias` is set, a zero-initialized `bias`.
    pub fn new(scope: &mut ParameterScope<'_>, inputs: usize, outputs: usize, init: Init, bias: bool) -> Linear {
        let weight = scope.parameter("weight", &[outputs, inputs], init);
        let bias = bias.then(|| scope.parameter("bias", &[outputs], Init::Zeros));
        Linear { weight, bias, outputs }
    }

    /// Applies the layer to the last axis of `x`.
    #[track_caller]
    pub fn forward(&self, context: &Context, x: &Tensor) -> Tensor {
        without_padding(&self.forward_padded(context, x), -1, self.outputs)
    }

    /// As [`Linear::forward`], with the outputs of padded rows of the weight.
    #[track_caller]
    pub(crate) fn forward_padded(&self, context: &Context, x: &Tensor) -> Tensor {
        x.linear(context.get(self.weight), self.bias.map(|bias| context.get(bias)))
    }
}

/// The first `length` elements of an axis, without padding of parameters.
#[track_caller]
pub(crate) fn without_padding(x: &Tensor, axis: isize, length: usize) -> Tensor {
    match x.shape() {
        Ok(shape) if shape[axis.rem_euclid(shape.len() as isize) as usize] > length => x.slice(axis, ..length as isize),
        _ => x.clone(),
    }
}

/// Embedding table.
#[derive(Clone, Copy, Debug)]
pub struct Embedding {
    weight: ParameterId,
    count: usize,
}

impl Embedding {
    /// Declares `weight`, of `[count, width]`.
    pub fn new(scope: &mut ParameterScope<'_>, count: usize, width: usize, init: Init) -> Embedding {
        Embedding { weight: scope.parameter("weight", &[count, width], init), count }
    }

    /// Looks up the rows at `index`.
    #[track_caller]
    pub fn forward(&self, context: &Context, index: &Tensor) -> Tensor {
        self.table(context).embedding(index)
    }

    /// Returns the table.
    #[track_caller]
    pub fn table(&self, context: &Context) -> Tensor {
        without_padding(self.padded_table(context), 0, self.count)
    }

    /// As [`Embedding::table`], with padded rows.
    #[track_caller]
    pub(crate) fn padded_table<'a>(&self, context: &'a Context) -> &'a Tensor {
        context.get(self.weight)
    }
}

/// Normalization over the last axis.
#[derive(Clone, Copy, Debug)]
pub enum Norm {
    /// LayerNorm.
    Layer {
        /// Scale.
        weight: ParameterId,
        /// Shift.
        bias: ParameterId,
        /// Added to the variance.
        eps: f64,
    },
    /// RMSNorm.
    Rms {
        /// Scale.
        weight: ParameterId,
        /// Added to the mean square.
        eps: f64,
    },
}

impl Norm {
    /// Declares a LayerNorm.
    pub fn layer(scope: &mut ParameterScope<'_>, width: usize, eps: f64) -> Norm {
        let weight = scope.parameter("weight", &[width], Init::Ones);
        Norm::Layer { weight, bias: scope.parameter("bias", &[width], Init::Zeros), eps }
    }

    /// Declares an RMSNorm.
    pub fn rms(scope: &mut ParameterScope<'_>, width: usize, eps: f64) -> Norm {
        Norm::Rms { weight: scope.parameter("weight", &[width], Init::Ones), eps }
    }

    /// Normalizes the last axis of `x`.
    #[track_caller]
    pub fn forward(&self, context: &Context, x: &Tensor) -> Tensor {
        match *self {
            Norm::Layer { weight, bias, eps } => x.layer_norm(context.get(weight), context.get(bias), eps),
            Norm::Rms { weight, eps } => x.rms_norm(context.get(weight), eps),
        }
    }
}
