//! Sums of columns join the kernel over rows that has what they sum.

use std::collections::HashMap;

use super::Unit;
use crate::Tensor;
use crate::graph::node::NodeId;
use crate::lower::{IterationSpace, attach_sums, only_gpu_kernels};

/// How far back a kernel over rows is looked for.
const NEAR: usize = 16;

/// Elements of the rows from which that pays: what a cache holds is quickly read again, and a kernel that keeps sums in registers has
/// fewer warps at work.
const LARGE: usize = 1 << 24;

/// The units with sums of columns where the rows are that they sum, on a GPU. A unit that is moved comes earlier than it did.
pub(super) fn attach_column_sums(units: Vec<Unit>) -> Vec<Unit> {
    // What is to be judged may be small.
    let least = if only_gpu_kernels() { 1 } else { LARGE };
    let mut made: HashMap<NodeId, usize> = HashMap::new();
    let mut kept: Vec<Unit> = vec![];
    for unit in units {
        let rider = match &unit {
            Unit::Group(group) if matches!(group.space, IterationSpace::Middle { .. }) => Some(group),
            _ => None,
        };
        // The nearest kernel over rows that it can ride on.
        let found = rider.and_then(|column_sums| {
            (0..kept.len()).rev().take(NEAR).find_map(|n| {
                let Unit::Group(rows) = &kept[n] else { return None };
                let large = matches!(rows.space, IterationSpace::Rows { rows, columns } if rows * columns >= least);
                if !large {
                    return None;
                }
                let there = |tensor: &Tensor| made.get(&tensor.0.id).is_none_or(|&by| by < n);
                Some((n, attach_sums(rows, column_sums, there)?))
            })
        });
        let place = match found {
            Some((n, both)) => {
                kept[n] = Unit::Group(both);
                n
            }
            None => kept.len(),
        };
        match &unit {
            Unit::Group(group) => made.extend(group.outputs.iter().map(|output| (output.0.id, place))),
            Unit::Single(tensor) => _ = made.insert(tensor.0.id, place),
        }
        if place == kept.len() {
            kept.push(unit);
        }
    }
    kept
}
