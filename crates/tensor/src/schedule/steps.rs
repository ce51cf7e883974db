//! Pass 6, steps: the launches, with what each reads and writes.
//!
//! Reads units, calls and `direct_writes`; adds steps and groups. Afterwards every step writes what is not in memory before it, and a group's
//! operands are those that its kernel will have, up to parts of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Kernel, Value};

use super::concat::{DirectWrite, DirectWriteKind};
use super::cost::{Cost, decomposition_flops, flops, product_flops};
use super::fuse::Unit;
use super::handwritten::{OutputLayout, launches};
use super::ids::{BufferId, GroupId, Output};
use super::{GroupStep, Schedule, is_output};
use crate::fused::Fallibility;
use crate::graph::multi_output::{self, ImplementationKind};
use crate::graph::node::{NodeId, Op, Role};
use crate::lower::{
    Group, InPlaceOutputs, Input, Lowered, Reads, group_reads, lower, lower_concat_inputs, lower_row_update,
    lower_scatter, targets_gpu,
};
use crate::matmul::LibraryMatmul;
use crate::runtime::cuda_source::HandwrittenCall;
use crate::runtime::execute::{CodegenMode, Program, RoutineCall};
use crate::runtime::scatter::scatter;
use crate::runtime::timing::LaunchInfo;
use crate::{DType, Device, Result, Tensor};

/// What a step runs.
pub(super) enum Call {
    Kernel(Arc<Program>),
    Matmul(Arc<LibraryMatmul>),
    Routine(Arc<RoutineCall>),
    Handwritten(Arc<HandwrittenCall>),
}

/// What a step is to run, before code is compiled.
pub(super) enum PlannedCall {
    /// With the threads a block on a GPU, where the kernel does not say.
    Kernel(Box<Kernel>, CodegenMode, u32),
    Matmul(Arc<LibraryMatmul>),
    Routine(Arc<RoutineCall>, Fallibility),
    Handwritten(Arc<HandwrittenCall>),
    /// A group that is lowered once it is known which results overwrite an input.
    Group(GroupId),
}

/// An argument of a step before its memory is known.
pub(super) enum Operand {
    Out(Output),
    /// The device's words for bad indices, written or only looked at.
    Status,
    Guard,
    In(Tensor),
    /// So many bytes of a tensor, from one on.
    Part(Tensor, usize, usize),
}

/// A step before its memory is known.
pub(super) struct PlannedStep {
    pub call: PlannedCall,
    pub operands: Vec<Operand>,
    pub values: Vec<Vec<Value>>,
    pub about: LaunchInfo,
    pub cost: Cost,
}

impl PlannedStep {
    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.operands.iter().filter_map(|operand| match operand {
            Operand::In(tensor) | Operand::Part(tensor, ..) => Some(tensor),
            Operand::Out(_) | Operand::Status | Operand::Guard => None,
        })
    }

    /// True if it writes the value of a node.
    pub fn writes(&self, value: NodeId) -> bool {
        self.outputs().any(|output| output.buffer == value.into())
    }

    pub fn outputs(&self) -> impl Iterator<Item = Output> + '_ {
        self.operands.iter().filter_map(|operand| if let Operand::Out(output) = operand { Some(*output) } else { None })
    }
}

/// A step that updates a part of a variable in place.
pub(super) struct PartialUpdate {
    pub step: usize,
    pub value: NodeId,
    pub old: Tensor,
}

