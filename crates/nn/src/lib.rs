//! What is trained and how: layers and models by name, optimisers, tokenisers, data, checkpoints, the training loop.
//!
//! It stands on `bornite`'s tensors and must not know the command line: progress is reported to whoever asks.

pub mod checkpoint;
pub mod data;
mod dropout;
mod error;
mod files;
pub mod generate;
mod inputs;
pub mod layers;
pub mod model;
pub mod optimiser;
mod parameters;
mod random;
pub mod tokenizer;
pub mod train;

pub use error::{Error, ErrorKind, Result};
pub use parameters::{Context, Declarations, Declared, Init, Param, Scope};
