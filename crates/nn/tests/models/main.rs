//! Models with layers of this crate: declaration, training, saving, bad input.

mod bad_input;
mod optimizers;
mod resume;
mod snippet;
mod structure;
mod training;
