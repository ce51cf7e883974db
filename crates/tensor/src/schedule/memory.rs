//! Which memory each value of a plan has: of its own, or a part of one block of scratch memory that is used again and again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use super::pack::{Block, Packed, pack};
use super::work::Worked;
use super::{Memory, Slot};
use crate::{Place, Tensor};

/// Where values are, and for how long.
pub(super) struct Assigned {
    pub of: HashMap<u64, Slot>,
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

/// Gives every value of `nodes` that the work computes a place. `homes` are ids of values with the number of the source whose place they
/// take.
pub(super) fn assign_memory(
    roots: &[Tensor],
    nodes: &BTreeMap<u64, Tensor>,
    worked: &Worked,
    homes: &HashMap<u64, usize>,
) -> Assigned {
    let mut lives: HashMap<u64, (usize, usize, usize)> = HashMap::new();
    for (n, step) in worked.work.iter().enumerate() {
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
    for (whole, bytes) in &worked.wholes {
        let parts = worked.within.iter().filter(|(_, (into, _))| into == whole).filter_map(|(part, _)| lives.get(part));
        let first = parts.map(|(_, first, _)| *first).min();
        let read = (worked.work.iter()).rposition(|step| step.inputs().any(|input| input.0.id == *whole));
        if let Some(first) = first {
            let life = lives.entry(*whole).or_insert((*bytes, first, first));
            (life.1, life.2) = (life.1.min(first), life.2.max(read.unwrap_or(first)));
        }
    }
    // What is replaced lives until then.
    for (id, replaced) in &worked.replaces {
        let until = lives.get(id).map_or(0, |(_, first, _)| first.saturating_sub(1));
        if let Some((_, _, last)) = lives.get_mut(replaced) {
            *last = until.max(*last);
        }
    }
    let owner = |id: u64| {
        let (mut id, mut offset) = (id, 0);
        loop {
            if let Some(&(whole, at)) = worked.within.get(&id) {
                (id, offset) = (whole, offset + at);
            } else if let Some(&replaced) = worked.replaces.get(&id) {
                id = replaced;
            } else {
                return (id, offset);
            }
        }
    };
    let own: HashMap<u64, Memory> = (roots.iter().enumerate())
        .map(|(n, root)| (root.0.id, Memory::Root(n)))
        .chain(homes.iter().map(|(id, source)| (*id, Memory::Source(*source))))
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
    let mut assigned = Assigned { of: HashMap::new(), scratch_bytes, lives: vec![] };
    for &id in &ids {
        let ((owner, offset), (bytes, first, last)) = (owner(id), lives[&id]);
        let slot = match own.get(&owner) {
            Some(&memory) => Slot { memory, offset, bytes },
            None => Slot { memory: Memory::Scratch, offset: offsets[number[&owner]] + offset, bytes },
        };
        assigned.of.insert(id, slot);
        // A result of several that nobody reads has no node.
        let (op, place) = nodes.get(&id).map_or(("unused", None), |t| (t.0.name(), Some(t.0.place)));
        assigned.lives.push(Life { op, place, slot, steps: first..=last });
    }
    // What needs no step is where it is.
    for root in roots {
        let slot = Slot { memory: own[&root.0.id], offset: 0, bytes: root.0.bytes() };
        assigned.of.entry(root.0.id).or_insert(slot);
    }
    assigned
}

/// The step at which each value is used last.
pub(super) fn last_uses(worked: &Worked) -> HashMap<u64, usize> {
    let mut last = HashMap::new();
    for (n, step) in worked.work.iter().enumerate() {
        last.extend(step.outputs().map(|(id, _)| id).chain(step.inputs().map(|input| input.0.id)).map(|id| (id, n)));
    }
    last
}

/// The values that are computed by these steps.
pub(super) fn written(worked: &Worked) -> HashSet<u64> {
    worked.work.iter().flat_map(|step| step.outputs().map(|(id, _)| id)).collect()
}
