//! Models with layers of this crate: declaration, training, saving, bad input.

mod bad_input;
mod gpt;
mod image_runs;
mod networks;
mod optimizers;
mod resume;
mod snippet;
mod structure;
mod training;
mod vision;
