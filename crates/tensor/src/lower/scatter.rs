//! Scatter-add of complete rows, as in gradients of embeddings: positions are sorted by index, then
//! each output row sums its positions.
//!
//! The summation order is that of the generic kernel (`indexing.rs`), so the bits are the same:
//! values in the order of their positions, in blocks of [`SUM_BLOCK`], and the blocks in order. On
//! a GPU the positions are radix-sorted (`radix_sort.rs`), and complete blocks of long sums are
//! computed in parallel; elsewhere one loop does a counting sort.

use std::sync::Arc;

use bornite_ir::{
    Access, Axis, Builder, Builtin, Emit, EmitBits, ExprId, LocalId, Op as ScalarOp, Scalar, Stmt, Value, Vote,
};

use super::blocks::WARP;
use super::lowering::{Coordinates, Lowering};
use super::radix_sort::SortedPositions;
use super::{Lowered, accumulator_type, look_through, strided_view};
use crate::graph::node::{Node, Op};
use crate::{DType, Result, Tensor};

/// Number of values that are summed serially before their sum is added to the total.
pub(crate) const SUM_BLOCK: usize = 64;

/// Minimum number of positions for which sorting pays.
const MIN_POSITIONS: usize = 64;

/// One of several kernels, and its outputs.
pub(crate) type ScatterStep = (Lowered, Vec<Tensor>);

/// A scatter-add of `count` values of `width` elements to a table of `rows` rows.
pub(super) struct Scatter<'a> {
    tensor: &'a Tensor,
    pub rows: usize,
    width: usize,
    pub count: usize,
    /// Index type.
    pub index: Scalar,
}

/// The kernels of a scatter-add of complete rows; `None` for other scatters.
pub(crate) fn lower_scatter(tensor: &Tensor, on_gpu: bool) -> Result<Option<Vec<ScatterStep>>> {
    let Some(scatter) = Scatter::of(tensor) else { return Ok(None) };
    let mut steps = vec![];
    let sorted = if on_gpu { scatter.radix_sort(&mut steps)? } else { scatter.counting_sort(&mut steps)? };
    let parts = if on_gpu { scatter.sum_parts(&sorted, &mut steps)? } else { None };
    scatter.sum_rows(&sorted, parts, on_gpu, &mut steps)?;
    Ok(Some(steps))
}

impl<'a> Scatter<'a> {
    fn of(tensor: &'a Tensor) -> Option<Scatter<'a>> {
        let node = &*tensor.0;
        let (Op::ScatterAdd(axis), [_, index, _]) = (&node.op, &node.inputs[..]) else { return None };
        let (before, after) = (&node.shape[..*axis], &node.shape[axis + 1..]);
        let (rows, count, width) = (node.shape[*axis], index.0.shape[*axis], after.iter().product::<usize>());
        let (base, views) = look_through(index);
        let layout = strided_view(base, &views)?;
        let same = layout.shape[axis + 1..].iter().zip(&layout.strides[axis + 1..]).all(|(&n, &by)| n == 1 || by == 0);
        let one = before.iter().product::<usize>() == 1 && same;
        // Positions and rows, with an additional row for out-of-range indices, are stored as 32
        // bits.
        let few = rows.max(count) < i32::MAX as usize / 2;
        if !one || !few || count < MIN_POSITIONS || node.elements() == 0 {
            return None;
        }
        let large = (rows.max(count) + SUM_BLOCK).saturating_mul(width) > i32::MAX as usize;
        Some(Scatter { tensor, rows, width, count, index: if large { Scalar::I64 } else { Scalar::I32 } })
    }

    pub fn node(&self) -> &'a Node {
        &self.tensor.0
    }

    /// Temporary memory between two kernels: a node outside of the graph.
    pub fn temporary(&self, elements: usize, dtype: DType) -> Tensor {
        let node = self.node();
        // The op is never evaluated.
        let op = Op::Iota { axis: 0 };
        Tensor(Arc::new(Node::new(op, dtype, vec![elements], node.device, vec![], node.location)))
    }

    /// The row index of a position, or `rows` if it is out of range, which is reported if `reports`
    /// is set.
    pub fn row_of(&self, l: &mut Lowering, position: ExprId, reports: bool) -> ExprId {
        let node = self.node();
        let (index, Op::ScatterAdd(axis)) = (&node.inputs[1], &node.op) else { return position };
        let zero = l.zero();
        let axes = (0..node.shape.len()).map(|n| if n == *axis { position } else { zero }).collect();
        let (wide, inside) = l.index_at(index, Coordinates::axes(axes, &index.0.shape), self.rows);
        if reports {
            l.report_unless(node, inside, wide);
        }
        let nowhere = l.b.constant(Value::int(DType::I64, self.rows as i64));
        let row = l.b.select(&inside, &wide, &nowhere);
        l.b.cast(self.index, &row)
    }

