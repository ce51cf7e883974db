//! Faults that tests inject, one at a time, to show that the checks find them. Outside of this
//! crate's unit tests `has_fault` is the constant `false`.

use super::heap::Heap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A freed block is not merged with its free neighbours.
    SkipMerge,
    /// A freed block is merged with a neighbour that waits for another stream.
    MergePending,
    /// The remainder of a split block is lost.
    LoseRemainder,
    /// Sizes are rounded down.
    RoundDown,
    /// An allocated block stays in the free list.
    AllocateTwice,
    /// A free block of any stream is taken.
    AnyStream,
    /// Blocks that other streams use are free immediately.
    IgnoreEvents,
    /// Only the first of several streams that use a block is waited for.
    OneEvent,
    /// Finished events are not released.
    LeakEvents,
    /// A free is not counted.
    MissFree,
    /// The peak is not updated.
    StalePeak,
    /// Segments are reserved past the limit.
    ExceedLimit,
    /// Freed memory is cached above the cache limit.
    KeepCache,
    /// A segment is dropped without being released.
    LeakSegment,
    /// Reports out of memory while the cache holds enough.
    SkipTrim,
    /// Freed memory is poisoned while another stream uses it.
    EarlyPoison,
    /// The lock is released between choosing a block and allocating it.
    #[cfg(test)]
    TwoLocks,
}

impl Heap {
    #[cfg(test)]
    pub(super) fn has_fault(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(test))]
    #[inline(always)]
    pub(super) const fn has_fault(&self, _: Fault) -> bool {
        false
    }
}
