//! Where the pool's memory comes from. The pool's logic knows no more of a GPU than this trait, so that all of it is
//! tested against a made-up one.

use crate::Result;

/// A stream by its number at the backing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize)]
pub struct StreamId(pub u32);

/// A point in a stream's work, by its number at the backing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EventId(pub u32);

/// Gives segments of memory, and tells how far streams have come. Called with the pool's lock held: it must not call
/// the pool.
pub trait Backing: Send + Sync {
    /// Which device this is, for messages.
    fn name(&self) -> String;

    /// All memory of the device.
    fn total_bytes(&self) -> u64;

    /// Memory of the device that no process holds.
    fn free_bytes(&self) -> Result<u64>;

    /// Reserves a segment of `bytes` bytes, aligned to at least 512; `None` when there is not enough.
    fn reserve(&self, bytes: u64) -> Result<Option<u64>>;

    /// Returns a segment once the work given to `stream`, which owned it, is done. The pool never names the segment
    /// again, also when this fails.
    fn release(&self, address: u64, bytes: u64, stream: StreamId) -> Result<()>;

    /// Marks the work given to a stream so far.
    fn record(&self, stream: StreamId) -> Result<EventId>;

    /// Whether the marked work is done.
    fn is_done(&self, event: EventId) -> Result<bool>;

    /// Waits until the marked work is done.
    fn wait(&self, event: EventId) -> Result<()>;

    /// Takes an event back. Called once for each.
    fn retire(&self, event: EventId);

    /// Fills memory with a byte, in the stream's order.
    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamId) -> Result<()>;

    /// After all work of the stream: the offset of the first byte that is not `value`, if there is one.
    fn first_difference(&self, address: u64, bytes: u64, value: u8, stream: StreamId) -> Result<Option<u64>>;
}
