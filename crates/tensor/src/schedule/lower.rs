//! Pass 8, lower: the IR of every group.
//!
//! Reads groups and their in-place outputs; completes their steps. Afterwards no step is a group.
//! Each group is lowered once, and its kernel reads the inputs that the analysis found
//! (`lower/group_inputs.rs`).

use std::collections::HashSet;

use super::steps::{PlannedCall, PlannedStep, group_step};
use super::{GroupInfo, Schedule};
use crate::graph::node::NodeId;
use crate::lower::{Lowered, lower_group};
use crate::{Error, Result, Tensor};

pub(super) fn lower_groups(schedule: &mut Schedule) -> Result<()> {
    for step in &mut schedule.steps {
        if let PlannedCall::Group(id) = step.call {
            let GroupInfo { group, own_index_inputs, in_place } = &schedule.groups[id.0];
            let lowered = lower_group(group, schedule.device, in_place)?;
            debug_assert!(
                matches_analysis(step, own_index_inputs, &lowered),
                "the analysis of {} is wrong",
                lowered.kernel.name
            );
            // Also in release builds: an error is better than a result computed from overwritten
            // inputs.
            let overwritten = in_place.overwrites.iter().any(|o| lowered.other_index_inputs.contains(&o.old.0.id));
            let planned = |tensor: &Tensor| step.inputs().any(|input| input.0.id == tensor.0.id);
            if overwritten || !lowered.inputs.iter().all(|input| planned(&input.tensor)) {
                let what = format!(
                    "internal error: kernel '{}' does not read the inputs that were planned",
                    lowered.kernel.name
                );
                return Err(Error::Source(what + "; please report this bug"));
            }
            *step = group_step(lowered, group)?;
        }
    }
    Ok(())
}

/// True if a kernel reads the planned inputs, and those of `own_index_inputs` only at the output's
/// own index.
fn matches_analysis(step: &PlannedStep, own_index_inputs: &HashSet<NodeId>, lowered: &Lowered) -> bool {
    let planned: HashSet<NodeId> = step.inputs().map(|input| input.0.id).collect();
    let read: HashSet<NodeId> = lowered.inputs.iter().map(|input| input.tensor.0.id).collect();
    planned == read && own_index_inputs.is_disjoint(&lowered.other_index_inputs)
}
