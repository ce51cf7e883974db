//! Segments cut into blocks: best fit, split, merge. Works under the pool's lock and calls only the backing.
//!
//! A segment belongs to one stream and one class of sizes for life, so neighbours may always be merged and a free block
//! of a stream's lane may be handed to that stream at once: its earlier work comes before.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use super::fault::Fault;
use super::pending::Queues;
use super::stats::Counters;
use super::tag::Tags;
use super::watch::{Happening, Watchers};
use super::{Backing, Block, PoolLimits, PoolId, Stats, Stream, Tag};
use crate::{Error, Result};

/// Blocks begin and end at multiples of this: no two share a line of any cache, and any vector load is aligned.
pub(super) const GRAIN: u64 = 512;
/// Requests up to this share small segments.
const SMALL_MAX: u64 = 1 << 20;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Which sizes a segment is for. Kept apart so that small blocks of long life do not cut up large segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Up to 1 MiB.
    Small,
    /// Above.
    Large,
}

impl Class {
    pub(super) fn of(need: u64) -> Class {
        if need <= SMALL_MAX { Class::Small } else { Class::Large }
    }

    /// Whether what a request leaves over is worth a block: in a large segment, only what a large request could use.
    fn splits(self, spare: u64) -> bool {
        match self {
            Class::Small => spare >= GRAIN,
            Class::Large => spare > SMALL_MAX,
        }
    }
}

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Ready to be handed out.
    Free,
    /// Handed out.
    Live,
    /// Freed, but other streams may still use it.
    Pending,
}

/// A block. Slots are used again and so keep the memory of their lists.
pub(super) struct Slot {
    pub address: u64,
    pub bytes: u64,
    pub requested: u64,
    /// Neighbours in the segment, by address.
    pub previous: u32,
    pub next: u32,
    pub lane: u32,
    /// `None` for a slot that is not a block and may be used again.
    pub state: Option<State>,
    /// Guard bytes behind the requested ones.
    pub guard: u32,
    /// Events that are still to finish.
    pub waiting: u32,
    /// Tells this allocation from earlier ones in the slot.
    pub serial: u64,
    pub tag: Tag,
    pub asked_at: Option<&'static Location<'static>>,
    /// Other streams that used the block.
    pub used_on: Vec<Stream>,
}

/// The free blocks of one stream and class, by size, then address.
pub(super) struct Lane {
    pub stream: Stream,
    pub class: Class,
    pub free: BTreeSet<(u64, u64, u32)>,
}

pub(super) struct Segment {
    pub bytes: u64,
    pub lane: u32,
    /// The block at its start. Splitting and merging keep the slot of the left part, so it never changes.
    pub first: u32,
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub bytes: u64,
    /// Bytes with guard, rounded.
    pub need: u64,
    pub guard: u32,
    pub stream: Stream,
    pub tag: Tag,
    pub asked_at: &'static Location<'static>,
}

/// Everything behind the pool's lock.
pub(super) struct Heap {
    pub id: PoolId,
    pub slots: Vec<Slot>,
    pub vacant: Vec<u32>,
    pub lanes: Vec<Lane>,
    pub segments: BTreeMap<u64, Segment>,
    pub queues: Queues,
    pub counters: Counters,
    pub limits: PoolLimits,
    pub total_bytes: u64,
    pub debug: bool,
    pub tags: Tags,
    pub watchers: Watchers,
    #[cfg(test)]
    pub fault: Option<Fault>,
}

impl Heap {
    pub fn new(total_bytes: u64) -> Heap {
        Heap {
            id: PoolId::next(),
            slots: vec![],
            vacant: vec![],
            lanes: vec![],
            segments: BTreeMap::new(),
            queues: Queues::default(),
            counters: Counters::default(),
            limits: PoolLimits::default(),
            total_bytes,
            debug: false,
            tags: Tags::default(),
            watchers: Watchers::default(),
            #[cfg(test)]
            fault: None,
        }
    }

    pub fn stats(&self) -> Stats {
        let largest = self.lanes.iter().filter_map(|lane| lane.free.last()).map(|&(bytes, ..)| bytes).max();
        self.counters.stats(self.segments.len() as u64, largest.unwrap_or(0))
    }

