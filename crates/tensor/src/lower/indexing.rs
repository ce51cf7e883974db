//! Indexing ops: pad, concat, gather, scatter-add, argmin/argmax; and random bits.

use bornite_ir::{AlgebraOp, Atomic, Emit, EmitBits, ExprId, Op as ScalarOp, Scalar, Type, Value};

use super::accumulator_type;
use super::lowering::{Coordinates, KernelShape, Lowering, RowSpace};
use super::scatter::SUM_BLOCK;
use crate::graph::node::{AxisSlice, Node, Op, Reduce};
use crate::{DType, Tensor};

impl<S: KernelShape> Lowering<S> {
    /// Conjunction of conditions; `None` if there are none.
    fn all_of(&mut self, conditions: Vec<ExprId>) -> Option<ExprId> {
        conditions.into_iter().reduce(|all, one| self.b.op(ScalarOp::And, &[&all, &one]))
    }

    /// The result of `then` if a condition holds, else `value`.
    fn conditional_value(&mut self, condition: ExprId, value: Value, then: impl FnOnce(&mut Self) -> ExprId) -> ExprId {
        let result = self.b.local("result", value);
        // Assigned here, since this may be inside a loop.
        let otherwise = self.b.constant(value);
        self.b.assign(result, otherwise);
        self.b.open_block();
        let inside = self.scope(then);
        self.b.assign(result, inside);
        let then = self.b.close_block();
        self.b.push_stmt(bornite_ir::Stmt::If { condition, then, otherwise: vec![] });
        self.b.read(result)
    }

    /// The input's element inside the padding, else the padding value.
    pub(super) fn pad(&mut self, node: &Node, cuts: &[AxisSlice], value: Value, at: &Coordinates) -> ExprId {
        let x = &node.inputs[0];
        let (mut conditions, mut inner) = (vec![], vec![]);
        for ((axis, cut), &outer) in self.axes_of(at).into_iter().zip(cuts).zip(&node.shape) {
            if *cut == AxisSlice::full(outer) {
                inner.push(axis);
                continue;
            }
            let back = self.index_op(ScalarOp::Sub, axis, cut.start);
            let (mut inner_index, zero) = (back, self.b.index_constant(0));
            if cut.step != 1 {
                let step = self.b.constant(Value::int(self.index, cut.step as i64));
                let rest = self.b.op(ScalarOp::Rem, &[&back, &step]);
                conditions.push(self.b.op(ScalarOp::Eq, &[&rest, &zero]));
                inner_index = self.b.div(&back, &step);
            }
            let end = self.b.index_constant(cut.len as u64);
            conditions.push(self.b.op(ScalarOp::Ge, &[&inner_index, &zero]));
            conditions.push(self.b.lt(&inner_index, &end));
            inner.push(inner_index);
        }
        let inner = Coordinates::axes(inner, &x.0.shape);
        match self.all_of(conditions) {
            Some(inside) => self.conditional_value(inside, value, |l| l.load(x, inner)),
            None => self.load(x, inner),
        }
    }

    /// The element of the input that contains the index along the axis.
    pub(super) fn concat(&mut self, node: &Node, axis: usize, at: &Coordinates) -> ExprId {
        let axes = self.axes_of(at);
        let result = self.b.local("result", Value::int(node.dtype, 0));
        let mut start = 0;
        for input in &node.inputs {
            let len = input.0.shape[axis];
            if len == 0 {
                continue;
            }
            let mut inner = axes.clone();
            inner[axis] = if start == 0 { axes[axis] } else { self.index_op(ScalarOp::Sub, axes[axis], start) };
            let (zero, end) = (self.b.index_constant(0), self.b.index_constant(len as u64));
            let conditions = vec![self.b.op(ScalarOp::Ge, &[&inner[axis], &zero]), self.b.lt(&inner[axis], &end)];
            if let Some(condition) = self.all_of(conditions) {
                self.b.open_block();
                let value = self.scope(|l| l.load(input, Coordinates::axes(inner, &input.0.shape)));
                self.b.assign(result, value);
                let then = self.b.close_block();
                self.b.push_stmt(bornite_ir::Stmt::If { condition, then, otherwise: vec![] });
            }
            start += len;
        }
        self.b.read(result)
    }

