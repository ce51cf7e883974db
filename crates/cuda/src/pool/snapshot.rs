//! Snapshot of a pool: all segments and blocks, as values and as JSON.

use super::heap::{BlockState, Heap, NO_SLOT, SizeClass};
use super::{PoolLimits, PoolStats, StreamId};

/// All segments and blocks of a pool at one moment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Snapshot {
    /// Version of this format.
    pub version: u32,
    /// The device.
    pub device: String,
    /// Total memory of the device.
    pub total_bytes: u64,
    /// Limits.
    pub limits: PoolLimits,
    /// Statistics.
    pub stats: PoolStats,
    /// Segments by address.
    pub segments: Vec<SegmentView>,
}

/// A segment in a [`Snapshot`].
#[derive(Clone, Debug, serde::Serialize)]
pub struct SegmentView {
    /// Address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Stream that it belongs to.
    pub stream: StreamId,
    /// Size class.
    pub class: SizeClass,
    /// Blocks by address, without gaps.
    pub blocks: Vec<BlockView>,
}

/// A block in a [`Snapshot`].
#[derive(Clone, Debug, serde::Serialize)]
pub struct BlockView {
    /// Address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// State.
    pub state: BlockState,
    /// Requested size, while allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// Tag, while allocated or pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Source location of the allocation, while allocated or pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_at: Option<String>,
    /// Other streams that use it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamId>,
}

impl Snapshot {
    /// Returns the snapshot as JSON.
    pub fn to_json(&self) -> String {
        // Cannot fail: there are only numbers, strings and lists.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl Heap {
    /// Returns the segments and their blocks; locations only `with_locations`, since formatting
    /// them takes time.
    pub(super) fn segments(&self, with_locations: bool) -> Vec<SegmentView> {
        let view = |(&address, segment): (&u64, &super::heap::Segment)| {
            let free_list = &self.free_lists[segment.free_list as usize];
            let (mut blocks, mut at) = (vec![], segment.first);
            // The bound ends the loop if a bug makes the list cyclic.
            while at != NO_SLOT && blocks.len() <= self.slots.len() {
                let slot = &self.slots[at as usize];
                let state = slot.state.unwrap_or(BlockState::Free);
                let held = state != BlockState::Free;
                let line = slot.allocated_at.filter(|_| held && with_locations);
                blocks.push(BlockView {
                    address: slot.address,
                    bytes: slot.bytes,
                    state,
                    requested: (state == BlockState::Live).then_some(slot.requested),
                    tag: self.tags.get(slot.tag).filter(|_| held).map(|name| name.to_string()),
                    allocated_at: line.map(|line| line.to_string()),
                    streams: slot.used_on.clone(),
                });
                at = slot.next;
            }
            SegmentView { address, bytes: segment.bytes, stream: free_list.stream, class: free_list.class, blocks }
        };
        self.segments.iter().map(view).collect()
    }
}