    /// Bytes to take for a request of so many; `None` when there is no such number.
    pub fn rounded(&self, bytes: u64, guard: u32) -> Option<u64> {
        let whole = bytes.max(1).checked_add(u64::from(guard))?;
        if self.faulty(Fault::RoundDown) {
            return Some((whole / GRAIN * GRAIN).max(GRAIN));
        }
        whole.checked_next_multiple_of(GRAIN)
    }

    /// One attempt: a free block of the stream, else a new segment. `None` when there is neither.
    pub fn attempt(&mut self, backing: &dyn Backing, request: &Request) -> Result<Option<Block>> {
        match self.find(backing, request)? {
            Some(at) => self.hand_out(backing, at, request).map(Some),
            None => Ok(None),
        }
    }

    /// The block to hand out, still free.
    pub fn find(&mut self, backing: &dyn Backing, request: &Request) -> Result<Option<u32>> {
        self.settle(backing, false)?;
        let lane = self.lane(request.stream, Class::of(request.need));
        let any = self.faulty(Fault::AnyStream);
        let found = match self.lanes[lane as usize].free.range((request.need, 0, 0)..).next() {
            None if any => self.lanes.iter().find_map(|l| l.free.range((request.need, 0, 0)..).next()),
            found => found,
        };
        match found {
            Some(&(.., at)) => Ok(Some(at)),
            None => self.reserve(backing, lane, request.need),
        }
    }

    /// For a small request when there is nothing else: a large block of the stream.
    pub fn last_resort(&mut self, backing: &dyn Backing, request: &Request) -> Result<Option<Block>> {
        let lane = self.lane(request.stream, Class::Large) as usize;
        match self.lanes[lane].free.range((request.need, 0, 0)..).next() {
            Some(&(.., at)) => self.hand_out(backing, at, request).map(Some),
            None => Ok(None),
        }
    }

    fn lane(&mut self, stream: Stream, class: Class) -> u32 {
        // A handful of streams: faster than any map.
        if let Some(at) = self.lanes.iter().position(|lane| lane.stream == stream && lane.class == class) {
            return at as u32;
        }
        self.lanes.push(Lane { stream, class, free: BTreeSet::new() });
        self.lanes.len() as u32 - 1
    }

    /// Takes a free block, cut to size.
    pub fn hand_out(&mut self, backing: &dyn Backing, at: u32, request: &Request) -> Result<Block> {
        self.unlist(at);
        let slot = &self.slots[at as usize];
        let (address, bytes, lane, next) = (slot.address, slot.bytes, slot.lane, slot.next);
        let spare = bytes - request.need;
        if self.lanes[lane as usize].class.splits(spare) {
            self.slots[at as usize].bytes = request.need;
            if !self.faulty(Fault::LoseRemainder) {
                let rest = self.slot(address + request.need, spare, lane, at, next);
                self.slots[at as usize].next = rest;
                if next != NONE {
                    self.slots[next as usize].previous = rest;
                }
                self.list(rest);
            }
        }
        if self.faulty(Fault::HandOutTwice) {
            let bytes = self.slots[at as usize].bytes;
            self.lanes[lane as usize].free.insert((bytes, address, at));
        }
        if let Err(error) = self.guard(backing, at, request) {
            self.put_back(at);
            return Err(error);
        }

        let counters = &mut self.counters;
        let slot = &mut self.slots[at as usize];
        slot.state = Some(State::Live);
        slot.requested = request.bytes;
        slot.guard = request.guard;
        slot.serial = counters.allocation_count;
        slot.tag = request.tag;
        slot.asked_at = Some(request.asked_at);
        let bytes = slot.bytes;
        counters.allocation_count += 1;
        counters.live_blocks += 1;
        counters.allocated += bytes;
        counters.total_allocated += bytes;
        counters.requested += request.bytes;
        let (serial, stream, pool) = (slot.serial, request.stream, self.id);
        let block = Block { address, bytes: request.bytes, serial, slot: at, stream, pool };
        if !self.faulty(Fault::StalePeak) {
            self.counters.peak_allocated = self.counters.peak_allocated.max(self.counters.allocated);
        }
        let (requested, stream, tag) = (request.bytes, request.stream, request.tag);
        self.note(Happening::Allocated { address, bytes, requested, stream, tag });
        Ok(block)
    }

    /// The slot of a block that is handed out.
    fn live(&self, block: &Block) -> Result<u32> {
        let alive = self.slots.get(block.slot as usize).is_some_and(|slot| {
            slot.state == Some(State::Live) && slot.serial == block.serial && slot.address == block.address
        });
        if alive && block.pool == self.id {
            Ok(block.slot)
        } else {
            Err(Error::NotAllocated { address: block.address })
        }
    }

