//! Kernels for GPUs in which the threads of a block work together: on rows (`rows.rs`), on columns, on tiles that change
//! places (`tiles.rs`).
//!
//! How elements are shared, and so the order of sums, follows from a group's form alone.

use bornite_ir::{Axis, Builtin, Emit, EmitBits, ExprId, LocalId, Op as Row, ParamId, Scalar, SharedId, Shuffle, Stmt};

use super::fused::{Form, Group};
use super::rows::Rows;
use super::stages::{reduction, stages, step};
use super::sums::Summed;
use super::tiles::Tiles;
use super::{Coordinates, Lowering, accumulator};
use crate::Tensor;

pub(super) const WARP: usize = 32;

/// Rows of at most so many columns are one thread's work each.
const SERIAL_COLUMNS: usize = 16;
/// Rows from which columns are summed by blocks.
pub(super) const FEWEST_ROWS: usize = 16;

/// Turns of a block over columns whose loads are made side by side.
const ROWS_AHEAD: usize = 4;

/// How far an index may run past the last element of the last row: what a block takes at once.
pub(super) const BEYOND: usize = 1024 * 4;

/// How blocks are shaped.
pub(super) enum Shape<'a> {
    Rows(Rows<'a>),
    Summed(Summed<'a>),
    Columns(Columns),
    Tiles(Tiles<'a>),
}

/// A block some columns, with several rows at a time.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    middle: usize,
    inner: usize,
    /// Blocks.
    blocks: usize,
    /// Rows at a time.
    down: usize,
    /// Columns that a thread takes at once; what it sums does not depend on it.
    lanes: usize,
}

/// The blocks for a group, if there should be any. A block has so much shared memory.
pub(super) fn shape(group: &Group, shared_bytes: impl FnOnce() -> usize) -> Option<Shape<'_>> {
    match group.form {
        Form::Rows { .. } if !group.sums.is_empty() => Summed::new(group, shared_bytes).map(Shape::Summed),
        Form::Rows { columns, .. } if columns > SERIAL_COLUMNS => Rows::new(group, shared_bytes).map(Shape::Rows),
        Form::Middle { outer, middle, inner } if inner >= WARP && middle >= FEWEST_ROWS => {
            let lanes = if inner.is_multiple_of(4 * WARP) { 4 } else { 1 };
            let blocks = outer * inner.div_ceil(lanes * WARP);
            let down = rows_at_a_time(outer, inner);
            Some(Shape::Columns(Columns { middle, inner, blocks, down, lanes }))
        }
        Form::Elements(elements) => Tiles::new(group, elements).map(Shape::Tiles),
        _ => None,
    }
}

/// The rows that a block sums side by side. Few blocks need more threads to be quick.
pub(super) fn rows_at_a_time(outer: usize, inner: usize) -> usize {
    if outer * inner.div_ceil(WARP) < 256 { 32 } else { 8 }
}

impl Shape<'_> {
    /// Grid and block.
    pub fn launch(&self) -> ([u32; 3], [u32; 3]) {
        let (blocks, threads) = match self {
            Shape::Rows(plan) => (plan.rows.div_ceil(plan.together), plan.threads * plan.together),
            Shape::Summed(plan) => plan.launch(),
            Shape::Columns(plan) => (plan.blocks, plan.down * WARP),
            Shape::Tiles(plan) => plan.launch(),
        };
        ([blocks as u32, 1, 1], [threads as u32, 1, 1])
    }
}

impl Lowering {
    /// What a thread has, of all its lanes: pairs, then pairs of pairs.
    pub(super) fn own_total(&mut self, tensor: &Tensor, totals: &[LocalId]) -> ExprId {
        let values = totals.iter().map(|&total| self.b.read(total)).collect();
        self.in_pairs(tensor, values)
    }

