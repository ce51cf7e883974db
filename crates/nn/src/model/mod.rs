//! Models. [`Gpt`] covers GPT-2 and Llama architectures, by configuration.
//!
//! `config.rs` describes the architecture, `gpt.rs` and `attention.rs` compute it, `hugging_face/`
//! imports and exports it. Models know nothing about training, data or checkpoints.

mod attention;
mod config;
mod gpt;
mod hugging_face;
#[cfg(test)]
mod padding_tests;

pub use attention::{Attention, KvCache};
pub use config::{GptConfig, MlpKind, NormKind, PositionKind, RopeScaling};
pub use gpt::{Gpt, GptBlock, Mlp};
