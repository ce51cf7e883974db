//! Evaluation of nodes in a kernel, stores and reductions.

use bornite_ir::{Emit, EmitBits, ExprId, LocalId, Op as ScalarOp, ParamId, Type};

use super::lowering::{Coordinates, KernelShape, Lowering, ValueId};
use super::stages::Reduction;
use crate::graph::infer::constant;
use crate::graph::node::Op;
use crate::{DType, Tensor};

impl<S: KernelShape> Lowering<S> {
    /// The values of a node that the kernel computes.
    pub(super) fn compute_values(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let linear = self.linear_of(at);
        let node = &*tensor.0;
        let is_reduction = node.op.is_reduction();
        for lanes in [1, self.lanes] {
            let known = self.scopes.iter().rev().find_map(|known| known.values.get(&(node.id.into(), linear, lanes)));
            if let Some(values) = known {
                return values.clone();
            }
        }
        if is_reduction {
            self.b.record_error(format!("internal error: {} is read before it is computed", node.op.name()));
        }
        let at = &Coordinates { linear: Some(linear), ..at.clone() };
        let values = match &node.op {
            // An input that is not selected may report an index that is out of range, unless it is a
            // constant.
            Op::Map(ScalarOp::Select)
                if constant(&node.inputs[2]).is_some() && self.shape.is_always_true(&node.inputs[0], at) =>
            {
                self.values(&node.inputs[1], at)
            }
            Op::Map(row) => {
                let args: Vec<Vec<ExprId>> = node.inputs.iter().map(|input| self.values(input, at)).collect();
                let count = args.iter().map(Vec::len).max().unwrap_or(1);
                (0..count)
                    .map(|n| {
                        let args: Vec<&ExprId> =
                            args.iter().map(|arg| &arg[if arg.len() == 1 { 0 } else { n }]).collect();
                        self.b.op(*row, &args)
                    })
                    .collect()
            }
            Op::Cast(to) => {
                let values = self.values(&node.inputs[0], at);
                values.iter().map(|value| self.b.cast(*to, value)).collect()
            }
            // The first lane is a multiple of the number of lanes, so one Philox call gives the
            // words of four lanes.
            Op::Random(_) if self.lanes.is_multiple_of(4) => {
                (0..self.lanes / 4).flat_map(|n| self.four_random(node, linear, n)).collect()
            }
            Op::Random(_)
            | Op::Reduce(..)
            | Op::Matmul
            | Op::Pad(..)
            | Op::Concat(_)
            | Op::Gather(_)
            | Op::ScatterAdd(_)
            | Op::Cumsum(_)
            | Op::ArgReduce(..)
            | Op::ArgSort { .. }
            | Op::Iota { .. }
            | Op::Reshape(_)
            | Op::Expand(_)
            | Op::Permute(_)
            | Op::Slice(_)
            | Op::Checkpoint(_)
            | Op::Detach
            | Op::After
            | Op::Failed(_)
            | Op::Data
            | Op::Var
            | Op::Input
            | Op::Output
            | Op::Full(_)
            | Op::MultiOutput(_)
            | Op::GetOutput(_) => {
                let lanes = std::mem::replace(&mut self.lanes, 1);
                let values: Vec<ExprId> = (0..lanes)
                    .map(|lane| {
                        let at = self.lane_coordinates(at, lane);
                        self.compute(node, at)
                    })
                    .collect();
                self.lanes = lanes;
                values
            }
        };
        self.cache_values(node.id, linear, values.clone());
        values
    }

    /// Caches computed values in the current scope.
    pub(super) fn cache_values(&mut self, id: impl Into<ValueId>, linear: ExprId, values: Vec<ExprId>) {
        if let Some(known) = self.scopes.last_mut() {
            known.values.insert((id.into(), linear, values.len()), values);
        }
    }

    /// The values of an output, which may be a view or in memory.
    pub(super) fn output_values(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let at = at.reshaped(&tensor.0.shape);
        if self.computed.contains(&tensor.0.id) { self.compute_values(tensor, &at) } else { self.values(tensor, &at) }
    }

    /// Stores adjacent elements with the widest possible stores.
    pub(super) fn store(&mut self, out: ParamId, first: ExprId, values: Vec<ExprId>, dtype: DType) {
        if self.lanes == 1 {
            self.b.store(out, first, values[0]);
            return;
        }
        let values = if values.len() == 1 { vec![values[0]; self.lanes] } else { values };
        // Vectors have at most 4 elements.
        let width = if dtype == DType::Bool { 1 } else { (16 / dtype.bytes()).min(4).min(self.lanes) };
        for (n, part) in values.chunks(width).enumerate() {
            let slot = self.lane_coordinates(&Coordinates::linear(first, &[1]), n * width);
            let slot = self.linear_of(&slot);
            let value = match width {
                1 => part[0],
                _ => self.b.construct(Type::Vector(dtype, width as u8), part),
            };
            self.b.store(out, slot, value);
        }
    }

    /// A local variable for the total of a reduction.
    pub(super) fn total(&mut self, reduction: Reduction<'_>) -> LocalId {
        self.b.local("total", reduction.identity())
    }

    /// Input values of a reduction at one position, in its accumulator type.
    pub(super) fn reduction_input(&mut self, reduction: Reduction<'_>, at: &Coordinates) -> Vec<ExprId> {
        let input = &reduction.tensor.0.inputs[0];
        let values = self.values(input, &at.reshaped(&input.0.shape));
        let wide = reduction.accumulator_type();
        values.iter().map(|value| self.b.cast(wide, value)).collect()
    }

    /// Combines a value with the total of a reduction.
    pub(super) fn accumulate(&mut self, reduction: Reduction<'_>, total: LocalId, value: ExprId) {
        let before = self.b.read(total);
        let after = self.b.op(reduction.combine_op(), &[&before, &value]);
        self.b.assign(total, after);
    }
}
