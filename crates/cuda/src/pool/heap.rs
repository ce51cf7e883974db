//! Allocator of blocks within segments: best fit, split, merge. Runs under the pool's lock and
//! calls only the backing.
//!
//! A segment belongs to one stream and size class for life, so neighbours can always be merged, and
//! a free block of a stream's list can be allocated on that stream immediately: its earlier work
//! comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use super::fault::Fault;
use super::observers::{Observers, PoolEvent};
use super::pending::PendingQueues;
use super::stats::Counters;
use super::tag::Tags;
use super::{Backing, PoolBlock, PoolId, PoolLimits, PoolStats, StreamId, Tag};
use crate::{Error, Result};

/// Alignment of blocks: no two share a cache line, and every vector load is aligned.
pub(super) const BLOCK_ALIGNMENT: u64 = 512;
/// Maximum size of requests that share small segments.
const MAX_SMALL_BYTES: u64 = 1 << 20;

/// Marks the absence of a slot.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Size class of a segment. Separate classes keep long-lived small blocks from fragmenting large
/// segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeClass {
    /// Requests up to 1 MiB.
    Small,
    /// Requests above 1 MiB.
    Large,
}

impl SizeClass {
    pub(super) fn of(need: u64) -> SizeClass {
        if need <= MAX_SMALL_BYTES { SizeClass::Small } else { SizeClass::Large }
    }

    /// Returns true if the remainder of a block is worth splitting off: in a large segment, only if
    /// a large request could use it.
    fn splits(self, spare: u64) -> bool {
        match self {
            SizeClass::Small => spare >= BLOCK_ALIGNMENT,
            SizeClass::Large => spare > MAX_SMALL_BYTES,
        }
    }
}

/// State of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockState {
    /// Free.
    Free,
    /// Allocated.
    Live,
    /// Freed, but possibly still in use by other streams.
    Pending,
}

/// A block. Slots are reused and keep the capacity of their lists.
pub(super) struct Slot {
    pub address: u64,
    pub bytes: u64,
    pub requested: u64,
    /// Neighbours in the segment, by address.
    pub previous: u32,
    pub next: u32,
    pub free_list: u32,
    /// `None` for an unused slot.
    pub state: Option<BlockState>,
    /// Guard bytes after the requested ones.
    pub guard: u32,
    /// Number of events that are not done yet.
    pub pending_events: u32,
    /// Distinguishes this allocation from earlier ones in the slot.
    pub serial: u64,
    pub tag: Tag,
    pub allocated_at: Option<&'static Location<'static>>,
    /// Other streams that use the block.
    pub used_on: Vec<StreamId>,
}

/// Free blocks of one stream and size class, by size, then address.
pub(super) struct FreeList {
    pub stream: StreamId,
    pub class: SizeClass,
    pub free: BTreeSet<(u64, u64, u32)>,
}

pub(super) struct Segment {
    pub bytes: u64,
    pub free_list: u32,
    /// The first block. Splitting and merging keep the slot of the left part, so it never changes.
    pub first: u32,
}

/// An allocation request.
#[derive(Clone, Copy)]
pub(super) struct AllocRequest {
    pub bytes: u64,
    /// Bytes including guard, rounded up.
    pub need: u64,
    pub guard: u32,
    pub stream: StreamId,
    pub tag: Tag,
    pub allocated_at: &'static Location<'static>,
}

/// State behind the pool's lock.
pub(super) struct Heap {
    pub id: PoolId,
    pub slots: Vec<Slot>,
    pub vacant: Vec<u32>,
    pub free_lists: Vec<FreeList>,
    pub segments: BTreeMap<u64, Segment>,
    pub queues: PendingQueues,
    pub counters: Counters,
    pub limits: PoolLimits,
    pub total_bytes: u64,
    pub debug: bool,
    pub tags: Tags,
    pub observers: Observers,
    #[cfg(test)]
    pub fault: Option<Fault>,
}

impl Heap {
    pub fn new(total_bytes: u64) -> Heap {
        Heap {
            id: PoolId::next(),
            slots: vec![],
            vacant: vec![],
            free_lists: vec![],
            segments: BTreeMap::new(),
            queues: PendingQueues::default(),
            counters: Counters::default(),
            limits: PoolLimits::default(),
            total_bytes,
            debug: false,
            tags: Tags::default(),
            observers: Observers::default(),
            #[cfg(test)]
            fault: None,
        }
    }

    pub fn stats(&self) -> PoolStats {
        let largest =
            self.free_lists.iter().filter_map(|free_list| free_list.free.last()).map(|&(bytes, ..)| bytes).max();
        self.counters.stats(self.segments.len() as u64, largest.unwrap_or(0))
    }

