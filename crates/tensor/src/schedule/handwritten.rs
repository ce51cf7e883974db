//! Steps of handwritten CUDA kernels (`runtime/cuda_source.rs`): the buffers, offsets and strides
//! of their arguments.
//!
//! These kernels read strided views without a copy and can write outputs at strides into a
//! concatenation. The gradients of queries, keys and values, for example, are written directly into
//! the gradient of the packed projection.

use bornite_cuda::TensorMapLayout;

use super::ids::{BufferId, Output};
use super::is_source;
use super::steps::Operand;
use crate::graph::multi_output::{self, ImplementationKind};
use crate::graph::node::{AxisSlice, Op};
use crate::lower::look_through;
use crate::matmul::strided::Strided;
use crate::matmul::{contiguous_layout, locate};
use crate::runtime::cuda_source::{
    CudaArg, CudaLaunch, CudaSource, HandwrittenCall, LaunchValue, TENSOR_MAP_COLUMNS, TokenAxes,
};
use crate::{DType, Device, Result, Tensor};

/// The tensor that holds an input's memory, and the input's layout in it, if the kernels can read
/// it without a copy.
pub(super) fn locate_input(source: &CudaSource, input: &Tensor) -> Option<(Tensor, Strided)> {
    let (memory, layout, copied) = locate(input, |layout| source.can_read(layout).then(|| layout.clone()))?;
    (!copied).then_some((memory, layout))
}

/// Memory of an output: the buffer, its size, and the output's layout in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutputLayout {
    pub buffer: BufferId,
    pub bytes: usize,
    pub layout: Strided,
}

impl OutputLayout {
    /// An output that has a buffer of its own.
    pub fn contiguous(buffer: BufferId, output: &Tensor) -> OutputLayout {
        OutputLayout { buffer, bytes: output.0.bytes(), layout: contiguous_layout(output) }
    }
}

/// The output of handwritten kernels that an input of a concatenation is a view of, and its layout
/// in the concatenation, if the kernels can write it there.
pub(super) fn output_in_concat(concat: &Tensor, axis: usize, number: usize) -> Option<(&Tensor, OutputLayout)> {
    let node = &*concat.0;
    let input = &node.inputs[number];
    let (base, views) = look_through(input);
    let (Op::GetOutput(output), false) = (&base.0.op, is_source(base)) else { return None };
    let (multi_output, _) = multi_output::as_multi_output(&base.0.inputs[0].0)?;
    let ImplementationKind::Source(source) = &multi_output.implementation else { return None };
    let mut cuts: Vec<AxisSlice> = node.shape.iter().map(|&length| AxisSlice::full(length)).collect();
    let start = node.inputs[..number].iter().map(|input| input.0.shape[axis]).sum();
    cuts[axis] = AxisSlice { start, step: 1, len: input.0.shape[axis] };
    let layout = contiguous_layout(concat).apply_view(&Op::Slice(cuts))?;
    let layout =
        views.iter().try_fold(layout, |layout, view| layout.invert_view(&view.0.op, &view.0.inputs[0].0.shape))?;
    source
        .can_write(*output, &layout)
        .then(|| (base, OutputLayout { buffer: BufferId::of(concat), bytes: node.bytes(), layout }))
}

/// Arguments of one launch.
struct LaunchOperands {
    operands: Vec<Operand>,
    /// For each pointer, the index of the operand and the byte offset in it.
    pointers: Vec<(usize, usize)>,
    values: Vec<LaunchValue>,
    /// Bytes read and written.
    bytes: u64,
}

