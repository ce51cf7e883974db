//! Copies between pageable host memory and a device through a ring of pinned memory: the copy
//! engine transfers one chunk while the host copies the next, and an upload returns before the
//! device has the data.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{null_mut, slice_from_raw_parts_mut};
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self as cu, CUresult};

use bornite_support::time_device_wait;

use crate::{Device, Result};

/// Pinned bytes per ring: 4 chunks, one that the host copies, one in transfer, two of slack.
const RING_BYTES: usize = 16 << 20;
/// Maximum size of one copy: large enough for full bandwidth (PCIe reaches it at 1 MiB), small
/// enough to overlap.
const CHUNK_BYTES: usize = 4 << 20;
/// Alignment of chunks.
const CHUNK_ALIGNMENT: usize = 256;
/// Maximum number of chunks in flight: each has an event.
const MAX_IN_FLIGHT: usize = 256;

/// Byte ranges of a ring that are in flight, oldest first. `T` identifies a copy.
pub(crate) struct Ring<T> {
    bytes: usize,
    head: usize,
    in_flight: VecDeque<(Range<usize>, T)>,
}

impl<T> Ring<T> {
    pub fn new(bytes: usize) -> Ring<T> {
        Ring { bytes, head: 0, in_flight: VecDeque::new() }
    }

    /// Returns a range without copies in flight, at most the ring's size. Completes the copies that
    /// overlap it, oldest first.
    fn claim(
        &mut self,
        bytes: usize,
        mut complete: impl FnMut(&Range<usize>, &T) -> Result<()>,
    ) -> Result<Range<usize>> {
        let bytes = bytes.min(self.bytes);
        let start = if self.head + bytes <= self.bytes { self.head } else { 0 };
        let range = start..start + bytes;
        let overlaps = |busy: &Range<usize>| busy.start < range.end && range.start < busy.end;
        while self.in_flight.len() >= MAX_IN_FLIGHT || self.in_flight.iter().any(|(busy, _)| overlaps(busy)) {
            self.complete_oldest(&mut complete)?;
        }
        Ok(range)
    }

    /// Marks a claimed range as in flight.
    fn mark_in_flight(&mut self, range: Range<usize>, ticket: T) {
        self.head = range.end.next_multiple_of(CHUNK_ALIGNMENT).min(self.bytes);
        self.in_flight.push_back((range, ticket));
    }

    fn complete_oldest(&mut self, complete: &mut impl FnMut(&Range<usize>, &T) -> Result<()>) -> Result<()> {
        if let Some((range, ticket)) = self.in_flight.front() {
            complete(range, ticket)?;
            self.in_flight.pop_front();
        }
        Ok(())
    }
}

/// Moves bytes between the ring's memory and a device.
pub(crate) trait CopyEngine {
    /// Identifies a copy.
    type Ticket;
    /// Returns memory of the ring. Bytes in flight must not be accessed.
    fn memory(&mut self, range: Range<usize>) -> &mut [u8];
    /// Starts a copy to the device, at the offset `at` of the data.
    fn send(&mut self, range: Range<usize>, at: usize) -> Result<Self::Ticket>;
    /// Starts a copy from the device, at the offset `at` of the data.
    fn fetch(&mut self, range: Range<usize>, at: usize) -> Result<Self::Ticket>;
    /// Waits until a copy is done.
    fn wait(&mut self, ticket: &Self::Ticket) -> Result<()>;
    /// Releases a ticket.
    fn retire(&mut self, ticket: &Self::Ticket);
}

/// Starts copying `data` to the device; `data` may be changed when this returns.
pub(crate) fn upload<E: CopyEngine>(ring: &mut Ring<E::Ticket>, engine: &mut E, data: &[u8]) -> Result<()> {
    let chunk_bytes = CHUNK_BYTES.min(ring.bytes);
    for (n, chunk) in data.chunks(chunk_bytes).enumerate() {
        let range = ring.claim(chunk.len(), |_, ticket| {
            engine.wait(ticket)?;
            engine.retire(ticket);
            Ok(())
        })?;
        engine.memory(range.clone()).copy_from_slice(chunk);
        let ticket = engine.send(range.clone(), n * chunk_bytes)?;
        ring.mark_in_flight(range, ticket);
    }
    Ok(())
}

/// Copies from the device; `out` is complete when this returns.
pub(crate) fn download<E: CopyEngine>(
    ring: &mut Ring<(E::Ticket, usize)>,
    engine: &mut E,
    out: &mut [u8],
) -> Result<()> {
    let chunk_bytes = CHUNK_BYTES.min(ring.bytes);
    let (total, mut at) = (out.len(), 0);
    // After a failure the remaining copies are discarded.
    let mut complete = |engine: &mut E, range: &Range<usize>, (ticket, at): &(E::Ticket, usize)| {
        let done = engine.wait(ticket);
        engine.retire(ticket);
        done?;
        out[*at..at + range.len()].copy_from_slice(engine.memory(range.clone()));
        Ok(())
    };
    let mut copied = Ok(());
    while at < total && copied.is_ok() {
        let bytes = chunk_bytes.min(total - at);
        copied = ring.claim(bytes, |range, ticket| complete(engine, range, ticket)).and_then(|range| {
            let ticket = engine.fetch(range.clone(), at)?;
            ring.mark_in_flight(range, (ticket, at));
            Ok(())
        });
        at += bytes;
    }
    while copied.is_ok() && !ring.in_flight.is_empty() {
        copied = ring.complete_oldest(&mut |range, ticket| complete(engine, range, ticket));
    }
    if copied.is_err() {
        // Copies in flight write only to the ring; wait for them before it is reused.
        for (_, (ticket, _)) in ring.in_flight.drain(..) {
            let _ = engine.wait(&ticket);
            engine.retire(&ticket);
        }
    }
    copied
}

