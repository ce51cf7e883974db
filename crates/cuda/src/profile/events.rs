//! A GPU's clock: pairs of driver events around work, taken from a pool and read when somebody asks.

use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys as cu;

use super::{Clock, Lap, MemorySample, Times, now_ms};
use crate::pool::Stats;
use crate::{Device, Result};

/// Times work given to an open GPU.
pub struct DeviceClock<'a>(pub &'a Arc<Device>);

impl Clock for DeviceClock<'_> {
    fn device(&self) -> String {
        format!("cuda:{}", self.0.info().ordinal)
    }

    fn start(&self) -> Result<Option<Box<dyn Lap>>> {
        Ok(Laps::of(self.0).start()?.map(|lap| Box::new(lap) as Box<dyn Lap>))
    }

    fn memory(&self) -> Option<MemorySample> {
        let stats = self.0.pool().stats();
        Some(MemorySample {
            device: self.device(),
            at_ms: now_ms(),
            used_bytes: stats.allocated,
            reserved_bytes: Some(stats.reserved),
        })
    }
}

impl Device {
    /// Whether this thread's work is being captured: then nothing may be timed, tuned or waited for.
    pub fn is_capturing(&self) -> bool {
        crate::capture::capturing(self.info().ordinal)
    }
}

/// The events of one device.
pub(crate) struct Laps {
    device: Arc<Device>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Event>,
    origin: Option<Origin>,
}

/// A moment known on both the GPU's clock and ours.
#[derive(Clone, Copy)]
struct Origin {
    event: Event,
    at_ms: f64,
}

#[derive(Clone, Copy)]
struct Event(cu::CUevent);

// SAFETY: an event is a driver handle, which any thread may use once the context is current there; `bind` makes it so.
unsafe impl Send for Event {}

/// Work between two events.
pub(crate) struct DeviceLap {
    laps: Arc<Laps>,
    start: Event,
    stop: Event,
}

static ALL: Mutex<BTreeMap<usize, Arc<Laps>>> = Mutex::new(BTreeMap::new());

/// The pools of all GPUs that were ever timed.
pub(super) fn pool_stats() -> Vec<(String, Stats)> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().map(|(ordinal, laps)| (format!("cuda:{ordinal}"), laps.device.pool().stats())).collect()
}

impl Laps {
    /// The device's events, kept for the life of the process as the device itself is.
    pub fn of(device: &Arc<Device>) -> Arc<Laps> {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || Arc::new(Laps { device: device.clone(), state: Mutex::default() });
        all.entry(device.info().ordinal).or_insert_with(make).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a measurement on the stream that this thread's work goes to; `None` while it captures, since events of a
    /// capture have no times.
    pub fn start(self: &Arc<Laps>) -> Result<Option<DeviceLap>> {
        let device = &self.device;
        if device.is_capturing() {
            return Ok(None);
        }
        device.bind()?;
        self.set_origin()?;
        let lap = DeviceLap { laps: self.clone(), start: self.take()?, stop: self.take()? };
        self.record(lap.start)?;
        Ok(Some(lap))
    }

    /// Ties the GPU's clock to ours, once, while nothing is measured yet.
    fn set_origin(&self) -> Result<()> {
        if self.state().origin.is_some() {
            return Ok(());
        }
        let (device, event) = (&self.device, self.take()?);
        device.synchronize()?;
        self.record(event)?;
        // SAFETY: the event is ours.
        device.check("cuEventSynchronize", unsafe { (device.driver.cuEventSynchronize)(event.0) })?;
        self.state().origin.get_or_insert(Origin { event, at_ms: now_ms() });
        Ok(())
    }

    fn take(&self) -> Result<Event> {
        if let Some(event) = self.state().idle.pop() {
            return Ok(event);
        }
        let mut event = null_mut();
        let flags = cu::CUevent_flags_enum::CU_EVENT_DEFAULT as u32;
        // SAFETY: writes one handle; the context is current.
        self.device.check("cuEventCreate", unsafe { (self.device.driver.cuEventCreate)(&mut event, flags) })?;
        Ok(Event(event))
    }

    fn record(&self, event: Event) -> Result<()> {
        let device = &self.device;
        // SAFETY: event and stream belong to the context that is current.
        device.check("cuEventRecord", unsafe { (device.driver.cuEventRecord)(event.0, device.work_stream()) })
    }

    fn between_ms(&self, from: Event, to: Event) -> Result<f64> {
        let (device, mut ms) = (&self.device, 0.0);
        // SAFETY: writes one number; both events were recorded and are done.
        let result = unsafe { (device.driver.cuEventElapsedTime_v2)(&mut ms, from.0, to.0) };
        device.check("cuEventElapsedTime", result).map(|()| f64::from(ms))
    }
}

impl Lap for DeviceLap {
    fn stop(&mut self) -> Result<()> {
        self.laps.device.bind()?;
        self.laps.record(self.stop)
    }

    fn times(&mut self) -> Result<Times> {
        let device = &self.laps.device;
        device.bind()?;
        // SAFETY: the event is ours and recorded.
        device.check("cuEventSynchronize", unsafe { (device.driver.cuEventSynchronize)(self.stop.0) })?;
        let duration_ms = self.laps.between_ms(self.start, self.stop)?;
        let origin = self.laps.state().origin;
        // The driver gives 32-bit milliseconds: far from the origin they are too coarse for durations, not for places.
        let start_ms = match origin {
            Some(origin) => origin.at_ms + self.laps.between_ms(origin.event, self.start)?,
            None => 0.0,
        };
        Ok(Times { start_ms, duration_ms })
    }
}

impl Drop for DeviceLap {
    fn drop(&mut self) {
        self.laps.state().idle.extend([self.start, self.stop]);
    }
}
