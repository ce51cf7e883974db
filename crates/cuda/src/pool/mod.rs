//! The memory pool of a device: segments from the driver, cut into blocks that are handed out and taken back in
//! nanoseconds, in the order of streams.
//!
//! Memory freed on a stream is handed out again on that stream at once: the stream's own order keeps the uses apart.
//! A block that other streams used ([`Pool::used_on`]) comes back only when events recorded on those streams at the
//! free are done. Where to look: `heap.rs` cuts and joins blocks, `pending.rs` waits for events, `watch.rs` calls
//! back, `driver.rs` is the real [`Backing`], and the only file here that may be unsafe; `tests/` has a made-up one.
#![deny(unsafe_code)]

mod backing;
mod debug;
#[allow(unsafe_code)]
mod driver;
mod fault;
mod heap;
mod limits;
mod pending;
mod segments;
mod shortage;
mod snapshot;
mod stats;
mod tag;
#[cfg(test)]
mod tests;
mod warm;
mod watch;

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use backing::{Backing, Event, Stream};
pub use bornite_support::memory::{
    CACHE_VARIABLE, DEBUG_VARIABLE, FRACTION_VARIABLE, LIMIT_VARIABLE, PoolLimits, PoolSettings,
};
pub use driver::DriverBacking;
pub use heap::{Class, State};
pub use limits::Cap;
pub use shortage::{Holder, Shortage};
pub use snapshot::{BlockView, SegmentView, Snapshot};
pub use stats::Stats;
pub use tag::Tag;
pub use watch::{Happening, Monitor, Notice, Rescue, RescueId};

use bornite_support::profile;

use crate::Result;
use heap::{Heap, Request};
use watch::{Entered, Role};

/// A block that a [`Pool`] handed out. To be given to [`Pool::free`] once; a second time is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    address: u64,
    bytes: u64,
    serial: u64,
    slot: u32,
    stream: Stream,
    /// The pool that handed it out.
    pool: PoolId,
}

/// Tells pools apart, also those whose backings give the same addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PoolId(u64);

