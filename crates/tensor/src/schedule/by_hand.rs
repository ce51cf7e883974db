//! Steps of kernels written by hand (`source.rs`): where their inputs lie, and in which order they take memory.

use super::is_source;
use super::work::Operand;
use crate::matmul::strided::Strided;
use crate::matmul::{locate, whole};
use crate::node::{Node, Op};
use crate::source::{Given, Source, SourceCall};
use crate::{Device, Result, Tensor};

/// The tensor in whose memory an input is, and how it lies there, if the kernels can read it without a copy.
pub(super) fn in_memory(source: &Source, input: &Tensor) -> Option<(Tensor, Strided)> {
    let (memory, place, copied) = locate(input, |place| source.reads(place).then(|| place.clone()))?;
    (!copied).then_some((memory, place))
}

/// The launches of a source, each with its operands, what it writes first. Results have these ids and bytes.
pub(super) fn launches(
    device: Device,
    source: &Source,
    outs: &[(u64, usize)],
    inputs: &[Tensor],
) -> Result<Vec<(SourceCall, Vec<Operand>, u64)>> {
    let scratch: Vec<(u64, usize)> = source.scratch.iter().map(|&bytes| (Node::next_id_taken(), bytes)).collect();
    let located: Vec<(Tensor, Strided)> =
        inputs.iter().map(|input| in_memory(source, input).unwrap_or_else(|| (input.clone(), whole(input)))).collect();
    let lies: Vec<(Strided, usize)> =
        located.iter().map(|(memory, place)| (place.clone(), memory.0.dtype.bytes())).collect();
    (source.launches.iter())
        .map(|launch| {
            let written = launch.given.iter().filter_map(|given| match given {
                Given::Result(n) => Some(outs[*n]),
                Given::Scratch(n) => Some(scratch[*n]),
                _ => None,
            });
            let mut operands: Vec<Operand> = written.map(|(id, bytes)| Operand::Out(id, bytes)).collect();
            let (mut outs, mut pointers) = (0, vec![]);
            for given in &launch.given {
                match given {
                    Given::Result(_) | Given::Scratch(_) => {
                        pointers.push((outs, 0));
                        outs += 1;
                    }
                    Given::Input(n) => {
                        let (place, bytes) = &lies[*n];
                        pointers.push((operands.len(), place.offset as usize * bytes));
                        operands.push(Operand::In(located[*n].0.clone()));
                    }
                    Given::Strides(_) | Given::Value(_) => {}
                }
            }
            let call = SourceCall::new(device, &source.text, launch, &lies, pointers)?;
            Ok((call, operands, launch.flops))
        })
        .collect()
}

/// Whether an input of a joint has to be computed before it can be read: it is a view, or a constant, which has no memory.
pub(super) fn is_shown(tensor: &Tensor) -> bool {
    !is_source(tensor) && (tensor.0.op.is_view() || matches!(tensor.0.op, Op::Full(_)))
}
