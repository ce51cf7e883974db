//! In which arithmetic a model is trained.

use bornite::{DType, settings::MatmulMode};
use serde::{Deserialize, Serialize};

/// In which arithmetic a model is trained. Parameters and what the optimiser keeps are f32 always; with 16 bits the model
/// runs on a rounded copy of the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// f32 throughout.
    #[default]
    F32,
    /// f32 whose products round their inputs to TF32, on a GPU.
    Tf32,
    /// bf16.
    Bf16,
    /// f16, with the loss scaled so that small gradients are not lost.
    F16,
}

impl Precision {
    /// The type that the model runs in.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }

    /// Runs work with products as this precision wants them.
    pub fn within<R>(self, work: impl FnOnce() -> R) -> R {
        match (self, MatmulMode::current()) {
            // Whoever asked for the same bits everywhere gets them.
            (_, Ok(MatmulMode::Exact)) => work(),
            (Precision::Tf32, _) => MatmulMode::Tf32.within(work),
            _ => work(),
        }
    }
}

/// The factor of a loss in f16: halved where gradients overflow, doubled after a long time without.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LossScale {
    /// The factor.
    pub factor: f64,
    /// Steps since it changed.
    pub good: u64,
}

impl LossScale {
    const START: f64 = 65_536.0;
    const PATIENCE: u64 = 2000;

    /// That of a run's first step: 1 where nothing has to be scaled.
    pub fn new(precision: Precision) -> LossScale {
        LossScale { factor: if precision == Precision::F16 { LossScale::START } else { 1.0 }, good: 0 }
    }

    /// After a step whose gradients were finite, or not.
    pub fn after(self, precision: Precision, finite: bool) -> LossScale {
        match (precision, finite) {
            (Precision::F16, false) => LossScale { factor: (self.factor / 2.0).max(1.0), good: 0 },
            (Precision::F16, true) if self.good + 1 >= LossScale::PATIENCE => {
                LossScale { factor: (self.factor * 2.0).min(2f64.powi(24)), good: 0 }
            }
            (_, true) => LossScale { good: self.good + 1, ..self },
            (_, false) => self,
        }
    }
}
