//! Models. [`Gpt`] is GPT-2 and its relatives, by configuration.

mod attention;
mod config;
mod gpt;
mod hugging_face;

pub use attention::{Attention, Cache};
pub use config::{GptConfig, MlpKind, NormKind, PositionKind, RopeScaling};
pub use gpt::{Block, Gpt, Mlp};
