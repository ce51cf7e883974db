//! Statistics of a pool.

/// Memory use of a pool, and counts of its operations.
///
/// `reserved = allocated + pending + free` at all times, and `cached = pending + free`.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct PoolStats {
    /// Total bytes allocated since the pool was created.
    pub total_allocated: u64,
    /// Bytes in allocated blocks, as rounded.
    pub allocated: u64,
    /// Bytes in allocated blocks, as requested.
    pub requested: u64,
    /// Bytes in freed blocks that other streams may still use.
    pub pending: u64,
    /// Bytes that streams may use: allocated and pending.
    pub active: u64,
    /// Bytes in free blocks.
    pub free: u64,
    /// Bytes reserved but not allocated: pending and free.
    pub cached: u64,
    /// Bytes in all segments.
    pub reserved: u64,
    /// Maximum of `allocated` since the last reset.
    pub peak_allocated: u64,
    /// Maximum of `reserved` since the last reset.
    pub peak_reserved: u64,
    /// Size of the largest free block.
    pub largest_free: u64,
    /// Fraction of the free bytes outside the largest free block, 0 to 1.
    pub fragmentation: f64,
    /// Number of allocations.
    pub allocation_count: u64,
    /// Number of frees.
    pub free_count: u64,
    /// Number of retries because memory was short.
    pub retries: u64,
    /// Number of failed allocations.
    pub failures: u64,
    /// Number of segments reserved.
    pub reservations: u64,
    /// Number of segments released.
    pub releases: u64,
    /// Current number of segments.
    pub segments: u64,
    /// Number of blocks: allocated, pending and free.
    pub blocks: u64,
    /// Number of allocated blocks.
    pub live_blocks: u64,
    /// Number of pending blocks.
    pub pending_blocks: u64,
}

/// Counters; [`PoolStats`] adds values derived from them.
#[derive(Default)]
pub(super) struct Counters {
    pub total_allocated: u64,
    pub allocated: u64,
    pub requested: u64,
    pub pending: u64,
    pub free: u64,
    pub reserved: u64,
    /// Bytes in segments that are one free block, which can be released.
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
