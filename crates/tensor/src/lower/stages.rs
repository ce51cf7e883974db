//! Reductions of a group: the stages in which a kernel over rows computes them, and their parts.

use std::collections::HashMap;

use bornite_ir::{Op as Row, Value};

use super::group::{Form, Group};
use super::{extreme, look_through};
use crate::node::{Node, NodeId, Op, Reduce};
use crate::{DType, Tensor};

/// The reductions of a group by the stage that computes them; and, by the stage after which they are known, what else has
/// one element a row or one in all.
pub(super) struct Stages<'a> {
    pub reductions: Vec<Vec<&'a Tensor>>,
    pub known: Vec<Vec<&'a Tensor>>,
}

/// Orders the reductions of a group by what they depend on.
pub(super) fn stages(group: &Group) -> Stages<'_> {
    let rows = match group.form {
        Form::Rows { rows, .. } => rows,
        _ => 1,
    };
    let mut after: HashMap<NodeId, usize> = HashMap::new();
    let mut stages = Stages { reductions: vec![], known: vec![vec![]] };
    for tensor in &group.order {
        let inputs = tensor.0.reads().iter().map(|input| look_through(input).0.0.id);
        let stage = inputs.filter_map(|id| after.get(&id).copied()).max().unwrap_or(0);
        let reduces = tensor.0.op.is_reduction();
        after.insert(tensor.0.id, stage + usize::from(reduces));
        if reduces {
            stages.reductions.resize_with(stages.reductions.len().max(stage + 1), Vec::new);
            stages.known.resize_with(stages.known.len().max(stage + 2), Vec::new);
            stages.reductions[stage].push(tensor);
        } else if tensor.0.op.is_pointwise() && [1, rows].contains(&tensor.0.elements()) {
            stages.known[stage].push(tensor);
        }
    }
    stages
}

/// The op that adds an element to a reduction.
pub(super) fn step(reduce: Reduce) -> Row {
    match reduce {
        Reduce::Sum => Row::Add,
        Reduce::Prod => Row::Mul,
        Reduce::Max => Row::Max,
        Reduce::Min => Row::Min,
    }
}

/// The value that a reduction starts with.
pub(super) fn start(reduce: Reduce, dtype: DType) -> Value {
    match reduce {
        Reduce::Sum => Value::from_f64(dtype, 0.0),
        Reduce::Prod => Value::from_f64(dtype, 1.0),
        Reduce::Max => extreme(dtype, false),
        Reduce::Min => extreme(dtype, true),
    }
}

/// The kind of a reduction.
pub(super) fn reduction(tensor: &Tensor) -> Reduce {
    match tensor.0.op {
        Op::Reduce(reduce, _) => reduce,
        _ => Reduce::Sum,
    }
}

/// Extents of a reduction whose axes are adjacent: elements before them, in them, after them.
pub(crate) fn extent(node: &Node) -> Option<(usize, usize, usize)> {
    let Op::Reduce(_, axes) = &node.op else { return None };
    let shape = &node.inputs[0].0.shape;
    let real: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] != 1).collect();
    let (Some(&first), Some(&last)) = (real.first(), real.last()) else {
        return Some((shape.iter().product(), 1, 1));
    };
    // Axes of length 1 between are no gap.
    let inside = (first..=last).all(|axis| shape[axis] == 1 || real.contains(&axis));
    let product = |range: &[usize]| range.iter().product();
    inside.then(|| (product(&shape[..first]), product(&shape[first..=last]), product(&shape[last + 1..])))
}
