//! The memory pool of a device: segments from the driver, cut into blocks that are handed out and taken back in
//! nanoseconds, in the order of streams.
//!
//! Memory freed on a stream is handed out again on that stream at once: the stream's own order keeps the uses apart.
//! A block that other streams used ([`Pool::record_stream`]) comes back only when events recorded on those streams at the
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
mod observers;
mod out_of_memory;
mod pending;
mod segments;
mod snapshot;
mod stats;
mod tag;
#[cfg(test)]
mod tests;
mod warm;

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use backing::{Backing, EventId, StreamId};
pub use bornite_support::memory::{
    CACHE_VARIABLE, DEBUG_VARIABLE, FRACTION_VARIABLE, LIMIT_VARIABLE, PoolLimits, PoolSettings,
};
pub use driver::DriverBacking;
pub use heap::{BlockState, SizeClass};
pub use limits::Cap;
pub use observers::{CallbackId, Monitor, OutOfMemoryCallback, PoolEvent, PoolEventRecord};
pub use out_of_memory::{OutOfMemoryReport, TagUsage};
pub use snapshot::{BlockView, SegmentView, Snapshot};
pub use stats::PoolStats;
pub use tag::Tag;

use bornite_support::profile;

use crate::Result;
use heap::{AllocRequest, Heap};
use observers::{CallbackGuard, CallbackKind};

/// A block that a [`Pool`] handed out. To be given to [`Pool::free`] once; a second time is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    address: u64,
    bytes: u64,
    serial: u64,
    slot: u32,
    stream: StreamId,
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
    pub fn stream(&self) -> StreamId {
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
    /// callbacks, gives the cache back, and only then fails, with [`crate::Error::OutOfMemory`].
    #[track_caller]
    pub fn alloc(&self, bytes: u64, stream: StreamId, tag: Tag) -> Result<Block> {
        let backing = &*self.backing;
        let allocated_at = Location::caller();
        let mut heap = self.lock();
        let guard = if heap.debug { debug::GUARD_BYTES } else { 0 };
        let Some(need) = heap.round_size(bytes, guard) else {
            let result = Err(heap.out_of_memory(backing, bytes, stream));
            return self.unlock(heap, result);
        };
        let request = AllocRequest { bytes, need, guard, stream, tag, allocated_at };
        #[cfg(test)]
        if heap.has_fault(fault::Fault::TwoLocks) {
            return self.alloc_with_two_locks(heap, &request);
        }
        let mut result = heap.try_alloc(backing, &request);
        if let Ok(None) = result {
            heap.counters.retries += 1;
            result = heap.reclaim_pending(backing, true).and_then(|()| heap.try_alloc(backing, &request));
        }
        if let Ok(None) = result {
            heap = self.call_out_of_memory_callbacks(heap, &request);
            heap.counters.retries += 1;
            result = heap.try_alloc(backing, &request);
        }
        if let Ok(None) = result
            && !heap.has_fault(fault::Fault::SkipTrim)
        {
            heap.counters.retries += 1;
            // What another thread freed meanwhile may be pending again.
            result = heap.reclaim_pending(backing, true).and_then(|()| {
                heap.release_idle(backing, |_| u64::MAX)?;
                match heap.try_alloc(backing, &request)? {
                    None => heap.allocate_from_large(backing, &request),
                    block => Ok(block),
                }
            });
        }
        // A segment that could not be given back is forgotten; that is no reason to refuse the block.
        let _ = heap.trim(backing);
        let result = match result {
            Ok(Some(block)) => Ok(block),
            Ok(None) => Err(heap.out_of_memory(backing, bytes, stream)),
            Err(error) => Err(error),
        };
        self.unlock(heap, result)
    }

    /// Says that work on another stream uses a block: once freed, it is not handed out before that work is done.
    ///
    /// The other stream must itself be made to wait for the block's stream before it touches the block, since that
    /// stream may still work on what was there before.
    pub fn record_stream(&self, block: &Block, stream: StreamId) -> Result<()> {
        self.lock().record_stream(block, stream)
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
        let reclaimed = heap.reclaim_pending(&*self.backing, false);
        let result = heap.release_idle(&*self.backing, |_| u64::MAX);
        self.unlock(heap, reclaimed.and(result))
    }

    /// Reserves now what blocks of these sizes, all at once, will need on a stream. Counts as no allocation, and
    /// takes nothing from others: where memory is short it fails and calls nobody.
    #[track_caller]
    pub fn warm(&self, sizes: &[u64], stream: StreamId) -> Result<()> {
        let allocated_at = Location::caller();
        let mut heap = self.lock();
        let result = heap.warm(&*self.backing, sizes, stream, allocated_at);
        self.unlock(heap, result)
    }

    /// The tag of a name, the same for the same name.
    pub fn tag(&self, name: &str) -> Tag {
        self.lock().tags.intern(name)
    }

    /// The counts.
    pub fn stats(&self) -> PoolStats {
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
    pub fn register_with_profiler(self: &Arc<Pool>, device: impl Into<String>) {
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
        let reclaimed = heap.reclaim_pending(backing, false);
        let released = heap.release_idle(backing, |heap| heap.counters.reserved.saturating_sub(cap));
        let trimmed = heap.trim(backing);
        self.unlock(heap, reclaimed.and(released).and(trimmed))
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
        let before = std::mem::replace(&mut self.lock().observers.monitor, monitor);
        drop(before); // without the lock: it may own blocks
    }

    /// Has `callback` called when memory is short, to free what it can, without the pool's lock. One that runs out of
    /// memory itself is not called again for that.
    pub fn on_out_of_memory(&self, callback: OutOfMemoryCallback) -> CallbackId {
        let observers = &mut self.lock().observers;
        let id = CallbackId(observers.next_callback);
        observers.next_callback += 1;
        observers.callbacks.push((id, callback));
        id
    }

    /// Removes an out-of-memory callback; says whether there was one. A call under way on another thread goes on.
    pub fn remove_out_of_memory_callback(&self, id: CallbackId) -> bool {
        let mut heap = self.lock();
        let Some(at) = heap.observers.callbacks.iter().position(|(of, _)| *of == id) else { return false };
        let removed = heap.observers.callbacks.remove(at);
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
        if !heap.observers.undelivered.is_empty() {
            let undelivered = std::mem::take(&mut heap.observers.undelivered);
            let monitor = heap.observers.monitor.clone();
            drop(heap);
            if let Some(monitor) = monitor
                && let Some(_entered) = CallbackGuard::enter(self.id(), CallbackKind::Monitor)
            {
                undelivered.iter().for_each(|record| monitor(record));
            }
        }
        result
    }

    /// Calls the out-of-memory callbacks, without the lock.
    #[cold]
    fn call_out_of_memory_callbacks<'a>(
        &'a self,
        heap: MutexGuard<'a, Heap>,
        request: &AllocRequest,
    ) -> MutexGuard<'a, Heap> {
        if heap.observers.callbacks.is_empty() {
            return heap;
        }
        let Some(entered) = CallbackGuard::enter(self.id(), CallbackKind::OutOfMemory) else { return heap };
        let callbacks = heap.observers.callbacks.clone();
        self.unlock(heap, ());
        for (_, callback) in &callbacks {
            callback(request.bytes, request.stream);
        }
        drop((entered, callbacks)); // without the lock: one removed meanwhile may own blocks
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
