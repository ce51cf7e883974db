//! Reductions of a group, and the stages in which a row kernel computes them.

use std::collections::HashMap;

use bornite_ir::{Op as ScalarOp, Value};

use super::group::{Group, IterationSpace};
use super::{accumulator_type, extreme, look_through};
use crate::graph::node::{NodeId, Op, Reduce};
use crate::{DType, Tensor};

/// Reductions of a group by the stage that computes them; and the other nodes with one value per
/// row, or a single value, by the stage after which they can be computed.
pub(super) struct Stages<'a> {
    pub reductions: Vec<Vec<Reduction<'a>>>,
    pub known: Vec<Vec<&'a Tensor>>,
}

/// Orders the reductions of a group by their dependencies.
pub(super) fn stages(group: &Group) -> Stages<'_> {
    let rows = match group.space {
        IterationSpace::Rows { rows, .. } => rows,
        _ => 1,
    };
    let mut after: HashMap<NodeId, usize> = HashMap::new();
    let mut stages = Stages { reductions: vec![], known: vec![vec![]] };
    for tensor in &group.order {
        let inputs = tensor.0.reads().iter().map(|input| look_through(input).0.0.id);
        let stage = inputs.filter_map(|id| after.get(&id).copied()).max().unwrap_or(0);
        let reduction = Reduction::of(tensor);
        after.insert(tensor.0.id, stage + usize::from(reduction.is_some()));
        if let Some(reduction) = reduction {
            stages.reductions.resize_with(stages.reductions.len().max(stage + 1), Vec::new);
            stages.known.resize_with(stages.known.len().max(stage + 2), Vec::new);
            stages.reductions[stage].push(reduction);
        } else if tensor.0.op.is_pointwise() && [1, rows].contains(&tensor.0.elements()) {
            stages.known[stage].push(tensor);
        }
    }
    stages
}

/// A node that is a reduction.
#[derive(Clone, Copy)]
pub(super) struct Reduction<'a> {
    pub tensor: &'a Tensor,
    reduce: Reduce,
}

impl<'a> Reduction<'a> {
    pub fn of(tensor: &'a Tensor) -> Option<Reduction<'a>> {
        let Op::Reduce(reduce, _) = tensor.0.op else { return None };
        Some(Reduction { tensor, reduce })
    }

    /// The op that combines two values.
    pub fn combine_op(self) -> ScalarOp {
        combine_op(self.reduce)
    }

    /// The identity element.
    pub fn identity(self) -> Value {
        identity(self.reduce, self.accumulator_type())
    }

    /// Accumulator type.
    pub fn accumulator_type(self) -> DType {
        accumulator_type(self.tensor.0.dtype)
    }
}

/// The op that combines two values of a reduction.
pub(super) fn combine_op(reduce: Reduce) -> ScalarOp {
    match reduce {
        Reduce::Sum => ScalarOp::Add,
        Reduce::Prod => ScalarOp::Mul,
        Reduce::Max => ScalarOp::Max,
        Reduce::Min => ScalarOp::Min,
    }
}

/// The identity element of a reduction.
pub(super) fn identity(reduce: Reduce, dtype: DType) -> Value {
    match reduce {
        Reduce::Sum => Value::from_f64(dtype, 0.0),
        Reduce::Prod => Value::from_f64(dtype, 1.0),
        Reduce::Max => extreme(dtype, false),
        Reduce::Min => extreme(dtype, true),
    }
}
