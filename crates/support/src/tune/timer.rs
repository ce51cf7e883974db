//! Timing of a candidate. A trait, so that tests of the tuner need neither a GPU nor real time.

use std::time::Instant;

use super::Fallible;

/// Measures work.
pub trait Timer {
    /// Runs `work` until it is finished and returns the time in milliseconds.
    fn time(&mut self, work: &mut dyn FnMut() -> Fallible<()>) -> Fallible<f64>;

    /// Milliseconds since a fixed moment, for the time budget.
    fn now_ms(&mut self) -> f64;
}

/// Wall-clock time of work that is finished when it returns.
pub struct HostTimer(Instant);

impl HostTimer {
    /// Creates a timer.
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

/// Creates an exclusive timer.
pub struct ExclusiveTimer<T, L> {
    timer: T,
    lock: L,
}

impl<T: Timer, G, L: Fn() -> G> ExclusiveTimer<T, L> {
    /// Creates an exclusive timer.
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
