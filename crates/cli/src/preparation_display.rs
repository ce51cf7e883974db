//! Progress display of data preparation, one bar per phase.

use bornite_nn::data;
use bornite_support::progress::{ProgressDisplay, Unit};

/// Progress bar of the current phase, such as "tokenizing".
#[derive(Default)]
pub struct PreparationDisplay(Option<(&'static str, ProgressDisplay)>);

impl PreparationDisplay {
    pub fn update(&mut self, report: data::DataProgress) {
        if self.0.as_ref().is_none_or(|(doing, _)| *doing != report.phase) {
            self.0 = Some((report.phase, ProgressDisplay::new(Unit::Percent)));
        }
        if let Some((_, progress)) = &mut self.0 {
            progress.update(report.done, report.total, report.phase);
        }
    }
}