    /// Counting sort in one loop: the start of each row's positions, and all positions in row
    /// order.
    fn counting_sort(&self, steps: &mut Vec<ScatterStep>) -> Result<SortedPositions> {
        // Two more entries than rows, and one for out-of-range positions: see below.
        let starts = self.temporary(self.rows + 3, DType::I32);
        let order = self.temporary(self.count, DType::I32);
        let mut b = Builder::new("scatter_order", 1, self.index);
        let (into, out) = (
            b.param("starts", DType::I32, self.rows as u64 + 3, Access::ReadWrite),
            b.param("order", DType::I32, self.count as u64, Access::Write),
        );
        let mut l = Lowering::single(b, self.index);
        l.status = Some(l.b.param("status", DType::I64, crate::runtime::status::WORDS, Access::ReadWrite));
        let [zero, one] = [0, 1].map(|n| l.b.constant(Value::int(DType::I32, n)));
        let end = l.b.index_constant(self.rows as u64 + 3);
        l.for_each("row", end, |l, row| l.b.store(into, row, zero));
        let count = l.b.index_constant(self.count as u64);
        // Row r is counted in entry r + 2. After the prefix sum, entry r + 1 is its start; after
        // all positions are placed, its end.
        l.for_each("counted", count, |l, position| {
            let row = self.row_of(l, position, true);
            let slot = l.index_op(ScalarOp::Add, row, 2);
            let before = l.b.load(into, slot);
            let after = l.b.add(&before, &one);
            l.b.store(into, slot, after);
        });
        let running = l.b.local("running", Value::int(DType::I32, 0));
        l.for_each("summed", end, |l, row| {
            let (before, more) = (l.b.read(running), l.b.load(into, row));
            let sum = l.b.add(&before, &more);
            l.b.assign(running, sum);
            l.b.store(into, row, sum);
        });
        l.for_each("placed", count, |l, position| {
            let row = self.row_of(l, position, false);
            let slot = l.index_op(ScalarOp::Add, row, 1);
            let to = l.b.load(into, slot);
            let position = l.b.cast(DType::I32, &position);
            let at = l.b.cast(self.index, &to);
            l.b.store(out, at, position);
            let after = l.b.add(&to, &one);
            l.b.store(into, slot, after);
        });
        steps.push((l.finish()?, vec![starts.clone(), order.clone()]));
        Ok(SortedPositions { starts, order, rows: None })
    }

    /// Adjacent elements per thread.
    fn lanes(&self, on_gpu: bool) -> usize {
        if on_gpu && self.width.is_multiple_of(4) { 4 } else { 1 }
    }

