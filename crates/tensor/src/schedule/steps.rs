//! Pass 6, steps: the launches, with the buffers that each reads and writes.
//!
//! Reads `calls` and `direct_writes`, consumes `units`; adds `steps`, `groups` and
//! `partial_updates`. Afterwards no output of a step has a value yet, and a group's operands are
//! those of its kernel, except that the kernel may read slices of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bornite_codegen::cuda::THREADS_PER_BLOCK;
use bornite_ir::{Kernel, Value};

use super::cost::{Cost, decomposition_flops, flops, product_flops};
use super::direct_writes::{PartialWrite, RemainingWrite};
use super::fuse::WorkItem;
use super::handwritten::{OutputLayout, launches};
use super::ids::{BufferId, GroupId, Output};
use super::{GroupInfo, Schedule, is_pending_output};
use crate::fused::Fallibility;
use crate::graph::multi_output::{self, ImplementationKind};
use crate::graph::node::{NodeId, Op, Role};
use crate::lower::{
    Group, GroupInputs, InPlaceOutputs, Input, Lowered, analyze_inputs, lower, lower_concat_inputs, lower_row_update,
    lower_scatter, targets_gpu,
};
use crate::matmul::{LibraryCall, LibraryMatmul};
use crate::runtime::cuda_source::HandwrittenCall;
use crate::runtime::execute::{CodegenMode, Program, RoutineCall};
use crate::runtime::scatter::scatter;
use crate::runtime::timing::LaunchInfo;
use crate::{DType, Device, Result, Tensor};

/// Code of a step.
pub(super) enum Call {
    Kernel(Arc<Program>),
    Matmul(Arc<LibraryMatmul>),
    Routine(Arc<RoutineCall>),
    Handwritten(Arc<HandwrittenCall>),
}

/// Code of a step before compilation.
pub(super) enum PlannedCall {
    /// With the threads per block on a GPU, for kernels without a block size.
    Kernel(Box<Kernel>, CodegenMode, u32),
    Matmul(Arc<LibraryMatmul>),
    Routine(Arc<RoutineCall>, Fallibility),
    Handwritten(Arc<HandwrittenCall>),
    /// A group, which is lowered once its in-place outputs are known.
    Group(GroupId),
}

/// An argument of a step before memory is assigned.
pub(super) enum Operand {
    Out(Output),
    /// The device's status words, written to report an out-of-range index.
    Status,
    /// The status words, read only: the kernel writes nothing after an error.
    Guard,
    In(Tensor),
    /// A byte range of a tensor: offset and length.
    InSlice(Tensor, usize, usize),
}

/// A step before memory is assigned and code compiled.
pub(super) struct PlannedStep {
    pub call: PlannedCall,
    pub operands: Vec<Operand>,
    /// Scalar arguments, each as its components.
    pub values: Vec<Vec<Value>>,
    pub info: LaunchInfo,
    pub cost: Cost,
}

impl PlannedStep {
    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.operands.iter().filter_map(|operand| match operand {
            Operand::In(tensor) | Operand::InSlice(tensor, ..) => Some(tensor),
            Operand::Out(_) | Operand::Status | Operand::Guard => None,
        })
    }

    /// True if it writes the value of this node.
    pub fn writes(&self, value: NodeId) -> bool {
        self.outputs().any(|output| output.buffer == value.into())
    }

    pub fn outputs(&self) -> impl Iterator<Item = Output> + '_ {
        self.operands.iter().filter_map(|operand| if let Operand::Out(output) = operand { Some(*output) } else { None })
    }
}

/// A step that overwrites a slice of a variable.
pub(super) struct PartialUpdateStep {
    pub step: usize,
    pub value: NodeId,
    pub old: Tensor,
}

