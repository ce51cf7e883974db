//! Segments of a heap: got from the backing within the limits, given back when nobody uses them.

use super::Cap;
use super::fault::Fault;
use super::heap::{Class, Heap, NONE, Segment, State};
use super::watch::Happening;
use super::{Backing, Block};
use crate::Result;

/// Segments are multiples of this, the driver's own page size for large allocations.
pub(super) const SEGMENT_GRAIN: u64 = 2 << 20;
/// Requests from this on get a segment of their own size.
const OWN_SEGMENT: u64 = 10 << 20;
/// What large requests below it share.
const SHARED_SEGMENT: u64 = 20 << 20;

impl Heap {
    /// Gets a segment that holds `need` bytes, as one free block. `None` when a limit or the device forbids it.
    pub(super) fn reserve(&mut self, backing: &dyn Backing, lane: u32, need: u64) -> Result<Option<u32>> {
        let Some(exact) = need.checked_next_multiple_of(SEGMENT_GRAIN) else { return Ok(None) };
        let shared = self.lanes[lane as usize].class == Class::Large && need < OWN_SEGMENT;
        // Where a shared segment no longer fits, one for this request alone still may.
        let sizes = if shared { [Some(SHARED_SEGMENT), Some(exact)] } else { [Some(exact), None] };
        let (cap, _) = Cap::of(&self.limits, self.total_bytes);
        for bytes in sizes.into_iter().flatten() {
            let fits = self.counters.reserved.checked_add(bytes).is_some_and(|sum| sum <= cap);
            if !fits && !self.faulty(Fault::ExceedLimit) {
                continue;
            }
            if let Some(address) = backing.reserve(bytes)? {
                let first = self.slot(address, bytes, lane, NONE, NONE);
                self.segments.insert(address, Segment { bytes, lane, first });
                self.counters.reservations += 1;
                self.counters.reserved += bytes;
                self.counters.peak_reserved = self.counters.peak_reserved.max(self.counters.reserved);
                self.list(first);
                self.note(Happening::Reserved { address, bytes, stream: self.lanes[lane as usize].stream });
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Gives segments back while `excess` bytes are too many and there is one that nobody uses; says how many bytes.
    /// A backing's failure does not stop it: the segment is forgotten all the same.
    pub(super) fn shed(&mut self, backing: &dyn Backing, excess: impl Fn(&Heap) -> u64) -> Result<u64> {
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
            slot.previous == NONE && slot.next == NONE
        };
        let idle = || {
            let large = self.lanes.iter().flat_map(|lane| lane.free.range((SEGMENT_GRAIN, 0, 0)..));
            large.filter(|(.., at)| whole(at))
        };
        idle().filter(|(bytes, ..)| *bytes >= wanted).min().or_else(|| idle().max()).map(|&(.., at)| at)
    }

    /// Gives back a segment that is one free block.
    fn release(&mut self, backing: &dyn Backing, at: u32) -> Result<()> {
        self.unlist(at);
        let slot = &mut self.slots[at as usize];
        slot.state = None;
        let (address, bytes) = (slot.address, slot.bytes);
        let stream = self.lanes[slot.lane as usize].stream;
        self.vacant.push(at);
        self.segments.remove(&address);
        self.counters.releases += 1;
        self.counters.reserved -= bytes;
        self.note(Happening::Released { address, bytes, stream });
        if self.faulty(Fault::LeakSegment) {
            return Ok(());
        }
        backing.release(address, bytes, stream)
    }

    /// Gives back what is free above the cache's limit.
    #[inline]
    pub(super) fn trim(&mut self, backing: &dyn Backing) -> Result<()> {
        match self.limits.cache_bytes {
            Some(limit) if self.counters.free > limit && !self.faulty(Fault::KeepCache) => {
                self.shed(backing, |heap| heap.counters.free.saturating_sub(limit)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Gives everything back, once it is no longer used, whatever fails.
    pub(super) fn close(&mut self, backing: &dyn Backing) {
        for at in 0..self.slots.len() as u32 {
            let slot = &self.slots[at as usize];
            if slot.state == Some(State::Live) {
                let stream = self.lanes[slot.lane as usize].stream;
                let (address, bytes, serial) = (slot.address, slot.requested, slot.serial);
                let block = Block { address, bytes, serial, slot: at, stream, pool: self.id };
                let _ = self.free(backing, &block);
            }
        }
        // A wait that fails once may succeed again; on a lost device none ever does.
        let _settled = (0..3).any(|_| self.settle(backing, true).is_ok());
        let _ = self.shed(backing, |_| u64::MAX);
        // What other streams may still use is left to the driver, which takes it back with the process.
        self.queues.abandon(backing);
    }
}
