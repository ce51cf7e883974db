//! What steps cost: operations on elements, from what they compute.

use std::collections::{HashSet, VecDeque};

use super::is_source;
use crate::Tensor;
use crate::graph::multi_output;
use crate::graph::node::{Flops, Node, NodeId, Op};

/// What a step costs, beside the bytes of its arguments.
#[derive(Clone, Copy, Default)]
pub(super) struct Cost {
    pub flops: u64,
    /// Where it is less than all bytes of all arguments.
    pub bytes: Option<u64>,
    /// Whether it is a product of 16-bit floats.
    pub half_precision_matmul: bool,
}

/// Operations on elements that a node takes.
pub(super) fn flops(node: &Node) -> u64 {
    let elements = match node.op.facts().flops {
        Flops::None => 0,
        Flops::Result => node.elements(),
        Flops::Input(n) => node.inputs.get(n).map_or(0, |input| input.0.elements()),
        Flops::Product => 2 * node.elements() * node.inputs.first().and_then(|a| a.0.shape.last()).unwrap_or(&0),
    };
    elements as u64
}

/// Operations on elements of the product behind what a call of a library computes.
pub(super) fn product_flops(tensor: &Tensor) -> u64 {
    const MOST: usize = 96;
    let mut queue = VecDeque::from([tensor]);
    for _ in 0..MOST {
        match queue.pop_front() {
            Some(tensor) if matches!(tensor.0.op, Op::Matmul) => return flops(&tensor.0),
            Some(tensor) => queue.extend(tensor.0.reads()),
            None => break,
        }
    }
    0
}

/// Operations on elements of the plain ops that a joint stands for, if it stands for some.
pub(super) fn decomposition_flops(multi_output: &Tensor) -> u64 {
    let Some((of, inputs)) = multi_output::as_multi_output(&multi_output.0) else { return 0 };
    let mut seen: HashSet<NodeId> = inputs.iter().map(|input| input.0.id).collect();
    let (mut stack, mut sum): (Vec<&Tensor>, u64) =
        (multi_output.0.inputs[..of.decomposition_len()].iter().collect(), 0);
    while let Some(tensor) = stack.pop() {
        if seen.insert(tensor.0.id) && !is_source(tensor) {
            sum += flops(&tensor.0);
            stack.extend(tensor.0.reads());
        }
    }
    sum
}
