//! Pass 10, compile: machine code of every kernel.
//!
//! Reads `steps` and `memory`; returns the plan. Afterwards every argument has its memory and every
//! kernel its code, so that only a launch can still fail.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bornite_codegen::cpu::Interrupt;
use bornite_codegen::cuda::THREADS_PER_BLOCK;
use bornite_ir::Kernel;

use super::ids::BufferId;
use super::plan::{MemoryRegion, Plan, Slot, Step};
use super::steps::{Call, Operand, PlannedCall, PlannedStep};
use super::{Schedule, is_source};
use crate::graph::node::NodeId;
use crate::runtime::execute::{CodegenMode, Program, program};
use crate::{Device, Error, Result, Tensor};

pub(super) fn compile(schedule: Schedule) -> Result<Plan> {
    let Schedule { device, requested, roots, unevaluated, steps, overwrites, memory, .. } = schedule;
    let can_report_bad_index =
        steps.iter().any(|step| step.operands.iter().any(|operand| matches!(operand, Operand::Status)));
    let status = if can_report_bad_index { Some(crate::runtime::status::buffer(device)?) } else { None };
    let mut programs = programs(device, &steps)?.into_iter();
    let overwritten: HashSet<NodeId> = overwrites.iter().map(|o| o.value).collect();
    let in_place = (0..roots.len()).filter(|&n| overwritten.contains(&roots[n].0.id)).collect();
    // Overwritten tensors come first, as the memory pass numbered them.
    let sources: Vec<Tensor> = overwrites.into_iter().map(|o| o.old).collect();
    let mut numbers: HashMap<NodeId, usize> = sources.iter().enumerate().map(|(n, old)| (old.0.id, n)).collect();
    let mut plan = Plan {
        device,
        steps: vec![],
        results: requested,
        sources,
        unevaluated,
        scratch_bytes: memory.scratch_bytes,
        live_ranges: memory.live_ranges,
        in_place,
        status,
    };
    for PlannedStep { call, operands, values, info, cost } in steps {
        let mut threads = THREADS_PER_BLOCK;
        let call = match call {
            // `programs` has one for each, in order.
            PlannedCall::Kernel(kernel, mode, block) => {
                threads = block;
                Call::Kernel(programs.next().map_or_else(|| program(device, &kernel, mode), Ok)?)
            }
            PlannedCall::Matmul(product) => Call::Matmul(product),
            PlannedCall::Routine(routine, _) => Call::Routine(routine),
            PlannedCall::Handwritten(source) => Call::Handwritten(source),
            PlannedCall::Group(_) => {
                return Err(Error::Source("internal error: a group was not lowered; please report this bug".into()));
            }
        };
        let output_count = operands.iter().take_while(|operand| matches!(operand, Operand::Out(_))).count();
        let mut input_slot = |input: Tensor| match memory.slots.get(&BufferId::of(&input)) {
            Some(slot) if !is_source(&input) => *slot,
            _ => {
                let number = *numbers.entry(input.0.id).or_insert_with(|| {
                    plan.sources.push(input.clone());
                    plan.sources.len() - 1
                });
                Slot { region: MemoryRegion::Source(number), offset: 0, bytes: input.0.bytes() }
            }
        };
        let (mut args, mut overwrites_source) = (vec![], false);
        for operand in operands {
            args.push(match operand {
                Operand::Out(output) => {
                    let slot = memory.slots[&output.buffer];
                    overwrites_source |= matches!(slot.region, MemoryRegion::Source(_));
                    slot
                }
                Operand::Status | Operand::Guard => {
                    Slot { region: MemoryRegion::Status, offset: 0, bytes: crate::runtime::status::WORDS as usize * 8 }
                }
                Operand::In(input) => input_slot(input),
                Operand::InSlice(input, start, bytes) => {
                    let slot = input_slot(input);
                    Slot { offset: slot.offset + start, bytes, ..slot }
                }
            });
        }
        plan.steps.push(Step { call, args, output_count, overwrites_source, values, threads, info, cost });
    }
    Ok(plan)
}

/// Compiles all kernels; returns them in order. For a GPU, compiling a kernel takes tens of
/// milliseconds, so threads share the work.
fn programs(device: Device, steps: &[PlannedStep]) -> Result<Vec<Arc<Program>>> {
    let kernels: Vec<(&Kernel, CodegenMode)> =
        (steps.iter())
            .filter_map(|step| {
                if let PlannedCall::Kernel(kernel, mode, _) = &step.call { Some((&**kernel, *mode)) } else { None }
            })
            .collect();
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if device.is_cuda() { cores().min(16) } else { 1 };
    let distinct: Vec<(&Kernel, CodegenMode)> = kernels.iter().copied().collect::<HashSet<_>>().into_iter().collect();
    if threads > 1 && distinct.len() > 1 {
        let (next, interrupt) = (AtomicUsize::new(0), Interrupt::current());
        let run = || {
            // Errors and interrupts are reported below, in order.
            while !interrupt.as_ref().is_some_and(Interrupt::is_requested)
                && let Some((kernel, mode)) = distinct.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let _ = program(device, kernel, *mode);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(distinct.len()) {
                // If a thread cannot be started, the others compile everything.
                let _ = std::thread::Builder::new().spawn_scoped(scope, run);
            }
            run();
        });
    }
    kernels.into_iter().map(|(kernel, mode)| program(device, kernel, mode)).collect()
}
