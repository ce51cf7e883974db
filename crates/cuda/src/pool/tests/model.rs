//! Random operations on a pool, each followed by a check of all invariants.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use super::Random;
use super::fake::{Failure, Fake, MIB};
use crate::Error;
use crate::pool::Cap;
use crate::pool::fault::Fault;
use crate::pool::heap::{BLOCK_ALIGNMENT, SizeClass};
use crate::pool::segments::SEGMENT_ALIGNMENT;
use crate::pool::{BlockState, Pool, PoolBlock, PoolStats, SegmentView, StreamId, Tag};

pub const STREAMS: u64 = 3;

/// Blocks are named by their index among the live ones, modulo their number, so that any subset of
/// operations is valid.
#[derive(Clone, Debug)]
pub enum PoolOp {
    Alloc { bytes: u64, stream: StreamId },
    Free { block: usize },
    Use { block: usize, stream: StreamId },
    Finish { stream: StreamId, count: u64 },
    EmptyCache,
    Warm { sizes: Vec<u64>, stream: StreamId },
    Limit(Option<u64>),
    Fraction(f64),
    CacheLimit(Option<u64>),
    ResetPeak,
    Debug(bool),
}

impl PoolOp {
    pub fn random(random: &mut Random) -> PoolOp {
        let stream = StreamId(random.below(STREAMS) as u32);
        let block = random.below(1 << 16) as usize;
        let limit = |random: &mut Random| (random.below(3) > 0).then(|| random.below(160) * MIB / 2);
        match random.below(100) {
            0..38 => PoolOp::Alloc { bytes: size(random), stream },
            38..62 => PoolOp::Free { block },
            62..74 => PoolOp::Use { block, stream },
            74..84 => PoolOp::Finish { stream, count: 1 + random.below(4) },
            84..88 => PoolOp::EmptyCache,
            88..90 => PoolOp::Warm { sizes: (0..random.below(4)).map(|_| size(random)).collect(), stream },
            90..92 => PoolOp::Limit(limit(random)),
            92..94 => PoolOp::Fraction([0.0, 0.25, 0.5, 0.9, 1.0][random.below(5) as usize]),
            94..97 => PoolOp::CacheLimit(limit(random)),
            97..98 => PoolOp::ResetPeak,
            _ => PoolOp::Debug(random.below(3) == 0),
        }
    }

    pub fn sequence(seed: u64) -> Vec<PoolOp> {
        let mut random = Random(seed);
        let len = 10 + random.below(40);
        (0..len).map(|_| PoolOp::random(&mut random)).collect()
    }
}

/// Random sizes, many of them around the thresholds of the pool.
fn size(random: &mut Random) -> u64 {
    let offset = random.below(5);
    let near = |border: u64| border - 2 + offset;
    match random.below(16) {
        0 => random.below(3),
        1..4 => random.below(4 * BLOCK_ALIGNMENT),
        4..6 => near(BLOCK_ALIGNMENT * (1 + random.below(8))),
        6..9 => random.below(MIB),
        9 => near(MIB),
        10..13 => random.below(10 * MIB),
        13 => near(10 * MIB),
        14 => random.below(40 * MIB),
        _ => near([2 * MIB, 20 * MIB, 60 * MIB, u64::MAX - 2][random.below(4) as usize]),
    }
}

/// A pool, its fake GPU, and the expected counts.
pub struct World {
    pub fake: Arc<Fake>,
    pub pool: Pool,
    live: Vec<PoolBlock>,
    debug: bool,
    /// Bytes in segments before the step.
    reserved: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
    total: u64,
    peak: u64,
}

impl World {
    pub fn new(capacity: u64, fault: Option<Fault>, failure: Option<Failure>) -> World {
        let fake = Arc::new(Fake::new(capacity));
        fake.gpu().failure = failure;
        let pool = Pool::new(fake.clone());
        pool.heap.lock().unwrap_or_else(PoisonError::into_inner).fault = fault;
        let (live, debug) = (vec![], false);
        World { fake, pool, live, debug, reserved: 0, allocations: 0, frees: 0, failures: 0, total: 0, peak: 0 }
    }

