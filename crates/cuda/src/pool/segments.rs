//! Segments of a heap: reserved from the backing within the limits, and released when unused.

use super::Cap;
use super::fault::Fault;
use super::heap::{BlockState, Heap, NO_SLOT, Segment, SizeClass};
use super::observers::PoolEvent;
use super::{Backing, PoolBlock};
use crate::Result;

/// Alignment of segment sizes, the driver's page size for large allocations.
pub(super) const SEGMENT_ALIGNMENT: u64 = 2 << 20;
/// Minimum size of requests that get a dedicated segment.
const MIN_DEDICATED_BYTES: u64 = 10 << 20;
/// Size of segments that smaller large requests share.
const SHARED_SEGMENT_BYTES: u64 = 20 << 20;

impl Heap {
    /// Reserves a segment for `need` bytes, as one free block; `None` if a limit or the device does
    /// not allow it.
    pub(super) fn reserve(&mut self, backing: &dyn Backing, free_list: u32, need: u64) -> Result<Option<u32>> {
        let Some(exact) = need.checked_next_multiple_of(SEGMENT_ALIGNMENT) else { return Ok(None) };
        let shared = self.free_lists[free_list as usize].class == SizeClass::Large && need < MIN_DEDICATED_BYTES;
        // If a shared segment does not fit, one for this request may.
        let sizes = if shared { [Some(SHARED_SEGMENT_BYTES), Some(exact)] } else { [Some(exact), None] };
        let (cap, _) = Cap::of(&self.limits, self.total_bytes);
        for bytes in sizes.into_iter().flatten() {
            let fits = self.counters.reserved.checked_add(bytes).is_some_and(|sum| sum <= cap);
            if !fits && !self.has_fault(Fault::ExceedLimit) {
                continue;
            }
            if let Some(address) = backing.reserve(bytes)? {
                let first = self.slot(address, bytes, free_list, NO_SLOT, NO_SLOT);
                self.segments.insert(address, Segment { bytes, free_list, first });
                self.counters.reservations += 1;
                self.counters.reserved += bytes;
                self.counters.peak_reserved = self.counters.peak_reserved.max(self.counters.reserved);
                self.add_free(first);
                self.emit(PoolEvent::Reserved { address, bytes, stream: self.free_lists[free_list as usize].stream });
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Releases unused segments while `excess` is above 0, and returns their bytes. A failure of
    /// the backing does not stop it: the segment is dropped anyway.
    pub(super) fn release_idle(&mut self, backing: &dyn Backing, excess: impl Fn(&Heap) -> u64) -> Result<u64> {
        let (mut released, mut failed) = (0, Ok(()));
        loop {
            let excess = excess(self);
            if excess == 0 || self.counters.idle == 0 {
                return failed.map(|()| released);
            }
            let Some(at) = self.idle_segment(excess) else { return failed.map(|()| released) };
            released += self.slots[at as usize].bytes;
            failed = failed.and(self.release(backing, at));
        }
    }

    /// Returns the smallest unused segment of at least `wanted` bytes, else the largest.
    fn idle_segment(&self, wanted: u64) -> Option<u32> {
        let is_idle = |at: &u32| {
            let slot = &self.slots[*at as usize];
            slot.previous == NO_SLOT && slot.next == NO_SLOT
        };
        let idle = || {
            let large = self.free_lists.iter().flat_map(|free_list| free_list.free.range((SEGMENT_ALIGNMENT, 0, 0)..));
            large.filter(|(.., at)| is_idle(at))
        };
        idle().filter(|(bytes, ..)| *bytes >= wanted).min().or_else(|| idle().max()).map(|&(.., at)| at)
    }

    /// Releases a segment that is one free block.
    fn release(&mut self, backing: &dyn Backing, at: u32) -> Result<()> {
        self.remove_free(at);
        let slot = &mut self.slots[at as usize];
        slot.state = None;
        let (address, bytes) = (slot.address, slot.bytes);
        let stream = self.free_lists[slot.free_list as usize].stream;
        self.vacant.push(at);
        self.segments.remove(&address);
        self.counters.releases += 1;
        self.counters.reserved -= bytes;
        self.emit(PoolEvent::Released { address, bytes, stream });
        if self.has_fault(Fault::LeakSegment) {
            return Ok(());
        }
        backing.release(address, bytes, stream)
    }

    /// Releases free memory above the cache limit.
    #[inline]
    pub(super) fn trim(&mut self, backing: &dyn Backing) -> Result<()> {
        match self.limits.cache_bytes {
            Some(limit) if self.counters.free > limit && !self.has_fault(Fault::KeepCache) => {
                self.release_idle(backing, |heap| heap.counters.free.saturating_sub(limit)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Releases everything after its last use, ignoring errors.
    pub(super) fn close(&mut self, backing: &dyn Backing) {
        for at in 0..self.slots.len() as u32 {
            let slot = &self.slots[at as usize];
            if slot.state == Some(BlockState::Live) {
                let stream = self.free_lists[slot.free_list as usize].stream;
                let (address, bytes, serial) = (slot.address, slot.requested, slot.serial);
                let block = PoolBlock { address, bytes, serial, slot: at, stream, pool: self.id };
                let _ = self.free(backing, &block);
            }
        }
        // A failed wait may succeed at a retry; on a lost device none does.
        let _reclaimed = (0..3).any(|_| self.reclaim_pending(backing, true).is_ok());
        let _ = self.release_idle(backing, |_| u64::MAX);
        // Memory that other streams may still use is left to the driver, which frees it with the
        // process.
        self.queues.discard_events(backing);
    }
}