    /// Loads an index, and checks whether it is within the axis.
    pub(super) fn index_at(&mut self, index: &Tensor, at: Coordinates, len: usize) -> (ExprId, ExprId) {
        let found = self.load(index, at);
        let wide = self.b.cast(DType::I64, &found);
        let [zero, end] = [0, len as i64].map(|n| self.b.constant(Value::int(DType::I64, n)));
        let conditions = vec![self.b.op(ScalarOp::Ge, &[&wide, &zero]), self.b.lt(&wide, &end)];
        let inside = self.all_of(conditions).unwrap_or(zero);
        (wide, inside)
    }

    /// Writes an out-of-range index to the status words; the first one wins.
    fn report(&mut self, node: &Node, index: ExprId) {
        let Some(status) = self.status else { return };
        // The code is an argument, so that the kernel does not depend on the source location.
        self.values.push(Value::int(DType::I64, crate::runtime::status::code(node)));
        let code = self.b.value(format!("code{}", self.values.len()), DType::I64);
        let (flag, index_word) = (self.b.index_constant(0), self.b.index_constant(1));
        let zero = self.b.constant(Value::int(DType::I64, 0));
        let before = self.b.compare_exchange(status, flag, zero, code);
        let first = self.b.op(ScalarOp::Eq, &[&before, &zero]);
        self.b.if_else(first, |b| _ = b.atomic(Atomic::Exchange, status, index_word, index), |_| {});
    }

    /// Reports an index that is not `inside`.
    pub(super) fn report_unless(&mut self, node: &Node, inside: ExprId, index: ExprId) {
        let bad = self.b.op(ScalarOp::Not, &[&inside]);
        self.b.open_block();
        self.report(node, index);
        let then = self.b.close_block();
        self.b.push_stmt(bornite_ir::Stmt::If { condition: bad, then, otherwise: vec![] });
    }

    pub(super) fn gather(&mut self, node: &Node, axis: usize, at: &Coordinates) -> ExprId {
        let (x, index) = (&node.inputs[0], &node.inputs[1]);
        let axes = self.axes_of(at);
        let (wide, inside) = self.index_at(index, at.clone(), x.0.shape[axis]);
        self.report_unless(node, inside, wide);
        self.conditional_value(inside, Value::int(node.dtype, 0), |l| {
            let column = l.b.cast(l.index, &wide);
            if let Some(value) = S::gather_from_row(l, node, at, column) {
                return value;
            }
            let mut inner = axes;
            inner[axis] = column;
            l.load(x, Coordinates::axes(inner, &x.0.shape))
        })
    }

    /// Scatter-add of one value per row. `check_rows` has checked the index.
    fn scatter_one(&mut self, node: &Node, (row, column): (ExprId, ExprId), at: &Coordinates) -> ExprId {
        let [x, index, values] = &node.inputs[..] else { return self.b.index_constant(0) };
        let of_row = |shape: &[usize]| Coordinates::linear(row, shape);
        let found = self.load(index, of_row(&index.0.shape));
        let dtype = accumulator_type(node.dtype);
        let (base, value) = (self.load(x, at.clone()), self.load(values, of_row(&values.0.shape)));
        let (base, value) = (self.b.cast(dtype, &base), self.b.cast(dtype, &value));
        let sum = self.b.add(&base, &value);
        // Column indices fit 32 bits, even if element indices do not.
        let short = node.shape.last().is_some_and(|&columns| columns <= i32::MAX as usize);
        let index = if short { Scalar::I32 } else { self.index };
        let (position, column) = (self.b.cast(index, &found), self.b.cast(index, &column));
        let here = self.b.op(ScalarOp::Eq, &[&position, &column]);
        let result = self.b.select(&here, &sum, &base);
        self.b.cast(node.dtype, &result)
    }

