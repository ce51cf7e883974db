//! Pass 7, in_place: in-place assignment. A variable's new value is written over the old one, and
//! an output reuses the buffer of an input that is not read again.
//!
//! Reads `steps`, `groups` and `variable_updates`; adds `overwrites` and `reused_inputs`, and
//! updates the groups concerned. Afterwards no later step reads a value that was overwritten, and
//! the step that overwrites it reads it only at the output's own index. A variable is overwritten
//! only after the last step that can fail, or by a kernel that checks the status words first.

use std::collections::HashSet;

use super::ids::{BufferId, GroupId, Output};
use super::memory::{last_uses, written};
use super::steps::{Operand, PartialUpdateStep, PlannedCall, PlannedStep};
use super::{GroupInfo, Schedule};
use crate::fused::Fallibility;
use crate::graph::node::NodeId;
use crate::lower::{InPlaceOutputs, Overwrite, targets_gpu};
use crate::runtime::execute::CodegenMode;
use crate::{Device, Result, Tensor};

/// Rejects partial updates of variables that are not safe in place; true if there are any, which
/// must then be scheduled again as complete values.
pub(super) fn reject_unsafe_updates(schedule: &mut Schedule) -> bool {
    let Schedule { device, steps, partial_updates, rejected_updates, .. } = schedule;
    let is_unsafe = |update: &&PartialUpdateStep| !can_overwrite(*device, steps, update.step, &update.old);
    let more: Vec<NodeId> = partial_updates.iter().filter(is_unsafe).map(|update| update.value).collect();
    rejected_updates.extend(&more);
    !more.is_empty()
}

/// Chooses the outputs that are written in place.
pub(super) fn assign_in_place(schedule: &mut Schedule) -> Result<()> {
    schedule.overwrites = schedule
        .partial_updates
        .drain(..)
        .map(|PartialUpdateStep { value, old, .. }| Overwrite { value, old })
        .collect();
    overwrite_variables(schedule);
    if schedule.fusion_enabled {
        reuse_inputs(schedule);
    }
    overwrite_by_routines(schedule);
    debug_assert!(
        schedule.overwrites.iter().all(|Overwrite { value, old }| {
            let first = schedule.steps.iter().position(|step| step.writes(*value));
            let reads = |step: &PlannedStep| step.inputs().any(|input| input.0.id == old.0.id);
            first.is_none_or(|first| !schedule.steps[first + 1..].iter().any(reads))
        }),
        "a variable is read after it was overwritten"
    );
    Ok(())
}

/// True if step `from` and later ones may overwrite `old`: none of them reads it or can fail. A
/// failing run must leave variables unchanged. Errors are known on the host when a step has run, on
/// a GPU only after the last step.
pub(super) fn can_overwrite(device: Device, steps: &[PlannedStep], from: usize, old: &Tensor) -> bool {
    !errors_known_at_end(device, steps) && is_unread_from(steps, from, old)
}

/// True if step `from` and later ones neither read a tensor nor can fail.
fn is_unread_from(steps: &[PlannedStep], from: usize, old: &Tensor) -> bool {
    // On the host, a custom kernel stops at an out-of-range index.
    let can_fail = |step: &PlannedStep| match step.call {
        PlannedCall::Routine(_, fails) => fails == Fallibility::Fallible,
        PlannedCall::Kernel(_, CodegenMode::Checked, _) => true,
        _ => can_report_bad_index(step),
    };
    let reads = |step: &PlannedStep| step.inputs().any(|input| input.0.id == old.0.id);
    !steps[from..].iter().any(|step| can_fail(step) || reads(step))
}

/// True if out-of-range indices are known only after the last step.
fn errors_known_at_end(device: Device, steps: &[PlannedStep]) -> bool {
    targets_gpu(device) && steps.iter().any(can_report_bad_index)
}

/// True if a step can report an out-of-range index.
fn can_report_bad_index(step: &PlannedStep) -> bool {
    step.operands.iter().any(|operand| matches!(operand, Operand::Status))
}

/// Steps that are groups, in order: index of the step, and the group.
fn group_steps(schedule: &Schedule) -> Vec<(usize, GroupId)> {
    let group = |(at, step): (usize, &PlannedStep)| match step.call {
        PlannedCall::Group(id) => Some((at, id)),
        _ => None,
    };
    schedule.steps.iter().enumerate().filter_map(group).collect()
}

/// Makes outputs of a group overwrite tensors that it reads only at the output's own index, or not
/// at all.
fn set_in_place(schedule: &mut Schedule, at: usize, id: GroupId, new: &[Overwrite], guarded: bool) {
    let InPlaceOutputs { overwrites: all, guarded: guard } = &mut schedule.groups[id.0].in_place;
    all.extend_from_slice(new);
    let operands = &mut schedule.steps[at].operands;
    operands.retain(|operand| !matches!(operand, Operand::In(t) if new.iter().any(|o| o.old.0.id == t.0.id)));
    if guarded && !*guard {
        *guard = true;
        operands.push(Operand::Guard);
    }
}

