//! Learning-rate schedule: linear warmup, then decay.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Shape of the learning-rate decay after the warmup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LrDecay {
    /// No decay.
    Constant,
    /// Linear decay.
    Linear,
    /// Half a cosine period.
    #[default]
    Cosine,
}

/// Learning rate as a function of the step: linear warmup to `lr`, then decay to `lr *
/// min_lr_ratio`.
///
/// ```
/// use bornite_nn::optimizer::LrSchedule;
/// let schedule = LrSchedule { lr: 1.0, warmup: 10, ..LrSchedule::default() };
/// assert_eq!(schedule.lr_at(4, 100), 0.5);
/// assert_eq!(schedule.lr_at(99, 100), schedule.min_lr_ratio);
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LrSchedule {
    /// Peak learning rate.
    #[serde(alias = "highest")]
    pub lr: f64,
    /// Learning rate of the last step as a fraction of `lr`.
    #[serde(alias = "lowest")]
    pub min_lr_ratio: f64,
    /// Number of warmup steps.
    pub warmup: u64,
    /// Decay after the warmup.
    #[serde(alias = "fall")]
    pub decay: LrDecay,
}

impl Default for LrSchedule {
    fn default() -> LrSchedule {
        LrSchedule { lr: 6e-4, min_lr_ratio: 0.1, warmup: 0, decay: LrDecay::Cosine }
    }
}

impl LrSchedule {
    /// Learning rate of step `step`, counted from 0, in a run of `total_steps` steps.
    pub fn lr_at(&self, step: u64, total_steps: u64) -> f64 {
        if step < self.warmup {
            return self.lr * (step + 1) as f64 / self.warmup as f64;
        }
        let (decayed_steps, decay_steps) = (step - self.warmup, total_steps.saturating_sub(self.warmup + 1));
        let progress = if decay_steps == 0 { 1.0 } else { (decayed_steps as f64 / decay_steps as f64).min(1.0) };
        let factor = match self.decay {
            LrDecay::Constant => 1.0,
            LrDecay::Linear => 1.0 - progress,
            LrDecay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
        };
        match self.decay {
            LrDecay::Constant => self.lr,
            _ => self.lr * (self.min_lr_ratio + (1.0 - self.min_lr_ratio) * factor),
        }
    }

    /// Validates the values.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        if !(self.lr > 0.0 && self.lr.is_finite()) {
            return Err(Error::config(format!("schedule.lr is {}; it must be above 0", self.lr)));
        }
        if !(0.0..=1.0).contains(&self.min_lr_ratio) {
            return Err(Error::config(format!(
                "schedule.min_lr_ratio is {}; it is a fraction of schedule.lr, from 0 to 1",
                self.min_lr_ratio
            )));
        }
        Ok(())
    }
}
