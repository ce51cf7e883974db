//! Models. [`Gpt`] covers GPT-2 and Llama architectures, by configuration; [`ImageModel`] names
//! classifiers of images.
//!
//! `config.rs` describes the architecture of a GPT, `gpt.rs` and `attention.rs` compute it,
//! `hugging_face/` imports and exports it. `vision/` has residual networks, VGG and vision
//! transformers. Models know nothing about training, data or checkpoints.

mod attention;
mod config;
mod gpt;
mod hugging_face;
#[cfg(test)]
mod padding_tests;
mod vision;

pub use attention::{Attention, KvCache};
pub use config::{GptConfig, MlpKind, NormKind, PositionKind, RopeScaling};
pub use gpt::{Gpt, GptBlock, Mlp};
pub use vision::{ImageModel, ImageModelConfig, MEAN, ResNet, ResNetConfig, STD, Vgg, VisionTransformer, VitConfig};
