//! Layers, GPT models, optimizers, tokenizers, token datasets, checkpoints, the training loop and
//! text generation.
//!
//! Builds on the tensors of `bornite`. Must not know the command line: progress is reported to
//! observers. Start at [`prelude`] for a model of your own (docs/models.md), or at [`train::run`],
//! [`model::Gpt`] or [`checkpoint`].

// The derive macro names this crate, also in its own layers.
extern crate self as bornite_nn;

pub mod checkpoint;
pub mod data;
mod dropout;
mod error;
mod files;
pub mod generate;
mod inputs;
pub mod layers;
pub mod metrics;
pub mod model;
mod module;
#[cfg(test)]
#[allow(dead_code)] // what only tests of training need
#[path = "../tests/models/networks.rs"]
mod networks;
pub mod optimizer;
mod parameters;
pub mod prelude;
mod random;
pub mod tokenizer;
pub mod train;

pub use error::{Error, ErrorKind, Result};
pub use module::{Forward, Module, Summary, SummaryRow, Visited, Visitor, summary};
pub use parameters::{Buffer, Init, Parameter, ParameterInfo, Params, dropout, eval_mode, is_training};

/// Runs the programs of docs/models.md as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/models.md")]
struct ModelsManual;
