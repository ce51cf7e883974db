//! Models with layers of this crate: declaration, training, saving, bad input.

mod bad_input;
mod resume;
mod snippet;
mod training;
