//! Pass 9, memory: the memory of every value: that of a result, or a part of one block of scratch memory that is used again and again.
//!
//! Reads steps, `direct_writes` and in-place results; adds `memory`. Afterwards every value that a step writes has a slot, and values that are
//! live at the same step overlap only where one is a part of the other or replaces it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use super::ids::{BufferId, BufferSlice, Output};
use super::pack::{Block, Packed, pack};
use super::plan::{MemoryRegion, Slot};
use super::steps::PlannedStep;
use super::{Schedule, concat::DirectWrites};
use crate::{Result, SourceLocation};

/// Where values are, and for how long.
#[derive(Default)]
pub(super) struct BufferAssignment {
    pub slots: HashMap<BufferId, Slot>,
    pub scratch_bytes: usize,
    pub live_ranges: Vec<LiveRange>,
}

/// A value from the step that writes it first to the one that reads it last.
#[derive(Clone, Debug)]
pub(super) struct LiveRange {
    pub op: &'static str,
    pub place: Option<SourceLocation>,
    pub slot: Slot,
    pub steps: RangeInclusive<usize>,
}

/// Gives every value that a step computes its memory.
pub(super) fn assign_memory(schedule: &mut Schedule) -> Result<()> {
    schedule.memory = assigned(schedule);
    debug_assert!(
        schedule
            .steps
            .iter()
            .flat_map(PlannedStep::outputs)
            .all(|output| schedule.memory.slots.contains_key(&output.buffer)),
        "a value has no memory"
    );
    Ok(())
}

/// Steps in which a buffer is in use.
struct Use {
    bytes: usize,
    first: usize,
    last: usize,
}

/// The buffer in whose memory another lies, and from which byte on.
fn owner(schedule: &Schedule, buffer: BufferId) -> BufferSlice {
    let mut owner = BufferSlice { whole: buffer, offset: 0 };
    loop {
        if let Some(within) = schedule.direct_writes.within.get(&owner.whole) {
            owner = BufferSlice { whole: within.whole, offset: owner.offset + within.offset };
        } else if let Some(&replaced) = schedule.reused_inputs.get(&owner.whole) {
            owner.whole = replaced;
        } else {
            return owner;
        }
    }
}

/// All buffers that steps write, in order of ids, so that equal plans get equal memory.
fn uses(schedule: &Schedule) -> BTreeMap<BufferId, Use> {
    let Schedule { steps, direct_writes: DirectWrites { within, containers, .. }, reused_inputs, .. } = schedule;
    let mut uses: BTreeMap<BufferId, Use> = BTreeMap::new();
    for (n, step) in steps.iter().enumerate() {
        for Output { buffer, bytes } in step.outputs() {
            uses.entry(buffer).or_insert(Use { bytes, first: n, last: n }).last = n;
        }
        for input in step.inputs() {
            if let Some(used) = uses.get_mut(&BufferId::of(input)) {
                used.last = n;
            }
        }
    }
    // A concatenation that its parts are written into may have no step.
    for &Output { buffer: whole, bytes } in containers {
        let parts = within.iter().filter(|(_, part)| part.whole == whole).filter_map(|(part, _)| uses.get(part));
        let Some(first) = parts.map(|part| part.first).min() else { continue };
        let read = steps.iter().rposition(|step| step.inputs().any(|input| BufferId::of(input) == whole));
        let used = uses.entry(whole).or_insert(Use { bytes, first, last: first });
        (used.first, used.last) = (used.first.min(first), used.last.max(read.unwrap_or(first)));
    }
    // A replaced value is in use until then.
    for (buffer, replaced) in reused_inputs {
        let until = uses.get(buffer).map_or(0, |used| used.first.saturating_sub(1));
        if let Some(used) = uses.get_mut(replaced) {
            used.last = until.max(used.last);
        }
    }
    uses
}

fn assigned(schedule: &Schedule) -> BufferAssignment {
    let Schedule { roots, nodes, overwrites, .. } = schedule;
    let uses = uses(schedule);
    let own: HashMap<BufferId, MemoryRegion> = (roots.iter().enumerate())
        .map(|(n, root)| (BufferId::of(root), MemoryRegion::Root(n)))
        .chain(overwrites.iter().enumerate().map(|(n, new)| (new.value.into(), MemoryRegion::Source(n))))
        .collect();
    // One block for all buffers that share memory.
    let (mut blocks, mut number): (Vec<Block>, HashMap<BufferId, usize>) = (vec![], HashMap::new());
    for (&buffer, &Use { bytes, first, last }) in &uses {
        let BufferSlice { whole, offset } = owner(schedule, buffer);
        if own.contains_key(&whole) {
            continue;
        }
        let block = *number.entry(whole).or_insert_with(|| {
            blocks.push(Block { bytes: 0, steps: first..=last });
            blocks.len() - 1
        });
        let Block { bytes: most, steps } = &mut blocks[block];
        *most = (*most).max(offset + bytes);
        *steps = first.min(*steps.start())..=last.max(*steps.end());
    }
    let Packed { offsets, bytes: scratch_bytes } = pack(&blocks);
    let mut assigned = BufferAssignment { slots: HashMap::new(), scratch_bytes, live_ranges: vec![] };
    for (&buffer, &Use { bytes, first, last }) in &uses {
        let BufferSlice { whole, offset } = owner(schedule, buffer);
        let slot = match own.get(&whole) {
            Some(&memory) => Slot { region: memory, offset, bytes },
            None => Slot { region: MemoryRegion::Scratch, offset: offsets[number[&whole]] + offset, bytes },
        };
        assigned.slots.insert(buffer, slot);
        // An output that nothing reads has no node.
        let (op, place) = nodes.get(&buffer.node()).map_or(("unused", None), |t| (t.0.name(), Some(t.0.location)));
        assigned.live_ranges.push(LiveRange { op, place, slot, steps: first..=last });
    }
    // A root that no step computes.
    for root in roots {
        let slot = Slot { region: own[&BufferId::of(root)], offset: 0, bytes: root.0.bytes() };
        assigned.slots.entry(BufferId::of(root)).or_insert(slot);
    }
    assigned
}

/// The step at which each buffer is used last.
pub(super) fn last_uses(steps: &[PlannedStep]) -> HashMap<BufferId, usize> {
    let mut last = HashMap::new();
    for (n, step) in steps.iter().enumerate() {
        let used = step.outputs().map(|output| output.buffer).chain(step.inputs().map(BufferId::of));
        last.extend(used.map(|buffer| (buffer, n)));
    }
    last
}

/// Buffers that these steps write.
pub(super) fn written(steps: &[PlannedStep]) -> HashSet<BufferId> {
    steps.iter().flat_map(PlannedStep::outputs).map(|output| output.buffer).collect()
}
