//! Race detection: the access history of every element of a view.
//!
//! Two accesses by different threads race if at least one is a write, they are not both atomic, and
//! no barrier of their block or warp orders them (a thread that has returned counts as arrived).
//! Blocks, and instances of a `ParallelFor`, are never ordered. Fences and atomics do not order
//! other accesses: message passing through a flag is reported.
//!
//! The history is exact and of constant size, because the first race ends the run and blocks run
//! one after the other:
//! - Every access so far happens before a plain write that raced with none of them. Happens-before
//!   is transitive, so such a write replaces the whole history.
//! - Among the reads since then (and likewise the atomic updates), later ones of a thread, of a
//!   warp after its barrier and of a block after its barrier subsume earlier ones. Within one
//!   barrier interval of a block, two accesses from different warps suffice: a conflicting access
//!   by any thread is unordered with at least one of them. Among finished blocks, any one suffices.

use crate::WARP_SIZE;

/// One access to an element.
#[derive(Clone, Copy)]
pub(super) struct AccessEvent {
    pub block: u32,
    /// Below 1024; narrow, so that the history of an element fits in a cache line.
    pub thread: u16,
    /// Number of block barriers that the block has passed.
    pub epoch: u32,
    /// Number of warp barriers that the warp has passed.
    pub warp_epoch: u32,
}

impl AccessEvent {
    fn warp(&self) -> u16 {
        self.thread / WARP_SIZE as u16
    }

    /// Returns the thread's bit within its warp.
    fn bit(&self) -> u32 {
        1 << (self.thread % WARP_SIZE as u16)
    }

    fn happens_before(&self, later: &AccessEvent) -> bool {
        self.block == later.block
            && (self.thread == later.thread
                || self.epoch != later.epoch
                || self.warp() == later.warp() && self.warp_epoch != later.warp_epoch)
    }
}

/// Kind of access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessKind {
    Read,
    Write,
    Atomic,
}

/// Earlier access that a later one races with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Conflict {
    pub kind: AccessKind,
    pub block: u32,
    pub thread: u16,
}

/// Marks the absence of a thread.
const NONE: u16 = u16::MAX;

/// Accesses of one kind since the last plain write, as far as later accesses can race with them.
#[derive(Clone)]
struct Accesses {
    /// Barrier interval of the latest access: only accesses of this interval can race within its
    /// block.
    block: u32,
    epoch: u32,
    /// Bit set of threads of one warp since that warp's last barrier; 0 if there was no access at
    /// all.
    threads: u32,
    warp: u16,
    warp_epoch: u32,
    /// Thread of another warp in the same barrier interval.
    other_warp: u16,
    /// Thread of an earlier block.
    other_block: (u32, u16),
}

impl Default for Accesses {
    fn default() -> Accesses {
        Accesses { block: 0, epoch: 0, threads: 0, warp: 0, warp_epoch: 0, other_warp: NONE, other_block: (0, NONE) }
    }
}

impl Accesses {
    /// Adds an access that does not race.
    fn add(&mut self, event: &AccessEvent) {
        if (self.block, self.epoch) != (event.block, event.epoch) || self.threads == 0 {
            if self.block != event.block && self.threads != 0 {
                self.other_block = (self.block, self.first(self.threads));
            }
            (self.block, self.epoch) = (event.block, event.epoch);
            (self.warp, self.warp_epoch, self.threads) = (event.warp(), event.warp_epoch, event.bit());
            self.other_warp = NONE;
        } else if self.warp != event.warp() {
            self.other_warp = event.thread;
        } else if self.warp_epoch != event.warp_epoch {
            (self.warp_epoch, self.threads) = (event.warp_epoch, event.bit());
        } else {
            self.threads |= event.bit();
        }
    }

    /// Returns block and thread of an access that is unordered with a later one by another thread.
    fn unordered(&self, later: &AccessEvent) -> Option<(u32, u16)> {
        if self.threads == 0 {
            return None;
        }
        if self.other_block.1 != NONE {
            return Some(self.other_block);
        }
        let mut threads = self.threads;
        if self.block == later.block {
            if self.epoch != later.epoch {
                return None;
            }
            if self.warp == later.warp() {
                if self.other_warp != NONE {
                    return Some((self.block, self.other_warp));
                }
                if self.warp_epoch != later.warp_epoch {
                    return None;
                }
                threads &= !later.bit();
            }
        }
        (threads != 0).then(|| (self.block, self.first(threads)))
    }

    /// Returns the first thread of a bit set.
    fn first(&self, threads: u32) -> u16 {
        self.warp * WARP_SIZE as u16 + threads.trailing_zeros() as u16
    }
}

#[derive(Clone, Default)]
struct Cell {
    written: Option<AccessEvent>,
    reads: Accesses,
}

/// Access history of the elements of one view.
pub(super) struct AccessHistory {
    cells: Vec<Cell>,
    /// Atomic updates per cell; empty until the first one.
    atomics: Vec<Accesses>,
}

impl AccessHistory {
    pub fn new(len: u64) -> AccessHistory {
        AccessHistory { cells: vec![Cell::default(); len as usize], atomics: vec![] }
    }

    /// Records an access; returns the earlier access that it races with, if any.
    pub fn record(&mut self, at: usize, kind: AccessKind, event: AccessEvent) -> Option<Conflict> {
        let cell = &mut self.cells[at];
        if let Some(written) = cell.written.filter(|written| !written.happens_before(&event)) {
            return Some(Conflict { kind: AccessKind::Write, block: written.block, thread: written.thread });
        }
        let conflict = |kind, (block, thread)| Conflict { kind, block, thread };
        if kind != AccessKind::Atomic
            && let Some(found) = self.atomics.get(at).and_then(|atomics| atomics.unordered(&event))
        {
            return Some(conflict(AccessKind::Atomic, found));
        }
        if kind == AccessKind::Read {
            cell.reads.add(&event);
            return None;
        }
        if let Some(found) = cell.reads.unordered(&event) {
            return Some(conflict(AccessKind::Read, found));
        }
        if kind == AccessKind::Write {
            *cell = Cell { written: Some(event), reads: Accesses::default() };
            if let Some(atomics) = self.atomics.get_mut(at) {
                *atomics = Accesses::default();
            }
        } else {
            if self.atomics.is_empty() {
                self.atomics = vec![Accesses::default(); self.cells.len()];
            }
            self.atomics[at].add(&event);
        }
        None
    }
}
