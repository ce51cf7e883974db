//! Cumulative sums and sorts: one instance per line along the axis, which writes the whole line.

use bornite_ir::{Access, Builder, Emit, EmitBits, ExprId, Op as ScalarOp, ParamId, Scalar, Stmt, Value};

use super::lowering::{Coordinates, Lowering};
use super::{Lowered, accumulator_type, index_type};
use crate::{DType, Result, Tensor};

/// Lowers a cumulative sum along an axis.
pub(super) fn cumsum(tensor: &Tensor, axis: usize) -> Result<Lowered> {
    lower(tensor, axis, |l, line| l.cumsum(line))
}

/// Lowers an argsort along an axis.
pub(super) fn arg_sort(tensor: &Tensor, axis: usize, descending: bool) -> Result<Lowered> {
    lower(tensor, axis, |l, line| l.arg_sort(line, descending))
}

fn lower(tensor: &Tensor, axis: usize, body: impl FnOnce(&mut Lowering, &Line)) -> Result<Lowered> {
    let node = &*tensor.0;
    let len = node.shape[axis];
    let lines = node.elements().checked_div(len).unwrap_or(0);
    // Children in a heap are at twice the index, which must not overflow.
    let index = if len > i32::MAX as usize / 2 { Scalar::I64 } else { index_type(tensor, false) };
    let mut b = Builder::new(format!("{}_{}", node.op.name(), node.inputs[0].0.dtype), lines as u64, index);
    let out = b.param("out", node.dtype, node.elements() as u64, Access::ReadWrite);
    let line = b.index();
    let mut l = Lowering::single(b, index);
    let mut shape = node.shape.clone();
    shape.remove(axis);
    let others = l.axes_of(&Coordinates::linear(line, &shape));
    body(&mut l, &Line { x: node.inputs[0].clone(), out, others, axis, shape: node.shape.clone() });
    l.finish()
}

/// A one-dimensional slice along the axis.
struct Line {
    x: Tensor,
    out: ParamId,
    /// Indices along the other axes.
    others: Vec<ExprId>,
    axis: usize,
    shape: Vec<usize>,
}

impl Line {
    fn at(&self, slot: ExprId) -> Coordinates {
        let mut axes = self.others.clone();
        axes.insert(self.axis, slot);
        Coordinates::axes(axes, &self.shape)
    }
}

impl Lowering {
    fn cumsum(&mut self, line: &Line) {
        let dtype = line.x.0.dtype;
        let wide = accumulator_type(dtype);
        let total = self.b.local("total", Value::from_f64(wide, 0.0));
        let end = self.b.index_constant(line.shape[line.axis] as u64);
        self.for_each("r", end, |l, r| {
            let (value, before) = (l.load(&line.x, line.at(r)), l.b.read(total));
            let value = l.b.cast(wide, &value);
            let after = l.b.add(&before, &value);
            l.b.assign(total, after);
            let after = l.b.cast(dtype, &after);
            let slot = l.linear_of(&line.at(r));
            l.b.store(line.out, slot, after);
        });
    }

    /// Heap sort of indices in the output: n log n, in place, and the same on every device. Equal
    /// elements are ordered by index, so the sort is stable.
    fn arg_sort(&mut self, line: &Line, descending: bool) {
        let len = line.shape[line.axis] as u64;
        let end = self.b.index_constant(len);
        self.for_each("r", end, |l, r| {
            let (slot, value) = (l.linear_of(&line.at(r)), l.b.cast(DType::I64, &r));
            l.b.store(line.out, slot, value);
        });
        let [one, two] = [1, 2].map(|n| self.b.index_constant(n));
        let half = self.b.index_constant(len / 2);
        // Build a heap with the last element on top, then remove the top repeatedly.
        self.for_each("build", half, |l, r| {
            let back = l.b.sub(&half, &r);
            let root = l.b.sub(&back, &one);
            l.sift(line, root, end, descending, [one, two]);
        });
        let iterations = self.b.index_constant(len.saturating_sub(1));
        self.for_each("take", iterations, |l, r| {
            let left = l.b.sub(&end, &r);
            let last = l.b.sub(&left, &one);
            let zero = l.b.index_constant(0);
            let (top_place, last_place) = (l.linear_of(&line.at(zero)), l.linear_of(&line.at(last)));
            let (top, other) = (l.b.load(line.out, top_place), l.b.load(line.out, last_place));
            l.b.store(line.out, last_place, top);
            l.b.store(line.out, top_place, other);
            l.sift(line, zero, last, descending, [one, two]);
        });
    }

