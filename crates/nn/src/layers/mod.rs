//! Layers. Each owns handles to its parameters, which its `new` declares in a [`Params`] scope, and
//! implements [`Forward`] or has a `forward` that takes tensors.
//!
//! Defaults, parameter shapes and formulas are those of PyTorch, so weights can be exchanged. With
//! 16-bit weights, layers with a matrix product cast their input to the type of the weight.
//!
//! [`Params`]: crate::Params
//! [`Forward`]: crate::Forward

mod activation;
mod attention;
mod batch_norm;
mod conv;
mod dropout;
mod embedding;
#[cfg(test)]
mod golden_tests;
mod linear;
mod norm;
mod pool;
mod recurrent;
mod sequential;
mod transformer;

use bornite::{DType, Tensor};

pub use activation::{Elu, Flatten, Gelu, GeluErf, LeakyRelu, Relu, Sigmoid, Silu, Softmax, Tanh};
pub use attention::MultiHeadAttention;
pub(crate) use attention::{merge_heads, split_heads};
pub use batch_norm::BatchNorm;
pub use conv::{Conv1d, Conv2d, ConvTranspose2d};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use linear::Linear;
pub use norm::{GroupNorm, LayerNorm, Norm, RmsNorm};
pub use pool::{
    AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool1d, AvgPool2d, GlobalAvgPool, GlobalMaxPool, MaxPool1d, MaxPool2d,
    Upsample,
};
pub use recurrent::{Gru, Lstm};
pub use sequential::Sequential;
pub use transformer::TransformerBlock;

/// The first `length` elements of an axis, without padding of parameters.
#[track_caller]
pub(crate) fn without_padding(x: &Tensor, axis: isize, length: usize) -> Tensor {
    match x.shape() {
        Ok(shape) if shape[axis.rem_euclid(shape.len() as isize) as usize] > length => x.slice(axis, ..length as isize),
        _ => x.clone(),
    }
}

/// Casts a float input to the dtype of a 16-bit weight, so that matrix products are in that type.
/// Other inputs are unchanged.
#[track_caller]
pub(crate) fn cast_to_weight(x: &Tensor, weight: &Tensor) -> Tensor {
    match (x.dtype(), weight.dtype()) {
        (Ok(found), Ok(dtype @ (DType::F16 | DType::BF16))) if found.is_float() && found != dtype => x.cast(dtype),
        _ => x.clone(),
    }
}
