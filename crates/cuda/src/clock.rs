//! GPU timing: pairs of driver events around work, taken from a pool and read on demand. Used by
//! the profiler and the tuner.

use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cudarc::driver::sys as cu;

use bornite_support::Error as SupportError;
use bornite_support::profile::{Clock, DeviceSummary, MemorySample, Stopwatch, Times, now_ms};
use bornite_support::tune::{Fallible, Platform, Timer};

use crate::{Device, DeviceInfo, Result, roofline};

/// Times work on an open GPU.
pub struct DeviceClock<'a>(pub &'a Arc<Device>);

impl Clock for DeviceClock<'_> {
    fn device(&self) -> String {
        format!("cuda:{}", self.0.info().ordinal)
    }

    fn start(&self) -> bornite_support::Result<Option<Box<dyn Stopwatch>>> {
        let stopwatch = EventPool::of(self.0).start().map_err(timing_failed)?;
        Ok(stopwatch.map(|stopwatch| Box::new(stopwatch) as Box<dyn Stopwatch>))
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
    /// Returns true if this thread is capturing on the device: then nothing may be timed, tuned or
    /// waited for.
    pub fn is_capturing(&self) -> bool {
        crate::capture::is_capturing(self.info().ordinal)
    }
}

/// Timing events of one device.
pub(crate) struct EventPool {
    device: Arc<Device>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Event>,
    origin: Option<Origin>,
}

/// A moment on both the GPU's and the host's clock.
#[derive(Clone, Copy)]
struct Origin {
    event: Event,
    at_ms: f64,
}

#[derive(Clone, Copy)]
struct Event(cu::CUevent);

// SAFETY: an event is a driver handle, which any thread may use once the context is current there;
// `bind` makes it so.
unsafe impl Send for Event {}

/// A measurement between two events.
pub(crate) struct DeviceStopwatch {
    events: Arc<EventPool>,
    start: Event,
    stop: Event,
}

static EVENT_POOLS: Mutex<BTreeMap<usize, Arc<EventPool>>> = Mutex::new(BTreeMap::new());

fn timing_failed(error: crate::Error) -> SupportError {
    SupportError::TimingFailed(error.to_string())
}

/// Describes all GPUs of the machine, for the profiler's reports.
pub(crate) fn device_summaries() -> Vec<DeviceSummary> {
    let count = crate::device_count().unwrap_or(0);
    let pools = EVENT_POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let one = |ordinal: usize| {
        let info = DeviceInfo::query(ordinal).ok()?;
        // Known for GPUs that were timed.
        let pool = pools.get(&ordinal).and_then(|events| serde_json::to_value(events.device.pool().stats()).ok());
        let (device, name, roofline) = (format!("cuda:{ordinal}"), info.name.clone(), roofline(&info));
        Some(DeviceSummary { device, name, info: serde_json::to_value(&info).unwrap_or_default(), roofline, pool })
    };
    (0..count).filter_map(one).collect()
}

/// Returns the platform in tuning keys: an open GPU, the driver and NVRTC.
pub fn platform(device: &Device) -> Result<Platform> {
    let (major, minor) = crate::driver_version()?;
    let mut platform = Platform::named(&device.info().name);
    platform.driver = format!("{major}.{minor}");
    platform.libraries.insert("nvrtc".into(), crate::nvrtc_build_id()?);
    Ok(platform)
}

impl EventPool {
    /// Returns the events of a device, which live as long as the process.
    pub fn of(device: &Arc<Device>) -> Arc<EventPool> {
        let mut pools = EVENT_POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || Arc::new(EventPool { device: device.clone(), state: Mutex::default() });
        pools.entry(device.info().ordinal).or_insert_with(make).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a measurement on this thread's work stream; `None` during a capture, since captured
    /// events have no times.
    pub fn start(self: &Arc<EventPool>) -> Result<Option<DeviceStopwatch>> {
        let device = &self.device;
        if device.is_capturing() {
            return Ok(None);
        }
        device.bind()?;
        self.set_origin()?;
        let stopwatch = DeviceStopwatch { events: self.clone(), start: self.take()?, stop: self.take()? };
        self.record(stopwatch.start)?;
        Ok(Some(stopwatch))
    }

    /// Relates the GPU's clock to the host's, once, before the first measurement.
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

    fn elapsed_ms(&self, from: Event, to: Event) -> Result<f64> {
        let (device, mut ms) = (&self.device, 0.0);
        // SAFETY: writes one number; both events were recorded and are done.
        let result = unsafe { (device.driver.cuEventElapsedTime_v2)(&mut ms, from.0, to.0) };
        device.check("cuEventElapsedTime", result).map(|()| f64::from(ms))
    }
}

impl Stopwatch for DeviceStopwatch {
    fn stop(&mut self) -> bornite_support::Result<()> {
        self.events.device.bind().and_then(|()| self.events.record(self.stop)).map_err(timing_failed)
    }

    fn times(&mut self) -> bornite_support::Result<Times> {
        self.read_times().map_err(timing_failed)
    }
}

impl DeviceStopwatch {
    fn read_times(&self) -> Result<Times> {
        let device = &self.events.device;
        device.bind()?;
        // SAFETY: the event is ours and recorded.
        device.check("cuEventSynchronize", unsafe { (device.driver.cuEventSynchronize)(self.stop.0) })?;
        let duration_ms = self.events.elapsed_ms(self.start, self.stop)?;
        let origin = self.events.state().origin;
        // The driver returns f32 milliseconds: far from the origin they are too coarse for
        // durations, but not for start times.
        let start_ms = match origin {
            Some(origin) => origin.at_ms + self.events.elapsed_ms(origin.event, self.start)?,
            None => 0.0,
        };
        Ok(Times { start_ms, duration_ms })
    }
}

impl Drop for DeviceStopwatch {
    fn drop(&mut self) {
        self.events.state().idle.extend([self.start, self.stop]);
    }
}

/// Timer that measures the GPU time between two events around the work.
pub struct DeviceTimer {
    events: Arc<EventPool>,
    runs: usize,
    origin: Instant,
}

impl DeviceTimer {
    /// Creates a timer for a device.
    pub fn new(device: &Arc<Device>) -> DeviceTimer {
        DeviceTimer::with_repeats(device, 1)
    }

    /// Creates a timer for work that repeats the same thing `runs` times; it returns the time of
    /// one run. A graph of several runs avoids that the host's launch overhead dominates a kernel
    /// of microseconds.
    pub fn with_repeats(device: &Arc<Device>, runs: usize) -> DeviceTimer {
        DeviceTimer { events: EventPool::of(device), runs, origin: Instant::now() }
    }
}

impl Timer for DeviceTimer {
    fn time(&mut self, work: &mut dyn FnMut() -> Fallible<()>) -> Fallible<f64> {
        let Some(mut stopwatch) = self.events.start()? else { return Err("the stream is being captured".into()) };
        work()?;
        stopwatch.stop()?;
        Ok(stopwatch.times()?.duration_ms / self.runs as f64)
    }

    fn now_ms(&mut self) -> f64 {
        self.origin.elapsed().as_secs_f64() * 1e3
    }
}