    /// Each output element scans all indices along the axis, in order: slow for long axes, but the
    /// same on every device. Defines the results of `scatter.rs`.
    pub(super) fn scatter_add(&mut self, node: &Node, axis: usize, at: &Coordinates) -> ExprId {
        let [x, index, values] = &node.inputs[..] else { return self.b.index_constant(0) };
        if let (Some(row_and_column), Some(row_space)) = (at.row, self.shape.row_space())
            && scatters_one_per_row(node, row_space)
        {
            return self.scatter_one(node, row_and_column, at);
        }
        let axes = self.axes_of(at);
        let dtype = accumulator_type(node.dtype);
        let [total, part] = ["total", "part"].map(|name| self.b.local(name, Value::int(dtype, 0)));
        // Values in the current block, which is added to the total when it is complete.
        let since = self.b.local("since", Value::int(self.index, 0));
        let start = self.load(x, at.clone());
        let start = self.b.cast(dtype, &start);
        self.b.assign(total, start);
        // Locals are initialized once per kernel, and a reduction evaluates this for every element
        // of its loop.
        let (nothing, none) = (self.b.constant(Value::int(dtype, 0)), self.b.index_constant(0));
        self.b.assign(part, nothing);
        self.b.assign(since, none);
        let own = self.b.cast(DType::I64, &axes[axis]);
        let (zero, whole) = (self.b.index_constant(0), self.b.index_constant(SUM_BLOCK as u64));
        let end = self.b.index_constant(index.0.shape[axis] as u64);
        let len = x.0.shape[axis];
        self.for_each("r", end, |l, r| {
            let mut inner = axes.clone();
            inner[axis] = r;
            let (wide, inside) = l.index_at(index, Coordinates::axes(inner.clone(), &index.0.shape), len);
            // One element per line reports for all.
            let first = l.b.constant(Value::int(DType::I64, 0));
            let is_first = l.b.op(ScalarOp::Eq, &[&own, &first]);
            let not_first = l.b.op(ScalarOp::Not, &[&is_first]);
            let fine = l.b.op(ScalarOp::Or, &[&inside, &not_first]);
            l.report_unless(node, fine, wide);
            let mine = l.b.op(ScalarOp::Eq, &[&wide, &own]);
            l.when(Some(mine), &mut |l| {
                let value = l.load(values, Coordinates::axes(inner.clone(), &values.0.shape));
                let (value, before, number) = (l.b.cast(dtype, &value), l.b.read(part), l.b.read(since));
                let begins = l.b.op(ScalarOp::Eq, &[&number, &zero]);
                let more = l.b.add(&before, &value);
                let sum = l.b.select(&begins, &value, &more);
                let number = l.index_op(ScalarOp::Add, number, 1);
                let ends = l.b.op(ScalarOp::Eq, &[&number, &whole]);
                let (before, number) = (l.b.read(total), l.b.select(&ends, &zero, &number));
                let after = l.b.add(&before, &sum);
                let after = l.b.select(&ends, &after, &before);
                l.b.assign(part, sum);
                l.b.assign(since, number);
                l.b.assign(total, after);
            });
        });
        let (before, rest, number) = (self.b.read(total), self.b.read(part), self.b.read(since));
        let more = self.b.lt(&zero, &number);
        let after = self.b.add(&before, &rest);
        let total = self.b.select(&more, &after, &before);
        self.b.cast(node.dtype, &total)
    }

    pub(super) fn arg_reduce(&mut self, node: &Node, reduce: Reduce, axis: usize, at: &Coordinates) -> ExprId {
        let x = &node.inputs[0];
        let mut axes = self.axes_of(at);
        let zero = self.b.index_constant(0);
        axes.insert(axis, zero);
        let first = self.load(x, Coordinates::axes(axes.clone(), &x.0.shape));
        let best = self.b.local("best", Value::int(x.0.dtype, 0));
        self.b.assign(best, first);
        let best_index = self.b.local("place", Value::int(self.index, 0));
        self.b.assign(best_index, zero);
        let end = self.b.index_constant(x.0.shape[axis] as u64);
        self.for_each("r", end, |l, r| {
            let mut inner = axes.clone();
            inner[axis] = r;
            let value = l.load(x, Coordinates::axes(inner, &x.0.shape));
            let before = l.b.read(best);
            // Min and max propagate NaN, so the first NaN is the result.
            let mut better =
                l.b.op(if reduce == Reduce::Min { ScalarOp::Lt } else { ScalarOp::Gt }, &[&value, &before]);
            if x.0.dtype.is_float() {
                let (is_nan, number) =
                    (l.b.op(ScalarOp::Ne, &[&value, &value]), l.b.op(ScalarOp::Eq, &[&before, &before]));
                let first_nan = l.b.op(ScalarOp::And, &[&is_nan, &number]);
                better = l.b.op(ScalarOp::Or, &[&better, &first_nan]);
            }
            l.b.if_else(
                better,
                |b| {
                    b.assign(best, value);
                    b.assign(best_index, r);
                },
                |_| {},
            );
        });
        let best_index = self.b.read(best_index);
        self.b.cast(DType::I64, &best_index)
    }

