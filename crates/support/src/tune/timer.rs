//! Timing of a candidate's run. A trait, so that tests of the tuner need no GPU and no waiting.

use std::time::Instant;

use super::Fallible;

/// Measures work.
pub trait Timer {
    /// Runs `work` to its end and says how many milliseconds it took.
    fn time(&mut self, work: &mut dyn FnMut() -> Fallible<()>) -> Fallible<f64>;

    /// Milliseconds since any fixed moment: what the time budget is measured by.
    fn now_ms(&mut self) -> f64;
}

/// Wall-clock time of work that is done when it returns.
pub struct HostTimer(Instant);

impl HostTimer {
    /// A timer.
    pub fn new() -> HostTimer {
        HostTimer(Instant::now())
    }
}

impl Default for HostTimer {
    fn default() -> HostTimer {
        HostTimer::new()
    }
}

impl Timer for HostTimer {
    fn time(&mut self, work: &mut dyn FnMut() -> Fallible<()>) -> Fallible<f64> {
        let start = Instant::now();
        work()?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    fn now_ms(&mut self) -> f64 {
        self.0.elapsed().as_secs_f64() * 1e3
    }
}

/// A timer of which each run has the device to itself: it holds what `lock` returns, and between runs others go on.
pub struct ExclusiveTimer<T, L> {
    timer: T,
    lock: L,
}

impl<T: Timer, G, L: Fn() -> G> ExclusiveTimer<T, L> {
    /// A timer whose runs are exclusive.
    pub fn new(timer: T, lock: L) -> ExclusiveTimer<T, L> {
        ExclusiveTimer { timer, lock }
    }
}

impl<T: Timer, G, L: Fn() -> G> Timer for ExclusiveTimer<T, L> {
    fn time(&mut self, work: &mut dyn FnMut() -> Fallible<()>) -> Fallible<f64> {
        let _exclusive = (self.lock)();
        self.timer.time(work)
    }

    fn now_ms(&mut self) -> f64 {
        self.timer.now_ms()
    }
}
