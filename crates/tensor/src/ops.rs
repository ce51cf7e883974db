//! Methods of [`Tensor`](crate::Tensor) that build graphs: the ops themselves and functions over them. They have no kernels and no
//! gradients of their own; ops that some devices compute faster than by their decomposition are in `fused/`.

pub(crate) mod activation;
pub(crate) mod conv;
pub(crate) mod display;
mod einsum;
mod fourier;
mod index;
mod lengths;
mod loss;
pub(crate) mod nn;
mod operators;
pub(crate) mod pointwise;
pub(crate) mod random;
pub(crate) mod reduce;
mod shape;
mod solve;
pub(crate) mod transfer;

pub use activation::Activation;
pub use conv::Sliding;
/// 16-bit floats on the host.
pub use half::{bf16, f16};
pub use transfer::Target;

pub use crate::graph::axes::Axes;
pub use crate::graph::checkpoint::checkpoint;
pub use crate::graph::promote::{Number, Operand, promote};
pub use crate::runtime::element::Element;
