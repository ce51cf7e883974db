//! Which results are written where something else was: new values of variables where the old ones are, results where an input
//! dies.

use std::collections::HashSet;

use super::memory::{last_uses, written};
use super::work::{Operand, Placed, Planned, Work, Worked, group_kernel};
use crate::execute::Flavour;
use crate::fused::Fails;
use crate::lower::{InPlaceOf, for_gpu, lower_group};
use crate::{Device, Result, Tensor};

/// True if the steps from one on may write where `old` is: none of them reads it, and none can fail any more. What can fail must
/// leave variables as they are until it is known that it has not: on the host when it has run, on a GPU at the end.
pub(super) fn may_replace(device: Device, work: &[Work], from: usize, old: &Tensor) -> bool {
    !is_late(device, work) && is_done_with(work, from, old)
}

/// True if the steps from one on neither read a tensor nor fail.
fn is_done_with(work: &[Work], from: usize, old: &Tensor) -> bool {
    // A kernel of the user's stops on the host where an index is bad.
    let fails = |work: &Work| match work.call {
        Planned::Routine(_, fails) => fails == Fails::Perhaps,
        Planned::Kernel(_, Flavour::Checked, _) => true,
        _ => reports(work),
    };
    let reads = |work: &Work| work.inputs().any(|input| input.0.id == old.0.id);
    !work[from..].iter().any(|work| fails(work) || reads(work))
}

/// True if it is known only at the end whether a step has met a bad index.
fn is_late(device: Device, work: &[Work]) -> bool {
    for_gpu(device) && work.iter().any(reports)
}

/// True if a step can meet a bad index.
fn reports(work: &Work) -> bool {
    work.operands.iter().any(|operand| matches!(operand, Operand::Status))
}

/// Finds which values of `homes` can be written where the old ones are.
pub(super) fn settle(
    device: Device,
    homes: &[(u64, Tensor)],
    groups: &[Placed<'_>],
    worked: &mut Worked,
) -> Result<()> {
    // What is put together of parts: from the first step that writes one of them on.
    for (whole, _) in &worked.wholes {
        let Some((_, old)) = homes.iter().find(|(id, _)| id == whole) else { continue };
        let part = |id: u64| id == *whole || worked.within.get(&id).is_some_and(|(into, _)| into == whole);
        let first = worked.work.iter().position(|work| work.outputs().any(|(id, _)| part(id)));
        if first.is_some_and(|first| may_replace(device, &worked.work, first, old)) {
            worked.homes.push((*whole, old.clone()));
        }
    }
    for (at, group, in_step) in groups {
        let reads = |work: &Work, old: &Tensor| work.inputs().any(|input| input.0.id == old.0.id);
        let here: Vec<(u64, Tensor)> = (homes.iter())
            .filter(|(id, _)| group.outputs.iter().any(|t| t.0.id == *id))
            .filter(|(_, old)| {
                let safe = !reads(&worked.work[*at], old) || in_step.contains(&old.0.id);
                safe && !reports(&worked.work[*at]) && is_done_with(&worked.work, at + 1, old)
            })
            .cloned()
            .collect();
        if !here.is_empty() {
            // Where it is known late whether all went well, the kernel asks before it writes.
            let in_place = InPlaceOf { replaced: here, guarded: is_late(device, &worked.work) };
            worked.work[*at] = group_kernel(lower_group(group, device, &in_place)?, group)?;
            worked.homes.extend(in_place.replaced);
        }
    }
    Ok(())
}

/// Finds which results of routines can be written where old values are, which then need not be copied first. Steps go.
pub(super) fn settle_routines(device: Device, homes: &[(u64, Tensor)], worked: &mut Worked) {
    let Worked { work, homes: settled, .. } = worked;
    let mut copies = HashSet::new();
    for (at, routine) in work.iter().enumerate() {
        let Planned::Routine(_, Fails::Never) = routine.call else { continue };
        let reads = |old: &Tensor| routine.inputs().any(|input| input.0.id == old.0.id);
        let firsts = (0..at).rev().take_while(|&n| copies_into(&work[n], routine));
        for n in firsts {
            let home = homes.iter().find(|(id, old)| copies_from(&work[n], *id, old));
            if let Some((id, old)) = home.filter(|(_, old)| !reads(old) && may_replace(device, work, at + 1, old)) {
                copies.insert(n);
                settled.push((*id, old.clone()));
            }
        }
    }
    let mut n = 0;
    work.retain(|_| {
        n += 1;
        !copies.contains(&(n - 1))
    });
}

/// Puts results of kernels where an input was that they read element by element, and that nothing reads after.
pub(super) fn reuse(device: Device, wanted: &HashSet<u64>, groups: &[Placed<'_>], worked: &mut Worked) -> Result<()> {
    let (last, computed) = (last_uses(worked), written(worked));
    let settled = |worked: &Worked, id: u64| {
        wanted.contains(&id) || worked.within.contains_key(&id) || worked.wholes.iter().any(|(whole, _)| *whole == id)
    };
    for (at, group, in_step) in groups {
        let mut here: Vec<(u64, Tensor)> = vec![];
        let guarded = worked.work[*at].operands.iter().any(|operand| matches!(operand, Operand::Guard));
        for output in group.outputs.iter().filter(|output| !settled(worked, output.0.id)) {
            let dies = |input: &&Tensor| {
                let (id, node) = (input.0.id, &input.0);
                in_step.contains(&id)
                    && computed.contains(&id)
                    && last.get(&id) == Some(at)
                    && (node.dtype, node.elements()) == (output.0.dtype, output.0.elements())
                    && !settled(worked, id)
                    && here.iter().all(|(_, taken)| taken.0.id != id)
            };
            if let Some(input) = worked.work[*at].inputs().find(dies) {
                here.push((output.0.id, input.clone()));
            }
        }
        if here.is_empty() {
            continue;
        }
        worked.replaces.extend(here.iter().map(|(id, replaced)| (*id, replaced.0.id)));
        here.extend(worked.homes.iter().filter(|(id, _)| group.outputs.iter().any(|t| t.0.id == *id)).cloned());
        let in_place = InPlaceOf { replaced: here, guarded };
        worked.work[*at] = group_kernel(lower_group(group, device, &in_place)?, group)?;
    }
    Ok(())
}

/// True if a step makes the first contents of a result of a routine, and nothing else.
fn copies_into(work: &Work, routine: &Work) -> bool {
    let mut made = work.outputs();
    let one = made.next().filter(|_| made.next().is_none());
    one.is_some_and(|(id, _)| routine.outputs().any(|(other, _)| other == id))
}

/// True if a step copies a tensor in memory to a result.
fn copies_from(work: &Work, id: u64, old: &Tensor) -> bool {
    work.outputs().any(|(made, _)| made == id) && work.inputs().all(|input| input.0.id == old.0.id)
}