/// Launches of a source, each with its operands, outputs first. `outs` holds the layout and the
/// element size of each output.
pub(super) fn launches(
    device: Device,
    source: &CudaSource,
    outs: &[(OutputLayout, usize)],
    inputs: &[Tensor],
) -> Result<Vec<(HandwrittenCall, Vec<Operand>)>> {
    let scratch: Vec<Output> =
        source.scratch.iter().map(|&bytes| Output { buffer: BufferId::temporary(), bytes }).collect();
    let located: Vec<(Tensor, Strided)> = inputs
        .iter()
        .map(|input| locate_input(source, input).unwrap_or_else(|| (input.clone(), contiguous_layout(input))))
        .collect();
    (source.launches.iter())
        .map(|launch| {
            let LaunchOperands { operands, pointers, values, bytes } =
                launch_operands(launch, outs, &scratch, inputs, &located);
            let call = HandwrittenCall::new(device, source, launch, values, pointers, bytes)?;
            Ok((call, operands))
        })
        .collect()
}

fn launch_operands(
    launch: &CudaLaunch,
    outs: &[(OutputLayout, usize)],
    scratch: &[Output],
    inputs: &[Tensor],
    located: &[(Tensor, Strided)],
) -> LaunchOperands {
    let written = launch.args.iter().filter_map(|arg| match arg {
        CudaArg::Output(n) => Some(Output { buffer: outs[*n].0.buffer, bytes: outs[*n].0.bytes }),
        CudaArg::Scratch(n) => Some(scratch[*n]),
        _ => None,
    });
    let mut operands: Vec<Operand> = written.map(Operand::Out).collect();
    let (mut next, mut pointers, mut values, mut bytes) = (0, vec![], vec![], 0);
    let byte_offset = |layout: &Strided, element: usize| layout.offset as usize * element;
    let strides = |layout: &Strided, axes: &TokenAxes| {
        LaunchValue::Bytes(axes.iter().flat_map(|&axis| (layout.strides[axis] as i64).to_le_bytes()).collect())
    };
    for arg in &launch.args {
        match arg {
            CudaArg::Output(n) => {
                let (OutputLayout { layout, .. }, element) = &outs[*n];
                pointers.push((next, byte_offset(layout, *element)));
                next += 1;
                bytes += layout.shape.iter().product::<usize>() * element;
            }
            CudaArg::Scratch(n) => {
                pointers.push((next, 0));
                next += 1;
                bytes += scratch[*n].bytes;
            }
            CudaArg::Input(n) => {
                let (memory, layout) = &located[*n];
                pointers.push((operands.len(), byte_offset(layout, memory.0.dtype.bytes())));
                operands.push(Operand::In(memory.clone()));
                bytes += inputs[*n].0.bytes().min(memory.0.bytes());
            }
            CudaArg::InputStrides(n, axes) => values.push(strides(&located[*n].1, axes)),
            CudaArg::OutputStrides(n, axes) => values.push(strides(&outs[*n].0.layout, axes)),
            CudaArg::Value(value) => values.push(LaunchValue::Bytes(value.clone())),
            CudaArg::TensorMap { input, axes, rows } => {
                let (memory, layout) = &located[*input];
                let offset = byte_offset(layout, memory.0.dtype.bytes());
                values.push(LaunchValue::TensorMap(operands.len(), offset, tensor_map(memory, layout, axes, *rows)));
                operands.push(Operand::In(memory.clone()));
                bytes += inputs[*input].0.bytes().min(memory.0.bytes());
            }
        }
    }
    LaunchOperands { operands, pointers, values, bytes: bytes as u64 }
}

/// Layout of an input in its memory, for copies of `rows` tokens.
fn tensor_map(memory: &Tensor, layout: &Strided, axes: &TokenAxes, rows: u32) -> TensorMapLayout {
    let [batch, head, token] = *axes;
    TensorMapLayout {
        half: memory.0.dtype == DType::F16,
        shape: [batch, head, token, 3].map(|axis| layout.shape[axis]),
        strides: [batch, head, token].map(|axis| layout.strides[axis] as usize),
        box_shape: [1, 1, rows, TENSOR_MAP_COLUMNS],
    }
}

/// True if an input of a multi-output op is a view or a constant, which must be computed into
/// memory before it can be read.
pub(super) fn must_materialize(tensor: &Tensor) -> bool {
    !is_source(tensor) && (tensor.0.op.is_view() || tensor.0.op.is_constant())
}

#[cfg(test)]
#[path = "handwritten_tests.rs"]
mod tests;
