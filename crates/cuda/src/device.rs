//! An open device: its context, memory pool and streams; and the current device of a thread.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self as cu, CUresult};

use bornite_support::{profile, time_device_wait};

use crate::api::Driver;
use crate::capture::is_capturing;
use crate::context::{Context, LaunchRecord, check, is_sync};
use crate::info::{best_of, check_driver_version, handle};
use crate::pool::{DriverBacking, PoolBlock, PoolSettings};
use crate::staging::Staging;
use crate::stream::PooledStream;
use crate::{DeviceInfo, Error, Event, Pool, Result, Stream, driver_release, driver_version, pool};

/// An open device: the primary context, a memory pool, a main stream and two copy streams.
pub struct Device {
    pub(crate) driver: &'static Driver,
    pub(crate) context: Arc<Context>,
    /// The main stream, used unless another one is specified.
    pub(crate) stream: cu::CUstream,
    /// Stream for captures. Not the main stream: work of another thread must not end up in a
    /// capture.
    capture_stream: cu::CUstream,
    /// Held during a capture: there is one capture stream.
    pub(crate) capture_lock: Mutex<()>,
    /// Streams for copies to the device and from it.
    pub(crate) copy_streams: [PooledStream; 2],
    backing: Arc<DriverBacking>,
    pool: Arc<Pool>,
    /// Streams and events (without and with timing) for reuse.
    idle_streams: Mutex<Vec<PooledStream>>,
    idle_events: [Mutex<Vec<cu::CUevent>>; 2],
    /// Pinned memory for copies of pageable memory; see [`Device::staging`].
    staging: [Staging; 4],
    /// Blocks that a thread freed while it was capturing.
    freed_in_capture: Mutex<Vec<PoolBlock>>,
    /// An error that could not be returned where it occurred.
    deferred_error: Mutex<Option<Error>>,
}

// SAFETY: streams and events are driver handles, which the driver allows any thread to use once the
// context is current there; `bind` makes it so before every call.
unsafe impl Send for Device {}
// SAFETY: as above; what changes is behind locks.
unsafe impl Sync for Device {}

