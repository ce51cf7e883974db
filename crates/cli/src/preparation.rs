//! Progress of preparing data: a display for each phase.

use bornite_nn::data;
use bornite_support::progress::{Progress, Unit};

/// Display of the current phase, such as "tokenising".
#[derive(Default)]
pub struct Preparation(Option<(&'static str, Progress)>);

impl Preparation {
    pub fn update(&mut self, report: data::Progress) {
        if self.0.as_ref().is_none_or(|(doing, _)| *doing != report.doing) {
            self.0 = Some((report.doing, Progress::new(Unit::Percent)));
        }
        if let Some((_, progress)) = &mut self.0 {
            progress.update(report.done, report.total, report.doing);
        }
    }
}
