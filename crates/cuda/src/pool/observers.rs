//! Callbacks of a pool: the monitor and the out-of-memory callbacks. All are called without the
//! pool's lock, so that they may use the pool.

use std::cell::RefCell;
use std::sync::Arc;

use super::heap::Heap;
use super::{StreamId, Tag};

/// An event of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolEvent {
    /// A block was allocated.
    Allocated {
        /// Address.
        address: u64,
        /// Size in bytes.
        bytes: u64,
        /// Requested size in bytes.
        requested: u64,
        /// Stream of the block.
        stream: StreamId,
        /// Tag of the block.
        tag: Tag,
    },
    /// A block was freed.
    Freed {
        /// Address.
        address: u64,
        /// Size in bytes.
        bytes: u64,
        /// Stream of the block.
        stream: StreamId,
        /// Tag of the block.
        tag: Tag,
    },
    /// A segment was reserved from the device.
    Reserved {
        /// Address.
        address: u64,
        /// Size in bytes.
        bytes: u64,
        /// Stream of the segment.
        stream: StreamId,
    },
    /// A segment was released to the device.
    Released {
        /// Address.
        address: u64,
        /// Size in bytes.
        bytes: u64,
        /// Stream of the segment.
        stream: StreamId,
    },
    /// An allocation failed.
    OutOfMemory {
        /// Requested size in bytes.
        requested: u64,
        /// Stream of the request.
        stream: StreamId,
    },
}

/// An event with its sequence number, and the pool's memory use right after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolEventRecord {
    /// Sequence number, incremented by each event; threads may deliver events out of order.
    pub sequence: u64,
    /// The event.
    pub event: PoolEvent,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Bytes in segments.
    pub reserved_bytes: u64,
}

/// Callback for all events of a pool.
pub type Monitor = Arc<dyn Fn(&PoolEventRecord) + Send + Sync>;

/// Callback that frees memory when there is too little; it is passed the requested bytes and the
/// stream.
pub type OutOfMemoryCallback = Arc<dyn Fn(u64, StreamId) + Send + Sync>;

/// Id of a registered out-of-memory callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallbackId(pub(super) u64);

/// Registered callbacks, and events that are not delivered yet.
#[derive(Default)]
pub(super) struct Observers {
    pub monitor: Option<Monitor>,
    pub callbacks: Vec<(CallbackId, OutOfMemoryCallback)>,
    pub next_callback: u64,
    pub undelivered: Vec<PoolEventRecord>,
    next_sequence: u64,
}

impl Heap {
    /// Queues an event for the monitor, if there is one, until the lock is released.
    #[inline]
    pub(super) fn emit(&mut self, event: PoolEvent) {
        if self.observers.monitor.is_some() {
            self.push_event(event);
        }
    }

    #[cold]
    fn push_event(&mut self, event: PoolEvent) {
        let (allocated_bytes, reserved_bytes) = (self.counters.allocated, self.counters.reserved);
        let sequence = self.observers.next_sequence;
        self.observers.next_sequence += 1;
        self.observers.undelivered.push(PoolEventRecord { sequence, event, allocated_bytes, reserved_bytes });
    }
}

/// Kind of callback that a thread is running.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallbackKind {
    Monitor,
    OutOfMemory,
}

thread_local! {
    /// Callbacks of pools that this thread is running. Events caused by a monitor are not reported
    /// to it, and an out-of-memory callback that runs out of memory is not called again: either
    /// would recurse forever.
    static INSIDE: RefCell<Vec<(usize, CallbackKind)>> = const { RefCell::new(Vec::new()) };
}

/// Marks this thread as running a callback until dropped.
pub(super) struct CallbackGuard;

impl CallbackGuard {
    /// Returns `None` if the thread is already running such a callback of this pool.
    pub fn enter(pool: usize, kind: CallbackKind) -> Option<CallbackGuard> {
        let entered = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            if inside.contains(&(pool, kind)) {
                return None;
            }
            inside.push((pool, kind));
            Some(CallbackGuard)
        });
        // A terminating thread has lost its list: it calls nothing.
        entered.ok().flatten()
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}
