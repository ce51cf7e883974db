//! Progress display of data preparation, one bar per phase.

use bornite_nn::data;
use bornite_support::progress::{Progress, Unit};

/// Progress bar of the current phase, such as "tokenizing".
#[derive(Default)]
pub struct DataProgress(Option<(&'static str, Progress)>);

impl DataProgress {
    pub fn update(&mut self, report: data::Progress) {
        if self.0.as_ref().is_none_or(|(doing, _)| *doing != report.doing) {
            self.0 = Some((report.doing, Progress::new(Unit::Percent)));
        }
        if let Some((_, progress)) = &mut self.0 {
            progress.update(report.done, report.total, report.doing);
        }
    }
}