    /// Sums of complete blocks of values, one thread block each. Two of them never start within
    /// [`SUM_BLOCK`] positions of each other, so the one that starts in the n-th window of
    /// `SUM_BLOCK` positions gets index n.
    fn sum_parts(&self, sorted: &SortedPositions, steps: &mut Vec<ScatterStep>) -> Result<Option<Tensor>> {
        let (windows, lanes) = (self.count / SUM_BLOCK, self.lanes(true));
        let Some(rows) = sorted.rows.as_ref().filter(|_| windows > 0) else { return Ok(None) };
        let across = self.width / lanes;
        let threads = across.next_multiple_of(WARP).min(256);
        let strips = across.div_ceil(threads);
        let wide = accumulator_type(self.node().dtype);
        let parts = self.temporary(windows * self.width, wide);
        let b = Builder::blocks("scatter_parts", [(windows * strips) as u32, 1, 1], [threads as u32, 1, 1], self.index);
        let mut l = Lowering::single(b, self.index);
        l.lanes = lanes;
        let out = l.b.param("parts", wide, parts.0.elements() as u64, Access::Write);
        let [rows, starts, order] = [rows, &sorted.starts, &sorted.order].map(|t| l.view(t));
        let (thread, block) = (l.b.builtin(Builtin::Thread(Axis::X)), l.b.builtin(Builtin::Block(Axis::X)));
        let (window, strip) = (l.index_op(ScalarOp::Div, block, strips), l.index_op(ScalarOp::Rem, block, strips));
        let lane = l.index_op(ScalarOp::Rem, thread, WARP);
        let first = l.index_op(ScalarOp::Mul, window, SUM_BLOCK);
        // Each warp searches for the start of a complete block in its window.
        let found: Vec<ExprId> = (0..SUM_BLOCK / WARP)
            .map(|n| {
                let slot = l.index_op(ScalarOp::Add, first, n * WARP);
                let slot = l.b.add(&slot, &lane);
                let row = l.b.load(rows, slot);
                let row = l.b.cast(self.index, &row);
                let next = l.index_op(ScalarOp::Add, row, 1);
                let [start, end] = [row, next].map(|row| {
                    let at = l.b.load(starts, row);
                    l.b.cast(self.index, &at)
                });
                let (rank, left) = (l.b.sub(&slot, &start), l.b.sub(&end, &slot));
                let rank = l.index_op(ScalarOp::Rem, rank, SUM_BLOCK);
                let whole = l.b.index_constant(SUM_BLOCK as u64);
                let (zero, nowhere) = (l.zero(), l.b.index_constant(self.rows as u64));
                let starts_here = l.b.op(ScalarOp::Eq, &[&rank, &zero]);
                let (whole, somewhere) = (l.b.op(ScalarOp::Ge, &[&left, &whole]), l.b.lt(&row, &nowhere));
                let both = l.b.op(ScalarOp::And, &[&starts_here, &whole]);
                let all = l.b.op(ScalarOp::And, &[&both, &somewhere]);
                l.b.vote(Vote::Ballot, all)
            })
            .collect();
        let none = l.b.constant(Value::int(Scalar::U32, 0));
        let start = l.b.local("start", Value::int(self.index, -1));
        for (n, &found) in found.iter().enumerate() {
            let there = l.b.op(ScalarOp::Ne, &[&found, &none]);
            l.when(Some(there), &mut |l| {
                let leading = l.b.op(ScalarOp::LeadingZeros, &[&found]);
                let leading = l.b.cast(self.index, &leading);
                let last = l.b.index_constant((n * WARP + WARP - 1) as u64);
                let offset = l.b.sub(&last, &leading);
                let slot = l.b.add(&first, &offset);
                l.b.assign(start, slot);
            });
        }
        let (start, zero) = (l.b.read(start), l.zero());
        let missing = l.b.lt(&start, &zero);
        l.b.if_else(missing, |b| b.push_stmt(Stmt::Return(None)), |_| {});
        let column = l.index_op(ScalarOp::Mul, strip, threads);
        let column = l.b.add(&column, &thread);
        let end = l.b.index_constant(across as u64);
        let inside = l.b.lt(&column, &end);
        l.when(Some(inside), &mut |l| {
            let column = l.index_op(ScalarOp::Mul, column, lanes);
            let sums: Vec<LocalId> = (0..lanes).map(|_| l.b.local("sum", Value::int(wide, 0))).collect();
            // Several loads at once, to hide memory latency.
            const AHEAD: usize = 8;
            let iterations = l.b.index_constant((SUM_BLOCK / AHEAD) as u64);
            l.for_each("turn", iterations, |l, iteration| {
                let ahead = l.index_op(ScalarOp::Mul, iteration, AHEAD);
                let slot = l.b.add(&start, &ahead);
                let values: Vec<Vec<ExprId>> = (0..AHEAD)
                    .map(|n| {
                        let slot = l.offset_by(slot, n);
                        let position = l.b.load(order, slot);
                        self.values_at(l, position, column)
                    })
                    .collect();
                for (n, values) in values.iter().enumerate() {
                    for (&sum, value) in sums.iter().zip(values) {
                        let before = l.b.read(sum);
                        let mut after = l.b.add(&before, value);
                        if n == 0 {
                            let zero = l.zero();
                            let first = l.b.op(ScalarOp::Eq, &[&iteration, &zero]);
                            after = l.b.select(&first, value, &after);
                        }
                        l.b.assign(sum, after);
                    }
                }
            });
            let slot = l.index_op(ScalarOp::Mul, window, self.width);
            let slot = l.b.add(&slot, &column);
            let sums = sums.iter().map(|&sum| l.b.read(sum)).collect();
            l.store(out, slot, sums, wide);
        });
        steps.push((l.finish()?, vec![parts.clone()]));
        Ok(Some(parts))
    }

    /// Adjacent elements of the value of a position.
    fn values_at(&self, l: &mut Lowering, position: ExprId, column: ExprId) -> Vec<ExprId> {
        let values = &self.node().inputs[2];
        let position = l.b.cast(self.index, &position);
        let start = l.index_op(ScalarOp::Mul, position, self.width);
        let linear = l.b.add(&start, &column);
        let found = l.values(values, &Coordinates::linear(linear, &values.0.shape));
        let found = if found.len() == 1 { vec![found[0]; l.lanes] } else { found };
        let wide = accumulator_type(self.node().dtype);
        found.iter().map(|value| l.b.cast(wide, value)).collect()
    }

