//! Pass 2, select: matrix products that a library computes.
//!
//! Reads `nodes`; adds `calls`, and to `nodes` the views that the calls need copied. Afterwards
//! `nodes` no longer holds nodes that were needed only by what a call now computes in its epilogue.

use std::collections::HashSet;

use super::{Schedule, is_source};
use crate::Result;
use crate::Tensor;
use crate::graph::node::NodeId;
use crate::matmul::find_library_matmuls;

pub(super) fn select_library_calls(schedule: &mut Schedule) -> Result<()> {
    schedule.calls = find_library_matmuls(schedule.device, &mut schedule.nodes, &schedule.root_ids)?;
    if schedule.calls.values().any(|call| call.outputs.len() + call.inputs.len() > 3) {
        let live = live_nodes(schedule);
        schedule.nodes.retain(|id, _| live.contains(id));
    }
    debug_assert!(schedule.calls.values().flat_map(|call| &call.inputs).all(|input| {
        let is_available = is_source(input) || schedule.nodes.contains_key(&input.0.id);
        is_available || schedule.calls.contains_key(&input.0.id)
    }));
    Ok(())
}

/// Nodes reachable from the roots, through the inputs of the calls where they replace those of the
/// graph.
fn live_nodes(schedule: &Schedule) -> HashSet<NodeId> {
    let mut live = HashSet::new();
    let mut stack: Vec<&Tensor> = schedule.roots.iter().collect();
    while let Some(tensor) = stack.pop() {
        if live.insert(tensor.0.id) && !is_source(tensor) {
            stack.extend(schedule.opaque_inputs(tensor).unwrap_or_else(|| tensor.0.reads()));
        }
    }
    live
}
