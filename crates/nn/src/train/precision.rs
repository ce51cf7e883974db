//! Training precision and loss scaling.

use bornite::{DType, settings::MatmulMode};
use serde::{Deserialize, Serialize};

/// Precision of the forward and backward pass. Parameters and optimizer state are always f32; with
/// a 16-bit type the model runs on a rounded copy of the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// f32 throughout.
    #[default]
    F32,
    /// f32, with TF32 matrix products on a GPU.
    Tf32,
    /// bf16.
    Bf16,
    /// f16 with dynamic loss scaling.
    F16,
}

impl Precision {
    /// Data type of weights and activations.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }

    /// Runs `work` with the matmul mode of this precision.
    pub fn within<R>(self, work: impl FnOnce() -> R) -> R {
        match (self, MatmulMode::current()) {
            // The exact mode was requested explicitly.
            (_, Ok(MatmulMode::Exact)) => work(),
            (Precision::Tf32, _) => MatmulMode::Tf32.within(work),
            _ => work(),
        }
    }
}

/// Dynamic loss scale for f16: halved when gradients overflow, doubled after 2000 finite
/// steps. Aliases are the names of earlier releases.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LossScale {
    /// Factor of the loss.
    #[serde(alias = "factor")]
    pub scale: f64,
    /// Finite steps since the scale last changed.
    #[serde(alias = "good")]
    pub good_steps: u64,
}

impl LossScale {
    const INITIAL: f64 = 65_536.0;
    const GROWTH_INTERVAL: u64 = 2000;

    /// Initial scale: 1 for all but f16.
    pub fn new(precision: Precision) -> LossScale {
        LossScale { scale: if precision == Precision::F16 { LossScale::INITIAL } else { 1.0 }, good_steps: 0 }
    }

    /// Returns the scale after a step whose gradients were finite or not.
    pub fn updated(self, precision: Precision, finite: bool) -> LossScale {
        match (precision, finite) {
            (Precision::F16, false) => LossScale { scale: (self.scale / 2.0).max(1.0), good_steps: 0 },
            (Precision::F16, true) if self.good_steps + 1 >= LossScale::GROWTH_INTERVAL => {
                LossScale { scale: (self.scale * 2.0).min(2f64.powi(24)), good_steps: 0 }
            }
            (_, true) => LossScale { good_steps: self.good_steps + 1, ..self },
            (_, false) => self,
        }
    }
}