    /// Sifts an entry down until no child comes after it.
    fn sift(&mut self, line: &Line, root: ExprId, end: ExprId, descending: bool, [one, two]: [ExprId; 2]) {
        let current = self.b.local("current", Value::int(self.index, 0));
        self.b.assign(current, root);
        self.b.open_block();
        let at = self.b.read(current);
        let double = self.b.mul(&at, &two);
        let first = self.b.add(&double, &one);
        let done = self.b.op(ScalarOp::Ge, &[&first, &end]);
        self.b.if_else(done, |b| b.push_stmt(Stmt::Break), |_| {});
        let child = self.b.local("child", Value::int(self.index, 0));
        self.b.assign(child, first);
        let second = self.b.add(&first, &one);
        let there = self.b.lt(&second, &end);
        self.b.open_block();
        let later = self.before(line, first, second, descending);
        self.b.if_else(later, |b| b.assign(child, second), |_| {});
        let then = self.b.close_block();
        self.b.push_stmt(Stmt::If { condition: there, then, otherwise: vec![] });
        let child = self.b.read(child);
        let later = self.before(line, at, child, descending);
        let in_order = self.b.op(ScalarOp::Not, &[&later]);
        self.b.if_else(in_order, |b| b.push_stmt(Stmt::Break), |_| {});
        let (here, there) = (self.linear_of(&line.at(at)), self.linear_of(&line.at(child)));
        let (a, c) = (self.b.load(line.out, here), self.b.load(line.out, there));
        self.b.store(line.out, here, c);
        self.b.store(line.out, there, a);
        self.b.assign(current, child);
        let body = self.b.close_block();
        self.b.push_stmt(Stmt::Loop { body });
    }

    /// True if the entry at heap index `a` comes before that at `b`.
    fn before(&mut self, line: &Line, a: ExprId, b: ExprId, descending: bool) -> ExprId {
        // In a separate scope, since the loaded values are not available after the caller's block.
        let [(i, x), (j, y)] = self.scope(|l| {
            [a, b].map(|slot| {
                let slot = l.linear_of(&line.at(slot));
                let entry = l.b.load(line.out, slot);
                let index = l.b.cast(l.index, &entry);
                (entry, l.load(&line.x, line.at(index)))
            })
        });
        let earlier = self.b.lt(&i, &j);
        let (small, large) = if descending { (y, x) } else { (x, y) };
        let mut less = self.b.lt(&small, &large);
        let mut same = self.b.op(ScalarOp::Eq, &[&small, &large]);
        if line.x.0.dtype.is_float() {
            let [small_nan, large_nan] = [small, large].map(|v| self.b.op(ScalarOp::Ne, &[&v, &v]));
            let number = self.b.op(ScalarOp::Not, &[&small_nan]);
            let offset_by = self.b.op(ScalarOp::And, &[&number, &large_nan]);
            less = self.b.op(ScalarOp::Or, &[&less, &offset_by]);
            let both = self.b.op(ScalarOp::And, &[&small_nan, &large_nan]);
            same = self.b.op(ScalarOp::Or, &[&same, &both]);
        }
        let tie = self.b.op(ScalarOp::And, &[&same, &earlier]);
        self.b.op(ScalarOp::Or, &[&less, &tie])
    }
}