    /// Returns the block size for a request; `None` on overflow.
    pub fn round_size(&self, bytes: u64, guard: u32) -> Option<u64> {
        let with_guard = bytes.max(1).checked_add(u64::from(guard))?;
        if self.has_fault(Fault::RoundDown) {
            return Some((with_guard / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT).max(BLOCK_ALIGNMENT));
        }
        with_guard.checked_next_multiple_of(BLOCK_ALIGNMENT)
    }

    /// Allocates from a free block of the stream, else from a new segment; `None` if there is
    /// neither.
    pub fn try_alloc(&mut self, backing: &dyn Backing, request: &AllocRequest) -> Result<Option<PoolBlock>> {
        match self.find_block(backing, request)? {
            Some(at) => self.allocate_from(backing, at, request).map(Some),
            None => Ok(None),
        }
    }

    /// Finds a free block for a request.
    pub fn find_block(&mut self, backing: &dyn Backing, request: &AllocRequest) -> Result<Option<u32>> {
        self.reclaim_pending(backing, false)?;
        let free_list = self.free_list(request.stream, SizeClass::of(request.need));
        let any = self.has_fault(Fault::AnyStream);
        let found = match self.free_lists[free_list as usize].free.range((request.need, 0, 0)..).next() {
            None if any => self.free_lists.iter().find_map(|l| l.free.range((request.need, 0, 0)..).next()),
            found => found,
        };
        match found {
            Some(&(.., at)) => Ok(Some(at)),
            None => self.reserve(backing, free_list, request.need),
        }
    }

    /// Last attempt for a small request: a large free block of the stream.
    pub fn allocate_from_large(&mut self, backing: &dyn Backing, request: &AllocRequest) -> Result<Option<PoolBlock>> {
        let free_list = self.free_list(request.stream, SizeClass::Large) as usize;
        match self.free_lists[free_list].free.range((request.need, 0, 0)..).next() {
            Some(&(.., at)) => self.allocate_from(backing, at, request).map(Some),
            None => Ok(None),
        }
    }

    fn free_list(&mut self, stream: StreamId, class: SizeClass) -> u32 {
        // There are few streams: a linear search is faster than a map.
        if let Some(at) =
            self.free_lists.iter().position(|free_list| free_list.stream == stream && free_list.class == class)
        {
            return at as u32;
        }
        self.free_lists.push(FreeList { stream, class, free: BTreeSet::new() });
        self.free_lists.len() as u32 - 1
    }

    /// Allocates a free block, split to size.
    pub fn allocate_from(&mut self, backing: &dyn Backing, at: u32, request: &AllocRequest) -> Result<PoolBlock> {
        self.remove_free(at);
        let slot = &self.slots[at as usize];
        let (address, bytes, free_list, next) = (slot.address, slot.bytes, slot.free_list, slot.next);
        let spare = bytes - request.need;
        if self.free_lists[free_list as usize].class.splits(spare) {
            self.slots[at as usize].bytes = request.need;
            if !self.has_fault(Fault::LoseRemainder) {
                let rest = self.slot(address + request.need, spare, free_list, at, next);
                self.slots[at as usize].next = rest;
                if next != NO_SLOT {
                    self.slots[next as usize].previous = rest;
                }
                self.add_free(rest);
            }
        }
        if self.has_fault(Fault::AllocateTwice) {
            let bytes = self.slots[at as usize].bytes;
            self.free_lists[free_list as usize].free.insert((bytes, address, at));
        }
        if let Err(error) = self.guard(backing, at, request) {
            self.insert_merged(at);
            return Err(error);
        }

        let counters = &mut self.counters;
        let slot = &mut self.slots[at as usize];
        slot.state = Some(BlockState::Live);
        slot.requested = request.bytes;
        slot.guard = request.guard;
        slot.serial = counters.allocation_count;
        slot.tag = request.tag;
        slot.allocated_at = Some(request.allocated_at);
        let bytes = slot.bytes;
        counters.allocation_count += 1;
        counters.live_blocks += 1;
        counters.allocated += bytes;
        counters.total_allocated += bytes;
        counters.requested += request.bytes;
        let (serial, stream, pool) = (slot.serial, request.stream, self.id);
        let block = PoolBlock { address, bytes: request.bytes, serial, slot: at, stream, pool };
        if !self.has_fault(Fault::StalePeak) {
            self.counters.peak_allocated = self.counters.peak_allocated.max(self.counters.allocated);
        }
        let (requested, stream, tag) = (request.bytes, request.stream, request.tag);
        self.emit(PoolEvent::Allocated { address, bytes, requested, stream, tag });
        Ok(block)
    }