    /// Word `i % 4` of Philox with counter `(i / 4, offset)` and the seed as key.
    pub(super) fn random(&mut self, node: &Node, at: &Coordinates) -> ExprId {
        let linear = self.linear_of(at);
        let wide = self.b.cast(Scalar::U64, &linear);
        let four = self.b.constant(Value::int(Scalar::U64, 4));
        let group = self.b.div(&wide, &four);
        let found = self.philox(node, group);
        let rest = self.b.op(ScalarOp::Rem, &[&wide, &four]);
        let mut result = self.b.extract(found, 0);
        for n in 1..4 {
            let word = self.b.extract(found, n);
            let number = self.b.constant(Value::int(Scalar::U64, n as i64));
            let chosen = self.b.op(ScalarOp::Eq, &[&rest, &number]);
            result = self.b.select(&chosen, &word, &result);
        }
        result
    }

    /// Words `first + 4 n` to `first + 4 n + 3`; `first` is a multiple of 4.
    pub(super) fn four_random(&mut self, node: &Node, first: ExprId, n: usize) -> [ExprId; 4] {
        let wide = self.b.cast(Scalar::U64, &first);
        let [four, n] = [4, n as i64].map(|n| self.b.constant(Value::int(Scalar::U64, n)));
        let group = self.b.div(&wide, &four);
        let group = self.b.add(&group, &n);
        let found = self.philox(node, group);
        [0, 1, 2, 3].map(|n| self.b.extract(found, n))
    }

    fn philox(&mut self, node: &Node, group: ExprId) -> ExprId {
        let state = &node.inputs[0];
        let half = self.b.constant(Value::int(Scalar::U64, 32));
        let [seed, offset] = [0, 1].map(|n| {
            let n = self.b.index_constant(n);
            self.load(state, Coordinates::linear(n, &state.0.shape))
        });
        let mut words = vec![];
        for value in [group, offset, seed] {
            let upper = self.b.op(ScalarOp::Shr, &[&value, &half]);
            words.extend([value, upper].map(|word| self.b.cast(Scalar::U32, &word)));
        }
        let counter = self.b.construct(Type::Vector(Scalar::U32, 4), &words[..4]);
        let key = self.b.construct(Type::Vector(Scalar::U32, 2), &words[4..]);
        self.b.algebra(AlgebraOp::Philox, &[counter, key])
    }
}

/// True if a node gathers one element of each row, in a row kernel.
pub(crate) fn gathers_one_per_row(node: &Node, RowSpace { rows, columns }: RowSpace) -> bool {
    let (Op::Gather(axis), [x, _]) = (&node.op, &node.inputs[..]) else { return false };
    let last = axis + 1 == x.0.shape.len() && x.0.shape[*axis] == columns;
    last && node.elements() == rows && x.0.elements() == rows * columns
}

/// True if a node adds one value to each row, in a row kernel.
pub(crate) fn scatters_one_per_row(node: &Node, RowSpace { rows, columns }: RowSpace) -> bool {
    let (Op::ScatterAdd(axis), [_, index, _]) = (&node.op, &node.inputs[..]) else { return false };
    let last = axis + 1 == node.shape.len() && node.shape[*axis] == columns;
    last && node.elements() == rows * columns && index.0.elements() == rows
}
