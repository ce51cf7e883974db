//! An open device: its context, its memory pool, its streams, and which device a thread works on.

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
use crate::pool::{Block, DriverBacking, PoolSettings};
use crate::staging::Staging;
use crate::stream::PooledStream;
use crate::{DeviceInfo, Error, Event, Pool, Result, Stream, driver_release, driver_version, pool};

/// An open device: the primary context, a memory pool, one stream for work and two for copies beside it.
pub struct Device {
    pub(crate) driver: &'static Driver,
    pub(crate) context: Arc<Context>,
    /// Where everything is ordered that does not ask for another stream.
    pub(crate) stream: cu::CUstream,
    /// Where a captured sequence is recorded. Not `stream`: another thread's work must not end up in a capture.
    capture_stream: cu::CUstream,
    /// Held while a thread captures: there is one capture stream.
    pub(crate) capture_lock: Mutex<()>,
    /// For copies to the device and from it.
    pub(crate) copy_streams: [PooledStream; 2],
    backing: Arc<DriverBacking>,
    pool: Arc<Pool>,
    /// Streams and events (without and with timing) to be used again.
    idle_streams: Mutex<Vec<PooledStream>>,
    idle_events: [Mutex<Vec<cu::CUevent>>; 2],
    /// Pinned memory through which plain memory travels to the device and from it; see [`Device::staging`].
    staging: [Staging; 4],
    /// Blocks freed by a thread while it captured.
    freed_in_capture: Mutex<Vec<Block>>,
    /// An error met where nobody could be told.
    deferred_error: Mutex<Option<Error>>,
}

// SAFETY: streams and events are driver handles, which the driver allows any thread to use once the context is current
// there; `bind` makes it so before every call.
unsafe impl Send for Device {}
// SAFETY: as above; what changes is behind locks.
unsafe impl Sync for Device {}

thread_local! {
    /// The device that this thread works on unless it says otherwise.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// The device `cuda:ordinal`, opened on first use and kept open.
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

    /// The best device here: most memory times multiprocessors, of equals the first.
    pub fn best() -> Result<Arc<Device>> {
        Device::open(best_of(&DeviceInfo::all()?)?)
    }

    /// The device this thread works on: `cuda:0` until [`Device::set_current`].
    pub fn current() -> Result<Arc<Device>> {
        Device::open(CURRENT.get())
    }

    /// The number of the device this thread works on.
    pub fn current_ordinal() -> usize {
        CURRENT.get()
    }

    /// Has this thread work on another device. If that cannot be opened, nothing changes.
    pub fn set_current(ordinal: usize) -> Result<Arc<Device>> {
        let device = Device::open(ordinal)?;
        CURRENT.set(ordinal);
        Ok(device)
    }

    fn create(ordinal: usize) -> Result<Device> {
        // Settings first: a typing error there should not cost the opening of a device.
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
        // SAFETY: the stream is of this context and never destroyed.
        let pooled_stream =
            |handle: cu::CUstream| PooledStream { handle, id: unsafe { backing.add_stream(handle.cast()) } };
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

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    /// What the device is, with the memory that is free now.
    pub fn describe(&self) -> Result<DeviceInfo> {
        let (free, _) = self.memory_bytes()?;
        Ok(DeviceInfo { free_memory_bytes: Some(free), ..self.info().clone() })
    }

    /// The device's memory pool, from which every [`crate::Buffer`] comes.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Free and total memory.
    pub fn memory_bytes(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        self.check("cuMemGetInfo", unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits until all work given to the device's own stream is done, and reports what went wrong in it.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream lives as long as the device.
        let result = time_device_wait(|| unsafe { (self.driver.cuStreamSynchronize)(self.stream) });
        self.check("cuStreamSynchronize", result)?;
        self.take_deferred_error()
    }

    /// The last launches, newest first; 16 at most.
    pub fn last_launches(&self) -> Vec<LaunchRecord> {
        self.context.launches()
    }

    /// How many launches there were so far, of kernels, graphs and library calls, captured ones among them.
    pub fn launch_count(&self) -> u64 {
        self.context.launch_count()
    }

    /// Whether copies between this device and another go straight from one to the other.
    pub fn can_access(&self, other: &Device) -> Result<bool> {
        let ((_, own), (_, peer)) = (handle(self.info().ordinal)?, handle(other.info().ordinal)?);
        let mut can = 0;
        // SAFETY: writes one integer; both are devices of this machine.
        self.check("cuDeviceCanAccessPeer", unsafe { (self.driver.cuDeviceCanAccessPeer)(&mut can, own, peer) })?;
        Ok(can != 0)
    }

    /// Runs `work`, which gives things to the device's own stream, waits for them, and says how many milliseconds they
    /// took there.
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

    /// The stream for launches and device-to-device copies of this thread: the capture's while it captures.
    pub(crate) fn work_stream(&self) -> cu::CUstream {
        if is_capturing(self.info().ordinal) { self.capture_stream } else { self.stream }
    }

    pub(crate) fn capture_stream(&self) -> cu::CUstream {
        self.capture_stream
    }

    /// Refuses on a thread that captures: what `call` does cannot be part of a graph.
    pub(crate) fn check_not_capturing(&self, call: &'static str) -> Result<()> {
        if is_capturing(self.info().ordinal) { Err(Error::Capturing { call }) } else { Ok(()) }
    }

    /// Makes the device's context current on this thread; refuses if the context is lost.
    pub(crate) fn bind(&self) -> Result<()> {
        self.context.bind()
    }

    /// Turns a driver result into ours and remembers errors that no later call can recover from.
    pub(crate) fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        self.context.check(call, result)
    }

    /// Gives a block back to the pool, or keeps it until this thread's capture is over: the pool may have to call the
    /// driver in ways that would break the capture.
    pub(crate) fn free(&self, block: Block) -> Result<()> {
        if is_capturing(self.info().ordinal) {
            lock(&self.freed_in_capture).push(block);
            return Ok(());
        }
        self.pool.free(block)
    }

    /// Frees what was kept while capturing.
    pub(crate) fn end_capture(&self) {
        for block in std::mem::take(&mut *lock(&self.freed_in_capture)) {
            self.defer_error(self.pool.free(block));
        }
    }

    /// Keeps an error that cannot be returned where it is met, for the next who allocates or waits.
    pub(crate) fn defer_error(&self, result: Result<()>) {
        if let Err(error) = result
            && self.context.check_alive().is_ok()
        {
            lock(&self.deferred_error).get_or_insert(error);
        }
    }

    /// Returns an error that was kept.
    pub(crate) fn take_deferred_error(&self) -> Result<()> {
        lock(&self.deferred_error).take().map_or(Ok(()), Err)
    }

    /// The staging memory for a stream's copies to the device, or from it. The device's own stream has some for itself:
    /// copies that wait there must not hold up those beside it.
    pub(crate) fn staging(&self, stream: cu::CUstream, from_device: bool) -> &Staging {
        &self.staging[2 * (stream != self.stream) as usize + from_device as usize]
    }

    /// The device's own stream.
    pub(crate) fn main_stream(&self) -> PooledStream {
        PooledStream { handle: self.stream, id: DriverBacking::MAIN }
    }

    /// A stream that nobody uses: one given back before, or a new one. None is ever destroyed, since the pool may hold
    /// memory of it.
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

    /// An event that nobody uses.
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

    /// The stream of a number that the pool knows.
    pub(crate) fn pooled_stream(&self, id: pool::StreamId) -> Result<PooledStream> {
        self.backing.pooled_stream(id)
    }
}
