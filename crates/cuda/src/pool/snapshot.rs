//! A pool laid open: every segment and block, as values and as JSON.

use super::heap::{BlockState, Heap, NO_SLOT, SizeClass};
use super::{PoolLimits, PoolStats, StreamId};

/// Everything that a pool holds at one moment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Snapshot {
    /// Version of this format.
    pub version: u32,
    /// The device.
    pub device: String,
    /// All memory of the device.
    pub total_bytes: u64,
    /// The limits in force.
    pub limits: PoolLimits,
    /// The counts.
    pub stats: PoolStats,
    /// Segments by address.
    pub segments: Vec<SegmentView>,
}

/// A segment in a [`Snapshot`].
#[derive(Clone, Debug, serde::Serialize)]
pub struct SegmentView {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// Which sizes it is for.
    pub class: SizeClass,
    /// Its blocks by address; they leave no gap.
    pub blocks: Vec<BlockView>,
}

/// A block in a [`Snapshot`].
#[derive(Clone, Debug, serde::Serialize)]
pub struct BlockView {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// What it is.
    pub state: BlockState,
    /// The size asked for, while handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// Who asked, while handed out or pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The line that asked, while handed out or pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "asked_at")]
    pub allocated_at: Option<String>,
    /// Other streams that used it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_on: Vec<StreamId>,
}

impl Snapshot {
    /// The snapshot as JSON.
    pub fn to_json(&self) -> String {
        // Cannot fail: there are only numbers, strings and lists.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl Heap {
    /// The segments and their blocks; lines that asked only `with_lines`, since writing them out takes time.
    pub(super) fn segments(&self, with_lines: bool) -> Vec<SegmentView> {
        let view = |(&address, segment): (&u64, &super::heap::Segment)| {
            let free_list = &self.free_lists[segment.free_list as usize];
            let (mut blocks, mut at) = (vec![], segment.first);
            // The bound ends the walk should a mistake ever tie the list into a ring.
            while at != NO_SLOT && blocks.len() <= self.slots.len() {
                let slot = &self.slots[at as usize];
                let state = slot.state.unwrap_or(BlockState::Free);
                let held = state != BlockState::Free;
                let line = slot.allocated_at.filter(|_| held && with_lines);
                blocks.push(BlockView {
                    address: slot.address,
                    bytes: slot.bytes,
                    state,
                    requested: (state == BlockState::Live).then_some(slot.requested),
                    tag: self.tags.get(slot.tag).filter(|_| held).map(|name| name.to_string()),
                    allocated_at: line.map(|line| line.to_string()),
                    used_on: slot.used_on.clone(),
                });
                at = slot.next;
            }
            SegmentView { address, bytes: segment.bytes, stream: free_list.stream, class: free_list.class, blocks }
        };
        self.segments.iter().map(view).collect()
    }
}