    /// A reduction of few values: pairs, then pairs of pairs. Their number is a power of 2.
    pub(super) fn in_pairs(&mut self, tensor: &Tensor, mut values: Vec<ExprId>) -> ExprId {
        let row = step(reduction(tensor));
        while values.len() > 1 {
            values = values.chunks(2).map(|pair| self.b.op(row, &[&pair[0], &pair[pair.len() - 1]])).collect();
        }
        values[0]
    }

    /// What all threads of a row have, known to each of them.
    pub(super) fn whole_totals(
        &mut self,
        stage: &[&Tensor],
        mut totals: Vec<ExprId>,
        thread: ExprId,
        threads: usize,
        number: usize,
    ) -> Vec<ExprId> {
        for (tensor, total) in stage.iter().zip(&mut totals) {
            for distance in [16, 8, 4, 2, 1] {
                let distance = self.b.index_constant(distance);
                let other = self.shuffled(*total, distance);
                *total = self.b.op(step(reduction(tensor)), &[total, &other]);
            }
        }
        if threads == WARP {
            return totals;
        }
        let warps = threads / WARP;
        let (warp, lane) = (self.index_op(Row::Div, thread, WARP), self.index_op(Row::Rem, thread, WARP));
        let zero = self.b.index_constant(0);
        let leads = self.b.op(Row::Eq, &[&lane, &zero]);
        let mut tiles = vec![];
        self.b.open_block();
        for (n, (tensor, total)) in stage.iter().zip(&totals).enumerate() {
            let tile = self.b.shared(format!("tile{number}_{n}"), accumulator(tensor.0.dtype), warps as u64);
            self.b.store(tile, warp, *total);
            tiles.push(tile);
        }
        let then = self.b.close_block();
        self.b.simple(Stmt::If { condition: leads, then, otherwise: vec![] });
        self.b.simple(Stmt::Barrier);
        (stage.iter().zip(tiles))
            .map(|(tensor, tile)| {
                let values = (0..warps)
                    .map(|n| {
                        let n = self.b.index_constant(n as u64);
                        self.b.load(tile, n)
                    })
                    .collect();
                self.in_pairs(tensor, values)
            })
            .collect()
    }

    /// The value of the lane whose number differs in one bit.
    fn shuffled(&mut self, value: ExprId, distance: ExprId) -> ExprId {
        let own = self.b.scalar(&value);
        // Shuffles move 32 bits or 64.
        let wide = if own.bytes() < 4 { Scalar::I32 } else { own };
        let value = self.b.cast(wide, &value);
        let moved = self.b.shuffle(Shuffle::Xor, value, distance);
        self.b.cast(own, &moved)
    }

