//! What a pool counts.

/// How much a pool holds, and what it has done.
///
/// `reserved = allocated + pending + free` at all times, and `cached = pending + free`.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct PoolStats {
    /// Bytes handed out since the pool was made.
    pub total_allocated: u64,
    /// Bytes in blocks that are handed out now, as rounded.
    pub allocated: u64,
    /// Bytes in those blocks as asked for.
    pub requested: u64,
    /// Bytes in freed blocks that other streams may still use.
    pub pending: u64,
    /// Bytes that streams may use: allocated and pending.
    pub active: u64,
    /// Bytes in blocks ready to be handed out.
    pub free: u64,
    /// Bytes held but not handed out: pending and free.
    pub cached: u64,
    /// Bytes in all segments.
    pub reserved: u64,
    /// Most bytes ever handed out at once, or since the last reset.
    pub peak_allocated: u64,
    /// Most bytes ever in segments at once, or since the last reset.
    pub peak_reserved: u64,
    /// The largest block ready to be handed out.
    pub largest_free: u64,
    /// Share of the free bytes that lies outside the largest free block, 0 to 1.
    pub fragmentation: f64,
    /// Allocations made.
    pub allocation_count: u64,
    /// Allocations freed.
    pub free_count: u64,
    /// Times an allocation was tried again because memory was short.
    pub retries: u64,
    /// Allocations refused for lack of memory.
    pub failures: u64,
    /// Segments got from the device.
    pub reservations: u64,
    /// Segments given back to it.
    pub releases: u64,
    /// Segments held.
    pub segments: u64,
    /// Blocks in all: handed out, pending and free.
    pub blocks: u64,
    /// Blocks handed out.
    pub live_blocks: u64,
    /// Blocks that wait for other streams.
    pub pending_blocks: u64,
}

/// The counts that are kept from call to call; [`PoolStats`] adds what follows from them.
#[derive(Default)]
pub(super) struct Counters {
    pub total_allocated: u64,
    pub allocated: u64,
    pub requested: u64,
    pub pending: u64,
    pub free: u64,
    pub reserved: u64,
    /// Bytes in segments that are one free block: what can be given back.
    pub idle: u64,
    pub peak_allocated: u64,
    pub peak_reserved: u64,
    pub allocation_count: u64,
    pub free_count: u64,
    pub retries: u64,
    pub failures: u64,
    pub reservations: u64,
    pub releases: u64,
    pub live_blocks: u64,
    pub pending_blocks: u64,
    pub free_blocks: u64,
}

impl Counters {
    pub fn stats(&self, segments: u64, largest_free: u64) -> PoolStats {
        PoolStats {
            total_allocated: self.total_allocated,
            allocated: self.allocated,
            requested: self.requested,
            pending: self.pending,
            active: self.allocated + self.pending,
            free: self.free,
            cached: self.pending + self.free,
            reserved: self.reserved,
            peak_allocated: self.peak_allocated,
            peak_reserved: self.peak_reserved,
            largest_free,
            fragmentation: if self.free == 0 { 0.0 } else { 1.0 - largest_free as f64 / self.free as f64 },
            allocation_count: self.allocation_count,
            free_count: self.free_count,
            retries: self.retries,
            failures: self.failures,
            reservations: self.reservations,
            releases: self.releases,
            segments,
            blocks: self.live_blocks + self.pending_blocks + self.free_blocks,
            live_blocks: self.live_blocks,
            pending_blocks: self.pending_blocks,
        }
    }
}
