//! Pass 2, select: the products that a library computes.
//!
//! Reads the nodes; adds calls, and the views that they need copied as nodes. Afterwards no node is there only for a call that
//! computes it itself, as an epilogue does.

use std::collections::HashSet;

use super::{Schedule, is_source};
use crate::Result;
use crate::Tensor;
use crate::graph::node::NodeId;
use crate::matmul::products;

pub(super) fn select_calls(schedule: &mut Schedule) -> Result<()> {
    schedule.calls = products(schedule.device, &mut schedule.nodes, &schedule.root_ids)?;
    if schedule.calls.values().any(|call| call.results.len() + call.inputs.len() > 3) {
        let live = live(schedule);
        schedule.nodes.retain(|id, _| live.contains(id));
    }
    debug_assert!(schedule.calls.values().flat_map(|call| &call.inputs).all(|input| {
        let there = is_source(input) || schedule.nodes.contains_key(&input.0.id);
        there || schedule.calls.contains_key(&input.0.id)
    }));
    Ok(())
}

/// The tensors that are computed for the roots, where calls read others than the graph says.
fn live(schedule: &Schedule) -> HashSet<NodeId> {
    let mut live = HashSet::new();
    let mut stack: Vec<&Tensor> = schedule.roots.iter().collect();
    while let Some(tensor) = stack.pop() {
        if live.insert(tensor.0.id) && !is_source(tensor) {
            stack.extend(schedule.reads_of_call(tensor).unwrap_or_else(|| tensor.0.reads()));
        }
    }
    live
}
