//! Steps of kernels written by hand (`source.rs`): where their inputs and results lie, and in which order they take memory.
//!
//! They read views where those lie, and write results where a concatenation wants them: the gradients of queries, keys and
//! values that are slices of one product are rows of one tensor at once.

use super::ids::{BufferId, Output};
use super::is_source;
use super::steps::Operand;
use crate::graph::multi_output::{self, ImplementationKind};
use crate::graph::node::{AxisSlice, Op};
use crate::lower::look_through;
use crate::matmul::strided::Strided;
use crate::matmul::{locate, whole};
use crate::runtime::cuda_source::{CudaArg, CudaLaunch, CudaSource, HandwrittenCall};
use crate::{Device, Result, Tensor};

/// The tensor in whose memory an input is, and how it lies there, if the kernels can read it without a copy.
pub(super) fn locate_input(source: &CudaSource, input: &Tensor) -> Option<(Tensor, Strided)> {
    let (memory, place, copied) = locate(input, |place| source.reads(place).then(|| place.clone()))?;
    (!copied).then_some((memory, place))
}

/// A result in memory: which value it is in, of how many bytes, and how it lies there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutputLayout {
    pub buffer: BufferId,
    pub bytes: usize,
    pub place: Strided,
}

impl OutputLayout {
    /// In memory of its own.
    pub fn alone(buffer: BufferId, result: &Tensor) -> OutputLayout {
        OutputLayout { buffer, bytes: result.0.bytes(), place: whole(result) }
    }
}

/// The result behind an input of a concatenation, and where it lies in that, if it is one of kernels written by hand that can
/// write it there.
pub(super) fn within(concat: &Tensor, axis: usize, number: usize) -> Option<(&Tensor, OutputLayout)> {
    let node = &*concat.0;
    let input = &node.inputs[number];
    let (base, views) = look_through(input);
    let (Op::GetOutput(result), false) = (&base.0.op, is_source(base)) else { return None };
    let (multi_output, _) = multi_output::as_multi_output(&base.0.inputs[0].0)?;
    let ImplementationKind::Source(source) = &multi_output.implementation else { return None };
    let mut cuts: Vec<AxisSlice> = node.shape.iter().map(|&length| AxisSlice::full(length)).collect();
    let start = node.inputs[..number].iter().map(|input| input.0.shape[axis]).sum();
    cuts[axis] = AxisSlice { start, step: 1, len: input.0.shape[axis] };
    let place = whole(concat).through(&Op::Slice(cuts))?;
    let place = views.iter().try_fold(place, |place, view| place.behind(&view.0.op, &view.0.inputs[0].0.shape))?;
    source
        .writes(*result, &place)
        .then(|| (base, OutputLayout { buffer: BufferId::of(concat), bytes: node.bytes(), place }))
}

/// What one launch takes.
struct LaunchOperands {
    operands: Vec<Operand>,
    /// For each pointer, the operand and the byte in it.
    pointers: Vec<(usize, usize)>,
    values: Vec<Vec<u8>>,
    /// Bytes that it reads and writes.
    bytes: u64,
}

/// The launches of a source, each with its operands, what it writes first. Results lie where `outs` says, with elements of so many
/// bytes.
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
        .map(|input| locate_input(source, input).unwrap_or_else(|| (input.clone(), whole(input))))
        .collect();
    (source.launches.iter())
        .map(|launch| {
            let LaunchOperands { operands, pointers, values, bytes } = taken(launch, outs, &scratch, inputs, &located);
            let call = HandwrittenCall::new(device, &source.text, launch, values, pointers, bytes)?;
            Ok((call, operands))
        })
        .collect()
}

fn taken(
    launch: &CudaLaunch,
    outs: &[(OutputLayout, usize)],
    scratch: &[Output],
    inputs: &[Tensor],
    located: &[(Tensor, Strided)],
) -> LaunchOperands {
    let written = launch.given.iter().filter_map(|given| match given {
        CudaArg::Result(n) => Some(Output { buffer: outs[*n].0.buffer, bytes: outs[*n].0.bytes }),
        CudaArg::Scratch(n) => Some(scratch[*n]),
        _ => None,
    });
    let mut operands: Vec<Operand> = written.map(Operand::Out).collect();
    let (mut next, mut pointers, mut values, mut bytes) = (0, vec![], vec![], 0);
    let begins = |place: &Strided, element: usize| place.offset as usize * element;
    let strides = |place: &Strided, axes: &[usize]| -> Vec<u8> {
        axes.iter().flat_map(|&axis| (place.strides[axis] as i64).to_le_bytes()).collect()
    };
    for given in &launch.given {
        match given {
            CudaArg::Result(n) => {
                let (OutputLayout { place, .. }, element) = &outs[*n];
                pointers.push((next, begins(place, *element)));
                next += 1;
                bytes += place.shape.iter().product::<usize>() * element;
            }
            CudaArg::Scratch(n) => {
                pointers.push((next, 0));
                next += 1;
                bytes += scratch[*n].bytes;
            }
            CudaArg::Input(n) => {
                let (memory, place) = &located[*n];
                pointers.push((operands.len(), begins(place, memory.0.dtype.bytes())));
                operands.push(Operand::In(memory.clone()));
                bytes += inputs[*n].0.bytes().min(memory.0.bytes());
            }
            CudaArg::Strides(n, axes) => values.push(strides(&located[*n].1, axes)),
            CudaArg::ResultStrides(n, axes) => values.push(strides(&outs[*n].0.place, axes)),
            CudaArg::Value(value) => values.push(value.clone()),
        }
    }
    LaunchOperands { operands, pointers, values, bytes: bytes as u64 }
}

/// Whether an input of a joint has to be computed before it can be read: it is a view, or a constant, which has no memory.
pub(super) fn must_materialize(tensor: &Tensor) -> bool {
    !is_source(tensor) && (tensor.0.op.is_view() || tensor.0.op.is_constant())
}

#[cfg(test)]
#[path = "handwritten_tests.rs"]
mod tests;