/// Lists the launches of all units.
pub(super) fn list_steps(schedule: &mut Schedule) -> Result<()> {
    let device = schedule.device;
    let (mut seen, mut groups, mut partial_updates, mut steps) = (HashSet::new(), vec![], vec![], vec![]);
    for unit in std::mem::take(&mut schedule.units) {
        let tensor = match unit {
            WorkItem::Group(group) => {
                let GroupInputs { inputs, own_index_inputs, can_report_bad_index } = analyze_inputs(&group, device);
                let outs = group.outputs.iter().chain(&group.column_sums).map(|t| Operand::Out(Output::of(t)));
                let inputs = inputs.into_iter().map(Operand::In);
                let operands = outs.chain(can_report_bad_index.then_some(Operand::Status)).chain(inputs).collect();
                let (call, info) = (PlannedCall::Group(GroupId(groups.len())), LaunchInfo::default());
                steps.push(PlannedStep { call, operands, values: vec![], info, cost: Cost::default() });
                groups.push(GroupInfo { group, own_index_inputs, in_place: InPlaceOutputs::default() });
                continue;
            }
            WorkItem::Single(tensor) => tensor,
        };
        let info = LaunchInfo::of(&tensor.0);
        if let Some(write) = schedule.direct_writes.partial_writes.get(&tensor.0.id) {
            let update = |old: &Tensor| PartialUpdateStep { step: steps.len(), value: tensor.0.id, old: old.clone() };
            partial_updates.extend(write.old.as_ref().map(update));
            write_slices(&tensor, write, info, &mut steps)?;
        } else if is_pending_output(&tensor) {
            let op = &tensor.0.inputs[0];
            if seen.insert(op.0.id) {
                multi_output_steps(device, op, &schedule.direct_writes.interleaved, info, &mut steps)?;
            }
        } else if let Some(call) = schedule.calls.get(&tensor.0.id) {
            if seen.insert(call.outputs[0].0.id) {
                matmul_steps(call, &tensor, info, &mut steps)?;
            }
        } else {
            single_steps(device, &tensor, info, &mut steps)?;
        }
    }
    (schedule.groups, schedule.partial_updates, schedule.steps) = (groups, partial_updates, steps);
    Ok(())
}

/// Adds the steps of a library call that computes `tensor`.
fn matmul_steps(call: &LibraryCall, tensor: &Tensor, info: LaunchInfo, steps: &mut Vec<PlannedStep>) -> Result<()> {
    let out = |tensor: &Tensor| Operand::Out(Output::of(tensor));
    let (mut results, mut inputs): (Vec<Operand>, _) = (call.outputs.iter().map(out).collect(), &call.inputs);
    if let Some(padded) = &call.padded {
        for copy in &padded.copies {
            steps.push(kernel_step(lower(copy)?, vec![out(copy)], info)?);
        }
        inputs = &padded.operands;
        if padded.result.is_some() {
            results = vec![out(&padded.product)];
        }
    }
    let operands = results.into_iter().chain(inputs.iter().cloned().map(Operand::In)).collect();
    let (bytes, unit) = (Some(call.matmul.bytes()), call.matmul.unit());
    let cost = Cost { flops: product_flops(tensor), bytes, unit };
    let matmul = PlannedCall::Matmul(call.matmul.clone());
    steps.push(PlannedStep { call: matmul, operands, values: vec![], info, cost });
    if let Some(result) = call.padded.as_ref().and_then(|padded| padded.result.as_ref()) {
        steps.push(kernel_step(lower(result)?, vec![out(tensor)], info)?);
    }
    Ok(())
}

/// Adds the steps of a node that is not fused with others.
fn single_steps(device: Device, tensor: &Tensor, info: LaunchInfo, steps: &mut Vec<PlannedStep>) -> Result<()> {
    let out = Operand::Out(Output::of(tensor));
    if let Some((routine, inputs)) = scatter(&tensor.0, device) {
        let operands = [out].into_iter().chain(inputs.into_iter().map(Operand::In)).collect();
        let call = PlannedCall::Routine(Arc::new(routine), Fallibility::Fallible);
        let cost = Cost { flops: flops(&tensor.0), ..Cost::default() };
        steps.push(PlannedStep { call, operands, values: vec![], info, cost });
    } else if let Some(kernels) = lower_scatter(tensor, targets_gpu(device))? {
        for (lowered, outs) in kernels {
            let outs = outs.iter().map(|out| Operand::Out(Output::of(out))).collect();
            steps.push(kernel_step(lowered, outs, info)?);
        }
        // The earlier steps sort indices, which counts no flops.
        if let Some(last) = steps.last_mut() {
            last.cost.flops = flops(&tensor.0);
        }
    } else {
        let mut step = kernel_step(lower(tensor)?, vec![out], info)?;
        step.cost.flops = flops(&tensor.0);
        steps.push(step);
    }
    Ok(())
}

