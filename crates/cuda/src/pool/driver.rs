//! Backing of a pool by the CUDA driver.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self as cu, CUresult};

use super::{Backing, EventId, StreamId};
use crate::api::Driver;
use crate::context::{Context, invalid};
use crate::stream::PooledStream;
use crate::{Device, Error, Result};

/// Segments from `cuMemAlloc` and driver events. Streams are numbered in the order in which they
/// were added; the device's main stream is [`DriverBacking::MAIN`].
pub struct DriverBacking {
    driver: &'static Driver,
    context: Arc<Context>,
    tables: Mutex<HandleTables>,
}

/// Handles by id. Only handles listed here are passed to the driver, so that an invalid id cannot
/// become a wild pointer.
struct HandleTables {
    streams: Vec<cu::CUstream>,
    events: Vec<cu::CUevent>,
    idle_events: Vec<u32>,
    segments: BTreeMap<u64, u64>,
}

// SAFETY: contexts, streams and events are driver handles, which the driver allows any thread to
// use once the context is current there; `bind` makes it so before every call.
unsafe impl Send for DriverBacking {}
// SAFETY: as above; the tables are behind a lock.
unsafe impl Sync for DriverBacking {}

impl DriverBacking {
    /// The device's main stream.
    pub const MAIN: StreamId = StreamId(0);

    /// Creates a backing for an open device, separate from that of its own pool.
    pub fn new(device: &Device) -> DriverBacking {
        DriverBacking::from_context(device.context.clone(), device.stream)
    }

    /// Creates a backing for a context, with its main stream as the first.
    pub(crate) fn from_context(context: Arc<Context>, main: cu::CUstream) -> DriverBacking {
        let tables =
            HandleTables { streams: vec![main], events: vec![], idle_events: vec![], segments: BTreeMap::new() };
        DriverBacking { driver: context.driver, context, tables: Mutex::new(tables) }
    }

    /// Adds a stream, a `CUstream`, and returns its id.
    ///
    /// # Safety
    /// The stream must belong to the device's primary context and live as long as this backing.
    pub unsafe fn add_stream(&self, stream: *mut c_void) -> StreamId {
        let streams = &mut self.tables().streams;
        streams.push(stream.cast());
        StreamId(streams.len() as u32 - 1)
    }

    fn tables(&self) -> MutexGuard<'_, HandleTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        self.context.check(call, result)
    }

    fn bind(&self) -> Result<()> {
        self.context.bind()
    }

    /// Returns a stream by its id.
    pub(crate) fn pooled_stream(&self, id: StreamId) -> Result<PooledStream> {
        Ok(PooledStream { handle: self.stream(id)?, id })
    }

    fn stream(&self, stream: StreamId) -> Result<cu::CUstream> {
        let found = self.tables().streams.get(stream.0 as usize).copied();
        found.ok_or_else(|| unknown("stream", stream.0.into()))
    }

    fn event(&self, event: EventId) -> Result<cu::CUevent> {
        let found = self.tables().events.get(event.0 as usize).copied();
        found.ok_or_else(|| unknown("event", event.0.into()))
    }

    /// Checks that memory is inside one of our segments.
    fn check_in_segment(&self, address: u64, bytes: u64) -> Result<()> {
        let tables = self.tables();
        let inside = tables.segments.range(..=address).next_back().is_some_and(|(start, size)| {
            let offset = address - start;
            offset <= *size && bytes <= *size - offset
        });
        if inside { Ok(()) } else { Err(unknown("address", address)) }
    }

    fn synchronize(&self, stream: cu::CUstream) -> Result<()> {
        // SAFETY: the stream is one of ours and alive.
        self.check("cuStreamSynchronize", unsafe { (self.driver.cuStreamSynchronize)(stream) })
    }
}

fn unknown(what: &str, number: u64) -> Error {
    let text = format!("the pool's backing has no {what} {number:#x}");
    invalid("pool", text)
}

impl Backing for DriverBacking {
    fn name(&self) -> String {
        self.context.info.label()
    }

    fn total_bytes(&self) -> u64 {
        self.context.info.memory_bytes
    }

    fn free_bytes(&self) -> Result<u64> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        self.check("cuMemGetInfo", unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok(free as u64)
    }

