//! Sums of columns join the kernel over rows that has what they sum.

use std::collections::HashMap;

use super::Unit;
use crate::Tensor;
use crate::lower::{Form, with_sums};

/// The units with sums of columns where the rows are that they sum, on a GPU. A unit that is moved comes earlier than it did.
pub(in crate::schedule) fn with_riders(units: Vec<Unit<'_>>) -> Vec<Unit<'_>> {
    let mut made: HashMap<u64, usize> = HashMap::new();
    let mut kept: Vec<Unit<'_>> = vec![];
    for unit in units {
        let rider = match &unit {
            Unit::Group(group) if matches!(group.form, Form::Middle { .. }) => Some(group),
            _ => None,
        };
        // The nearest kernel over rows that it can ride on.
        let found = rider.and_then(|sums| {
            (0..kept.len()).rev().take(NEAR).find_map(|n| {
                let Unit::Group(rows) = &kept[n] else { return None };
                let there = |tensor: &Tensor| made.get(&tensor.0.id).is_none_or(|&by| by < n);
                Some((n, with_sums(rows, sums, there)?))
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
            Unit::Alone(tensor) => _ = made.insert(tensor.0.id, place),
        }
        if place == kept.len() {
            kept.push(unit);
        }
    }
    kept
}

/// How far back a kernel over rows is looked for.
const NEAR: usize = 16;
