//! Who is told of what a pool does. Everyone is called without the pool's lock, so that they may call the pool.

use std::cell::RefCell;
use std::sync::Arc;

use super::heap::Heap;
use super::{StreamId, Tag};

/// Something that a pool did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolEvent {
    /// A block was handed out.
    Allocated {
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
        /// The size asked for.
        requested: u64,
        /// Its stream.
        stream: StreamId,
        /// Who asked.
        tag: Tag,
    },
    /// A block came back.
    Freed {
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// Who had asked.
        tag: Tag,
    },
    /// A segment was got from the device.
    Reserved {
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
        /// The stream it is for.
        stream: StreamId,
    },
    /// A segment was given back to the device.
    Released {
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
        /// The stream it was for.
        stream: StreamId,
    },
    /// A request was refused.
    OutOfMemory {
        /// The size asked for.
        requested: u64,
        /// The stream asked for.
        stream: StreamId,
    },
}

/// A happening with its place in the order of all, and what the pool held right after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolEventRecord {
    /// Rises by one with each; threads may deliver theirs out of order.
    pub sequence: u64,
    /// What happened.
    pub event: PoolEvent,
    /// Bytes handed out.
    pub allocated_bytes: u64,
    /// Bytes in segments.
    pub reserved_bytes: u64,
}

/// Is told of everything that a pool does.
pub type Monitor = Arc<dyn Fn(&PoolEventRecord) + Send + Sync>;

/// Is asked to free memory when there is too little: told the bytes and the stream.
pub type OutOfMemoryCallback = Arc<dyn Fn(u64, StreamId) + Send + Sync>;

/// Names a registered out-of-memory callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallbackId(pub(super) u64);

/// Those who are called, and what they are still to be told.
#[derive(Default)]
pub(super) struct Observers {
    pub monitor: Option<Monitor>,
    pub callbacks: Vec<(CallbackId, OutOfMemoryCallback)>,
    pub next_callback: u64,
    pub undelivered: Vec<PoolEventRecord>,
    next_sequence: u64,
}

impl Heap {
    /// Keeps a notice for the monitor, if there is one, until the lock is free.
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

/// What a thread is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallbackKind {
    Monitor,
    OutOfMemory,
}

thread_local! {
    /// Callbacks of pools that this thread is inside of. A monitor that allocates is not told of it, and a rescue that
    /// runs out of memory is not rescued: either would go on for ever.
    static INSIDE: RefCell<Vec<(usize, CallbackKind)>> = const { RefCell::new(Vec::new()) };
}

/// Marks this thread as inside a callback until dropped, also by a panic.
pub(super) struct CallbackGuard;

impl CallbackGuard {
    /// `None` when the thread is inside such a callback of this pool already.
    pub fn enter(pool: usize, kind: CallbackKind) -> Option<CallbackGuard> {
        let entered = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            if inside.contains(&(pool, kind)) {
                return None;
            }
            inside.push((pool, kind));
            Some(CallbackGuard)
        });
        // A thread that is ending has lost its list: it calls nobody.
        entered.ok().flatten()
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}
