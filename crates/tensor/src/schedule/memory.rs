//! Pass 9, memory: buffer assignment. Every value gets a slot in a result's buffer or in scratch
//! memory, which values with disjoint live ranges share.
//!
//! Reads `steps`, `direct_writes` and in-place outputs; adds `memory`. Afterwards every value that
//! a step writes has a slot, and values that are live at the same step overlap only if one is a
//! slice of the other or reuses its buffer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use super::ids::{BufferId, BufferSlice, Output};
use super::pack::{Allocation, Packed, pack};
use super::plan::{MemoryRegion, Slot};
use super::steps::PlannedStep;
use super::{Schedule, direct_writes::DirectWrites};
use crate::graph::node::NodeId;
use crate::{Result, SourceLocation, Tensor};

/// Slots and live ranges of values.
#[derive(Default)]
pub(super) struct BufferAssignment {
    pub slots: HashMap<BufferId, Slot>,
    pub scratch_bytes: usize,
    pub live_ranges: Vec<LiveRange>,
}

/// Live range of a value: the steps from its first write to its last read.
#[derive(Clone, Debug)]
pub(super) struct LiveRange {
    pub op: &'static str,
    pub location: Option<SourceLocation>,
    pub slot: Slot,
    pub steps: RangeInclusive<usize>,
}

/// Assigns a slot to every value that a step computes.
pub(super) fn assign_memory(schedule: &mut Schedule) -> Result<()> {
    schedule.memory = assign_buffers(schedule);
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

/// Size of a buffer, and its first and last use.
struct Lifetime {
    bytes: usize,
    first: usize,
    last: usize,
}

/// The buffer that owns the memory of another, and the offset in it.
fn owner(schedule: &Schedule, buffer: BufferId) -> BufferSlice {
    let mut owner = BufferSlice { parent: buffer, offset: 0 };
    loop {
        if let Some(slice) = schedule.direct_writes.slices.get(&owner.parent) {
            owner = BufferSlice { parent: slice.parent, offset: owner.offset + slice.offset };
        } else if let Some(&replaced) = schedule.reused_inputs.get(&owner.parent) {
            owner.parent = replaced;
        } else {
            return owner;
        }
    }
}

/// All buffers that steps write, in order of id, so that equal plans get equal memory.
fn uses(schedule: &Schedule) -> BTreeMap<BufferId, Lifetime> {
    let Schedule { steps, direct_writes: DirectWrites { slices, containers, .. }, reused_inputs, .. } = schedule;
    let mut uses: BTreeMap<BufferId, Lifetime> = BTreeMap::new();
    for (n, step) in steps.iter().enumerate() {
        for Output { buffer, bytes } in step.outputs() {
            uses.entry(buffer).or_insert(Lifetime { bytes, first: n, last: n }).last = n;
        }
        for input in step.inputs() {
            if let Some(used) = uses.get_mut(&BufferId::of(input)) {
                used.last = n;
            }
        }
    }
    // A concatenation whose inputs are all written directly has no step of its own.
    for &Output { buffer: parent, bytes } in containers {
        let parts = slices.iter().filter(|(_, part)| part.parent == parent).filter_map(|(part, _)| uses.get(part));
        let Some(first) = parts.map(|part| part.first).min() else { continue };
        let read = steps.iter().rposition(|step| step.inputs().any(|input| BufferId::of(input) == parent));
        let used = uses.entry(parent).or_insert(Lifetime { bytes, first, last: first });
        (used.first, used.last) = (used.first.min(first), used.last.max(read.unwrap_or(first)));
    }
    // A buffer that is reused stays in use until then.
    for (buffer, replaced) in reused_inputs {
        let until = uses.get(buffer).map_or(0, |used| used.first.saturating_sub(1));
        if let Some(used) = uses.get_mut(replaced) {
            used.last = until.max(used.last);
        }
    }
    uses
}

fn assign_buffers(schedule: &Schedule) -> BufferAssignment {
    let Schedule { roots, nodes, overwrites, steps, .. } = schedule;
    let uses = uses(schedule);
    let temporaries: HashMap<NodeId, &Tensor> =
        steps.iter().flat_map(PlannedStep::inputs).map(|input| (input.0.id, input)).collect();
    let own: HashMap<BufferId, MemoryRegion> = (roots.iter().enumerate())
        .map(|(n, root)| (BufferId::of(root), MemoryRegion::Output(n)))
        .chain(overwrites.iter().enumerate().map(|(n, new)| (new.value.into(), MemoryRegion::Source(n))))
        .collect();
    // One block for all buffers that share memory.
    let (mut blocks, mut number): (Vec<Allocation>, HashMap<BufferId, usize>) = (vec![], HashMap::new());
    for (&buffer, &Lifetime { bytes, first, last }) in &uses {
        let BufferSlice { parent, offset } = owner(schedule, buffer);
        if own.contains_key(&parent) {
            continue;
        }
        let block = *number.entry(parent).or_insert_with(|| {
            blocks.push(Allocation { bytes: 0, steps: first..=last });
            blocks.len() - 1
        });
        let Allocation { bytes: block_bytes, steps } = &mut blocks[block];
        *block_bytes = (*block_bytes).max(offset + bytes);
        *steps = first.min(*steps.start())..=last.max(*steps.end());
    }
    let Packed { offsets, bytes: scratch_bytes } = pack(&blocks);
    let mut assignment = BufferAssignment { slots: HashMap::new(), scratch_bytes, live_ranges: vec![] };
    for (&buffer, &Lifetime { bytes, first, last }) in &uses {
        let BufferSlice { parent, offset } = owner(schedule, buffer);
        let slot = match own.get(&parent) {
            Some(&memory) => Slot { region: memory, offset, bytes },
            None => Slot { region: MemoryRegion::Scratch, offset: offsets[number[&parent]] + offset, bytes },
        };
        assignment.slots.insert(buffer, slot);
        // An output that is never read has no node.
        let tensor = nodes.get(&buffer.node()).or_else(|| temporaries.get(&buffer.node()).copied());
        let (op, location) = tensor.map_or(("unused", None), |t| (t.0.name(), Some(t.0.location)));
        assignment.live_ranges.push(LiveRange { op, location, slot, steps: first..=last });
    }
    // A root that no step computes.
    for root in roots {
        let slot = Slot { region: own[&BufferId::of(root)], offset: 0, bytes: root.0.bytes() };
        assignment.slots.entry(BufferId::of(root)).or_insert(slot);
    }
    assignment
}

/// The last step that uses each buffer.
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
