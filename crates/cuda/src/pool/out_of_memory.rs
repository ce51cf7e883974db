//! Error report of a pool that is out of memory.

use std::collections::BTreeMap;
use std::fmt;

use bornite_support::format_bytes;

use super::heap::{BlockState, Heap};
use super::limits::Cap;
use super::observers::PoolEvent;
use super::{Backing, StreamId};
use crate::Error;

/// Maximum number of tags in the message.
const MAX_NAMED_TAGS: usize = 5;

/// Report of a failed allocation: the request, the memory use by tag, and the limit that applied.
#[derive(Clone, Debug)]
pub struct OutOfMemoryReport {
    /// The device.
    pub device: String,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Limit of the pool in bytes.
    pub cap_bytes: u64,
    /// The limit that applies.
    pub cap: Cap,
    /// Free bytes of the device, if known.
    pub device_free_bytes: Option<u64>,
    /// Bytes in the pool's segments.
    pub reserved_bytes: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Bytes reserved but not allocated, in pieces too small or on other streams.
    pub cached_bytes: u64,
    /// Size of the largest free block.
    pub largest_free_bytes: u64,
    /// Memory use by tag, largest first.
    pub usage_by_tag: Vec<TagUsage>,
}

/// Memory use of one tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagUsage {
    /// The tag.
    pub tag: String,
    /// Bytes in its blocks.
    pub bytes: u64,
    /// Number of its blocks.
    pub blocks: u64,
}

impl fmt::Display for OutOfMemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of GPU memory on {}: requested {}; {} in use and {} cached (largest free block {}), limit {} ({})",
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
            let lead = if n == 0 { ". Used by " } else { ", " };
            write!(f, "{lead}{}: {} in {}", usage.tag, format_bytes(usage.bytes), count(usage.blocks, "block"))?;
        }
        if self.usage_by_tag.len() > MAX_NAMED_TAGS {
            let bytes = self.usage_by_tag[MAX_NAMED_TAGS..].iter().map(|h| h.bytes).sum();
            write!(
                f,
                ", {}: {}",
                count((self.usage_by_tag.len() - MAX_NAMED_TAGS) as u64, "other"),
                format_bytes(bytes)
            )?;
        }
        write!(f, ". Use smaller batches or drop tensors you no longer need")?;
        match self.cap {
            Cap::Device => Ok(()),
            Cap::Fraction(_) | Cap::Bytes => write!(f, ", or raise the limit"),
        }
    }
}

/// Formats a count with its noun.
fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

impl Heap {
    /// Counts a failed request and creates its error.
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
