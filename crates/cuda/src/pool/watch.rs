//! Who is told of what a pool does. Everyone is called without the pool's lock, so that they may call the pool.

use std::cell::RefCell;
use std::sync::Arc;

use super::heap::Heap;
use super::{Stream, Tag};

/// Something that a pool did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happening {
    /// A block was handed out.
    Allocated {
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
        /// The size asked for.
        requested: u64,
        /// Its stream.
        stream: Stream,
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
        stream: Stream,
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
        stream: Stream,
    },
    /// A segment was given back to the device.
    Released {
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
        /// The stream it was for.
        stream: Stream,
    },
    /// A request was refused.
    OutOfMemory {
        /// The size asked for.
        requested: u64,
        /// The stream asked for.
        stream: Stream,
    },
}

/// A happening with its place in the order of all, and what the pool held right after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Rises by one with each; threads may deliver theirs out of order.
    pub number: u64,
    /// What happened.
    pub what: Happening,
    /// Bytes handed out.
    pub allocated_bytes: u64,
    /// Bytes in segments.
    pub reserved_bytes: u64,
}

/// Is told of everything that a pool does.
pub type Monitor = Arc<dyn Fn(&Notice) + Send + Sync>;

/// Is asked to free memory when there is too little: told the bytes and the stream.
pub type Rescue = Arc<dyn Fn(u64, Stream) + Send + Sync>;

/// Names a registered out-of-memory callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RescueId(pub(super) u64);

/// Those who are called, and what they are still to be told.
#[derive(Default)]
pub(super) struct Watchers {
    pub monitor: Option<Monitor>,
    pub rescues: Vec<(RescueId, Rescue)>,
    pub next_rescue: u64,
    pub notices: Vec<Notice>,
    count: u64,
}

impl Heap {
    /// Keeps a notice for the monitor, if there is one, until the lock is free.
    #[inline]
    pub(super) fn note(&mut self, what: Happening) {
        if self.watchers.monitor.is_some() {
            self.keep_notice(what);
        }
    }

    #[cold]
    fn keep_notice(&mut self, what: Happening) {
        let (allocated_bytes, reserved_bytes) = (self.counters.allocated, self.counters.reserved);
        let number = self.watchers.count;
        self.watchers.count += 1;
        self.watchers.notices.push(Notice { number, what, allocated_bytes, reserved_bytes });
    }
}

/// What a thread is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Monitor,
    Rescue,
}

thread_local! {
    /// Callbacks of pools that this thread is inside of. A monitor that allocates is not told of it, and a rescue that
    /// runs out of memory is not rescued: either would go on for ever.
    static INSIDE: RefCell<Vec<(usize, Role)>> = const { RefCell::new(Vec::new()) };
}

/// Marks this thread as inside a callback until dropped, also by a panic.
pub(super) struct Entered;

impl Entered {
    /// `None` when the thread is inside such a callback of this pool already.
    pub fn enter(pool: usize, role: Role) -> Option<Entered> {
        let entered = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            if inside.contains(&(pool, role)) {
                return None;
            }
            inside.push((pool, role));
            Some(Entered)
        });
        // A thread that is ending has lost its list: it calls nobody.
        entered.ok().flatten()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}
