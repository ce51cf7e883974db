//! Layers, GPT models, optimizers, tokenizers, token datasets, checkpoints, the training loop and
//! text generation.
//!
//! Builds on the tensors of `bornite`. Must not know the command line: progress is reported to
//! observers. Start at [`train::run`], [`model::Gpt`] or [`checkpoint`].

pub mod checkpoint;
pub mod data;
mod dropout;
mod error;
mod files;
pub mod generate;
mod inputs;
pub mod layers;
pub mod model;
pub mod optimizer;
mod parameters;
mod random;
pub mod tokenizer;
pub mod train;

pub use error::{Error, ErrorKind, Result};
pub use parameters::{Context, Init, ParameterId, ParameterInfo, ParameterList, ParameterScope};
