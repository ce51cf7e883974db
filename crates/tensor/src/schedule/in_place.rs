//! Pass 7, in-place: results that are written where something else was: new values of variables where the old ones are, results where
//! an input is read for the last time.
//!
//! Reads steps, groups and persistent tensors; adds `overwrites` and `reused_inputs`, and tells the groups concerned. Afterwards what is
//! overwritten is read by no later step, and by the step itself only element by element; a variable is overwritten only when no step can
//! fail any more, or under a guard.

use std::collections::HashSet;

use super::ids::{BufferId, GroupId, Output};
use super::memory::{last_uses, written};
use super::steps::{Operand, PartialUpdate, PlannedCall, PlannedStep};
use super::{GroupStep, Schedule};
use crate::fused::Fallibility;
use crate::graph::node::NodeId;
use crate::lower::{InPlaceOutputs, Overwrite, targets_gpu};
use crate::runtime::execute::CodegenMode;
use crate::{Device, Result, Tensor};

/// Withdraws updates of a part of a variable that may not be written in place; true if there is one: then its value must be scheduled
/// again, as a whole.
pub(super) fn reject_unsafe_updates(schedule: &mut Schedule) -> bool {
    let Schedule { device, steps, partial_updates, rejected_updates, .. } = schedule;
    let forbidden = |update: &&PartialUpdate| !can_overwrite(*device, steps, update.step, &update.old);
    let more: Vec<NodeId> = partial_updates.iter().filter(forbidden).map(|update| update.value).collect();
    rejected_updates.extend(&more);
    !more.is_empty()
}

