//! Reservation of segments before they are needed.

use std::panic::Location;

use super::debug::GUARD_BYTES;
use super::heap::{AllocRequest, Heap};
use super::observers::PoolEvent;
use super::{Backing, StreamId, Tag};
use crate::Result;

impl Heap {
    /// Allocates and frees blocks of all sizes, so that their segments are reserved, without
    /// counting the allocations.
    pub(super) fn warm(
        &mut self,
        backing: &dyn Backing,
        sizes: &[u64],
        stream: StreamId,
        allocated_at: &'static Location<'static>,
    ) -> Result<()> {
        let counters = &self.counters;
        let before =
            (counters.total_allocated, counters.peak_allocated, counters.allocation_count, counters.free_count);
        let mut blocks = Vec::with_capacity(sizes.len());
        let mut result = Ok(());
        for &bytes in sizes {
            // Space for the guard, which is not written: the block is not used.
            let need = self.round_size(bytes, if self.debug { GUARD_BYTES } else { 0 });
            let request = |need| AllocRequest { bytes, need, guard: 0, stream, tag: Tag::default(), allocated_at };
            let attempt = need.map_or(Ok(None), |need| self.try_alloc(backing, &request(need)));
            result = match attempt {
                Ok(Some(block)) => {
                    blocks.push(block);
                    continue;
                }
                Ok(None) => Err(self.out_of_memory(backing, bytes, stream)),
                Err(error) => Err(error),
            };
            break;
        }
        for block in blocks.iter().rev() {
            result = result.and(self.free(backing, block));
        }
        // An attempt may have freed pending blocks, even if it failed.
        result = result.and(self.trim(backing));
        let of_a_block = |event| matches!(event, PoolEvent::Allocated { .. } | PoolEvent::Freed { .. });
        self.observers.undelivered.retain(|record| !of_a_block(record.event));
        let counters = &mut self.counters;
        (counters.total_allocated, counters.peak_allocated, counters.allocation_count, counters.free_count) = before;
        result
    }
}