/// Finds new values of variables that can overwrite the old ones.
fn overwrite_variables(schedule: &mut Schedule) {
    // Concatenations that are written directly: from the first step that writes a slice of one.
    for &Output { buffer: parent, .. } in &schedule.direct_writes.containers {
        let Some(new) = schedule.variable_updates.iter().find(|o| parent == o.value.into()) else { continue };
        let is_slice =
            |part: BufferId| schedule.direct_writes.slices.get(&part).is_some_and(|slice| slice.parent == parent);
        let writes = |step: &PlannedStep| step.outputs().any(|out| out.buffer == parent || is_slice(out.buffer));
        let first = schedule.steps.iter().position(writes);
        if first.is_some_and(|first| can_overwrite(schedule.device, &schedule.steps, first, &new.old)) {
            schedule.overwrites.push(new.clone());
        }
    }
    for (at, id) in group_steps(schedule) {
        let (steps, GroupInfo { group, own_index_inputs, .. }) = (&schedule.steps, &schedule.groups[id.0]);
        let new = |o: &&Overwrite| group.outputs.iter().any(|t| t.0.id == o.value);
        let safe = |Overwrite { old, .. }: &&Overwrite| {
            let read = steps[at].inputs().any(|input| input.0.id == old.0.id);
            (!read || own_index_inputs.contains(&old.0.id))
                && !can_report_bad_index(&steps[at])
                && is_unread_from(steps, at + 1, old)
        };
        let here: Vec<Overwrite> = schedule.variable_updates.iter().filter(new).filter(safe).cloned().collect();
        if !here.is_empty() {
            // If errors are known only at the end, the kernel checks the status words before it
            // writes.
            let guarded = errors_known_at_end(schedule.device, steps);
            set_in_place(schedule, at, id, &here, guarded);
            schedule.overwrites.extend(here);
        }
    }
}

/// Finds outputs of host routines that can overwrite a variable's old value, and removes the steps
/// that would copy it first.
fn overwrite_by_routines(schedule: &mut Schedule) {
    let Schedule { device, steps, variable_updates, overwrites, .. } = schedule;
    let mut copies = HashSet::new();
    for (at, routine) in steps.iter().enumerate() {
        let PlannedCall::Routine(_, Fallibility::Infallible) = routine.call else { continue };
        let reads = |old: &Tensor| routine.inputs().any(|input| input.0.id == old.0.id);
        let firsts = (0..at).rev().take_while(|&n| copies_into(&steps[n], routine));
        for n in firsts {
            let found = variable_updates.iter().find(|new| copies_from(&steps[n], new));
            let is_safe = |new: &&Overwrite| !reads(&new.old) && can_overwrite(*device, steps, at + 1, &new.old);
            if let Some(new) = found.filter(is_safe) {
                copies.insert(n);
                overwrites.push(new.clone());
            }
        }
    }
    let mut n = 0;
    steps.retain(|_| {
        n += 1;
        !copies.contains(&(n - 1))
    });
}

/// Makes outputs of groups reuse the buffer of an input that is read only at the output's own
/// index, and for the last time.
fn reuse_inputs(schedule: &mut Schedule) {
    let (last, computed) = (last_uses(&schedule.steps), written(&schedule.steps));
    for (at, id) in group_steps(schedule) {
        let (step, GroupInfo { group, own_index_inputs, .. }) = (&schedule.steps[at], &schedule.groups[id.0]);
        let has_fixed_memory = |tensor: &Tensor| {
            let (direct_writes, buffer) = (&schedule.direct_writes, BufferId::of(tensor));
            let is_container = direct_writes.containers.iter().any(|container| container.buffer == buffer);
            schedule.root_ids.contains(&tensor.0.id) || direct_writes.slices.contains_key(&buffer) || is_container
        };
        let dies = |input: &&Tensor| {
            let buffer = BufferId::of(input);
            let dead = computed.contains(&buffer) && last.get(&buffer) == Some(&at);
            own_index_inputs.contains(&input.0.id) && dead && !has_fixed_memory(input)
        };
        let dying: Vec<&Tensor> = step.inputs().filter(dies).collect();
        let mut here: Vec<Overwrite> = vec![];
        for output in group.outputs.iter().filter(|output| !has_fixed_memory(output)) {
            let alike = |input: &&Tensor| {
                (input.0.dtype, input.0.elements()) == (output.0.dtype, output.0.elements())
                    && here.iter().all(|taken| taken.old.0.id != input.0.id)
            };
            if let Some(&input) = dying.iter().find(|input| alike(input)) {
                here.push(Overwrite { value: output.0.id, old: input.clone() });
            }
        }
        if !here.is_empty() {
            schedule.reused_inputs.extend(here.iter().map(|o| (o.value.into(), BufferId::of(&o.old))));
            set_in_place(schedule, at, id, &here, false);
        }
    }
}

/// True if a step only initializes an output of a routine.
fn copies_into(step: &PlannedStep, routine: &PlannedStep) -> bool {
    let mut outputs = step.outputs();
    let one = outputs.next().filter(|_| outputs.next().is_none());
    one.is_some_and(|out| routine.outputs().any(|other| other.buffer == out.buffer))
}

/// True if a step copies a variable's old value to the new one.
fn copies_from(step: &PlannedStep, Overwrite { value, old }: &Overwrite) -> bool {
    step.writes(*value) && step.inputs().all(|input| input.0.id == old.0.id)
}
