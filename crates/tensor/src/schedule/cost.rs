//! Cost of steps: flops, from the nodes that they compute.

use std::collections::{HashSet, VecDeque};

use bornite_support::profile::ComputeUnit;

use super::is_source;
use crate::Tensor;
use crate::graph::multi_output;
use crate::graph::node::{Flops, Node, NodeId, Op};

/// Cost of a step, for reports only; fusion has its own estimates.
#[derive(Clone, Copy, Default)]
pub(super) struct Cost {
    pub flops: u64,
    /// Bytes read and written, if not all of every argument.
    pub bytes: Option<u64>,
    /// Unit that executes the flops.
    pub unit: ComputeUnit,
}

/// Flops of a node.
pub(super) fn flops(node: &Node) -> u64 {
    let elements = match node.op.facts().flops {
        Flops::None => 0,
        Flops::Result => node.elements(),
        Flops::Input(n) => node.inputs.get(n).map_or(0, |input| input.0.elements()),
        Flops::Product => 2 * node.elements() * node.inputs.first().and_then(|a| a.0.shape.last()).unwrap_or(&0),
    };
    elements as u64
}

/// Flops of the matrix product that a library call computes, found among the inputs of its output.
pub(super) fn product_flops(tensor: &Tensor) -> u64 {
    const MAX_NODES: usize = 96;
    let mut queue = VecDeque::from([tensor]);
    for _ in 0..MAX_NODES {
        match queue.pop_front() {
            Some(tensor) if matches!(tensor.0.op, Op::Matmul) => return flops(&tensor.0),
            Some(tensor) => queue.extend(tensor.0.reads()),
            None => break,
        }
    }
    0
}

/// Flops of the decomposition of a multi-output op; 0 if it has none.
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
