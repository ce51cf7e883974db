//! Mistakes that the tests switch on, one at a time, to show that the checks would find them. Outside of this crate's
//! unit tests `has_fault` is the constant `false` and nothing of this is compiled in.

use super::heap::Heap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A freed block does not join its free neighbours.
    SkipMerge,
    /// A freed block joins a neighbour that waits for another stream.
    MergePending,
    /// The part of a block that a smaller request leaves over is lost.
    LoseRemainder,
    /// Sizes are rounded down.
    RoundDown,
    /// A block handed out stays in the list of free ones.
    HandOutTwice,
    /// A free block of any stream is taken.
    AnyStream,
    /// Blocks that other streams used are free at once.
    IgnoreEvents,
    /// Of several streams that used a block only the first is waited for.
    OneEvent,
    /// Finished events are not given back.
    LeakEvents,
    /// A free is not counted.
    MissFree,
    /// The peak is not raised.
    StalePeak,
    /// Segments are reserved past the limit.
    ExceedLimit,
    /// Freed memory is kept past the cache's limit.
    KeepCache,
    /// A segment is forgotten instead of given back.
    LeakSegment,
    /// Memory is said to have run out while the cache holds enough.
    SkipTrim,
    /// Freed memory is poisoned while another stream uses it.
    EarlyPoison,
    /// The lock is let go between choosing a block and taking it.
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
