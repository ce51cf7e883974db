//! Tuning before the first step of a run. Later steps use the choices made then, which are part of
//! every checkpoint, so that a resumed run has the same bits.

use std::time::Instant;

use bornite::Device;
use bornite_support::tune::{TuneMode, Tuner};

use crate::Result;

/// Tuning in a step.
pub(super) struct Tuning {
    tuner: &'static Tuner,
    /// `None` if the step does not tune.
    limit_seconds: Option<f64>,
}

impl Tuning {
    /// Returns the tuning of the step after `steps` steps, with a limit in seconds.
    pub fn after(steps: u64, device: Device, limit_seconds: Option<f64>) -> Result<Tuning> {
        let tuner = Tuner::global().map_err(bornite::Error::from)?;
        let is_first = steps == 0 && device.is_cuda() && tuner.mode() == TuneMode::Cached;
        let limit_seconds = limit_seconds.filter(|seconds| is_first && *seconds > 0.0);
        Ok(Tuning { tuner, limit_seconds })
    }

    /// Runs the step; also returns a note on what was tuned.
    pub fn run<R>(&self, step: impl FnOnce() -> R) -> (R, Option<String>) {
        let Some(seconds) = self.limit_seconds else { return (step(), None) };
        let (started, before) = (Instant::now(), self.tuner.known_records().len());
        let result = self.tuner.within_limit(seconds * 1e3, step);
        let tuned = self.tuner.known_records().len().saturating_sub(before);
        let elapsed = started.elapsed().as_secs_f64();
        let note = format!("first step: {tuned} operations tuned, {elapsed:.1} s; --no-tune disables tuning");
        (result, (tuned > 0).then_some(note))
    }
}
