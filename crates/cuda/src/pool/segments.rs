//! Segments of a heap: got from the backing within the limits, given back when nobody uses them.

use super::Cap;
use super::fault::Fault;
use super::heap::{BlockState, Heap, NO_SLOT, Segment, SizeClass};
use super::observers::PoolEvent;
use super::{Backing, Block};
use crate::Result;

/// Segments are multiples of this, the driver's own page size for large allocations.
pub(super) const SEGMENT_ALIGNMENT: u64 = 2 << 20;
/// Requests from this on get a segment of their own size.
const MIN_DEDICATED_BYTES: u64 = 10 << 20;
/// What large requests below it share.
const SHARED_SEGMENT_BYTES: u64 = 20 << 20;

impl Heap {
    /// Gets a segment that holds `need` bytes, as one free block. `None` when a limit or the device forbids it.
    pub(super) fn reserve(&mut self, backing: &dyn Backing, free_list: u32, need: u64) -> Result<Option<u32>> {
        let Some(exact) = need.checked_next_multiple_of(SEGMENT_ALIGNMENT) else { return Ok(None) };
        let shared = self.free_lists[free_list as usize].class == SizeClass::Large && need < MIN_DEDICATED_BYTES;
        // Where a shared segment no longer fits, one for this request alone still may.
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

    /// Gives segments back while `excess` bytes are too many and there is one that nobody uses; says how many bytes.
    /// A backing's failure does not stop it: the segment is forgotten all the same.
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

    /// The smallest idle segment of at least `wanted` bytes, else the largest.
    fn idle_segment(&self, wanted: u64) -> Option<u32> {
        let whole = |at: &u32| {
            let slot = &self.slots[*at as usize];
            slot.previous == NO_SLOT && slot.next == NO_SLOT
        };
        let idle = || {
            let large = self.free_lists.iter().flat_map(|free_list| free_list.free.range((SEGMENT_ALIGNMENT, 0, 0)..));
            large.filter(|(.., at)| whole(at))
        };
        idle().filter(|(bytes, ..)| *bytes >= wanted).min().or_else(|| idle().max()).map(|&(.., at)| at)
    }

    /// Gives back a segment that is one free block.
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

    /// Gives back what is free above the cache's limit.
    #[inline]
    pub(super) fn trim(&mut self, backing: &dyn Backing) -> Result<()> {
        match self.limits.cache_bytes {
            Some(limit) if self.counters.free > limit && !self.has_fault(Fault::KeepCache) => {
                self.release_idle(backing, |heap| heap.counters.free.saturating_sub(limit)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Gives everything back, once it is no longer used, whatever fails.
    pub(super) fn close(&mut self, backing: &dyn Backing) {
        for at in 0..self.slots.len() as u32 {
            let slot = &self.slots[at as usize];
            if slot.state == Some(BlockState::Live) {
                let stream = self.free_lists[slot.free_list as usize].stream;
                let (address, bytes, serial) = (slot.address, slot.requested, slot.serial);
                let block = Block { address, bytes, serial, slot: at, stream, pool: self.id };
                let _ = self.free(backing, &block);
            }
        }
        // A wait that fails once may succeed again; on a lost device none ever does.
        let _reclaimed = (0..3).any(|_| self.reclaim_pending(backing, true).is_ok());
        let _ = self.release_idle(backing, |_| u64::MAX);
        // What other streams may still use is left to the driver, which takes it back with the process.
        self.queues.discard_events(backing);
    }
}
