//! Source of the pool's memory. The pool accesses the GPU only through this trait, so that it can
//! be tested with a fake.

use crate::Result;

/// Id of a stream in the backing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize)]
pub struct StreamId(pub u32);

/// Id of an event in the backing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EventId(pub u32);

/// Provides segments of memory and events. Called with the pool's lock held: it must not call the
/// pool.
pub trait Backing: Send + Sync {
    /// Name of the device in messages.
    fn name(&self) -> String;

    /// Total memory of the device.
    fn total_bytes(&self) -> u64;

    /// Free memory of the device.
    fn free_bytes(&self) -> Result<u64>;

    /// Reserves a segment of `bytes` bytes, aligned to at least 512; `None` if there is not enough
    /// memory.
    fn reserve(&self, bytes: u64) -> Result<Option<u64>>;

    /// Releases a segment after the work on `stream`, which owned it. The pool does not use the
    /// segment again, even if this fails.
    fn release(&self, address: u64, bytes: u64, stream: StreamId) -> Result<()>;

    /// Records an event on a stream.
    fn record(&self, stream: StreamId) -> Result<EventId>;

    /// Returns true if the work before the event is done.
    fn is_done(&self, event: EventId) -> Result<bool>;

    /// Waits until the work before the event is done.
    fn wait(&self, event: EventId) -> Result<()>;

    /// Releases an event. Called once for each.
    fn retire(&self, event: EventId);

    /// Fills memory with a byte, in stream order.
    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamId) -> Result<()>;

    /// After all work of the stream, returns the offset of the first byte that is not `value`.
    fn first_difference(&self, address: u64, bytes: u64, value: u8, stream: StreamId) -> Result<Option<u64>>;
}
