//! Debug mode: guard bytes after each block, checked when it is freed, and a pattern over free
//! memory.

use super::Backing;
use super::heap::{AllocRequest, Heap};
use crate::{Error, Result};

/// Minimum number of guard bytes after a block; rounding adds more.
pub(super) const GUARD_BYTES: u32 = 64;
/// Value of guard bytes: as f32 a huge negative number, as an index out of range.
pub(super) const GUARD: u8 = 0xfd;
/// Value of freed memory: as f32 about -2e18, which is conspicuous and propagates.
pub(super) const POISON: u8 = 0xdd;

impl Heap {
    /// Writes the guard bytes of a block about to be allocated.
    pub(super) fn guard(&mut self, backing: &dyn Backing, at: u32, request: &AllocRequest) -> Result<()> {
        if request.guard == 0 {
            return Ok(());
        }
        let address = self.slots[at as usize].address;
        backing.fill(address + request.bytes, request.need - request.bytes, GUARD, request.stream)
    }

    /// Checks a block about to be freed for writes past its end, up to the current position of its
    /// stream.
    pub(super) fn check_guard(&self, backing: &dyn Backing, at: u32) -> Result<()> {
        let slot = &self.slots[at as usize];
        if slot.guard == 0 {
            return Ok(());
        }
        let stream = self.free_lists[slot.free_list as usize].stream;
        let Some(need) = self.round_size(slot.requested, slot.guard) else { return Ok(()) };
        let (start, bytes) = (slot.address + slot.requested, need - slot.requested);
        match backing.first_difference(start, bytes, GUARD, stream)? {
            None => Ok(()),
            Some(offset) => Err(Error::Overrun {
                tag: self.tags.name(slot.tag).into(),
                allocated_at: slot.allocated_at.map_or("an unknown line".into(), |at| at.to_string()),
                bytes: slot.requested,
                offset,
            }),
        }
    }

    /// Fills an unused block with the pattern.
    pub(super) fn poison(&self, backing: &dyn Backing, at: u32) -> Result<()> {
        if !self.debug {
            return Ok(());
        }
        let slot = &self.slots[at as usize];
        backing.fill(slot.address, slot.bytes, POISON, self.free_lists[slot.free_list as usize].stream)
    }
}