/// Lists the launches of all units.
pub(super) fn list_steps(schedule: &mut Schedule) -> Result<()> {
    let device = schedule.device;
    let (mut launched, mut groups, mut partial_updates, mut steps) = (HashSet::new(), vec![], vec![], vec![]);
    for unit in std::mem::take(&mut schedule.units) {
        let tensor = match unit {
            Unit::Group(group) => {
                let Reads { inputs, own_index_inputs, reports } = group_reads(&group, device);
                let outs = group.outputs.iter().chain(&group.column_sums).map(|t| Operand::Out(Output::of(t)));
                let inputs = inputs.into_iter().map(Operand::In);
                let operands = outs.chain(reports.then_some(Operand::Status)).chain(inputs).collect();
                let (call, about) = (PlannedCall::Group(GroupId(groups.len())), LaunchInfo::default());
                steps.push(PlannedStep { call, operands, values: vec![], about, cost: Cost::default() });
                groups.push(GroupStep { group, own_index_inputs, in_place: InPlaceOutputs::default() });
                continue;
            }
            Unit::Single(tensor) => tensor,
        };
        let about = LaunchInfo::of(&tensor.0);
        if let Some(placed) = schedule.direct_writes.writes.get(&tensor.0.id) {
            let update = |old: &Tensor| PartialUpdate { step: steps.len(), value: tensor.0.id, old: old.clone() };
            partial_updates.extend(placed.old.as_ref().map(update));
            write_slices(&tensor, placed, about, &mut steps)?;
        } else if is_output(&tensor) {
            let op = &tensor.0.inputs[0];
            if launched.insert(op.0.id) {
                multi_output_steps(device, op, &schedule.direct_writes.interleaved, about, &mut steps)?;
            }
        } else if let Some(call) = schedule.calls.get(&tensor.0.id) {
            if launched.insert(call.results[0].0.id) {
                let results = call.results.iter().map(|result| Operand::Out(Output::of(result)));
                let operands = results.chain(call.inputs.iter().cloned().map(Operand::In)).collect();
                let half_precision_matmul = matches!(tensor.0.dtype, DType::F16 | DType::BF16);
                let cost = Cost { flops: product_flops(&tensor), half_precision_matmul, ..Cost::default() };
                let call = PlannedCall::Matmul(call.product.clone());
                steps.push(PlannedStep { call, operands, values: vec![], about, cost });
            }
        } else {
            single_steps(device, &tensor, about, &mut steps)?;
        }
    }
    (schedule.groups, schedule.partial_updates, schedule.steps) = (groups, partial_updates, steps);
    Ok(())
}

/// The steps of a node that no other shares a kernel with.
fn single_steps(device: Device, tensor: &Tensor, about: LaunchInfo, steps: &mut Vec<PlannedStep>) -> Result<()> {
    let out = Operand::Out(Output::of(tensor));
    if let Some((routine, inputs)) = scatter(&tensor.0, device) {
        let operands = [out].into_iter().chain(inputs.into_iter().map(Operand::In)).collect();
        let call = PlannedCall::Routine(Arc::new(routine), Fallibility::Fallible);
        let cost = Cost { flops: flops(&tensor.0), ..Cost::default() };
        steps.push(PlannedStep { call, operands, values: vec![], about, cost });
    } else if let Some(kernels) = lower_scatter(tensor, targets_gpu(device))? {
        for (lowered, outs) in kernels {
            let outs = outs.iter().map(|out| Operand::Out(Output::of(out))).collect();
            steps.push(kernel(lowered, outs, about)?);
        }
        // What the steps before sort is no arithmetic.
        if let Some(last) = steps.last_mut() {
            last.cost.flops = flops(&tensor.0);
        }
    } else {
        let mut step = kernel(lower(tensor)?, vec![out], about)?;
        step.cost.flops = flops(&tensor.0);
        steps.push(step);
    }
    Ok(())
}

/// What is left to write of a node that is written into place.
fn write_slices(tensor: &Tensor, placed: &DirectWrite, about: LaunchInfo, work: &mut Vec<PlannedStep>) -> Result<()> {
    /// Most inputs of one kernel: each is a view of it.
    const MOST: usize = 64;
    let out = || vec![Operand::Out(Output::of(tensor))];
    match &placed.into {
        DirectWriteKind::Pieces { axis, inputs } => {
            for inputs in inputs.chunks(MOST) {
                let mut step = kernel(lower_concat_inputs(tensor, *axis, inputs)?, out(), about)?;
                step.cost.bytes = Some(inputs.iter().map(|&n| 2 * tensor.0.inputs[n].0.bytes() as u64).sum());
                work.push(step);
            }
        }
        DirectWriteKind::Row { axis, position, value } => {
            let mut step = kernel(lower_row_update(tensor, *axis, position, value)?, out(), about)?;
            step.cost.bytes = Some(2 * (tensor.0.bytes() / tensor.0.shape[*axis].max(1)) as u64);
            work.push(step);
        }
    }
    Ok(())
}

