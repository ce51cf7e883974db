//! Streams, on which work runs in order, and events, points in that order that can be waited for and timed.

use std::sync::Arc;

use cudarc::driver::sys::{self as cu, CUresult};

use bornite_support::time_device_wait;

use crate::{Device, Result, pool};

/// A stream of the driver, and its number at the device's pool.
#[derive(Clone, Copy)]
pub(crate) struct PooledStream {
    pub handle: cu::CUstream,
    pub id: pool::StreamId,
}

/// A sequence of work on a device. Work on different streams may overlap; events order it.
pub struct Stream {
    device: Arc<Device>,
    inner: PooledStream,
    /// Whether it is handed on to the next who asks for a stream.
    owned: bool,
}

// SAFETY: a stream is a driver handle, which the driver allows any thread to use once the context is current there.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of one's own. Dropped, it finishes its work and serves whoever asks next.
    pub fn new(device: &Arc<Device>) -> Result<Stream> {
        Ok(Stream { device: device.clone(), inner: device.take_stream()?, owned: true })
    }

    /// The device's own stream, that of all work which names no other.
    pub fn main(device: &Arc<Device>) -> Stream {
        Stream { device: device.clone(), inner: device.main_stream(), owned: false }
    }

    /// The device's stream for copies to it.
    pub fn h2d(device: &Arc<Device>) -> Stream {
        Stream { device: device.clone(), inner: device.copy_streams[0], owned: false }
    }

    /// The device's stream for copies from it.
    pub fn d2h(device: &Arc<Device>) -> Stream {
        Stream { device: device.clone(), inner: device.copy_streams[1], owned: false }
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its number at the device's pool.
    pub fn id(&self) -> pool::StreamId {
        self.inner.id
    }

    /// The driver's handle, a `CUstream`, for libraries that want one.
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

    /// Whether all its work is done.
    pub fn is_idle(&self) -> Result<bool> {
        self.device.bind()?;
        // SAFETY: streams are never destroyed.
        match unsafe { (self.device.driver.cuStreamQuery)(self.raw()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.device.check("cuStreamQuery", result).map(|()| true),
        }
    }

    /// Has its further work wait until an event has happened, also one of another device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.device.bind()?;
        // SAFETY: both handles are alive; the wait is for the event's state now, so that the event may be used again.
        let result = unsafe { (self.device.driver.cuStreamWaitEvent)(self.raw(), event.handle, 0) };
        self.device.check("cuStreamWaitEvent", result)
    }

    /// Has its further work wait for all that another stream was given so far.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        if self.raw() == other.raw() {
            return Ok(());
        }
        let event = Event::untimed(&other.device)?;
        event.record(other)?;
        self.wait(&event)
    }

    /// Marks the work given to it so far.
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

/// A point in a stream's work. Until it is recorded it counts as done.
pub struct Event {
    device: Arc<Device>,
    handle: cu::CUevent,
    timed: bool,
}

// SAFETY: an event is a driver handle, which the driver allows any thread to use once the context is current there.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that takes the time.
    pub fn timed(device: &Arc<Device>) -> Result<Event> {
        Ok(Event { device: device.clone(), handle: device.take_event(true)?, timed: true })
    }

    /// An event that only orders, which costs less.
    pub fn untimed(device: &Arc<Device>) -> Result<Event> {
        Ok(Event { device: device.clone(), handle: device.take_event(false)?, timed: false })
    }

    /// Puts the event behind all work given to a stream so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.record_raw(stream.raw())
    }

    pub(crate) fn record_raw(&self, stream: cu::CUstream) -> Result<()> {
        self.device.bind()?;
        // SAFETY: both handles are alive.
        self.device.check("cuEventRecord", unsafe { (self.device.driver.cuEventRecord)(self.handle, stream) })
    }

    /// Whether the work before it is done.
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

    /// Milliseconds between an earlier event and this one, both timed, recorded and done.
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
        // A stream that was told to wait for it keeps waiting for what it was then.
        self.device.return_event(self.handle, self.timed);
    }
}
