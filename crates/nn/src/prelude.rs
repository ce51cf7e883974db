//! Everything that a program with a model of its own usually needs.
//!
//! ```
//! use bornite_nn::prelude::*;
//! ```

pub use bornite::{DType, Device, Tensor};

pub use crate::data::{DataLoader, TensorDataset};
pub use crate::layers::*;
pub use crate::optimizer::{Adagrad, Adam, AdamW, LrDecay, LrSchedule, Muon, RmsProp, Sgd};
pub use crate::train::{BatchSource, EarlyStopping, Fit, Precision, evaluate};
pub use crate::{Error, Forward, Init, Module, Params, Result, metrics, summary};
