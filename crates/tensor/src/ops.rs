//! Methods of [`Tensor`](crate::Tensor) that build graphs: graph ops and functions over them. They
//! define no kernels and no gradients; ops with device-specific implementations are in `fused/`.

pub(crate) mod activation;
mod class_loss;
pub(crate) mod conv;
mod conv_transpose;
pub(crate) mod display;
mod einsum;
mod fourier;
mod index;
mod lengths;
mod loss;
pub(crate) mod nn;
mod operators;
pub(crate) mod pointwise;
mod pool;
pub(crate) mod random;
pub(crate) mod reduce;
mod shape;
mod solve;
pub(crate) mod transfer;
mod upsample;

pub use activation::Activation;
pub use class_loss::{CrossEntropyOptions, NllOptions};
pub use conv::{Conv1dOptions, Conv2dOptions, Conv3dOptions};
pub use conv_transpose::ConvTranspose2dOptions;
/// 16-bit floats on the host.
pub use half::{bf16, f16};
pub use loss::Reduction;
pub use transfer::Target;
pub use upsample::UpsampleMode;

pub use crate::fused::batch_norm::BatchNormResult;
pub use crate::graph::axes::Axes;
pub use crate::graph::checkpoint::checkpoint;
pub use crate::graph::promote::{Number, Operand, promote};
pub use crate::runtime::element::Element;
