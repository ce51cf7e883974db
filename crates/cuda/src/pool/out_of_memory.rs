//! What a pool says when it has no memory to give.

use std::collections::BTreeMap;
use std::fmt;

use bornite_support::format_bytes;

use super::heap::{BlockState, Heap};
use super::limits::Cap;
use super::observers::PoolEvent;
use super::{Backing, StreamId};
use crate::Error;

/// How many of those that hold memory a message names.
const MAX_NAMED_TAGS: usize = 5;

/// Why an allocation failed: what was asked, what is held by whom, and which limit applied.
#[derive(Clone, Debug)]
pub struct OutOfMemoryReport {
    /// The device.
    pub device: String,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes that the pool may hold.
    pub cap_bytes: u64,
    /// What says so.
    pub cap: Cap,
    /// Bytes that the device has free, where it could be asked.
    pub device_free_bytes: Option<u64>,
    /// Bytes in the pool's segments.
    pub reserved_bytes: u64,
    /// Bytes handed out.
    pub allocated_bytes: u64,
    /// Bytes held but not handed out, in pieces too small or on other streams.
    pub cached_bytes: u64,
    /// The largest free block.
    pub largest_free_bytes: u64,
    /// Who holds memory, most first.
    pub usage_by_tag: Vec<TagUsage>,
}

/// Memory held under one tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagUsage {
    /// The tag.
    pub tag: String,
    /// Bytes in its blocks.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
}

impl fmt::Display for OutOfMemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of GPU memory on {}: {} asked; {} are in use and {} cached (largest free block {}), of at most {} ({})",
            self.device,
            format_bytes(self.requested_bytes),
            format_bytes(self.allocated_bytes),
            format_bytes(self.cached_bytes),
            format_bytes(self.largest_free_bytes),
            format_bytes(self.cap_bytes),
            self.cap,
        )?;
        if let Some(bytes) = self.device_free_bytes {
            write!(f, "; the device has {} free", format_bytes(bytes))?;
        }
        for (n, usage) in self.usage_by_tag.iter().take(MAX_NAMED_TAGS).enumerate() {
            let lead = if n == 0 { ". Held by " } else { ", " };
            write!(f, "{lead}{}: {} in {} block(s)", usage.tag, format_bytes(usage.bytes), usage.blocks)?;
        }
        if self.usage_by_tag.len() > MAX_NAMED_TAGS {
            let bytes = self.usage_by_tag[MAX_NAMED_TAGS..].iter().map(|h| h.bytes).sum();
            write!(f, ", {} other(s): {}", self.usage_by_tag.len() - MAX_NAMED_TAGS, format_bytes(bytes))?;
        }
        write!(f, ". Use smaller batches or drop tensors you no longer need")?;
        match self.cap {
            Cap::Device => Ok(()),
            Cap::Fraction(_) | Cap::Bytes => write!(f, ", or raise the limit"),
        }
    }
}

impl Heap {
    /// Counts a request that cannot be met and says why.
    #[cold]
    pub(super) fn out_of_memory(&mut self, backing: &dyn Backing, requested: u64, stream: StreamId) -> Error {
        self.counters.failures += 1;
        self.emit(PoolEvent::OutOfMemory { requested, stream });
        Error::OutOfMemory(Box::new(self.out_of_memory_report(backing, requested)))
    }

    fn out_of_memory_report(&self, backing: &dyn Backing, requested_bytes: u64) -> OutOfMemoryReport {
        let mut by_tag: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for slot in self.slots.iter().filter(|slot| slot.state == Some(BlockState::Live)) {
            let (bytes, blocks) = by_tag.entry(self.tags.name(slot.tag)).or_default();
            *bytes += slot.bytes;
            *blocks += 1;
        }
        let mut usage_by_tag: Vec<TagUsage> =
            by_tag.into_iter().map(|(tag, (bytes, blocks))| TagUsage { tag: tag.into(), bytes, blocks }).collect();
        usage_by_tag.sort_by_key(|usage| std::cmp::Reverse(usage.bytes));
        let (cap_bytes, cap) = Cap::of(&self.limits, self.total_bytes);
        let stats = self.stats();
        OutOfMemoryReport {
            device: backing.name(),
            requested_bytes,
            cap_bytes,
            cap,
            device_free_bytes: backing.free_bytes().ok(),
            reserved_bytes: stats.reserved,
            allocated_bytes: stats.allocated,
            cached_bytes: stats.cached,
            largest_free_bytes: stats.largest_free,
            usage_by_tag,
        }
    }
}
