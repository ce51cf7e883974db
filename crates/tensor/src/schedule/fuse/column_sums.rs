//! Attaches column reductions to the row kernel that already holds the rows they sum, so that the
//! rows are loaded once.

use std::collections::HashMap;

use super::WorkItem;
use crate::Tensor;
use crate::graph::node::NodeId;
use crate::lower::{IterationSpace, attach_sums, only_gpu_kernels};

/// Number of preceding units that are searched for a row kernel.
const SEARCH_DISTANCE: usize = 16;

/// Minimum number of elements for which attaching pays: smaller tensors are re-read from a cache,
/// and a kernel that keeps sums in registers has lower occupancy.
const MIN_ELEMENTS: usize = 1 << 24;

/// Moves column reductions into earlier row kernels, on a GPU.
pub(super) fn attach_column_sums(units: Vec<WorkItem>) -> Vec<WorkItem> {
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
    result
}