    /// Each thread sums every `down`-th row of its columns, then the first ones what all have.
    pub(super) fn columns_by_blocks(&mut self, group: &Group, outs: &[ParamId], plan: Columns) {
        let Columns { middle, inner, down, lanes, .. } = plan;
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        let (across, own_row) = (self.index_op(Row::Rem, thread, WARP), self.index_op(Row::Div, thread, WARP));
        let strips = inner.div_ceil(lanes * WARP);
        let (outer, strip) = (self.index_op(Row::Div, block, strips), self.index_op(Row::Rem, block, strips));
        let first = self.index_op(Row::Mul, strip, lanes * WARP);
        let own = self.index_op(Row::Mul, across, lanes);
        let column = self.b.add(&first, &own);
        let base = self.index_op(Row::Mul, outer, middle * inner);
        let base = self.b.add(&base, &column);
        self.lanes = lanes;
        let reductions: Vec<&Tensor> = stages(group).reductions.into_iter().flatten().collect();
        let totals: Vec<Vec<LocalId>> =
            reductions.iter().map(|tensor| (0..lanes).map(|_| self.total(tensor)).collect()).collect();
        let width = self.b.index_constant(inner as u64);
        let inside = self.b.lt(&column, &width);
        let strip_inside = (!inner.is_multiple_of(lanes * WARP)).then_some(inside);
        let body = |l: &mut Lowering, row: ExprId| {
            let lower = l.index_op(Row::Mul, row, inner);
            let linear = l.b.add(&base, &lower);
            let at = Coordinates::linear(linear, &[]);
            for (tensor, totals) in reductions.iter().zip(&totals) {
                let values = l.reduced(tensor, &at);
                for (lane, &total) in totals.iter().enumerate() {
                    l.accumulate(tensor, total, values[if values.len() == 1 { 0 } else { lane }]);
                }
            }
        };
        // Several turns side by side, so that many loads are on their way; what is left of them one by one.
        let full = middle / down;
        let together = if full >= ROWS_AHEAD { ROWS_AHEAD } else { 1 };
        let end = self.b.index_constant((full / together) as u64);
        self.for_each("turn", end, |l, turn| {
            let ahead = l.index_op(Row::Mul, turn, together * down);
            let first = l.b.add(&ahead, &own_row);
            l.under(strip_inside, &mut |l| {
                for n in 0..together {
                    let row = l.beyond(first, n * down);
                    body(l, row);
                }
            });
        });
        for turn in full / together * together..middle.div_ceil(down) {
            let row = self.index_op(Row::Add, own_row, turn * down);
            let mut condition = strip_inside;
            if turn == full {
                let end = self.b.index_constant(middle as u64);
                let above = self.b.lt(&row, &end);
                condition = Some(condition.map_or(above, |inside| self.b.op(Row::And, &[&inside, &above])));
            }
            self.scope(|l| l.under(condition, &mut |l| body(l, row)));
        }
        let across = self.index_op(Row::Mul, across, lanes);
        let place = self.index_op(Row::Mul, own_row, lanes * WARP);
        let place = self.b.add(&place, &across);
        let mut tiles: Vec<SharedId> = vec![];
        for (n, (tensor, totals)) in reductions.iter().zip(&totals).enumerate() {
            let size = (down * lanes * WARP) as u64;
            let tile = self.b.shared(format!("tile{n}"), accumulator(tensor.0.dtype), size);
            for (lane, &total) in totals.iter().enumerate() {
                let place = if lane == 0 { place } else { self.index_op(Row::Add, place, lane) };
                let total = self.b.read(total);
                self.b.store(tile, place, total);
            }
            tiles.push(tile);
        }
        self.b.simple(Stmt::Barrier);
        let zero = self.b.index_constant(0);
        let leads = self.b.op(Row::Eq, &[&own_row, &zero]);
        let leads = self.b.op(Row::And, &[&leads, &inside]);
        self.under(Some(leads), &mut |l| {
            let result = l.index_op(Row::Mul, outer, inner);
            let result = l.b.add(&result, &column);
            for (tensor, &tile) in reductions.iter().zip(&tiles) {
                let values = (0..lanes)
                    .map(|lane| {
                        let parts = (0..down)
                            .map(|n| {
                                let place = l.index_op(Row::Add, across, n * lanes * WARP + lane);
                                l.b.load(tile, place)
                            })
                            .collect();
                        let whole = l.in_pairs(tensor, parts);
                        l.b.cast(tensor.0.dtype, &whole)
                    })
                    .collect();
                l.remember(tensor.0.id, result, values);
            }
            for (output, &out) in group.outputs.iter().zip(outs) {
                let values = l.output_values(output, &Coordinates::linear(result, &output.0.shape));
                l.store(out, result, values, output.0.dtype);
            }
        });
    }

    /// Code that runs under a condition, or always.
    pub(super) fn under(&mut self, condition: Option<ExprId>, body: &mut dyn FnMut(&mut Lowering)) {
        let Some(condition) = condition else { return body(self) };
        self.b.open_block();
        self.scope(body);
        let then = self.b.close_block();
        self.b.simple(Stmt::If { condition, then, otherwise: vec![] });
    }
}