    fn reserve(&self, bytes: u64) -> Result<Option<u64>> {
        let Ok(size) = usize::try_from(bytes) else { return Ok(None) };
        self.bind()?;
        let mut address = 0;
        // SAFETY: writes one address.
        let result = unsafe { (self.driver.cuMemAlloc_v2)(&mut address, size) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Ok(None);
        }
        self.check("cuMemAlloc", result)?;
        self.tables().segments.insert(address, bytes);
        Ok(Some(address))
    }

    fn release(&self, address: u64, bytes: u64, stream: StreamId) -> Result<()> {
        let stream = self.stream(stream)?;
        if self.tables().segments.remove(&address) != Some(bytes) {
            return Err(unknown("segment", address));
        }
        self.bind()?;
        // The driver's documentation does not promise that `cuMemFree` waits for work of
        // non-blocking streams.
        let done = self.synchronize(stream);
        // SAFETY: the segment came from `cuMemAlloc` and is freed once, after the work that used
        // it.
        let result = unsafe { (self.driver.cuMemFree_v2)(address) };
        done.and(self.check("cuMemFree", result))
    }

    fn record(&self, stream: StreamId) -> Result<EventId> {
        let stream = self.stream(stream)?;
        self.bind()?;
        let idle = self.tables().idle_events.pop();
        let event = match idle {
            Some(event) => EventId(event),
            None => {
                let mut handle = null_mut();
                let flags = cu::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
                // SAFETY: writes one handle.
                self.check("cuEventCreate", unsafe { (self.driver.cuEventCreate)(&mut handle, flags) })?;
                let events = &mut self.tables().events;
                events.push(handle);
                EventId(events.len() as u32 - 1)
            }
        };
        let handle = self.event(event)?;
        // SAFETY: both handles are ours and alive.
        let recorded = self.check("cuEventRecord", unsafe { (self.driver.cuEventRecord)(handle, stream) });
        if let Err(error) = recorded {
            self.retire(event);
            return Err(error);
        }
        Ok(event)
    }

    fn is_done(&self, event: EventId) -> Result<bool> {
        let handle = self.event(event)?;
        self.bind()?;
        // SAFETY: the event is ours and alive.
        match unsafe { (self.driver.cuEventQuery)(handle) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.check("cuEventQuery", result).map(|()| true),
        }
    }

    fn wait(&self, event: EventId) -> Result<()> {
        let handle = self.event(event)?;
        self.bind()?;
        // SAFETY: the event is ours and alive.
        self.check("cuEventSynchronize", unsafe { (self.driver.cuEventSynchronize)(handle) })
    }

    fn retire(&self, event: EventId) {
        let mut tables = self.tables();
        if (event.0 as usize) < tables.events.len() {
            tables.idle_events.push(event.0);
        }
    }

    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamId) -> Result<()> {
        self.check_in_segment(address, bytes)?;
        let stream = self.stream(stream)?;
        self.bind()?;
        // SAFETY: the bytes lie in a segment of ours, which is released only after this stream's
        // work.
        let result = unsafe { (self.driver.cuMemsetD8Async)(address, value, bytes as usize, stream) };
        self.check("cuMemsetD8Async", result)
    }

    fn first_difference(&self, address: u64, bytes: u64, value: u8, stream: StreamId) -> Result<Option<u64>> {
        self.check_in_segment(address, bytes)?;
        let stream = self.stream(stream)?;
        self.bind()?;
        let mut found = vec![0u8; bytes as usize];
        // SAFETY: the bytes lie in a segment of ours, and `found` holds as many and lives past the
        // synchronisation.
        let result =
            unsafe { (self.driver.cuMemcpyDtoHAsync_v2)(found.as_mut_ptr().cast(), address, bytes as usize, stream) };
        self.check("cuMemcpyDtoHAsync", result)?;
        self.synchronize(stream)?;
        Ok(found.iter().position(|&byte| byte != value).map(|offset| offset as u64))
    }
}

impl Drop for DriverBacking {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            for event in std::mem::take(&mut self.tables().events) {
                // SAFETY: the event was created here and is destroyed once.
                let _ = unsafe { (self.driver.cuEventDestroy_v2)(event) };
            }
        }
    }
}
