//! Learning rates over time.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// How the rate falls after the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fall {
    /// It does not.
    Constant,
    /// In a line.
    Linear,
    /// Along half a cosine.
    #[default]
    Cosine,
}

/// A learning rate for each step: up in a line, then down to a part of the highest.
///
/// ```
/// use bornite_nn::optimiser::Rate;
/// let rate = Rate { highest: 1.0, warmup: 10, ..Rate::default() };
/// assert_eq!(rate.at(4, 100), 0.5);
/// assert_eq!(rate.at(99, 100), rate.lowest);
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The highest rate.
    pub highest: f64,
    /// The rate at the last step, as a part of the highest.
    pub lowest: f64,
    /// Steps until the highest rate.
    pub warmup: u64,
    /// How it falls.
    pub fall: Fall,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { highest: 6e-4, lowest: 0.1, warmup: 0, fall: Fall::Cosine }
    }
}

impl Rate {
    /// The rate of a step, counted from 0, of so many.
    pub fn at(&self, step: u64, steps: u64) -> f64 {
        if step < self.warmup {
            return self.highest * (step + 1) as f64 / self.warmup as f64;
        }
        let (past, rest) = (step - self.warmup, steps.saturating_sub(self.warmup + 1));
        let done = if rest == 0 { 1.0 } else { (past as f64 / rest as f64).min(1.0) };
        let part = match self.fall {
            Fall::Constant => 1.0,
            Fall::Linear => 1.0 - done,
            Fall::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
        };
        match self.fall {
            Fall::Constant => self.highest,
            _ => self.highest * (self.lowest + (1.0 - self.lowest) * part),
        }
    }

    /// Refuses what cannot be.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        if !(self.highest > 0.0 && self.highest.is_finite()) {
            return Err(Error::config(format!("rate.highest is {}; it must be above 0", self.highest)));
        }
        if !(0.0..=1.0).contains(&self.lowest) {
            return Err(Error::config(format!("rate.lowest is {}; it is a part of the highest, 0 to 1", self.lowest)));
        }
        Ok(())
    }
}
