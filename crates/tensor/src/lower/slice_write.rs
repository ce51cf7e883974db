//! Kernels that write a slice of their output and leave the rest of its memory unchanged.

use bornite_ir::{Access, Builder, Emit, EmitBits, Op as ScalarOp, Scalar, Stmt, Value};

use super::lowering::{Coordinates, Lowering};
use super::{Lowered, look_through};
use crate::{DType, Result, Tensor};

/// Index type for an output and its inputs.
fn index_type(tensor: &Tensor, inputs: &[&Tensor]) -> Scalar {
    let largest_view = |input: &&Tensor| {
        let (base, views) = look_through(input);
        views.iter().map(|view| view.0.elements()).fold(base.0.elements(), usize::max)
    };
    let largest = inputs.iter().map(largest_view).fold(tensor.0.elements(), usize::max);
    if largest <= i32::MAX as usize { Scalar::I32 } else { Scalar::I64 }
}

/// Lowers the copy of some inputs of a concatenation to their slices; one instance per element.
pub(crate) fn lower_concat_inputs(tensor: &Tensor, axis: usize, inputs: &[usize]) -> Result<Lowered> {
    let node = &*tensor.0;
    let start = |n: usize| node.inputs[..n].iter().map(|input| input.0.shape[axis]).sum::<usize>();
    let pieces: Vec<(usize, &Tensor)> = inputs.iter().map(|&n| (start(n), &node.inputs[n])).collect();
    let total: usize = pieces.iter().map(|(_, piece)| piece.0.elements()).sum();
    let index = index_type(tensor, &pieces.iter().map(|(_, piece)| *piece).collect::<Vec<_>>());
    let mut b = Builder::new(format!("concat_{}", node.dtype), total as u64, index);
    let out = b.param("out", node.dtype, node.elements() as u64, Access::Write);
    let instance = b.index();
    let mut l = Lowering::single(b, index);
    let mut begins = 0;
    for &(start, piece) in &pieces {
        let elements = piece.0.elements();
        let own = if begins == 0 { instance } else { l.index_op(ScalarOp::Sub, instance, begins) };
        let [zero, end] = [0, elements as u64].map(|n| l.b.index_constant(n));
        let (after, before) = (l.b.op(ScalarOp::Ge, &[&own, &zero]), l.b.lt(&own, &end));
        let condition = l.b.op(ScalarOp::And, &[&after, &before]);
        l.b.open_block();
        l.scope(|l| {
            let mut axes = l.axes_of(&Coordinates::linear(own, &piece.0.shape));
            let value = l.load(piece, Coordinates::axes(axes.clone(), &piece.0.shape));
            if start > 0 {
                axes[axis] = l.index_op(ScalarOp::Add, axes[axis], start);
            }
            let destination = l.linear_of(&Coordinates::axes(axes, &node.shape));
            l.b.store(out, destination, value);
        });
        let then = l.b.close_block();
        l.b.push_stmt(Stmt::If { condition, then, otherwise: vec![] });
        begins += elements;
    }
    l.finish()
}

/// Lowers the update of the row at `position` along an axis; one instance per element of the row.
/// Nothing is written if `position` is out of range.
pub(crate) fn lower_row_update(tensor: &Tensor, axis: usize, position: &Tensor, value: &Tensor) -> Result<Lowered> {
    let node = &*tensor.0;
    let length = node.shape[axis];
    let index = index_type(tensor, &[position, value]);
    let mut b = Builder::new(format!("row_{}", node.dtype), (node.elements() / length.max(1)) as u64, index);
    let out = b.param("out", node.dtype, node.elements() as u64, Access::Write);
    let instance = b.index();
    let mut l = Lowering::single(b, index);
    let first = l.zero();
    let position = l.load(position, Coordinates::axes(vec![first; position.0.shape.len()], &position.0.shape));
    let wide = l.b.cast(DType::I64, &position);
    let [zero, end] = [0, length as i64].map(|n| l.b.constant(Value::int(DType::I64, n)));
    let (after, before) = (l.b.op(ScalarOp::Ge, &[&wide, &zero]), l.b.lt(&wide, &end));
    let condition = l.b.op(ScalarOp::And, &[&after, &before]);
    l.b.open_block();
    l.scope(|l| {
        let mut shape = node.shape.clone();
        shape[axis] = 1;
        let mut axes = l.axes_of(&Coordinates::linear(instance, &shape));
        axes[axis] = l.b.cast(index, &wide);
        let loaded = l.load(value, Coordinates::axes(axes.clone(), &node.shape));
        let destination = l.linear_of(&Coordinates::axes(axes, &node.shape));
        l.b.store(out, destination, loaded);
    });
    let then = l.b.close_block();
    l.b.push_stmt(Stmt::If { condition, then, otherwise: vec![] });
    l.finish()
}
