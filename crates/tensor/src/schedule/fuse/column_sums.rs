//! Attaches column reductions to the row kernel that already holds the rows they sum, so that the
//! rows are loaded once.

use std::collections::{HashMap, HashSet};

use super::{Schedule, WorkItem};
use crate::Tensor;
use crate::graph::node::{NodeId, Role};
use crate::lower::{IterationSpace, attach_sums, only_gpu_kernels};

/// Number of preceding units that are searched for a row kernel.
const SEARCH_DISTANCE: usize = 16;

/// Minimum number of elements for which attaching pays: smaller tensors are re-read from a cache,
/// and a kernel that keeps sums in registers has lower occupancy.
const MIN_ELEMENTS: usize = 1 << 24;

/// Moves column reductions into earlier row kernels, on a GPU.
pub(super) fn attach_column_sums(units: Vec<WorkItem>, schedule: &Schedule) -> Vec<WorkItem> {
    // Tests compare small kernels with the interpreter.
    let min_elements = if only_gpu_kernels() { 1 } else { MIN_ELEMENTS };
    let mut computed_by: HashMap<NodeId, usize> = HashMap::new();
    let mut result: Vec<WorkItem> = vec![];
    for unit in units {
        let reduction = match &unit {
            WorkItem::Group(group) if matches!(group.space, IterationSpace::Middle { .. }) => Some(group),
            _ => None,
        };
        // The nearest row kernel that it can be attached to.
        let found = reduction.and_then(|column_sums| {
            (0..result.len()).rev().take(SEARCH_DISTANCE).find_map(|n| {
                let WorkItem::Group(rows) = &result[n] else { return None };
                let large =
                    matches!(rows.space, IterationSpace::Rows { rows, columns } if rows * columns >= min_elements);
                if !large {
                    return None;
                }
                let is_available = |tensor: &Tensor| computed_by.get(&tensor.0.id).is_none_or(|&by| by < n);
                Some((n, attach_sums(rows, column_sums, is_available)?))
            })
        });
        let index = match found {
            Some((n, both)) => {
                result[n] = WorkItem::Group(both);
                n
            }
            None => result.len(),
        };
        match &unit {
            WorkItem::Group(group) => computed_by.extend(group.outputs.iter().map(|output| (output.0.id, index))),
            WorkItem::Single(tensor) => _ = computed_by.insert(tensor.0.id, index),
        }
        if index == result.len() {
            result.push(unit);
        }
    }
    remove_unread_outputs(&mut result, schedule);
    result
}

/// Removes outputs of row kernels that only the sums attached to them read.
fn remove_unread_outputs(units: &mut [WorkItem], schedule: &Schedule) {
    let mut readers: HashMap<NodeId, HashSet<usize>> = HashMap::new();
    for (n, unit) in units.iter().enumerate() {
        inputs_of(unit, schedule).into_iter().for_each(|id| _ = readers.entry(id).or_default().insert(n));
    }
    for (n, unit) in units.iter_mut().enumerate() {
        let WorkItem::Group(group) = unit else { continue };
        if group.column_sums.is_empty() {
            continue;
        }
        let is_read = |output: &Tensor| {
            let id = output.0.id;
            schedule.root_ids.contains(&id) || readers.get(&id).is_some_and(|by| by.iter().any(|&by| by != n))
        };
        // A kernel has at least one output.
        if group.outputs.iter().any(is_read) {
            group.outputs.retain(is_read);
        }
    }
}

/// Ids of all tensors that a unit may read, through views and outputs of multi-output ops.
fn inputs_of(unit: &WorkItem, schedule: &Schedule) -> HashSet<NodeId> {
    let computed: Vec<&Tensor> = match unit {
        // An output may be a copy of a view, which is not in the order.
        WorkItem::Group(group) => group.order.iter().chain(&group.outputs).chain(&group.column_sums).collect(),
        WorkItem::Single(tensor) => vec![tensor],
    };
    let mut stack: Vec<&Tensor> = vec![];
    for tensor in computed {
        let written = schedule.direct_writes.partial_writes.get(&tensor.0.id);
        stack.extend(written.iter().flat_map(|write| &write.reads));
        stack.extend(schedule.opaque_inputs(tensor).unwrap_or_default());
        stack.extend(tensor.0.inputs.iter().chain(tensor.0.reads()));
    }
    let mut found = HashSet::new();
    while let Some(tensor) = stack.pop() {
        let passes_on = matches!(tensor.0.op.facts().role, Role::View | Role::Output | Role::MultiOutput);
        if found.insert(tensor.0.id) && passes_on {
            stack.extend(&tensor.0.inputs);
        }
    }
    found
}
