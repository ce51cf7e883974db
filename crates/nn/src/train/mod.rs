//! Training: what changes a model's parameters, and the run around it.

mod learner;
mod precision;

pub use learner::{Learner, Learning, Measured, Outcome};
pub use precision::{LossScale, Precision};
