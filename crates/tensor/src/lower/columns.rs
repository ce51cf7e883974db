//! Kernels that reduce an axis that is not the last: columns of a matrix.

use bornite_ir::{Axis, Builtin, Emit, EmitBits, ExprId, LocalId, Op as ScalarOp, ParamId, SharedId, Stmt};

use super::blocks::WARP;
use super::group::Group;
use super::lowering::{Coordinates, KernelShape, Lowering};
use super::stages::{Reduction, stages};

/// Number of unrolled iterations over rows, whose loads are in flight together.
const ROWS_AHEAD: usize = 4;

/// One block per strip of columns, several rows at a time.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub middle: usize,
    pub inner: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Rows processed in parallel.
    pub down: usize,
    /// Adjacent columns per thread; does not change results.
    pub lanes: usize,
}

impl KernelShape for Columns {}

impl Lowering {
    /// One instance per result, with a serial loop over the reduced axis.
    pub(super) fn reduce_middle(&mut self, group: &Group, outs: &[ParamId], middle: usize, inner: usize) {
        let index = self.b.index();
        let (outer, within) = (self.index_op(ScalarOp::Div, index, inner), self.index_op(ScalarOp::Rem, index, inner));
        let block = self.index_op(ScalarOp::Mul, outer, middle * inner);
        let first = self.b.add(&block, &within);
        let reductions: Vec<Reduction<'_>> = stages(group).reductions.into_iter().flatten().collect();
        let totals: Vec<LocalId> = reductions.iter().map(|reduction| self.total(*reduction)).collect();
        let end = self.b.index_constant(middle as u64);
        self.for_each("m", end, |l, m| {
            let down = l.index_op(ScalarOp::Mul, m, inner);
            let linear = l.b.add(&first, &down);
            let at = Coordinates::linear(linear, &[]);
            for (&reduction, &total) in reductions.iter().zip(&totals) {
                let x = l.reduction_input(reduction, &at)[0];
                l.accumulate(reduction, total, x);
            }
        });
        for (reduction, total) in reductions.iter().zip(totals) {
            let total = self.b.read(total);
            let value = self.b.cast(reduction.tensor.0.dtype, &total);
            self.cache_values(reduction.tensor.0.id, index, vec![value]);
        }
        for (output, &out) in group.outputs.iter().zip(outs) {
            let value = self.output_values(output, &Coordinates::linear(index, &output.0.shape))[0];
            self.b.store(out, index, value);
        }
    }
}

impl Lowering<Columns> {
    /// Each thread reduces every `down`-th row of its columns; then the first row of threads
    /// reduces the totals.
    pub(super) fn columns_by_blocks(&mut self, group: &Group, outs: &[ParamId]) {
        let Columns { middle, inner, down, lanes, .. } = self.shape;
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        let (across, own_row) =
            (self.index_op(ScalarOp::Rem, thread, WARP), self.index_op(ScalarOp::Div, thread, WARP));
        let strips = inner.div_ceil(lanes * WARP);
        let (outer, strip) = (self.index_op(ScalarOp::Div, block, strips), self.index_op(ScalarOp::Rem, block, strips));
        let first = self.index_op(ScalarOp::Mul, strip, lanes * WARP);
        let own = self.index_op(ScalarOp::Mul, across, lanes);
        let column = self.b.add(&first, &own);
        let base = self.index_op(ScalarOp::Mul, outer, middle * inner);
        let base = self.b.add(&base, &column);
        self.lanes = lanes;
        let reductions: Vec<Reduction<'_>> = stages(group).reductions.into_iter().flatten().collect();
        let totals: Vec<Vec<LocalId>> =
            reductions.iter().map(|reduction| (0..lanes).map(|_| self.total(*reduction)).collect()).collect();
        let width = self.b.index_constant(inner as u64);
        let inside = self.b.lt(&column, &width);
        let strip_inside = (!inner.is_multiple_of(lanes * WARP)).then_some(inside);
        let body = |l: &mut Lowering<Columns>, row: ExprId| {
            let lower = l.index_op(ScalarOp::Mul, row, inner);
            let linear = l.b.add(&base, &lower);
            let at = Coordinates::linear(linear, &[]);
            for (&reduction, totals) in reductions.iter().zip(&totals) {
                let values = l.reduction_input(reduction, &at);
                for (lane, &total) in totals.iter().enumerate() {
                    l.accumulate(reduction, total, values[if values.len() == 1 { 0 } else { lane }]);
                }
            }
        };
        // Unrolled, so that many loads are in flight; then the remaining iterations.
        let full = middle / down;
        let unrolled = if full >= ROWS_AHEAD { ROWS_AHEAD } else { 1 };
        let end = self.b.index_constant((full / unrolled) as u64);
        self.for_each("turn", end, |l, iteration| {
            let ahead = l.index_op(ScalarOp::Mul, iteration, unrolled * down);
            let first = l.b.add(&ahead, &own_row);
            l.when(strip_inside, &mut |l| {
                for n in 0..unrolled {
                    let row = l.offset_by(first, n * down);
                    body(l, row);
                }
            });
        });
        for iteration in full / unrolled * unrolled..middle.div_ceil(down) {
            let row = self.index_op(ScalarOp::Add, own_row, iteration * down);
            let mut condition = strip_inside;
            if iteration == full {
                let end = self.b.index_constant(middle as u64);
                let above = self.b.lt(&row, &end);
                condition = Some(condition.map_or(above, |inside| self.b.op(ScalarOp::And, &[&inside, &above])));
            }
            self.scope(|l| l.when(condition, &mut |l| body(l, row)));
        }
        let across = self.index_op(ScalarOp::Mul, across, lanes);
        let slot = self.index_op(ScalarOp::Mul, own_row, lanes * WARP);
        let slot = self.b.add(&slot, &across);
        let mut tiles: Vec<SharedId> = vec![];
        for (n, (reduction, totals)) in reductions.iter().zip(&totals).enumerate() {
            let size = (down * lanes * WARP) as u64;
            let tile = self.b.shared(format!("tile{n}"), reduction.accumulator_type(), size);
            for (lane, &total) in totals.iter().enumerate() {
                let slot = if lane == 0 { slot } else { self.index_op(ScalarOp::Add, slot, lane) };
                let total = self.b.read(total);
                self.b.store(tile, slot, total);
            }
            tiles.push(tile);
        }
        self.b.push_stmt(Stmt::Barrier);
        let zero = self.b.index_constant(0);
        let leads = self.b.op(ScalarOp::Eq, &[&own_row, &zero]);
        let leads = self.b.op(ScalarOp::And, &[&leads, &inside]);
        self.when(Some(leads), &mut |l| {
            let result = l.index_op(ScalarOp::Mul, outer, inner);
            let result = l.b.add(&result, &column);
            for (&reduction, &tile) in reductions.iter().zip(&tiles) {
                let values = (0..lanes)
                    .map(|lane| {
                        let parts = (0..down)
                            .map(|n| {
                                let slot = l.index_op(ScalarOp::Add, across, n * lanes * WARP + lane);
                                l.b.load(tile, slot)
                            })
                            .collect();
                        let total = l.tree_reduce(reduction, parts);
                        l.b.cast(reduction.tensor.0.dtype, &total)
                    })
                    .collect();
                l.cache_values(reduction.tensor.0.id, result, values);
            }
            for (output, &out) in group.outputs.iter().zip(outs) {
                let values = l.output_values(output, &Coordinates::linear(result, &output.0.shape));
                l.store(out, result, values, output.0.dtype);
            }
        });
    }
}
