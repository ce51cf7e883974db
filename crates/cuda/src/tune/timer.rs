//! How a candidate's run is timed. A trait, so that the tuner is tested without a GPU and without waiting.

use std::sync::Arc;
use std::time::Instant;

use super::Fallible;
use crate::profile::events::Laps;
use crate::{Device, profile};

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

/// The GPU's own time between two events around the work.
pub struct DeviceTimer {
    laps: Arc<Laps>,
    runs: usize,
    origin: Instant,
}

impl DeviceTimer {
    /// A timer of work that is given to this device.
    pub fn new(device: &Arc<Device>) -> DeviceTimer {
        DeviceTimer::of_runs(device, 1)
    }

    /// A timer of work that does the same thing so many times, of which the time of one is told: a graph of runs, so
    /// that a kernel of microseconds is not measured with the host's launches.
    pub fn of_runs(device: &Arc<Device>, runs: usize) -> DeviceTimer {
        DeviceTimer { laps: Laps::of(device), runs, origin: Instant::now() }
    }
}

impl Timer for DeviceTimer {
    fn time(&mut self, work: &mut dyn FnMut() -> Fallible<()>) -> Fallible<f64> {
        use profile::Lap;
        let Some(mut lap) = self.laps.start()? else { return Err("the device is being captured".into()) };
        work()?;
        lap.stop()?;
        Ok(lap.times()?.duration_ms / self.runs as f64)
    }

    fn now_ms(&mut self) -> f64 {
        self.origin.elapsed().as_secs_f64() * 1e3
    }
}