/// Chooses the results that are written in place.
pub(super) fn assign_in_place(schedule: &mut Schedule) -> Result<()> {
    schedule.overwrites =
        schedule.partial_updates.drain(..).map(|PartialUpdate { value, old, .. }| Overwrite { value, old }).collect();
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

/// True if the steps from one on may write where `old` is: none of them reads it, and none can fail any more. What can fail must
/// leave variables as they are until it is known that it has not: on the host when it has run, on a GPU at the end.
pub(super) fn can_overwrite(device: Device, work: &[PlannedStep], from: usize, old: &Tensor) -> bool {
    !errors_known_at_end(device, work) && is_free_after(work, from, old)
}

/// True if the steps from one on neither read a tensor nor fail.
fn is_free_after(work: &[PlannedStep], from: usize, old: &Tensor) -> bool {
    // A kernel of the user's stops on the host where an index is bad.
    let fails = |work: &PlannedStep| match work.call {
        PlannedCall::Routine(_, fails) => fails == Fallibility::Fallible,
        PlannedCall::Kernel(_, CodegenMode::Checked, _) => true,
        _ => reports(work),
    };
    let reads = |work: &PlannedStep| work.inputs().any(|input| input.0.id == old.0.id);
    !work[from..].iter().any(|work| fails(work) || reads(work))
}

/// True if it is known only at the end whether a step has met a bad index.
fn errors_known_at_end(device: Device, work: &[PlannedStep]) -> bool {
    targets_gpu(device) && work.iter().any(reports)
}

/// True if a step can meet a bad index.
fn reports(work: &PlannedStep) -> bool {
    work.operands.iter().any(|operand| matches!(operand, Operand::Status))
}

/// The groups with their steps, in order.
fn group_steps(schedule: &Schedule) -> Vec<(usize, GroupId)> {
    let group = |(at, step): (usize, &PlannedStep)| match step.call {
        PlannedCall::Group(id) => Some((at, id)),
        _ => None,
    };
    schedule.steps.iter().enumerate().filter_map(group).collect()
}

/// Has outputs of a group overwrite tensors that it reads in step or not at all.
fn set_in_place(schedule: &mut Schedule, at: usize, id: GroupId, replaced: &[Overwrite], guarded: bool) {
    let InPlaceOutputs { overwrites: all, guarded: guard } = &mut schedule.groups[id.0].in_place;
    all.extend_from_slice(replaced);
    let operands = &mut schedule.steps[at].operands;
    operands.retain(|operand| !matches!(operand, Operand::In(t) if replaced.iter().any(|o| o.old.0.id == t.0.id)));
    if guarded && !*guard {
        *guard = true;
        operands.push(Operand::Guard);
    }
}

/// Finds which new values of variables can be written where the old ones are.
fn overwrite_variables(schedule: &mut Schedule) {
    // What is put together of parts: from the first step that writes one of them on.
    for &Output { buffer: whole, .. } in &schedule.direct_writes.containers {
        let Some(new) = schedule.variable_updates.iter().find(|o| whole == o.value.into()) else { continue };
        let within =
            |part: BufferId| schedule.direct_writes.within.get(&part).is_some_and(|within| within.whole == whole);
        let writes = |step: &PlannedStep| step.outputs().any(|out| out.buffer == whole || within(out.buffer));
        let first = schedule.steps.iter().position(writes);
        if first.is_some_and(|first| can_overwrite(schedule.device, &schedule.steps, first, &new.old)) {
            schedule.overwrites.push(new.clone());
        }
    }
    for (at, id) in group_steps(schedule) {
        let (steps, GroupStep { group, own_index_inputs, .. }) = (&schedule.steps, &schedule.groups[id.0]);
        let new = |o: &&Overwrite| group.outputs.iter().any(|t| t.0.id == o.value);
        let safe = |Overwrite { old, .. }: &&Overwrite| {
            let read = steps[at].inputs().any(|input| input.0.id == old.0.id);
            (!read || own_index_inputs.contains(&old.0.id)) && !reports(&steps[at]) && is_free_after(steps, at + 1, old)
        };
        let here: Vec<Overwrite> = schedule.variable_updates.iter().filter(new).filter(safe).cloned().collect();
        if !here.is_empty() {
            // Where it is known late whether all went well, the kernel asks before it writes.
            let guarded = errors_known_at_end(schedule.device, steps);
            set_in_place(schedule, at, id, &here, guarded);
            schedule.overwrites.extend(here);
        }
    }
}

/// Finds which results of routines can be written where old values are, which then need not be copied first. Steps go.
fn overwrite_by_routines(schedule: &mut Schedule) {
    let Schedule { device, steps, variable_updates, overwrites, .. } = schedule;
    let mut copies = HashSet::new();
    for (at, routine) in steps.iter().enumerate() {
        let PlannedCall::Routine(_, Fallibility::Infallible) = routine.call else { continue };
        let reads = |old: &Tensor| routine.inputs().any(|input| input.0.id == old.0.id);
        let firsts = (0..at).rev().take_while(|&n| copies_into(&steps[n], routine));
        for n in firsts {
            let found = variable_updates.iter().find(|new| copies_from(&steps[n], new));
            let free = |new: &&Overwrite| !reads(&new.old) && can_overwrite(*device, steps, at + 1, &new.old);
            if let Some(new) = found.filter(free) {
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

/// Puts results of groups where an input was that they read element by element, and that nothing reads after.
fn reuse_inputs(schedule: &mut Schedule) {
    let (last, computed) = (last_uses(&schedule.steps), written(&schedule.steps));
    for (at, id) in group_steps(schedule) {
        let (step, GroupStep { group, own_index_inputs, .. }) = (&schedule.steps[at], &schedule.groups[id.0]);
        let assigned = |tensor: &Tensor| {
            let (direct_writes, buffer) = (&schedule.direct_writes, BufferId::of(tensor));
            let is_whole = direct_writes.containers.iter().any(|whole| whole.buffer == buffer);
            schedule.root_ids.contains(&tensor.0.id) || direct_writes.within.contains_key(&buffer) || is_whole
        };
        let dies = |input: &&Tensor| {
            let buffer = BufferId::of(input);
            let dead = computed.contains(&buffer) && last.get(&buffer) == Some(&at);
            own_index_inputs.contains(&input.0.id) && dead && !assigned(input)
        };
        let dying: Vec<&Tensor> = step.inputs().filter(dies).collect();
        let mut here: Vec<Overwrite> = vec![];
        for output in group.outputs.iter().filter(|output| !assigned(output)) {
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

/// True if a step makes the first contents of a result of a routine, and nothing else.
fn copies_into(work: &PlannedStep, routine: &PlannedStep) -> bool {
    let mut outputs = work.outputs();
    let one = outputs.next().filter(|_| outputs.next().is_none());
    one.is_some_and(|out| routine.outputs().any(|other| other.buffer == out.buffer))
}

/// True if a step copies the old value to the new one.
fn copies_from(work: &PlannedStep, Overwrite { value, old }: &Overwrite) -> bool {
    work.writes(*value) && work.inputs().all(|input| input.0.id == old.0.id)
}
