//! Race detection: the access history of every element of a view.
//!
//! Two accesses by different threads race if at least one is a write, they are not both atomic, and nothing orders them: a
//! barrier of the block that they share, or of the warp that they share (a thread that has returned counts as arrived). Blocks,
//! and instances of a `ParallelFor`, are never ordered. Fences and atomics do not order other accesses: a hand-over through a flag is reported.
//!
//! The history is exact and of constant size, because the first race ends the run and blocks run one after the other:
//! - Every access so far happens before a plain write that raced with none of them. Happens-before is transitive, so such a
//!   write replaces all that came before it.
//! - Of the reads since then (and likewise of the atomic updates) the later ones of a thread, of a warp behind its barrier and
//!   of a block behind its barrier stand for the earlier ones. Within one barrier interval of a block two accesses from
//!   different warps are enough: a conflicting access by any thread is unordered with at least one of them. Among finished
//!   blocks any one is enough.

use crate::WARP_SIZE;

/// One access to an element.
#[derive(Clone, Copy)]
pub(super) struct AccessEvent {
    pub block: u32,
    /// Below 1024. Narrow, so that the history of an element fits a cache line.
    pub thread: u16,
    /// Block barriers that the block has passed.
    pub epoch: u32,
    /// Warp barriers that the warp has passed.
    pub warp_epoch: u32,
}

impl AccessEvent {
    fn warp(&self) -> u16 {
        self.thread / WARP_SIZE as u16
    }

    /// The thread as a bit of its warp.
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

/// The kind of an access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessKind {
    Read,
    Write,
    Atomic,
}

/// An earlier access that a later one races with.
pub(super) struct Conflict {
    pub kind: AccessKind,
    pub block: u32,
    pub thread: u16,
}

/// Stands for no thread.
const NONE: u16 = u16::MAX;

/// The accesses of one kind since the last plain write, as far as a later access can race with them.
#[derive(Clone)]
struct Accesses {
    /// Barrier interval of the latest access: only accesses of this one can race within its block.
    block: u32,
    epoch: u32,
    /// Threads of one warp, since that warp's last barrier, as bits; 0 if there was no access at all.
    threads: u32,
    warp: u16,
    warp_epoch: u32,
    /// A thread of another warp, in the same barrier interval.
    other_warp: u16,
    /// A thread of a block that ran before.
    other_block: (u32, u16),
}

impl Default for Accesses {
    fn default() -> Accesses {
        Accesses { block: 0, epoch: 0, threads: 0, warp: 0, warp_epoch: 0, other_warp: NONE, other_block: (0, NONE) }
    }
}

impl Accesses {
    /// Adds an access that races with nothing.
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

    /// The block and thread of an access that nothing orders before a later one by another thread.
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

    /// The first thread of a set of bits.
    fn first(&self, threads: u32) -> u16 {
        self.warp * WARP_SIZE as u16 + threads.trailing_zeros() as u16
    }
}

#[derive(Clone, Default)]
struct Cell {
    written: Option<AccessEvent>,
    reads: Accesses,
}

/// The history of the elements of one view.
pub(super) struct AccessHistory {
    cells: Vec<Cell>,
    /// Atomic updates of each cell; empty until the first one.
    atomics: Vec<Accesses>,
}

impl AccessHistory {
    pub fn new(len: u64) -> AccessHistory {
        AccessHistory { cells: vec![Cell::default(); len as usize], atomics: vec![] }
    }

    /// Records an access; the earlier one that it races with, if any.
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
