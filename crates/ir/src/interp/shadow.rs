//! What is remembered of every element, to tell races: who wrote it last, who read it since.
//!
//! Two accesses of different threads race if one is a write, not both are atomic, and nothing orders them: a barrier of
//! the block they share, or of the warp they share. Blocks and instances of a `ParallelFor` are never ordered. Of several
//! readers two are remembered, so a race may be missed. Fences and atomics do not count as order: a hand-over through a flag
//! is reported.

use crate::WARP;

/// One access to an element.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    pub block: u32,
    /// Below 1024. Narrow, so that what is remembered of an element fits a cache line.
    pub thread: u16,
    /// Barriers that the block has passed.
    pub epoch: u32,
    /// Warp barriers that the warp has passed.
    pub warp_epoch: u32,
    pub atomic: bool,
}

impl Touch {
    fn same_thread(&self, other: &Touch) -> bool {
        (self.block, self.thread) == (other.block, other.thread)
    }

    fn ordered(&self, later: &Touch) -> bool {
        let same_warp = self.thread as usize / WARP == later.thread as usize / WARP;
        self.block == later.block
            && (self.thread == later.thread
                || self.epoch != later.epoch
                || same_warp && self.warp_epoch != later.warp_epoch)
    }

    fn races(&self, later: &Touch) -> bool {
        let both_atomic = self.atomic && later.atomic;
        !both_atomic && !self.ordered(later)
    }
}

#[derive(Clone, Default)]
struct Cell {
    written: Option<Touch>,
    /// The last atomic update; a plain write before it is still remembered.
    updated: Option<Touch>,
    read: [Option<Touch>; 2],
}

/// An earlier access that a later one races with.
pub(super) struct Conflict {
    pub earlier: Touch,
    pub earlier_wrote: bool,
}

/// The history of the elements of one view.
pub(super) struct Shadow(Vec<Cell>);

impl Shadow {
    pub fn new(len: u64) -> Shadow {
        Shadow(vec![Cell::default(); len as usize])
    }

    /// Notes a read; the write that it races with, if any.
    pub fn read(&mut self, at: usize, touch: Touch) -> Option<Conflict> {
        let cell = &mut self.0[at];
        let conflict = cell.wrote(&touch);
        if !cell.read[0].is_some_and(|r| r.same_thread(&touch)) {
            cell.read[1] = cell.read[0];
        }
        cell.read[0] = Some(touch);
        conflict
    }

    /// Notes a write; the access that it races with, if any.
    pub fn write(&mut self, at: usize, touch: Touch) -> Option<Conflict> {
        let cell = &mut self.0[at];
        let wrote = cell.wrote(&touch);
        let read = cell.read.iter().flatten().find(|r| r.races(&touch));
        let read = read.map(|&earlier| Conflict { earlier, earlier_wrote: false });
        *if touch.atomic { &mut cell.updated } else { &mut cell.written } = Some(touch);
        wrote.or(read)
    }
}

impl Cell {
    /// The write or update that a later access races with.
    fn wrote(&self, later: &Touch) -> Option<Conflict> {
        let earlier = [self.written, self.updated].into_iter().flatten().find(|earlier| earlier.races(later))?;
        Some(Conflict { earlier, earlier_wrote: true })
    }
}