/// Pinned memory for staging, allocated on first use.
#[derive(Default)]
pub(crate) struct Staging(Mutex<Option<PinnedRings>>);

struct PinnedRings {
    base: *mut c_void,
    up: Ring<cu::CUevent>,
    down: Ring<(cu::CUevent, usize)>,
    idle: Vec<cu::CUevent>,
}

// SAFETY: the memory is process-wide, and only accessed with the lock held.
unsafe impl Send for PinnedRings {}

impl Staging {
    /// Starts copying `data` to `address` in stream order.
    ///
    /// # Safety
    /// `address` must have `data.len()` bytes until the copy in the stream is done.
    pub unsafe fn upload(&self, device: &Device, stream: cu::CUstream, address: u64, data: &[u8]) -> Result<()> {
        self.with(device, stream, address, |pinned, engine| upload(&mut pinned.up, engine, data))
    }

    /// Copies from `address` in stream order, and waits.
    ///
    /// # Safety
    /// `address` must have `out.len()` bytes.
    pub unsafe fn download(&self, device: &Device, stream: cu::CUstream, address: u64, out: &mut [u8]) -> Result<()> {
        self.with(device, stream, address, |pinned, engine| download(&mut pinned.down, engine, out))
    }

    fn with(
        &self,
        device: &Device,
        stream: cu::CUstream,
        address: u64,
        work: impl FnOnce(&mut PinnedRings, &mut DriverEngine<'_>) -> Result<()>,
    ) -> Result<()> {
        device.bind()?;
        let mut pinned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pinned = match &mut *pinned {
            Some(pinned) => pinned,
            none => {
                let mut base = null_mut();
                let flags = cu::CU_MEMHOSTALLOC_PORTABLE;
                // SAFETY: writes one address.
                let result = unsafe { (device.driver.cuMemHostAlloc)(&mut base, RING_BYTES, flags) };
                device.check("cuMemHostAlloc", result)?;
                none.insert(PinnedRings { base, up: Ring::new(RING_BYTES), down: Ring::new(RING_BYTES), idle: vec![] })
            }
        };
        let idle = std::mem::take(&mut pinned.idle);
        let mut engine = DriverEngine { device, stream, address, base: pinned.base, idle };
        let result = work(pinned, &mut engine);
        pinned.idle = engine.idle;
        result
    }
}

struct DriverEngine<'a> {
    device: &'a Device,
    stream: cu::CUstream,
    address: u64,
    base: *mut c_void,
    idle: Vec<cu::CUevent>,
}

impl DriverEngine<'_> {
    /// Returns the host address of a range of the ring.
    fn staging_address(&self, range: &Range<usize>) -> *mut c_void {
        self.base.cast::<u8>().wrapping_add(range.start).cast()
    }

    /// Returns an event after all work of the stream so far.
    fn ticket(&mut self, call: &'static str, copied: CUresult) -> Result<cu::CUevent> {
        self.device.check(call, copied)?;
        self.recorded().inspect_err(|_| {
            // Without the event the end of the copy is unknown: wait now.
            // SAFETY: the stream is alive.
            let _ = unsafe { (self.device.driver.cuStreamSynchronize)(self.stream) };
        })
    }

    fn recorded(&mut self) -> Result<cu::CUevent> {
        let event = match self.idle.pop() {
            Some(event) => event,
            None => self.device.take_event(false)?,
        };
        // SAFETY: both handles are alive.
        let recorded = unsafe { (self.device.driver.cuEventRecord)(event, self.stream) };
        self.device.check("cuEventRecord", recorded).map(|()| event)
    }
}

impl CopyEngine for DriverEngine<'_> {
    type Ticket = cu::CUevent;

    fn memory(&mut self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: a claimed range lies inside the ring's memory, which lives as long as the process
        // and is not in use by a copy, and the lock is held.
        unsafe { &mut *slice_from_raw_parts_mut(self.staging_address(&range).cast(), range.len()) }
    }

    fn send(&mut self, range: Range<usize>, at: usize) -> Result<cu::CUevent> {
        let (from, to) = (self.staging_address(&range), self.address + at as u64);
        // SAFETY: the bytes are pinned and not changed until the copy is done; the caller
        // guarantees the address.
        let copied = unsafe { (self.device.driver.cuMemcpyHtoDAsync_v2)(to, from, range.len(), self.stream) };
        self.ticket("cuMemcpyHtoDAsync", copied)
    }

    fn fetch(&mut self, range: Range<usize>, at: usize) -> Result<cu::CUevent> {
        let (to, from) = (self.staging_address(&range), self.address + at as u64);
        // SAFETY: as in `send`, with the directions exchanged.
        let copied = unsafe { (self.device.driver.cuMemcpyDtoHAsync_v2)(to, from, range.len(), self.stream) };
        self.ticket("cuMemcpyDtoHAsync", copied)
    }

    fn wait(&mut self, event: &cu::CUevent) -> Result<()> {
        // SAFETY: the event is alive.
        let result = time_device_wait(|| unsafe { (self.device.driver.cuEventSynchronize)(*event) });
        self.device.check("cuEventSynchronize", result)
    }

    fn retire(&mut self, event: &cu::CUevent) {
        self.idle.push(*event);
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
