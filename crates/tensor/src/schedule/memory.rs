//! Which memory each result of a plan has.

use std::collections::HashMap;

use super::Slot;
use super::work::Work;
use crate::Tensor;

/// Where results are.
pub(super) struct Memory {
    pub of: HashMap<u64, Slot>,
    pub temp_bytes: Vec<usize>,
}

/// Gives every result a place; scratch memory is used again after its last reader.
pub(super) fn assign_memory(roots: &[Tensor], work: &[Work]) -> Memory {
    let mut last_use: HashMap<u64, usize> = HashMap::new();
    for (n, step) in work.iter().enumerate() {
        for id in step.outputs().map(|(id, _)| id).chain(step.inputs().map(|input| input.0.id)) {
            last_use.insert(id, n);
        }
    }
    let mut memory = Memory { of: HashMap::new(), temp_bytes: vec![] };
    for (n, root) in roots.iter().enumerate() {
        memory.of.insert(root.0.id, Slot::Root(n));
    }
    let mut free: Vec<usize> = vec![];
    for (n, step) in work.iter().enumerate() {
        for (id, bytes) in step.outputs() {
            if memory.of.contains_key(&id) {
                continue;
            }
            let temps = &memory.temp_bytes;
            let fitting = (0..free.len()).filter(|&n| temps[free[n]] >= bytes).min_by_key(|&n| temps[free[n]]);
            let temp = match fitting {
                Some(n) => free.swap_remove(n),
                None => {
                    memory.temp_bytes.push(bytes);
                    memory.temp_bytes.len() - 1
                }
            };
            memory.of.insert(id, Slot::Temp(temp));
        }
        let mut ended: Vec<u64> = step.outputs().map(|(id, _)| id).chain(step.inputs().map(|t| t.0.id)).collect();
        ended.sort_unstable();
        ended.dedup();
        for id in ended {
            if last_use.get(&id) == Some(&n)
                && let Some(Slot::Temp(temp)) = memory.of.get(&id)
            {
                free.push(*temp);
            }
        }
    }
    memory
}