thread_local! {
    /// Ordinal of the current device of this thread.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Returns the device `cuda:ordinal`, opened on first use and never closed.
    pub fn open(ordinal: usize) -> Result<Arc<Device>> {
        static OPEN: Mutex<BTreeMap<usize, Arc<Device>>> = Mutex::new(BTreeMap::new());
        let mut open = lock(&OPEN);
        if let Some(device) = open.get(&ordinal) {
            return Ok(device.clone());
        }
        let device = Arc::new(Device::create(ordinal)?);
        profile::set_device_lister(crate::clock::device_summaries);
        open.insert(ordinal, device.clone());
        Ok(device)
    }

    /// Returns the best device: most memory times multiprocessors; the first of equals.
    pub fn best() -> Result<Arc<Device>> {
        Device::open(best_of(&DeviceInfo::all()?)?)
    }

    /// Returns the current device of this thread: `cuda:0` until [`Device::set_current`].
    pub fn current() -> Result<Arc<Device>> {
        Device::open(CURRENT.get())
    }

    /// Returns the ordinal of the current device of this thread.
    pub fn current_ordinal() -> usize {
        CURRENT.get()
    }

    /// Sets the current device of this thread. If it cannot be opened, nothing changes.
    pub fn set_current(ordinal: usize) -> Result<Arc<Device>> {
        let device = Device::open(ordinal)?;
        CURRENT.set(ordinal);
        Ok(device)
    }

    fn create(ordinal: usize) -> Result<Device> {
        // Settings first: an invalid one should not cost the time to open a device.
        let settings = PoolSettings::from_environment()?;
        is_sync()?;
        let (driver, device) = handle(ordinal)?;
        check_driver_version(driver_version()?, driver_release())?;
        let info = DeviceInfo::query(ordinal)?;
        info.check_supported()?;
        let mut context = null_mut();
        // SAFETY: the call writes one handle, which the next makes current.
        unsafe {
            check(driver, "cuDevicePrimaryCtxRetain", (driver.cuDevicePrimaryCtxRetain)(&mut context, device))?;
            check(driver, "cuCtxSetCurrent", (driver.cuCtxSetCurrent)(context))?;
        }
        let stream = || {
            let mut stream = null_mut();
            let flags = cu::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: writes one handle, of a stream in the context just made current.
            check(driver, "cuStreamCreate", unsafe { (driver.cuStreamCreate)(&mut stream, flags) }).map(|()| stream)
        };
        let context = Arc::new(Context::new(driver, context, info));
        let (main, capture_stream) = (stream()?, stream()?);
        let backing = Arc::new(DriverBacking::from_context(context.clone(), main));
        let pooled_stream = |handle: cu::CUstream| {
            // SAFETY: the stream is of this context and never destroyed.
            let id = unsafe { backing.add_stream(handle.cast()) };
            PooledStream { handle, id }
        };
        let copy_streams = [pooled_stream(stream()?), pooled_stream(stream()?)];
        let pool = Arc::new(Pool::new(backing.clone()));
        pool.apply(&settings)?;
        Ok(Device {
            driver,
            context,
            stream: main,
            capture_stream,
            capture_lock: Mutex::default(),
            copy_streams,
            backing,
            pool,
            idle_streams: Mutex::default(),
            idle_events: Default::default(),
            staging: Default::default(),
            freed_in_capture: Mutex::default(),
            deferred_error: Mutex::default(),
        })
    }

    /// Returns the properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    /// Returns the properties of the device with the memory that is free now.
    pub fn describe(&self) -> Result<DeviceInfo> {
        let (free, _) = self.memory_bytes()?;
        Ok(DeviceInfo { free_memory_bytes: Some(free), ..self.info().clone() })
    }

    /// Returns the memory pool, from which every [`crate::Buffer`] is allocated.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns free and total memory in bytes.
    pub fn memory_bytes(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        self.check("cuMemGetInfo", unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits for all work on the main stream, and returns its errors.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream lives as long as the device.
        let result = time_device_wait(|| unsafe { (self.driver.cuStreamSynchronize)(self.stream) });
        self.check("cuStreamSynchronize", result)?;
        self.take_deferred_error()
    }

    /// Returns the last launches, newest first; at most 16.
    pub fn last_launches(&self) -> Vec<LaunchRecord> {
        self.context.launches()
    }

    /// Returns the number of launches so far: kernels, graphs and library calls, including captured
    /// ones.
    pub fn launch_count(&self) -> u64 {
        self.context.launch_count()
    }

    /// Returns true if this device can access the memory of another directly (peer access).
    pub fn can_access(&self, other: &Device) -> Result<bool> {
        let ((_, own), (_, peer)) = (handle(self.info().ordinal)?, handle(other.info().ordinal)?);
        let mut can = 0;
        // SAFETY: writes one integer; both are devices of this machine.
        self.check("cuDeviceCanAccessPeer", unsafe { (self.driver.cuDeviceCanAccessPeer)(&mut can, own, peer) })?;
        Ok(can != 0)
    }

    /// Runs `work`, which enqueues work on the main stream, waits for it, and returns its time in
    /// milliseconds.
    pub fn timed<R, E: From<Error>>(
        self: &Arc<Device>,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<(R, f64), E> {
        let main = Stream::main(self);
        let (begin, end) = (Event::timed(self)?, Event::timed(self)?);
        begin.record(&main)?;
        let result = work()?;
        end.record(&main)?;
        end.synchronize()?;
        Ok((result, end.ms_since(&begin)?))
    }

    /// Returns the stream for launches and device-to-device copies of this thread: the capture
    /// stream during a capture.
    pub(crate) fn work_stream(&self) -> cu::CUstream {
        if is_capturing(self.info().ordinal) { self.capture_stream } else { self.stream }
    }

    pub(crate) fn capture_stream(&self) -> cu::CUstream {
        self.capture_stream
    }

    /// Fails if this thread is capturing: `call` cannot be part of a graph.
    pub(crate) fn check_not_capturing(&self, call: &'static str) -> Result<()> {
        if is_capturing(self.info().ordinal) { Err(Error::Capturing { call }) } else { Ok(()) }
    }

    /// Makes the device's context current on this thread; fails if the context is lost.
    pub(crate) fn bind(&self) -> Result<()> {
        self.context.bind()
    }

    /// Converts a driver result, and records sticky errors.
    pub(crate) fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        self.context.check(call, result)
    }

    /// Returns a block to the pool, or defers that until this thread's capture has ended: the pool
    /// may need driver calls that would invalidate the capture.
    pub(crate) fn free(&self, block: PoolBlock) -> Result<()> {
        if is_capturing(self.info().ordinal) {
            lock(&self.freed_in_capture).push(block);
            return Ok(());
        }
        self.pool.free(block)
    }

    /// Frees the blocks that were deferred during a capture.
    pub(crate) fn end_capture(&self) {
        for block in std::mem::take(&mut *lock(&self.freed_in_capture)) {
            self.defer_error(self.pool.free(block));
        }
    }

    /// Stores an error that cannot be returned here, for the next allocation or synchronization.
    pub(crate) fn defer_error(&self, result: Result<()>) {
        if let Err(error) = result
            && self.context.check_alive().is_ok()
        {
            lock(&self.deferred_error).get_or_insert(error);
        }
    }

    /// Returns the deferred error, if there is one.
    pub(crate) fn take_deferred_error(&self) -> Result<()> {
        lock(&self.deferred_error).take().map_or(Ok(()), Err)
    }

    /// Returns the staging memory for a stream's copies to the device, or from it. The main stream
    /// has its own: its copies wait for earlier work, and must not block those of other streams.
    pub(crate) fn staging(&self, stream: cu::CUstream, from_device: bool) -> &Staging {
        &self.staging[2 * (stream != self.stream) as usize + from_device as usize]
    }

    /// Returns the main stream.
    pub(crate) fn main_stream(&self) -> PooledStream {
        PooledStream { handle: self.stream, id: DriverBacking::MAIN }
    }

    /// Returns an unused stream, or creates one. Streams are never destroyed, since the pool may
    /// hold memory of them.
    pub(crate) fn take_stream(&self) -> Result<PooledStream> {
        if let Some(pooled_stream) = lock(&self.idle_streams).pop() {
            return Ok(pooled_stream);
        }
        self.bind()?;
        let mut handle = null_mut();
        let flags = cu::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one handle.
        self.check("cuStreamCreate", unsafe { (self.driver.cuStreamCreate)(&mut handle, flags) })?;
        // SAFETY: the stream is of this context and never destroyed.
        Ok(PooledStream { handle, id: unsafe { self.backing.add_stream(handle.cast()) } })
    }

    pub(crate) fn return_stream(&self, pooled_stream: PooledStream) {
        lock(&self.idle_streams).push(pooled_stream);
    }

    /// Returns an unused event, or creates one.
    pub(crate) fn take_event(&self, timed: bool) -> Result<cu::CUevent> {
        if let Some(event) = lock(&self.idle_events[timed as usize]).pop() {
            return Ok(event);
        }
        self.bind()?;
        let mut event = null_mut();
        let flags = if timed { 0 } else { cu::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32 };
        // SAFETY: writes one handle.
        self.check("cuEventCreate", unsafe { (self.driver.cuEventCreate)(&mut event, flags) })?;
        Ok(event)
    }

    pub(crate) fn return_event(&self, event: cu::CUevent, timed: bool) {
        lock(&self.idle_events[timed as usize]).push(event);
    }

    /// Returns a stream by its id in the pool.
    pub(crate) fn pooled_stream(&self, id: pool::StreamId) -> Result<PooledStream> {
        self.backing.pooled_stream(id)
    }
}
