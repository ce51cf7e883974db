//! GPU kernels in which the threads of a block cooperate: on rows (`row_launch.rs`), on columns
//! (`columns.rs`), on transposed tiles (`tiles.rs`).
//!
//! The assignment of elements to threads, and so the summation order, depends only on a group's
//! iteration space.

use bornite_ir::{Emit, EmitBits, ExprId, LocalId, Op as ScalarOp, Scalar, Shuffle, Stmt};

use super::column_sums::ColumnSumLaunch;
use super::columns::Columns;
use super::group::{Group, IterationSpace};
use super::lowering::{KernelShape, Lowering};
use super::row_launch::RowLaunch;
use super::stages::Reduction;
use super::tiles::TransposeTiles;

pub(super) const WARP: usize = 32;

/// Rows with at most this many columns are computed by one thread each.
const SERIAL_COLUMNS: usize = 16;
/// Minimum number of rows for which blocks reduce columns.
pub(super) const MIN_ROWS: usize = 16;

/// Maximum distance of an index beyond the last element: the elements that a block processes at
/// once.
pub(super) const MAX_OVERRUN: usize = 1024 * 4;

/// A block-cooperative kernel shape.
pub(super) enum BlockKernel<'a> {
    Rows(RowLaunch<'a>),
    RowsWithColumnSums(ColumnSumLaunch<'a>),
    Columns(Columns),
    Tiles(TransposeTiles<'a>),
}

/// The block-cooperative kernel shape for a group, if it should have one. `shared_bytes` is the
/// shared memory per block.
pub(super) fn block_kernel(group: &Group, shared_bytes: impl FnOnce() -> usize) -> Option<BlockKernel<'_>> {
    match group.space {
        IterationSpace::Rows { .. } if !group.column_sums.is_empty() => {
            ColumnSumLaunch::new(group, shared_bytes).map(BlockKernel::RowsWithColumnSums)
        }
        IterationSpace::Rows { columns, .. } if columns > SERIAL_COLUMNS => {
            RowLaunch::new(group, shared_bytes).map(BlockKernel::Rows)
        }
        IterationSpace::Middle { outer, middle, inner } if inner >= WARP && middle >= MIN_ROWS => {
            let lanes = if inner.is_multiple_of(4 * WARP) { 4 } else { 1 };
            let blocks = outer * inner.div_ceil(lanes * WARP);
            let down = rows_at_a_time(outer, inner);
            Some(BlockKernel::Columns(Columns { middle, inner, blocks, down, lanes }))
        }
        IterationSpace::Elements(elements) => TransposeTiles::new(group, elements).map(BlockKernel::Tiles),
        _ => None,
    }
}

/// Number of rows that a block reduces in parallel; more if there are few blocks.
pub(super) fn rows_at_a_time(outer: usize, inner: usize) -> usize {
    if outer * inner.div_ceil(WARP) < 256 { 32 } else { 8 }
}

impl BlockKernel<'_> {
    /// Grid and block dimensions.
    pub fn launch(&self) -> ([u32; 3], [u32; 3]) {
        let (blocks, threads) = match self {
            BlockKernel::Rows(plan) => (plan.rows.div_ceil(plan.rows_per_block), plan.threads * plan.rows_per_block),
            BlockKernel::RowsWithColumnSums(plan) => plan.launch(),
            BlockKernel::Columns(plan) => (plan.blocks, plan.down * WARP),
            BlockKernel::Tiles(plan) => plan.launch(),
        };
        ([blocks as u32, 1, 1], [threads as u32, 1, 1])
    }
}

impl<S: KernelShape> Lowering<S> {
    /// Total of a thread over its lanes.
    pub(super) fn thread_total(&mut self, reduction: Reduction<'_>, totals: &[LocalId]) -> ExprId {
        let values = totals.iter().map(|&total| self.b.read(total)).collect();
        self.tree_reduce(reduction, values)
    }

    /// Tree reduction of a power of 2 of values.
    pub(super) fn tree_reduce(&mut self, reduction: Reduction<'_>, mut values: Vec<ExprId>) -> ExprId {
        let row = reduction.combine_op();
        while values.len() > 1 {
            values = values.chunks(2).map(|pair| self.b.op(row, &[&pair[0], &pair[pair.len() - 1]])).collect();
        }
        values[0]
    }

    /// Reduces the totals of all threads of a row; every thread gets the result.
    pub(super) fn block_reduce(
        &mut self,
        stage: &[Reduction<'_>],
        mut totals: Vec<ExprId>,
        thread: ExprId,
        threads: usize,
        number: usize,
    ) -> Vec<ExprId> {
        for (reduction, total) in stage.iter().zip(&mut totals) {
            for distance in [16, 8, 4, 2, 1] {
                let distance = self.b.index_constant(distance);
                let other = self.shuffle_xor(*total, distance);
                *total = self.b.op(reduction.combine_op(), &[total, &other]);
            }
        }
        if threads == WARP {
            return totals;
        }
        let warps = threads / WARP;
        let (warp, lane) = (self.index_op(ScalarOp::Div, thread, WARP), self.index_op(ScalarOp::Rem, thread, WARP));
        let zero = self.b.index_constant(0);
        let is_leader = self.b.op(ScalarOp::Eq, &[&lane, &zero]);
        let mut tiles = vec![];
        self.b.open_block();
        for (n, (reduction, total)) in stage.iter().zip(&totals).enumerate() {
            let tile = self.b.shared(format!("tile{number}_{n}"), reduction.accumulator_type(), warps as u64);
            self.b.store(tile, warp, *total);
            tiles.push(tile);
        }
        let then = self.b.close_block();
        self.b.push_stmt(Stmt::If { condition: is_leader, then, otherwise: vec![] });
        self.b.push_stmt(Stmt::Barrier);
        (stage.iter().zip(tiles))
            .map(|(reduction, tile)| {
                let values = (0..warps)
                    .map(|n| {
                        let n = self.b.index_constant(n as u64);
                        self.b.load(tile, n)
                    })
                    .collect();
                self.tree_reduce(*reduction, values)
            })
            .collect()
    }

    /// Value of the lane whose index differs in one bit (XOR shuffle).
    fn shuffle_xor(&mut self, value: ExprId, distance: ExprId) -> ExprId {
        let own = self.b.scalar(&value);
        // Shuffles support 32 and 64 bits.
        let wide = if own.bytes() < 4 { Scalar::I32 } else { own };
        let value = self.b.cast(wide, &value);
        let moved = self.b.shuffle(Shuffle::Xor, value, distance);
        self.b.cast(own, &moved)
    }
}