/// A launch of a group's kernel.
pub(super) fn group_step(lowered: Lowered, group: &Group) -> Result<PlannedStep> {
    let outs = group.outputs.iter().chain(&group.column_sums).map(|t| Operand::Out(Output::of(t))).collect();
    let about = group.outputs.last().map_or(LaunchInfo::default(), |t| LaunchInfo::of(&t.0));
    let mut work = kernel(lowered, outs, about)?;
    work.cost.flops = group.order.iter().chain(&group.column_sums).map(|tensor| flops(&tensor.0)).sum();
    if let PlannedCall::Kernel(_, flavour, _) = &mut work.call {
        *flavour = codegen_mode_of(group)?;
    }
    Ok(work)
}

/// How the kernel of a group is printed.
pub(super) fn codegen_mode_of(group: &Group) -> Result<CodegenMode> {
    if group.order.iter().any(is_random_draw) { Ok(CodegenMode::Exact) } else { CodegenMode::for_tensors() }
}

/// True if a tensor is made of random words and constants alone: random numbers are the same on all devices, to the bit.
fn is_random_draw(tensor: &Tensor) -> bool {
    const MOST: usize = 64;
    let (mut stack, mut seen, mut drawn) = (vec![tensor], 0, false);
    while let Some(tensor) = stack.pop() {
        seen += 1;
        match (tensor.0.op.facts().role, &tensor.0.op) {
            (_, Op::Random(_)) => drawn = true,
            (Role::Constant, _) | (_, Op::Iota { .. }) => {}
            (Role::Pointwise, _) => stack.extend(&tensor.0.inputs),
            (Role::View, _) => stack.extend(tensor.0.inputs.first()),
            (Role::Source | Role::Indexed | Role::Scatter | Role::Reduction | Role::Single, _) => return false,
            (Role::MultiOutput | Role::Output, _) => return false,
        }
        if seen > MOST {
            return false;
        }
    }
    drawn
}

/// A launch of a lowered kernel.
fn kernel(lowered: Lowered, outs: Vec<Operand>, about: LaunchInfo) -> Result<PlannedStep> {
    let Lowered { kernel, inputs, reports, guarded, values, threads, .. } = lowered;
    let status = reports.then_some(Operand::Status).or(guarded.then_some(Operand::Guard));
    let inputs = inputs.into_iter().map(|Input { tensor, part }| match part {
        None => Operand::In(tensor),
        Some(part) => {
            let bytes = tensor.0.dtype.bytes();
            Operand::Part(tensor, part.start * bytes, part.len() * bytes)
        }
    });
    let operands = outs.into_iter().chain(status).chain(inputs).collect();
    let call = PlannedCall::Kernel(Box::new(kernel), CodegenMode::for_tensors()?, threads);
    let values = values.into_iter().map(|value| vec![value]).collect();
    Ok(PlannedStep { call, operands, values, about, cost: Cost::default() })
}

