//! The observer of a run that may have several ranks: rank 0 reports, and all ranks stop after the
//! same step.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::data_parallel::DataParallel;
use super::observer::{Observer, TrainEvent};
use crate::Result;

pub(super) struct RankObserver<'a> {
    inner: &'a mut dyn Observer,
    ranks: Option<&'a DataParallel>,
    /// The run is in its steps, which several ranks end together.
    in_steps: bool,
}

impl<'a> RankObserver<'a> {
    pub fn new(inner: &'a mut dyn Observer, ranks: Option<&'a DataParallel>) -> RankObserver<'a> {
        RankObserver { inner, ranks, in_steps: false }
    }

    /// From now on a stop takes effect where all ranks call [`RankObserver::any_rank_stops`].
    pub fn begin_steps(&mut self) {
        self.in_steps = true;
        if self.ranks.is_some() {
            self.on_unsaved_steps(1);
        }
    }

    /// Returns true if the observer of any rank requests a stop. All ranks must call this.
    pub fn any_rank_stops(&self) -> Result<bool> {
        let requested = self.inner.should_stop();
        self.ranks.map_or(Ok(requested), |ranks| ranks.any(requested))
    }
}

impl Observer for RankObserver<'_> {
    fn on_event(&mut self, event: TrainEvent<'_>) {
        if self.ranks.is_none_or(|ranks| ranks.rank() == 0) {
            self.inner.on_event(event);
        }
    }

    fn should_stop(&self) -> bool {
        !(self.in_steps && self.ranks.is_some()) && self.inner.should_stop()
    }

    fn interrupt_flag(&self) -> Option<Arc<AtomicBool>> {
        self.inner.interrupt_flag().filter(|_| self.ranks.is_none())
    }

    fn on_unsaved_steps(&mut self, steps: u64) {
        // A rank that ends before the others agree would end the job.
        let least = u64::from(self.ranks.is_some());
        self.inner.on_unsaved_steps(steps.max(least));
    }
}