/// Adds the steps that write the remaining slices of a direct write.
fn write_slices(tensor: &Tensor, write: &PartialWrite, info: LaunchInfo, steps: &mut Vec<PlannedStep>) -> Result<()> {
    /// Inputs per kernel; each is a parameter.
    const MAX_INPUTS: usize = 64;
    let out = || vec![Operand::Out(Output::of(tensor))];
    match &write.kind {
        RemainingWrite::ConcatInputs { axis, inputs } => {
            for inputs in inputs.chunks(MAX_INPUTS) {
                let mut step = kernel_step(lower_concat_inputs(tensor, *axis, inputs)?, out(), info)?;
                step.cost.bytes = Some(inputs.iter().map(|&n| 2 * tensor.0.inputs[n].0.bytes() as u64).sum());
                steps.push(step);
            }
        }
        RemainingWrite::Row { axis, position, value } => {
            let mut step = kernel_step(lower_row_update(tensor, *axis, position, value)?, out(), info)?;
            step.cost.bytes = Some(2 * (tensor.0.bytes() / tensor.0.shape[*axis].max(1)) as u64);
            steps.push(step);
        }
    }
    Ok(())
}

/// Creates the step that launches the kernel of a fused group.
pub(super) fn group_step(lowered: Lowered, group: &Group) -> Result<PlannedStep> {
    let outs = group.outputs.iter().chain(&group.column_sums).map(|t| Operand::Out(Output::of(t))).collect();
    let info = group.outputs.last().map_or(LaunchInfo::default(), |t| LaunchInfo::of(&t.0));
    let mut step = kernel_step(lowered, outs, info)?;
    step.cost.flops = group.order.iter().chain(&group.column_sums).map(|tensor| flops(&tensor.0)).sum();
    if let PlannedCall::Kernel(_, mode, _) = &mut step.call {
        *mode = codegen_mode_of(group)?;
    }
    Ok(step)
}

/// Code generation mode of a group's kernel.
pub(super) fn codegen_mode_of(group: &Group) -> Result<CodegenMode> {
    if group.order.iter().any(is_random_draw) { Ok(CodegenMode::Exact) } else { CodegenMode::for_tensors() }
}

/// True if a tensor is computed only from random bits and constants. Such tensors have the same
/// bits on all devices, so their kernels use exact math.
fn is_random_draw(tensor: &Tensor) -> bool {
    const MAX_NODES: usize = 64;
    let (mut stack, mut seen, mut is_random) = (vec![tensor], 0, false);
    while let Some(tensor) = stack.pop() {
        seen += 1;
        match (tensor.0.op.facts().role, &tensor.0.op) {
            (_, Op::Random(_)) => is_random = true,
            (Role::Constant, _) | (_, Op::Iota { .. }) => {}
            (Role::Pointwise, _) => stack.extend(&tensor.0.inputs),
            (Role::View, _) => stack.extend(tensor.0.inputs.first()),
            (Role::Source | Role::Indexed | Role::Scatter | Role::Reduction | Role::Single, _) => return false,
            (Role::MultiOutput | Role::Output, _) => return false,
        }
        if seen > MAX_NODES {
            return false;
        }
    }
    is_random
}

/// Creates the step that launches a lowered kernel.
fn kernel_step(lowered: Lowered, outs: Vec<Operand>, info: LaunchInfo) -> Result<PlannedStep> {
    let Lowered { kernel, inputs, can_report_bad_index, guarded, values, threads, .. } = lowered;
    let status = can_report_bad_index.then_some(Operand::Status).or(guarded.then_some(Operand::Guard));
    let inputs = inputs.into_iter().map(|Input { tensor, part }| match part {
        None => Operand::In(tensor),
        Some(part) => {
            let bytes = tensor.0.dtype.bytes();
            Operand::InSlice(tensor, part.start * bytes, part.len() * bytes)
        }
    });
    let operands = outs.into_iter().chain(status).chain(inputs).collect();
    let call = PlannedCall::Kernel(Box::new(kernel), CodegenMode::for_tensors()?, threads);
    let values = values.into_iter().map(|value| vec![value]).collect();
    Ok(PlannedStep { call, operands, values, info, cost: Cost::default() })
}

