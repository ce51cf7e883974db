//! Local arrays: each lane has its own copy, one after the other in memory. Reads of elements that
//! the lane has not written are faults.

use super::Machine;
use super::lanes::Mask;
use super::memory::{BoundView, in_order};
use super::races::AccessKind;
use crate::{Fault, FaultKind, LocalArrayId, Type};

/// Memory of one local array in all lanes. At most 1 MiB per lane, by the verifier's limit.
pub(super) struct LocalMemory {
    pub words: Vec<u64>,
    /// Per cell: true if it has been written.
    written: Vec<bool>,
}

impl LocalMemory {
    pub fn new(view: &BoundView, lanes: usize) -> LocalMemory {
        LocalMemory {
            words: vec![0; (lanes * view.elements as usize * view.layout.bytes).div_ceil(8)],
            written: vec![false; lanes * view.cell_count() as usize],
        }
    }
}

impl Machine<'_, '_, '_> {
    /// Begins the lifetime of a local array in the active lanes.
    pub(super) fn declare(&mut self, LocalArrayId(n): LocalArrayId, mask: &Mask) {
        let cells = self.local_views[n as usize].cell_count() as usize;
        for lane in mask.lanes() {
            self.local_arrays[n as usize].written[lane * cells..(lane + 1) * cells].fill(false);
        }
    }

    /// Records accesses of the active lanes to the cells that `cells_of` returns; reports reads of
    /// cells that have not been written. A struct may be copied before all of its fields are
    /// written.
    pub(super) fn record_local_accesses(
        &mut self,
        LocalArrayId(n): LocalArrayId,
        mask: &Mask,
        kind: AccessKind,
        cells_of: impl Fn(usize) -> std::ops::Range<usize>,
    ) -> Result<(), Fault> {
        let written = &mut self.local_arrays[n as usize].written;
        if kind == AccessKind::Write {
            mask.lanes().for_each(|lane| written[cells_of(lane)].fill(true));
            return Ok(());
        }
        let is_struct = matches!(self.kernel.local_arrays[n as usize].ty, Type::Struct(_));
        let unwritten = |lane: usize| {
            let partly = is_struct && cells_of(lane).any(|cell| written[cell]);
            cells_of(lane).find(|&cell| !partly && !written[cell]).map(|cell| (lane, cell))
        };
        let Some((lane, cell)) = in_order(self.options.order, mask).find_map(unwritten) else { return Ok(()) };
        let bound = &self.local_views[n as usize];
        let indices = bound.indices(cell - lane * bound.cell_count() as usize);
        let view = self.kernel.local_arrays[n as usize].name.clone();
        Err(self.fault(FaultKind::Uninitialized { view, indices, thread: self.lane_name(lane) }))
    }
}