/// The steps of a multi-output op.
fn multi_output_steps(
    device: Device,
    tensor: &Tensor,
    interleaved: &HashMap<BufferId, OutputLayout>,
    about: LaunchInfo,
    steps: &mut Vec<PlannedStep>,
) -> Result<()> {
    let Some((multi_output, inputs)) = multi_output::as_multi_output(&tensor.0) else { return Ok(()) };
    let place = tensor.0.location;
    // A part that nobody wants is memory all the same: its node goes, its id stays.
    let parts = multi_output::outputs(tensor, place);
    let buffer = |part: &Tensor| if is_output(part) { BufferId::of(part) } else { BufferId::temporary() };
    let outs: Vec<Output> = parts.iter().map(|part| Output { buffer: buffer(part), bytes: part.0.bytes() }).collect();
    let (kernel_of, values, checked) = match &multi_output.implementation {
        ImplementationKind::Routine { run, fallibility, in_place } => {
            let size = |part: &Tensor| (part.0.dtype, part.0.elements());
            // What a result takes the place of is copied there; in-place assignment may find that it need not be.
            for (result, input) in in_place {
                let first =
                    Tensor::build(Op::Reshape(inputs[*input].0.shape.clone()), vec![inputs[*input].clone()], place);
                steps.push(kernel(lower(&first)?, vec![Operand::Out(outs[*result])], about)?);
            }
            let taken = |n: &usize| in_place.iter().any(|(_, input)| input == n);
            let given: Vec<Tensor> = (0..inputs.len()).filter(|n| !taken(n)).map(|n| inputs[n].clone()).collect();
            let (results, sizes) = (parts.iter().map(size).collect(), given.iter().map(size).collect());
            let call = RoutineCall { name: multi_output.name, run: run.clone(), device, results, inputs: sizes };
            let operands = outs.iter().map(|&out| Operand::Out(out));
            let operands = operands.chain(given.into_iter().map(Operand::In)).collect();
            // What a routine does is known by what it means.
            let cost = Cost { flops: decomposition_flops(tensor), ..Cost::default() };
            steps.push(PlannedStep {
                call: PlannedCall::Routine(Arc::new(call), *fallibility),
                operands,
                values: vec![],
                about,
                cost,
            });
            return Ok(());
        }
        ImplementationKind::Source(source) => {
            let written = |part: &Tensor, out: Output| {
                interleaved.get(&out.buffer).cloned().unwrap_or_else(|| OutputLayout::alone(out.buffer, part))
            };
            let outs = parts.iter().zip(&outs).map(|(part, out)| (written(part, *out), part.0.dtype.bytes()));
            for (call, operands) in launches(device, source, &outs.collect::<Vec<_>>(), inputs)? {
                let cost = Cost { flops: call.flops, bytes: Some(call.bytes), half_precision_matmul: true };
                steps.push(PlannedStep {
                    call: PlannedCall::Handwritten(Arc::new(call)),
                    operands,
                    values: vec![],
                    about,
                    cost,
                });
            }
            return Ok(());
        }
        ImplementationKind::Kernel { kernel, values, checked } => (kernel, values, *checked),
    };
    let (mut given, mut written) = (inputs.iter(), outs.iter().zip(&multi_output.outputs));
    let mut operands = vec![];
    for param in &kernel_of.params {
        let input = if param.access.reads() { given.next() } else { None };
        let out = if param.access.writes() { written.next() } else { None };
        let Some((&out, (dtype, shape))) = out else {
            operands.extend(input.cloned().map(Operand::In));
            continue;
        };
        // What is read as well starts as the input; what a kernel of the user's may leave alone starts as zeros.
        let first = match input {
            Some(input) => Some(Tensor::build(Op::Reshape(input.0.shape.clone()), vec![input.clone()], place)),
            None if multi_output.has_decomposition => None,
            None => Some(Tensor::full(0.0, shape, *dtype, device)),
        };
        if let Some(first) = first {
            steps.push(kernel(lower(&first)?, vec![Operand::Out(out)], about)?);
        }
        operands.push(Operand::Out(out));
    }
    let mut values = values.clone();
    let flavour = if checked { CodegenMode::Checked } else { CodegenMode::Exact };
    if checked && device.is_cuda() {
        operands.push(Operand::Status);
        values.push(vec![Value::int(DType::I64, crate::runtime::status::kernel_code(kernel_of, &values, place))]);
    }
    let call = PlannedCall::Kernel(Box::new((**kernel_of).clone()), flavour, BLOCK);
    let cost = Cost { flops: decomposition_flops(tensor), ..Cost::default() };
    steps.push(PlannedStep { call, operands, values, about, cost });
    Ok(())
}