/// Adds the steps of a multi-output op.
fn multi_output_steps(
    device: Device,
    tensor: &Tensor,
    interleaved: &HashMap<BufferId, OutputLayout>,
    info: LaunchInfo,
    steps: &mut Vec<PlannedStep>,
) -> Result<()> {
    let Some((multi_output, inputs)) = multi_output::as_multi_output(&tensor.0) else { return Ok(()) };
    let location = tensor.0.location;
    // An output that is not read still needs memory.
    let outputs = multi_output::outputs(tensor, location);
    let buffer = |output: &Tensor| if is_pending_output(output) { BufferId::of(output) } else { BufferId::temporary() };
    let outs: Vec<Output> =
        outputs.iter().map(|output| Output { buffer: buffer(output), bytes: output.0.bytes() }).collect();
    let (kernel_of, values, checked) = match &multi_output.implementation {
        ImplementationKind::Routine { run, fallibility, in_place } => {
            let size = |output: &Tensor| (output.0.dtype, output.0.elements());
            // The routine updates these inputs in place, so they are copied into the outputs first.
            // The in_place pass removes copies that are not needed.
            for (result, input) in in_place {
                let first =
                    Tensor::build(Op::Reshape(inputs[*input].0.shape.clone()), vec![inputs[*input].clone()], location);
                steps.push(kernel_step(lower(&first)?, vec![Operand::Out(outs[*result])], info)?);
            }
            let is_in_place = |n: &usize| in_place.iter().any(|(_, input)| input == n);
            let read: Vec<Tensor> = (0..inputs.len()).filter(|n| !is_in_place(n)).map(|n| inputs[n].clone()).collect();
            let (output_sizes, input_sizes) = (outputs.iter().map(size).collect(), read.iter().map(size).collect());
            let call = RoutineCall {
                name: multi_output.name,
                run: run.clone(),
                device,
                outputs: output_sizes,
                inputs: input_sizes,
            };
            let operands = outs.iter().map(|&out| Operand::Out(out));
            let operands = operands.chain(read.into_iter().map(Operand::In)).collect();
            // The cost of a routine is that of its decomposition.
            let cost = Cost { flops: decomposition_flops(tensor), ..Cost::default() };
            steps.push(PlannedStep {
                call: PlannedCall::Routine(Arc::new(call), *fallibility),
                operands,
                values: vec![],
                info,
                cost,
            });
            return Ok(());
        }
        ImplementationKind::Source(source) => {
            let layout = |output: &Tensor, out: Output| {
                interleaved.get(&out.buffer).cloned().unwrap_or_else(|| OutputLayout::contiguous(out.buffer, output))
            };
            let outs = outputs.iter().zip(&outs).map(|(output, out)| (layout(output, *out), output.0.dtype.bytes()));
            for (call, operands) in launches(device, source, &outs.collect::<Vec<_>>(), inputs)? {
                let cost = Cost { flops: call.flops, bytes: Some(call.bytes), unit: HandwrittenCall::UNIT };
                steps.push(PlannedStep {
                    call: PlannedCall::Handwritten(Arc::new(call)),
                    operands,
                    values: vec![],
                    info,
                    cost,
                });
            }
            return Ok(());
        }
        ImplementationKind::Kernel { kernel, values, checked } => (kernel, values, *checked),
    };
    let (mut next_input, mut next_output) = (inputs.iter(), outs.iter().zip(&multi_output.outputs));
    let mut operands = vec![];
    for param in &kernel_of.params {
        let input = if param.access.reads() { next_input.next() } else { None };
        let out = if param.access.writes() { next_output.next() } else { None };
        let Some((&out, (dtype, shape))) = out else {
            operands.extend(input.cloned().map(Operand::In));
            continue;
        };
        // An output that is also read starts as the input; one that a custom kernel may not write
        // completely starts as zeros.
        let first = match input {
            Some(input) => Some(Tensor::build(Op::Reshape(input.0.shape.clone()), vec![input.clone()], location)),
            None if multi_output.has_decomposition => None,
            None => Some(Tensor::full(0.0, shape, *dtype, device)),
        };
        if let Some(first) = first {
            steps.push(kernel_step(lower(&first)?, vec![Operand::Out(out)], info)?);
        }
        operands.push(Operand::Out(out));
    }
    let mut values = values.clone();
    let mode = if checked { CodegenMode::Checked } else { CodegenMode::Exact };
    if checked && device.is_cuda() {
        operands.push(Operand::Status);
        values.push(vec![Value::int(DType::I64, crate::runtime::status::kernel_code(kernel_of, &values, location))]);
    }
    let call = PlannedCall::Kernel(Box::new((**kernel_of).clone()), mode, THREADS_PER_BLOCK);
    let cost = Cost { flops: decomposition_flops(tensor), ..Cost::default() };
    steps.push(PlannedStep { call, operands, values, info, cost });
    Ok(())
}
