//! The memory pool of a device: a caching, stream-ordered allocator of blocks within segments from
//! the driver.
//!
//! Memory freed on a stream is reused on that stream immediately: stream order separates the uses.
//! A block that other streams use ([`Pool::record_stream`]) is reused only when events that were
//! recorded on those streams at the free are done. `heap.rs` splits and merges blocks, `pending.rs`
//! waits for events, `observers.rs` has the callbacks, `driver.rs` is the real [`Backing`] and the
//! only file here with unsafe code; `tests/` has a fake one.
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

/// A block allocated from a [`Pool`]. To be passed to [`Pool::free`] once; a second time is an
/// error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolBlock {
    address: u64,
    bytes: u64,
    serial: u64,
    slot: u32,
    stream: StreamId,
    /// The pool that allocated it.
    pool: PoolId,
}

/// Identifies a pool, also if backings return the same addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PoolId(u64);

impl PoolId {
    fn next() -> PoolId {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        PoolId(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

impl PoolBlock {
    /// Returns the address, a multiple of 512.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the requested size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the stream that may use it without synchronization.
    pub fn stream(&self) -> StreamId {
        self.stream
    }
}

/// A device's memory pool. Thread-safe.
pub struct Pool {
    backing: Arc<dyn Backing>,
    heap: Mutex<Heap>,
}

impl Pool {
    /// Creates an empty pool.
    pub fn new(backing: Arc<dyn Backing>) -> Pool {
        let heap = Mutex::new(Heap::new(backing.total_bytes()));
        Pool { backing, heap }
    }

    /// Allocates `bytes` uninitialized bytes for work on `stream`. The caller's location and `tag`
    /// are recorded for reports.
    ///
    /// If memory is short, it waits for other streams (other threads' calls block meanwhile), calls
    /// the out-of-memory callbacks, releases the cache, and only then fails with
    /// [`crate::Error::OutOfMemory`].
    #[track_caller]
    pub fn alloc(&self, bytes: u64, stream: StreamId, tag: Tag) -> Result<PoolBlock> {
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
            // Blocks that another thread freed in the meantime may be pending.
            result = heap.reclaim_pending(backing, true).and_then(|()| {
                heap.release_idle(backing, |_| u64::MAX)?;
                match heap.try_alloc(backing, &request)? {
                    None => heap.allocate_from_large(backing, &request),
                    block => Ok(block),
                }
            });
        }
        // A segment that could not be released is dropped; that is no reason to fail the
        // allocation.
        let _ = heap.trim(backing);
        let result = match result {
            Ok(Some(block)) => Ok(block),
            Ok(None) => Err(heap.out_of_memory(backing, bytes, stream)),
            Err(error) => Err(error),
        };
        self.unlock(heap, result)
    }

    /// Records that work on another stream uses a block: after a free it is not reused before that
    /// work is done.
    ///
    /// The caller must make the other stream wait for the block's stream before it accesses the
    /// block, since that stream may still use the previous contents.
    pub fn record_stream(&self, block: &PoolBlock, stream: StreamId) -> Result<()> {
        self.lock().record_stream(block, stream)
    }

    /// Frees a block; work already enqueued on its stream may still use it. The block is freed even
    /// if an error reports damage found in debug mode or a segment that the device did not release.
    pub fn free(&self, block: PoolBlock) -> Result<()> {
        let mut heap = self.lock();
        let result = heap.free(&*self.backing, &block);
        self.unlock(heap, result)
    }

    /// Releases all unused segments to the device and returns their bytes. Blocks that other
    /// streams still use stay.
    pub fn empty_cache(&self) -> Result<u64> {
        let mut heap = self.lock();
        let reclaimed = heap.reclaim_pending(&*self.backing, false);
        let result = heap.release_idle(&*self.backing, |_| u64::MAX);
        self.unlock(heap, reclaimed.and(result))
    }

    /// Reserves segments for simultaneous blocks of these sizes on a stream. Does not count as an
    /// allocation, and takes no memory from others: if memory is short it fails without calling
    /// callbacks.
    #[track_caller]
    pub fn warm(&self, sizes: &[u64], stream: StreamId) -> Result<()> {
        let allocated_at = Location::caller();
        let mut heap = self.lock();
        let result = heap.warm(&*self.backing, sizes, stream, allocated_at);
        self.unlock(heap, result)
    }

    /// Returns the tag of a name, the same for equal names.
    pub fn tag(&self, name: &str) -> Tag {
        self.lock().tags.intern(name)
    }

    /// Returns the statistics.
    pub fn stats(&self) -> PoolStats {
        self.lock().stats()
    }

    /// Resets the peaks to the current values.
    pub fn reset_peak(&self) {
        let counters = &mut self.lock().counters;
        counters.peak_allocated = counters.allocated;
        counters.peak_reserved = counters.reserved;
    }

    /// Returns all segments and blocks.
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

    /// Includes the pool's statistics in the profiler's reports under a name while the pool lives.
    /// Pools of GPUs are included anyway.
    pub fn register_with_profiler(self: &Arc<Pool>, device: impl Into<String>) {
        let pool = Arc::downgrade(self);
        profile::register_pool(device, move || serde_json::to_value(pool.upgrade()?.stats()).ok());
    }

    /// Applies limits and debug mode.
    pub fn apply(&self, settings: &PoolSettings) -> Result<()> {
        self.set_fraction(settings.limits.fraction)?;
        self.set_limit(settings.limits.bytes)?;
        self.set_cache_limit(settings.limits.cache_bytes)?;
        self.set_debug(settings.debug);
        Ok(())
    }

    /// Returns the limits.
    pub fn limits(&self) -> PoolLimits {
        self.lock().limits
    }

    /// Limits the pool's segments to a fraction of the device's memory, 0 to 1. If more is reserved
    /// already, cached memory is released and nothing is added.
    pub fn set_fraction(&self, fraction: f64) -> Result<()> {
        let fraction = bornite_support::memory::validate_fraction(fraction)?;
        self.limit(|limits| limits.fraction = fraction)
    }

    /// Limits the pool's segments to a number of bytes, like [`Pool::set_fraction`]; the smaller
    /// limit applies.
    pub fn set_limit(&self, bytes: Option<u64>) -> Result<()> {
        self.limit(|limits| limits.bytes = bytes)
    }

    /// Limits the memory cached for reuse: free memory above it is released to the device, in
    /// complete segments.
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

    /// Turns debug mode on or off for later allocations: guard bytes after each block, checked when
    /// it is freed ([`crate::Error::Overrun`]), and a pattern over freed memory. Slow: each free
    /// waits for the stream.
    pub fn set_debug(&self, on: bool) {
        self.lock().debug = on;
    }

    /// Sets a callback for all events of the pool, called on the thread that causes them and
    /// without the pool's lock. Events that the monitor itself causes are not reported to it. A
    /// monitor that uses the pool should hold it by a `Weak`, or the two keep each other alive.
    pub fn set_monitor(&self, monitor: Option<Monitor>) {
        let before = std::mem::replace(&mut self.lock().observers.monitor, monitor);
        drop(before); // without the lock: it may own blocks
    }

    /// Registers a callback that frees memory when memory is short, called without the pool's lock.
    /// If it runs out of memory itself, it is not called again.
    pub fn on_out_of_memory(&self, callback: OutOfMemoryCallback) -> CallbackId {
        let observers = &mut self.lock().observers;
        let id = CallbackId(observers.next_callback);
        observers.next_callback += 1;
        observers.callbacks.push((id, callback));
        id
    }

    /// Removes an out-of-memory callback; returns true if there was one. A call in progress on
    /// another thread continues.
    pub fn remove_out_of_memory_callback(&self, id: CallbackId) -> bool {
        let mut heap = self.lock();
        let Some(at) = heap.observers.callbacks.iter().position(|(of, _)| *of == id) else { return false };
        let removed = heap.observers.callbacks.remove(at);
        drop(heap);
        drop(removed); // without the lock: it may own blocks
        true
    }
}

// Internals.
impl Pool {
    fn lock(&self) -> MutexGuard<'_, Heap> {
        #[cfg(test)]
        tests::schedule::point();
        // The heap is consistent wherever a panic could start: callbacks run without the lock.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock, then delivers events to the monitor.
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

    /// Calls the out-of-memory callbacks without the lock.
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

    /// Identifies this pool while it is borrowed.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Pool {
    /// Releases all segments, after the work that uses them. Errors are ignored.
    fn drop(&mut self) {
        let mut heap = self.lock();
        heap.close(&*self.backing);
        self.unlock(heap, ());
    }
}