    fn pick(&self, block: usize) -> Option<usize> {
        (!self.live.is_empty()).then(|| block % self.live.len().max(1))
    }

    pub fn step(&mut self, op: &PoolOp) -> Result<(), String> {
        let mut outcome = Ok(());
        match op {
            &PoolOp::Alloc { bytes, stream } => match self.pool.alloc(bytes, stream, Tag::default()) {
                Ok(block) => self.allocated(block)?,
                Err(error) => outcome = Err((error, Some((bytes, stream)))),
            },
            &PoolOp::Free { block } => {
                if let Some(at) = self.pick(block) {
                    let block = self.live.swap_remove(at);
                    self.frees += 1;
                    outcome = self.pool.free(block).map_err(|error| (error, None));
                    if !matches!(self.pool.free(block), Err(Error::NotAllocated { .. })) {
                        return Err("a block could be freed twice".into());
                    }
                }
            }
            &PoolOp::Use { block, stream } => {
                if let Some(at) = self.pick(block) {
                    let block = self.live[at];
                    self.pool.record_stream(&block, stream).map_err(|error| error.to_string())?;
                    self.fake.launch(stream, block.address(), block.bytes());
                }
            }
            &PoolOp::Finish { stream, count } => self.fake.finish(stream, count),
            PoolOp::EmptyCache => outcome = self.pool.empty_cache().map(drop).map_err(|error| (error, None)),
            PoolOp::Warm { sizes, stream } => outcome = self.pool.warm(sizes, *stream).map_err(|error| (error, None)),
            &PoolOp::Limit(bytes) => outcome = self.pool.set_limit(bytes).map_err(|error| (error, None)),
            &PoolOp::Fraction(fraction) => outcome = self.pool.set_fraction(fraction).map_err(|error| (error, None)),
            &PoolOp::CacheLimit(bytes) => outcome = self.pool.set_cache_limit(bytes).map_err(|error| (error, None)),
            PoolOp::ResetPeak => {
                self.pool.reset_peak();
                self.peak = self.pool.stats().allocated;
            }
            &PoolOp::Debug(on) => {
                self.debug = on;
                self.pool.set_debug(on);
            }
        }
        match outcome {
            Ok(()) => {}
            Err((Error::OutOfMemory(_), requested)) => {
                self.failures += 1;
                if let Some((bytes, stream)) = requested {
                    self.check_out_of_memory(bytes, stream)?;
                }
            }
            Err((error, _)) if !self.fake.gpu().failed => return Err(format!("unexpected error: {error}")),
            Err(_) => {}
        }
        self.check()
    }

    fn allocated(&mut self, block: PoolBlock) -> Result<(), String> {
        let range = byte_range(&block);
        if let Some(other) = self.fake.gpu().foreign_work(&range, block.stream()) {
            return Err(format!("{range:x?} is allocated on {:?} while {other:?} uses it", block.stream()));
        }
        self.live.push(block);
        self.allocations += 1;
        let segments = segments(&self.pool);
        let mut blocks = segments.iter().flat_map(|segment| &segment.blocks);
        self.total += blocks.find(|found| found.address == block.address()).map_or(0, |found| found.bytes);
        self.peak = self.peak.max(self.pool.stats().allocated);
        Ok(())
    }

