//! Streams and events.

use std::sync::Arc;

use cudarc::driver::sys::{self as cu, CUresult};

use bornite_support::time_device_wait;

use crate::{Device, Result, pool};

/// A driver stream with its id in the device's pool.
#[derive(Clone, Copy)]
pub(crate) struct PooledStream {
    pub handle: cu::CUstream,
    pub id: pool::StreamId,
}

/// A sequence of work on a device. Work on different streams may overlap; events order it.
pub struct Stream {
    device: Arc<Device>,
    inner: PooledStream,
    /// If set, the stream is returned to the device when dropped.
    owned: bool,
}

// SAFETY: a stream is a driver handle, which the driver allows any thread to use once the context
// is current there.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a stream. When dropped, it finishes its work and is reused.
    pub fn new(device: &Arc<Device>) -> Result<Stream> {
        Ok(Stream { device: device.clone(), inner: device.take_stream()?, owned: true })
    }

    /// Returns the device's main stream, which is used unless another one is specified.
    pub fn main(device: &Arc<Device>) -> Stream {
        Stream { device: device.clone(), inner: device.main_stream(), owned: false }
    }

    /// Returns the device's stream for host-to-device copies.
    pub fn h2d(device: &Arc<Device>) -> Stream {
        Stream { device: device.clone(), inner: device.copy_streams[0], owned: false }
    }

    /// Returns the device's stream for device-to-host copies.
    pub fn d2h(device: &Arc<Device>) -> Stream {
        Stream { device: device.clone(), inner: device.copy_streams[1], owned: false }
    }

    /// Returns its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns its id in the device's pool.
    pub fn id(&self) -> pool::StreamId {
        self.inner.id
    }

    /// Returns the driver's handle, a `CUstream`, for other libraries.
    pub fn handle(&self) -> *mut std::ffi::c_void {
        self.inner.handle.cast()
    }

    pub(crate) fn raw(&self) -> cu::CUstream {
        self.inner.handle
    }

    /// Waits until all its work is done.
    pub fn synchronize(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: streams are never destroyed.
        let result = time_device_wait(|| unsafe { (self.device.driver.cuStreamSynchronize)(self.raw()) });
        self.device.check("cuStreamSynchronize", result)
    }

    /// Returns true if all its work is done.
    pub fn is_idle(&self) -> Result<bool> {
        self.device.bind()?;
        // SAFETY: streams are never destroyed.
        match unsafe { (self.device.driver.cuStreamQuery)(self.raw()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.device.check("cuStreamQuery", result).map(|()| true),
        }
    }

    /// Makes its later work wait for an event, possibly of another device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.device.bind()?;
        // SAFETY: both handles are alive; the wait is for the event's state now, so that the event
        // may be used again.
        let result = unsafe { (self.device.driver.cuStreamWaitEvent)(self.raw(), event.handle, 0) };
        self.device.check("cuStreamWaitEvent", result)
    }

    /// Makes its later work wait for all work enqueued on another stream so far.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        if self.raw() == other.raw() {
            return Ok(());
        }
        let event = Event::untimed(&other.device)?;
        event.record(other)?;
        self.wait(&event)
    }

    /// Records an event after the work enqueued so far.
    pub fn record(&self) -> Result<Event> {
        let event = Event::timed(&self.device)?;
        event.record(self)?;
        Ok(event)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            self.device.return_stream(self.inner);
        }
    }
}

/// A CUDA event: a point in a stream's work. Before it is recorded, it counts as completed.
pub struct Event {
    device: Arc<Device>,
    handle: cu::CUevent,
    timed: bool,
}

// SAFETY: an event is a driver handle, which the driver allows any thread to use once the context
// is current there.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event that records the time.
    pub fn timed(device: &Arc<Device>) -> Result<Event> {
        Ok(Event { device: device.clone(), handle: device.take_event(true)?, timed: true })
    }

    /// Creates an event without timing, which costs less.
    pub fn untimed(device: &Arc<Device>) -> Result<Event> {
        Ok(Event { device: device.clone(), handle: device.take_event(false)?, timed: false })
    }

    /// Records the event after all work enqueued on a stream so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.record_raw(stream.raw())
    }

    pub(crate) fn record_raw(&self, stream: cu::CUstream) -> Result<()> {
        self.device.bind()?;
        // SAFETY: both handles are alive.
        self.device.check("cuEventRecord", unsafe { (self.device.driver.cuEventRecord)(self.handle, stream) })
    }

    /// Returns true if the work before it is done.
    pub fn is_done(&self) -> Result<bool> {
        self.device.bind()?;
        // SAFETY: the event is alive.
        match unsafe { (self.device.driver.cuEventQuery)(self.handle) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.device.check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Waits until the work before it is done.
    pub fn synchronize(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the event is alive.
        let result = time_device_wait(|| unsafe { (self.device.driver.cuEventSynchronize)(self.handle) });
        self.device.check("cuEventSynchronize", result)
    }

    /// Returns the milliseconds since an earlier event; both must have timing and be done.
    pub fn ms_since(&self, earlier: &Event) -> Result<f64> {
        self.device.bind()?;
        let mut ms = 0.0;
        // SAFETY: writes one number; both events are alive.
        let result = unsafe { (self.device.driver.cuEventElapsedTime_v2)(&mut ms, earlier.handle, self.handle) };
        self.device.check("cuEventElapsedTime", result)?;
        Ok(f64::from(ms))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A stream that waits for it keeps waiting for the recorded state.
        self.device.return_event(self.handle, self.timed);
    }
}