    pub fn used_on(&mut self, block: &Block, stream: Stream) -> Result<()> {
        let at = self.live(block)?;
        let slot = &mut self.slots[at as usize];
        if stream != self.lanes[slot.lane as usize].stream && !slot.used_on.contains(&stream) {
            slot.used_on.push(stream);
        }
        Ok(())
    }

    /// Takes a block back. It is back also when this fails: the error tells of damage found, or of a segment that could
    /// not be given back.
    pub fn free(&mut self, backing: &dyn Backing, block: &Block) -> Result<()> {
        let at = self.live(block)?;
        let intact = self.check_guard(backing, at);
        let missed = self.faulty(Fault::MissFree);
        let slot = &mut self.slots[at as usize];
        let (address, bytes, tag, stream) = (slot.address, slot.bytes, slot.tag, block.stream);
        let counters = &mut self.counters;
        counters.free_count += u64::from(!missed);
        counters.live_blocks -= 1;
        counters.allocated -= bytes;
        counters.requested -= slot.requested;
        self.note(Happening::Freed { address, bytes, stream, tag });
        let poisoned = if self.slots[at as usize].used_on.is_empty() || self.faulty(Fault::IgnoreEvents) {
            self.make_free(backing, at)
        } else {
            self.make_pending(backing, at)
        };
        intact.and(poisoned).and(self.trim(backing))
    }

    /// Makes a block that nobody uses free.
    pub(super) fn make_free(&mut self, backing: &dyn Backing, at: u32) -> Result<()> {
        let poisoned = self.poison(backing, at);
        self.slots[at as usize].used_on.clear();
        self.put_back(at);
        poisoned
    }

    /// Joins a block with its free neighbours and lists the whole as free.
    fn put_back(&mut self, mut at: u32) {
        if !self.faulty(Fault::SkipMerge) {
            let next = self.slots[at as usize].next;
            if self.joins(next) {
                self.absorb(at, next);
            }
            let previous = self.slots[at as usize].previous;
            if self.joins(previous) {
                self.absorb(previous, at);
                at = previous;
            }
        }
        self.list(at);
    }

    fn joins(&mut self, at: u32) -> bool {
        match self.slots.get(at as usize).and_then(|slot| slot.state) {
            Some(State::Free) => {
                self.unlist(at);
                true
            }
            Some(State::Pending) => self.faulty(Fault::MergePending),
            _ => false,
        }
    }

    /// Makes two neighbours, neither of them listed, one.
    fn absorb(&mut self, left: u32, right: u32) {
        let slot = &mut self.slots[right as usize];
        let (bytes, next) = (slot.bytes, slot.next);
        slot.state = None;
        self.vacant.push(right);
        self.slots[left as usize].bytes += bytes;
        self.slots[left as usize].next = next;
        if next != NONE {
            self.slots[next as usize].previous = left;
        }
    }

    /// A slot for a new block.
    pub(super) fn slot(&mut self, address: u64, bytes: u64, lane: u32, previous: u32, next: u32) -> u32 {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                address: 0,
                bytes: 0,
                requested: 0,
                previous: NONE,
                next: NONE,
                lane: 0,
                state: None,
                guard: 0,
                waiting: 0,
                serial: 0,
                tag: Tag::default(),
                asked_at: None,
                used_on: vec![],
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[at as usize];
        (slot.address, slot.bytes, slot.lane, slot.previous, slot.next) = (address, bytes, lane, previous, next);
        at
    }

    /// Enters a block into the list of free ones.
    pub(super) fn list(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.state = Some(State::Free);
        self.counters.free += slot.bytes;
        self.counters.free_blocks += 1;
        if slot.previous == NONE && slot.next == NONE {
            self.counters.idle += slot.bytes;
        }
        self.lanes[slot.lane as usize].free.insert((slot.bytes, slot.address, at));
    }

    /// Takes a block out of the list of free ones.
    pub(super) fn unlist(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        self.counters.free -= slot.bytes;
        self.counters.free_blocks -= 1;
        if slot.previous == NONE && slot.next == NONE {
            self.counters.idle -= slot.bytes;
        }
        self.lanes[slot.lane as usize].free.remove(&(slot.bytes, slot.address, at));
    }
}