    /// An out-of-memory error is correct only if nothing can be released or waited for.
    fn check_out_of_memory(&self, bytes: u64, stream: StreamId) -> Result<(), String> {
        if self.fake.gpu().failed {
            return Ok(());
        }
        let guard = if self.debug { 64 } else { 0 };
        let Some(need) = bytes.max(1).checked_add(guard).and_then(|n| n.checked_next_multiple_of(BLOCK_ALIGNMENT))
        else {
            return Ok(()); // overflow: nothing is tried
        };
        let heap = self.pool.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = &heap.counters;
        if counters.pending_blocks > 0 || counters.idle > 0 {
            return Err(format!("failed with {} bytes pending and {} idle", counters.pending, counters.idle));
        }
        let serves = |class| class == SizeClass::Large || need <= MIB;
        let free_lists =
            heap.free_lists.iter().filter(|free_list| free_list.stream == stream && serves(free_list.class));
        if free_lists.flat_map(|free_list| &free_list.free).any(|&(free, ..)| free >= need) {
            return Err(format!("{bytes} bytes failed while a free block is large enough"));
        }
        let (cap, _) = Cap::of(&heap.limits, heap.total_bytes);
        let segment = need.checked_next_multiple_of(SEGMENT_ALIGNMENT).and_then(|n| n.checked_add(counters.reserved));
        match segment {
            Some(reserved) if reserved <= cap => Err(format!("{bytes} bytes failed while a segment would fit")),
            _ => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let stats = inspect(&self.pool, &self.fake)?;
        let limits = self.pool.limits();
        let (cap, _) = Cap::of(&limits, self.fake.gpu().capacity);
        if stats.reserved > cap.max(self.reserved) {
            return Err(format!("{} bytes in segments, limit {cap}", stats.reserved));
        }
        self.reserved = stats.reserved;
        let idle = self.pool.heap.lock().unwrap_or_else(PoisonError::into_inner).counters.idle;
        if stats.free > limits.cache_bytes.unwrap_or(u64::MAX) && idle > 0 {
            return Err(format!("{} bytes cached, limit {:?}, {idle} idle", stats.free, limits.cache_bytes));
        }
        same("live blocks", stats.live_blocks, self.live.len() as u64)?;
        same("bytes requested", stats.requested, self.live.iter().map(PoolBlock::bytes).sum())?;
        same("allocations", stats.allocation_count, self.allocations)?;
        same("frees", stats.free_count, self.frees)?;
        same("failures", stats.failures, self.failures)?;
        same("bytes allocated in all", stats.total_allocated, self.total)?;
        same("peak", stats.peak_allocated, self.peak)?;

        let mut live: Vec<(u64, u64, StreamId)> = self.live.iter().map(|b| (b.address, b.bytes, b.stream)).collect();
        live.sort_unstable();
        if let Some(pair) = live.windows(2).find(|pair| pair[0].0 + pair[0].1.max(1) > pair[1].0) {
            return Err(format!("blocks overlap: {pair:x?}"));
        }
        let mut listed: Vec<(u64, u64, StreamId)> = vec![];
        for segment in segments(&self.pool) {
            for block in segment.blocks {
                listed.extend(block.requested.map(|requested| (block.address, requested, segment.stream)));
            }
        }
        listed.sort_unstable();
        if listed == live { Ok(()) } else { Err(format!("live blocks are {live:x?}, listed {listed:x?}")) }
    }
}

fn byte_range(block: &PoolBlock) -> Range<u64> {
    block.address()..block.address() + block.bytes().max(1)
}

fn segments(pool: &Pool) -> Vec<SegmentView> {
    pool.heap.lock().unwrap_or_else(PoisonError::into_inner).segments(false)
}

fn same(what: &str, found: u64, expected: u64) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: counted {found}, should be {expected}")) }
}

