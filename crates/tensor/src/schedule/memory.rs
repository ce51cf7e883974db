//! Pass 9, memory: the memory of every value: that of a result, or a part of one block of scratch memory that is used again and again.
//!
//! Reads steps, `concats` and in-place results; adds `memory`. Afterwards every value that a step writes has a slot, and values that are
//! live at the same step overlap only where one is a part of the other or replaces it.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use super::pack::{Block, Packed, pack};
use super::plan::{Memory, Slot};
use super::steps::Work;
use super::{Schedule, concat::Concats};
use crate::{Place, Result};

/// Where values are, and for how long.
#[derive(Default)]
pub(super) struct Assigned {
    pub slots: HashMap<u64, Slot>,
    pub scratch_bytes: usize,
    pub lives: Vec<Life>,
}

/// A value from the step that writes it first to the one that reads it last.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub op: &'static str,
    pub place: Option<Place>,
    pub slot: Slot,
    pub steps: RangeInclusive<usize>,
}

/// Gives every value that a step computes its memory.
pub(super) fn assign_memory(schedule: &mut Schedule) -> Result<()> {
    schedule.memory = assigned(schedule);
    debug_assert!(
        schedule.steps.iter().flat_map(Work::outputs).all(|(id, _)| schedule.memory.slots.contains_key(&id)),
        "a value has no memory"
    );
    Ok(())
}

fn assigned(schedule: &Schedule) -> Assigned {
    let Schedule { roots, nodes, steps, concats: Concats { within, wholes, .. }, overwrites, replaces, .. } = schedule;
    let mut lives: HashMap<u64, (usize, usize, usize)> = HashMap::new();
    for (n, step) in steps.iter().enumerate() {
        for (id, bytes) in step.outputs() {
            lives.entry(id).or_insert((bytes, n, n)).2 = n;
        }
        for input in step.inputs() {
            if let Some((_, _, last)) = lives.get_mut(&input.0.id) {
                *last = n;
            }
        }
    }
    // What is put together of parts may have no step of its own.
    for (whole, bytes) in wholes {
        let parts = within.iter().filter(|(_, (into, _))| into == whole).filter_map(|(part, _)| lives.get(part));
        let first = parts.map(|(_, first, _)| *first).min();
        let read = steps.iter().rposition(|step| step.inputs().any(|input| input.0.id == *whole));
        if let Some(first) = first {
            let life = lives.entry(*whole).or_insert((*bytes, first, first));
            (life.1, life.2) = (life.1.min(first), life.2.max(read.unwrap_or(first)));
        }
    }
    // What is replaced lives until then.
    for (id, replaced) in replaces {
        let until = lives.get(id).map_or(0, |(_, first, _)| first.saturating_sub(1));
        if let Some((_, _, last)) = lives.get_mut(replaced) {
            *last = until.max(*last);
        }
    }
    let owner = |id: u64| {
        let (mut id, mut offset) = (id, 0);
        loop {
            if let Some(&(whole, at)) = within.get(&id) {
                (id, offset) = (whole, offset + at);
            } else if let Some(&replaced) = replaces.get(&id) {
                id = replaced;
            } else {
                return (id, offset);
            }
        }
    };
    let own: HashMap<u64, Memory> = (roots.iter().enumerate())
        .map(|(n, root)| (root.0.id, Memory::Root(n)))
        .chain(overwrites.iter().enumerate().map(|(n, (id, _))| (*id, Memory::Source(n))))
        .collect();
    // One block for all values that share memory; in order of ids, so that equal plans get equal places.
    let mut ids: Vec<u64> = lives.keys().copied().collect();
    ids.sort_unstable();
    let (mut blocks, mut number): (Vec<Block>, HashMap<u64, usize>) = (vec![], HashMap::new());
    for &id in &ids {
        let (owner, offset) = owner(id);
        if own.contains_key(&owner) {
            continue;
        }
        let (bytes, first, last) = lives[&id];
        let block = *number.entry(owner).or_insert_with(|| {
            blocks.push(Block { bytes: 0, steps: first..=last });
            blocks.len() - 1
        });
        let Block { bytes: most, steps } = &mut blocks[block];
        *most = (*most).max(offset + bytes);
        *steps = first.min(*steps.start())..=last.max(*steps.end());
    }
    let Packed { offsets, bytes: scratch_bytes } = pack(&blocks);
    let mut assigned = Assigned { slots: HashMap::new(), scratch_bytes, lives: vec![] };
    for &id in &ids {
        let ((owner, offset), (bytes, first, last)) = (owner(id), lives[&id]);
        let slot = match own.get(&owner) {
            Some(&memory) => Slot { memory, offset, bytes },
            None => Slot { memory: Memory::Scratch, offset: offsets[number[&owner]] + offset, bytes },
        };
        assigned.slots.insert(id, slot);
        // A result of several that nobody reads has no node.
        let (op, place) = nodes.get(&id).map_or(("unused", None), |t| (t.0.name(), Some(t.0.place)));
        assigned.lives.push(Life { op, place, slot, steps: first..=last });
    }
    // What needs no step is where it is.
    for root in roots {
        let slot = Slot { memory: own[&root.0.id], offset: 0, bytes: root.0.bytes() };
        assigned.slots.entry(root.0.id).or_insert(slot);
    }
    assigned
}

/// The step at which each value is used last.
pub(super) fn last_uses(steps: &[Work]) -> HashMap<u64, usize> {
    let mut last = HashMap::new();
    for (n, step) in steps.iter().enumerate() {
        last.extend(step.outputs().map(|(id, _)| id).chain(step.inputs().map(|input| input.0.id)).map(|id| (id, n)));
    }
    last
}

/// The values that are computed by these steps.
pub(super) fn written(steps: &[Work]) -> HashSet<u64> {
    steps.iter().flat_map(|step| step.outputs().map(|(id, _)| id)).collect()
}