impl PoolId {
    fn next() -> PoolId {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        PoolId(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Block {
    /// Where it begins: a multiple of 512.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes as asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The stream that may use it without further ado.
    pub fn stream(&self) -> Stream {
        self.stream
    }
}

/// A device's memory pool. All calls may come from any thread.
pub struct Pool {
    backing: Arc<dyn Backing>,
    heap: Mutex<Heap>,
}

impl Pool {
    /// An empty pool.
    pub fn new(backing: Arc<dyn Backing>) -> Pool {
        let heap = Mutex::new(Heap::new(backing.total_bytes()));
        Pool { backing, heap }
    }

    /// Hands out `bytes` bytes, not initialised, for work on `stream`. The caller's line and `tag` are kept to say who
    /// holds memory.
    ///
    /// When memory is short: waits for other streams (and other threads' calls wait meanwhile), asks the out-of-memory
    /// callbacks, gives the cache back, and only then fails, with [`crate::Error::Exhausted`].
    #[track_caller]
    pub fn alloc(&self, bytes: u64, stream: Stream, tag: Tag) -> Result<Block> {
        let backing = &*self.backing;
        let asked_at = Location::caller();
        let mut heap = self.lock();
        let guard = if heap.debug { debug::GUARD_BYTES } else { 0 };
        let Some(need) = heap.rounded(bytes, guard) else {
            let result = Err(heap.exhausted(backing, bytes, stream));
            return self.unlock(heap, result);
        };
        let request = Request { bytes, need, guard, stream, tag, asked_at };
        #[cfg(test)]
        if heap.faulty(fault::Fault::TwoLocks) {
            return self.alloc_with_two_locks(heap, &request);
        }
        let mut result = heap.attempt(backing, &request);
        if let Ok(None) = result {
            heap.counters.retries += 1;
            result = heap.settle(backing, true).and_then(|()| heap.attempt(backing, &request));
        }
        if let Ok(None) = result {
            heap = self.rescue(heap, &request);
            heap.counters.retries += 1;
            result = heap.attempt(backing, &request);
        }
        if let Ok(None) = result
            && !heap.faulty(fault::Fault::SkipTrim)
        {
            heap.counters.retries += 1;
            // What another thread freed meanwhile may be pending again.
            result = heap.settle(backing, true).and_then(|()| {
                heap.shed(backing, |_| u64::MAX)?;
                match heap.attempt(backing, &request)? {
                    None => heap.last_resort(backing, &request),
                    block => Ok(block),
                }
            });
        }
        // A segment that could not be given back is forgotten; that is no reason to refuse the block.
        let _ = heap.trim(backing);
        let result = match result {
            Ok(Some(block)) => Ok(block),
            Ok(None) => Err(heap.exhausted(backing, bytes, stream)),
            Err(error) => Err(error),
        };
        self.unlock(heap, result)
    }

    /// Says that work on another stream uses a block: once freed, it is not handed out before that work is done.
    ///
    /// The other stream must itself be made to wait for the block's stream before it touches the block, since that
    /// stream may still work on what was there before.
    pub fn used_on(&self, block: &Block, stream: Stream) -> Result<()> {
        self.lock().used_on(block, stream)
    }

    /// Takes a block back; work given to its stream before may still use it. The block is back even where an error
    /// tells of damage found in debug mode or of a segment that the device did not take back.
    pub fn free(&self, block: Block) -> Result<()> {
        let mut heap = self.lock();
        let result = heap.free(&*self.backing, &block);
        self.unlock(heap, result)
    }

    /// Gives all memory that nobody uses back to the device; says how many bytes. Blocks that other streams still use
    /// stay.
    pub fn empty_cache(&self) -> Result<u64> {
        let mut heap = self.lock();
        let settled = heap.settle(&*self.backing, false);
        let result = heap.shed(&*self.backing, |_| u64::MAX);
        self.unlock(heap, settled.and(result))
    }

    /// Reserves now what blocks of these sizes, all at once, will need on a stream. Counts as no allocation, and
    /// takes nothing from others: where memory is short it fails and calls nobody.
    #[track_caller]
    pub fn warm(&self, sizes: &[u64], stream: Stream) -> Result<()> {
        let asked_at = Location::caller();
        let mut heap = self.lock();
        let result = heap.warm(&*self.backing, sizes, stream, asked_at);
        self.unlock(heap, result)
    }

    /// The tag of a name, the same for the same name.
    pub fn tag(&self, name: &str) -> Tag {
        self.lock().tags.intern(name)
    }

    /// The counts.
    pub fn stats(&self) -> Stats {
        self.lock().stats()
    }

    /// Starts the peaks anew from what is held now.
    pub fn reset_peak(&self) {
        let counters = &mut self.lock().counters;
        counters.peak_allocated = counters.allocated;
        counters.peak_reserved = counters.reserved;
    }

    /// Every segment and block.
    pub fn snapshot(&self) -> Snapshot {
        let device = self.backing.name();
        let heap = self.lock();
        Snapshot {
            version: 1,
            device,
            total_bytes: heap.total_bytes,
            limits: heap.limits,
            stats: heap.stats(),
            segments: heap.segments(true),
        }
    }

    /// Has the pool's counts in the profiler's reports under a name, as long as the pool lives. Those of GPUs are there anyway.
    pub fn watch(self: &Arc<Pool>, device: impl Into<String>) {
        let pool = Arc::downgrade(self);
        profile::register_pool(device, move || serde_json::to_value(pool.upgrade()?.stats()).ok());
    }

    /// Sets up limits and debug mode.
    pub fn apply(&self, settings: &PoolSettings) -> Result<()> {
        self.set_fraction(settings.limits.fraction)?;
        self.set_limit(settings.limits.bytes)?;
        self.set_cache_limit(settings.limits.cache_bytes)?;
        self.set_debug(settings.debug);
        Ok(())
    }

    /// The limits in force.
    pub fn limits(&self) -> PoolLimits {
        self.lock().limits
    }

    /// Bounds the pool's segments by a share of the device's memory, 0 to 1. Where more is held already, what is cached
    /// goes back and the rest stays, but nothing is added.
    pub fn set_fraction(&self, fraction: f64) -> Result<()> {
        let fraction = bornite_support::memory::validate_fraction(fraction)?;
        self.limit(|limits| limits.fraction = fraction)
    }

    /// Bounds the pool's segments by a number of bytes; as [`Pool::set_fraction`], and the smaller of the two holds.
    pub fn set_limit(&self, bytes: Option<u64>) -> Result<()> {
        self.limit(|limits| limits.bytes = bytes)
    }

    /// Bounds what is kept for reuse: freed memory above it goes back to the device, in whole segments.
    pub fn set_cache_limit(&self, bytes: Option<u64>) -> Result<()> {
        self.limit(|limits| limits.cache_bytes = bytes)
    }

    fn limit(&self, change: impl FnOnce(&mut PoolLimits)) -> Result<()> {
        let backing = &*self.backing;
        let mut heap = self.lock();
        change(&mut heap.limits);
        let (cap, _) = Cap::of(&heap.limits, heap.total_bytes);
        let settled = heap.settle(backing, false);
        let shed = heap.shed(backing, |heap| heap.counters.reserved.saturating_sub(cap));
        let trimmed = heap.trim(backing);
        self.unlock(heap, settled.and(shed).and(trimmed))
    }

    /// Debug mode, for blocks handed out from now on: guard bytes behind each, checked when it is freed
    /// ([`crate::Error::Overrun`]), and a pattern written over freed memory. Slow: each free waits for the stream.
    pub fn set_debug(&self, on: bool) {
        self.lock().debug = on;
    }

    /// Has `monitor` told of everything that happens from now on, on the thread it happens on and without the pool's
    /// lock. What a monitor does with the pool itself is not reported to it. To do so it should hold the pool by a
    /// `Weak`, or the two keep each other alive.
    pub fn set_monitor(&self, monitor: Option<Monitor>) {
        let before = std::mem::replace(&mut self.lock().watchers.monitor, monitor);
        drop(before); // without the lock: it may own blocks
    }

    /// Has `rescue` called when memory is short, to free what it can, without the pool's lock. One that runs out of
    /// memory itself is not called again for that.
    pub fn on_out_of_memory(&self, rescue: Rescue) -> RescueId {
        let watchers = &mut self.lock().watchers;
        let id = RescueId(watchers.next_rescue);
        watchers.next_rescue += 1;
        watchers.rescues.push((id, rescue));
        id
    }

    /// Removes an out-of-memory callback; says whether there was one. A call under way on another thread goes on.
    pub fn remove_out_of_memory(&self, id: RescueId) -> bool {
        let mut heap = self.lock();
        let Some(at) = heap.watchers.rescues.iter().position(|(of, _)| *of == id) else { return false };
        let removed = heap.watchers.rescues.remove(at);
        drop(heap);
        drop(removed); // without the lock: it may own blocks
        true
    }
}

// Behind the calls.
impl Pool {
    fn lock(&self) -> MutexGuard<'_, Heap> {
        #[cfg(test)]
        tests::schedule::point();
        // Nothing of the heap is left half done where a panic could begin: callbacks run without the lock.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the lock go, then tells the monitor what happened under it.
    fn unlock<R>(&self, mut heap: MutexGuard<'_, Heap>, result: R) -> R {
        if !heap.watchers.notices.is_empty() {
            let notices = std::mem::take(&mut heap.watchers.notices);
            let monitor = heap.watchers.monitor.clone();
            drop(heap);
            if let Some(monitor) = monitor
                && let Some(_entered) = Entered::enter(self.id(), Role::Monitor)
            {
                notices.iter().for_each(|notice| monitor(notice));
            }
        }
        result
    }

    /// Calls the out-of-memory callbacks, without the lock.
    #[cold]
    fn rescue<'a>(&'a self, heap: MutexGuard<'a, Heap>, request: &Request) -> MutexGuard<'a, Heap> {
        if heap.watchers.rescues.is_empty() {
            return heap;
        }
        let Some(entered) = Entered::enter(self.id(), Role::Rescue) else { return heap };
        let rescues = heap.watchers.rescues.clone();
        self.unlock(heap, ());
        for (_, rescue) in &rescues {
            rescue(request.bytes, request.stream);
        }
        drop((entered, rescues)); // without the lock: one removed meanwhile may own blocks
        self.lock()
    }

    /// Tells this pool from others while it is borrowed.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Pool {
    /// Returns every segment, after the work that uses it. Errors are not told: there is nobody left to tell.
    fn drop(&mut self) {
        let mut heap = self.lock();
        heap.close(&*self.backing);
        self.unlock(heap, ());
    }
}