/// Checks the invariants of a pool: no gaps in segments, free neighbours merged, counts equal to a
/// recount, and no violations at the GPU.
pub fn inspect(pool: &Pool, fake: &Fake) -> Result<PoolStats, String> {
    let gpu = fake.gpu();
    if let Some(violation) = gpu.violations.first() {
        return Err(violation.clone());
    }
    let heap = pool.heap.lock().unwrap_or_else(PoisonError::into_inner);
    let (stats, segments, idle) = (heap.stats(), heap.segments(false), heap.counters.idle);
    drop(heap);
    let held: Vec<(u64, u64)> = segments.iter().map(|segment| (segment.address, segment.bytes)).collect();
    if !held.iter().copied().eq(gpu.segments.iter().map(|(&address, &bytes)| (address, bytes))) {
        return Err(format!("segments are {:x?}, the pool lists {held:x?}", gpu.segments));
    }
    let (mut live, mut pending, mut free) = ((0, 0), (0, 0), (0, 0));
    let (mut requested, mut largest, mut idle_bytes) = (0, 0, 0);
    for segment in &segments {
        if segment.bytes % SEGMENT_ALIGNMENT != 0 {
            return Err(format!("a segment of {} bytes", segment.bytes));
        }
        let mut end = segment.address;
        for (n, block) in segment.blocks.iter().enumerate() {
            if block.address != end || block.bytes == 0 || block.bytes % BLOCK_ALIGNMENT != 0 {
                return Err(format!("{block:x?} does not continue the segment at {end:#x}"));
            }
            if block.requested.is_some_and(|requested| requested > block.bytes) {
                return Err(format!("{block:x?} is smaller than requested"));
            }
            end += block.bytes;
            let sum = match block.state {
                BlockState::Live => &mut live,
                BlockState::Pending => &mut pending,
                BlockState::Free => &mut free,
            };
            *sum = (sum.0 + 1, sum.1 + block.bytes);
            requested += block.requested.unwrap_or(0);
            if block.state == BlockState::Free {
                largest = largest.max(block.bytes);
                idle_bytes += if segment.blocks.len() == 1 { block.bytes } else { 0 };
                if n > 0 && segment.blocks[n - 1].state == BlockState::Free {
                    return Err(format!("{block:x?} is not merged with its free neighbour"));
                }
            }
        }
        same("segment's end", end, segment.address + segment.bytes)?;
    }
    same("live blocks", stats.live_blocks, live.0)?;
    same("pending blocks", stats.pending_blocks, pending.0)?;
    same("blocks", stats.blocks, live.0 + pending.0 + free.0)?;
    same("bytes allocated", stats.allocated, live.1)?;
    same("bytes pending", stats.pending, pending.1)?;
    same("bytes active", stats.active, live.1 + pending.1)?;
    same("bytes free", stats.free, free.1)?;
    same("bytes cached", stats.cached, pending.1 + free.1)?;
    same("bytes requested", stats.requested, requested)?;
    same("bytes reserved", stats.reserved, gpu.held())?;
    same("bytes idle", idle, idle_bytes)?;
    same("largest free", stats.largest_free, largest)?;
    same("segments", stats.segments, segments.len() as u64)?;
    same("reservations", stats.reservations, gpu.reservations)?;
    same("releases", stats.releases, gpu.releases)?;
    let fragmentation = if free.1 == 0 { 0.0 } else { 1.0 - largest as f64 / free.1 as f64 };
    if stats.fragmentation != fragmentation {
        return Err(format!("fragmentation {} should be {fragmentation}", stats.fragmentation));
    }
    Ok(stats)
}

/// Checks that nothing is left at the GPU once the pool is dropped.
pub fn all_returned(fake: &Fake) -> Result<(), String> {
    let gpu = fake.gpu();
    if let Some(violation) = gpu.violations.first() {
        return Err(violation.clone());
    }
    same("bytes left at the end", gpu.held(), 0)?;
    same("events left at the end", gpu.open_events() as u64, 0)
}

/// Runs a case and drops the pool. Returns the error, or the fake GPU.
pub fn run(ops: &[PoolOp], capacity: u64, fault: Option<Fault>, failure: Option<Failure>) -> Result<Arc<Fake>, String> {
    let caught = |work: &mut dyn FnMut() -> Result<(), String>| {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("panicked".into()))
    };
    // A pool corrupted by a fault is leaked: dropping it might panic again.
    let mut world = ManuallyDrop::new(World::new(capacity, fault, failure));
    caught(&mut || {
        ops.iter().enumerate().try_for_each(|(n, op)| world.step(op).map_err(|e| format!("step {n}: {e}")))
    })?;
    let fake = world.fake.clone();
    let mut world = Some(ManuallyDrop::into_inner(world));
    caught(&mut || {
        drop(world.take());
        all_returned(&fake)
    })?;
    Ok(fake)
}

/// Shrinks a failing case: a prefix, then without all operations that are not needed.
pub fn shrink(mut ops: Vec<PoolOp>, fails: impl Fn(&[PoolOp]) -> bool) -> Vec<PoolOp> {
    let prefix = (1..=ops.len()).find(|&len| fails(&ops[..len])).unwrap_or(ops.len());
    ops.truncate(prefix);
    let mut chunk = ops.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + chunk).min(ops.len()));
            if fails(&fewer) {
                ops = fewer;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    ops
}