    /// Returns the slot of an allocated block.
    fn live_slot(&self, block: &PoolBlock) -> Result<u32> {
        let alive = self.slots.get(block.slot as usize).is_some_and(|slot| {
            slot.state == Some(BlockState::Live) && slot.serial == block.serial && slot.address == block.address
        });
        if alive && block.pool == self.id {
            Ok(block.slot)
        } else {
            Err(Error::NotAllocated { address: block.address })
        }
    }

    pub fn record_stream(&mut self, block: &PoolBlock, stream: StreamId) -> Result<()> {
        let at = self.live_slot(block)?;
        let slot = &mut self.slots[at as usize];
        if stream != self.free_lists[slot.free_list as usize].stream && !slot.used_on.contains(&stream) {
            slot.used_on.push(stream);
        }
        Ok(())
    }

    /// Frees a block. The block is freed even if this fails: the error reports damage, or a segment
    /// that could not be released.
    pub fn free(&mut self, backing: &dyn Backing, block: &PoolBlock) -> Result<()> {
        let at = self.live_slot(block)?;
        let intact = self.check_guard(backing, at);
        let missed = self.has_fault(Fault::MissFree);
        let slot = &mut self.slots[at as usize];
        let (address, bytes, tag, stream) = (slot.address, slot.bytes, slot.tag, block.stream);
        let counters = &mut self.counters;
        counters.free_count += u64::from(!missed);
        counters.live_blocks -= 1;
        counters.allocated -= bytes;
        counters.requested -= slot.requested;
        self.emit(PoolEvent::Freed { address, bytes, stream, tag });
        let poisoned = if self.slots[at as usize].used_on.is_empty() || self.has_fault(Fault::IgnoreEvents) {
            self.make_free(backing, at)
        } else {
            self.make_pending(backing, at)
        };
        intact.and(poisoned).and(self.trim(backing))
    }

    /// Frees a block that no stream uses.
    pub(super) fn make_free(&mut self, backing: &dyn Backing, at: u32) -> Result<()> {
        let poisoned = self.poison(backing, at);
        self.slots[at as usize].used_on.clear();
        self.insert_merged(at);
        poisoned
    }

    /// Merges a block with its free neighbours and adds it to the free list.
    fn insert_merged(&mut self, mut at: u32) {
        if !self.has_fault(Fault::SkipMerge) {
            let next = self.slots[at as usize].next;
            if self.take_if_free(next) {
                self.merge(at, next);
            }
            let previous = self.slots[at as usize].previous;
            if self.take_if_free(previous) {
                self.merge(previous, at);
                at = previous;
            }
        }
        self.add_free(at);
    }

    fn take_if_free(&mut self, at: u32) -> bool {
        match self.slots.get(at as usize).and_then(|slot| slot.state) {
            Some(BlockState::Free) => {
                self.remove_free(at);
                true
            }
            Some(BlockState::Pending) => self.has_fault(Fault::MergePending),
            _ => false,
        }
    }

    /// Merges two neighbours, neither of which is in the free list.
    fn merge(&mut self, left: u32, right: u32) {
        let slot = &mut self.slots[right as usize];
        let (bytes, next) = (slot.bytes, slot.next);
        slot.state = None;
        self.vacant.push(right);
        self.slots[left as usize].bytes += bytes;
        self.slots[left as usize].next = next;
        if next != NO_SLOT {
            self.slots[next as usize].previous = left;
        }
    }

    /// Returns a slot for a new block.
    pub(super) fn slot(&mut self, address: u64, bytes: u64, free_list: u32, previous: u32, next: u32) -> u32 {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                address: 0,
                bytes: 0,
                requested: 0,
                previous: NO_SLOT,
                next: NO_SLOT,
                free_list: 0,
                state: None,
                guard: 0,
                pending_events: 0,
                serial: 0,
                tag: Tag::default(),
                allocated_at: None,
                used_on: vec![],
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[at as usize];
        (slot.address, slot.bytes, slot.free_list, slot.previous, slot.next) =
            (address, bytes, free_list, previous, next);
        at
    }

    /// Adds a block to its free list.
    pub(super) fn add_free(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.state = Some(BlockState::Free);
        self.counters.free += slot.bytes;
        self.counters.free_blocks += 1;
        if slot.previous == NO_SLOT && slot.next == NO_SLOT {
            self.counters.idle += slot.bytes;
        }
        self.free_lists[slot.free_list as usize].free.insert((slot.bytes, slot.address, at));
    }

    /// Removes a block from its free list.
    pub(super) fn remove_free(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        self.counters.free -= slot.bytes;
        self.counters.free_blocks -= 1;
        if slot.previous == NO_SLOT && slot.next == NO_SLOT {
            self.counters.idle -= slot.bytes;
        }
        self.free_lists[slot.free_list as usize].free.remove(&(slot.bytes, slot.address, at));
    }
}