    /// Adds the sums to each element of the table.
    fn sum_rows(
        &self,
        sorted: &SortedPositions,
        parts: Option<Tensor>,
        on_gpu: bool,
        steps: &mut Vec<ScatterStep>,
    ) -> Result<()> {
        let (node, lanes) = (self.node(), self.lanes(on_gpu));
        let wide = accumulator_type(node.dtype);
        let name = format!("{}_{}", node.op.name(), node.dtype);
        let mut l = Lowering::single(Builder::new(name, (node.elements() / lanes) as u64, self.index), self.index);
        l.lanes = lanes;
        let out = l.b.param("out", node.dtype, node.elements() as u64, Access::Write);
        let [starts, order] = [&sorted.starts, &sorted.order].map(|t| l.view(t));
        let parts = parts.map(|parts| l.view(&parts));
        let index = l.b.index();
        let first = if lanes == 1 { index } else { l.index_op(ScalarOp::Mul, index, lanes) };
        let (row, column) =
            (l.index_op(ScalarOp::Div, first, self.width), l.index_op(ScalarOp::Rem, first, self.width));
        let next = l.index_op(ScalarOp::Add, row, 1);
        let [start, end] = [row, next].map(|row| {
            let at = l.b.load(starts, row);
            l.b.cast(self.index, &at)
        });
        let base = l.values(&node.inputs[0], &Coordinates::linear(first, &node.shape));
        let totals: Vec<LocalId> = (0..lanes).map(|_| l.b.local("total", Value::int(wide, 0))).collect();
        for (lane, &total) in totals.iter().enumerate() {
            let value = l.b.cast(wide, &base[if base.len() == 1 { 0 } else { lane }]);
            l.b.assign(total, value);
        }
        let add = |l: &mut Lowering, values: &[ExprId]| {
            for (&total, value) in totals.iter().zip(values) {
                let before = l.b.read(total);
                let after = l.b.add(&before, value);
                l.b.assign(total, after);
            }
        };
        let length = l.b.sub(&end, &start);
        let whole = l.index_op(ScalarOp::Div, length, SUM_BLOCK);
        let sums: Vec<LocalId> = (0..lanes).map(|_| l.b.local("sum", Value::int(wide, 0))).collect();
        let one_part = |l: &mut Lowering, from: ExprId, length: ExprId| {
            l.for_each("position", length, |l, n| {
                let slot = l.b.add(&from, &n);
                let position = l.b.load(order, slot);
                let zero = l.zero();
                let first = l.b.op(ScalarOp::Eq, &[&n, &zero]);
                for (&sum, value) in sums.iter().zip(self.values_at(l, position, column)) {
                    let before = l.b.read(sum);
                    let after = l.b.add(&before, &value);
                    let after = l.b.select(&first, &value, &after);
                    l.b.assign(sum, after);
                }
            });
            let sums: Vec<ExprId> = sums.iter().map(|&sum| l.b.read(sum)).collect();
            add(l, &sums);
        };
        l.for_each("part", whole, |l, part| {
            let ahead = l.index_op(ScalarOp::Mul, part, SUM_BLOCK);
            let from = l.b.add(&start, &ahead);
            match parts {
                Some(parts) => {
                    let window = l.index_op(ScalarOp::Div, from, SUM_BLOCK);
                    let slot = l.index_op(ScalarOp::Mul, window, self.width);
                    let slot = l.b.add(&slot, &column);
                    let values = l.load_adjacent(parts.into(), slot, wide);
                    add(l, &values);
                }
                None => {
                    let length = l.b.index_constant(SUM_BLOCK as u64);
                    one_part(l, from, length);
                }
            }
        });
        let done = l.index_op(ScalarOp::Mul, whole, SUM_BLOCK);
        let (from, rest) = (l.b.add(&start, &done), l.b.sub(&length, &done));
        let zero = l.zero();
        let some = l.b.lt(&zero, &rest);
        l.when(Some(some), &mut |l| one_part(l, from, rest));
        let values = totals
            .iter()
            .map(|&total| {
                let value = l.b.read(total);
                l.b.cast(node.dtype, &value)
            })
            .collect();
        l.store(out, first, values, node.dtype);
        steps.push((l.finish()?, vec![self.tensor.clone()]));
        Ok(())
    }
}
