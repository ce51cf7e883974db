//! Kernels for GPUs in which the threads of a block work together: on rows (`rows.rs`), on columns (`columns.rs`), on tiles that
//! are transposed (`tiles.rs`).
//!
//! How elements are shared, and so the order of sums, follows from a group's form alone.

use bornite_ir::{Emit, EmitBits, ExprId, LocalId, Op as ScalarOp, Scalar, Shuffle, Stmt};

use super::column_sums::ColumnSumLaunch;
use super::columns::Columns;
use super::group::{Group, IterationSpace};
use super::lowering::{KernelShape, Lowering};
use super::row_launch::RowLaunch;
use super::stages::Reduction;
use super::tiles::Tiles;

pub(super) const WARP: usize = 32;

/// Rows of at most so many columns are one thread's work each.
const SERIAL_COLUMNS: usize = 16;
/// Rows from which columns are summed by blocks.
pub(super) const MIN_ROWS: usize = 16;

/// How far an index may run past the last element of the last row: what a block takes at once.
pub(super) const MAX_OVERRUN: usize = 1024 * 4;

/// How blocks are shaped.
pub(super) enum BlockKernel<'a> {
    Rows(RowLaunch<'a>),
    ColumnSumLaunch(ColumnSumLaunch<'a>),
    Columns(Columns),
    Tiles(Tiles<'a>),
}

/// The blocks for a group, if there should be any. A block has so much shared memory.
pub(super) fn shape(group: &Group, shared_bytes: impl FnOnce() -> usize) -> Option<BlockKernel<'_>> {
    match group.space {
        IterationSpace::Rows { .. } if !group.column_sums.is_empty() => {
            ColumnSumLaunch::new(group, shared_bytes).map(BlockKernel::ColumnSumLaunch)
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
        IterationSpace::Elements(elements) => Tiles::new(group, elements).map(BlockKernel::Tiles),
        _ => None,
    }
}

/// The rows that a block sums side by side. Few blocks need more threads to be quick.
pub(super) fn rows_at_a_time(outer: usize, inner: usize) -> usize {
    if outer * inner.div_ceil(WARP) < 256 { 32 } else { 8 }
}

impl BlockKernel<'_> {
    /// Grid and block.
    pub fn launch(&self) -> ([u32; 3], [u32; 3]) {
        let (blocks, threads) = match self {
            BlockKernel::Rows(plan) => (plan.rows.div_ceil(plan.rows_per_block), plan.threads * plan.rows_per_block),
            BlockKernel::ColumnSumLaunch(plan) => plan.launch(),
            BlockKernel::Columns(plan) => (plan.blocks, plan.down * WARP),
            BlockKernel::Tiles(plan) => plan.launch(),
        };
        ([blocks as u32, 1, 1], [threads as u32, 1, 1])
    }
}

impl<S: KernelShape> Lowering<S> {
    /// What a thread has, of all its lanes: pairs, then pairs of pairs.
    pub(super) fn thread_total(&mut self, reduction: Reduction<'_>, totals: &[LocalId]) -> ExprId {
        let values = totals.iter().map(|&total| self.b.read(total)).collect();
        self.tree_reduce(reduction, values)
    }

    /// A reduction of few values: pairs, then pairs of pairs. Their number is a power of 2.
    pub(super) fn tree_reduce(&mut self, reduction: Reduction<'_>, mut values: Vec<ExprId>) -> ExprId {
        let row = reduction.step();
        while values.len() > 1 {
            values = values.chunks(2).map(|pair| self.b.op(row, &[&pair[0], &pair[pair.len() - 1]])).collect();
        }
        values[0]
    }

    /// What all threads of a row have, known to each of them.
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
                *total = self.b.op(reduction.step(), &[total, &other]);
            }
        }
        if threads == WARP {
            return totals;
        }
        let warps = threads / WARP;
        let (warp, lane) = (self.index_op(ScalarOp::Div, thread, WARP), self.index_op(ScalarOp::Rem, thread, WARP));
        let zero = self.b.index_constant(0);
        let leads = self.b.op(ScalarOp::Eq, &[&lane, &zero]);
        let mut tiles = vec![];
        self.b.open_block();
        for (n, (reduction, total)) in stage.iter().zip(&totals).enumerate() {
            let tile = self.b.shared(format!("tile{number}_{n}"), reduction.accumulator_type(), warps as u64);
            self.b.store(tile, warp, *total);
            tiles.push(tile);
        }
        let then = self.b.close_block();
        self.b.simple(Stmt::If { condition: leads, then, otherwise: vec![] });
        self.b.simple(Stmt::Barrier);
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

    /// The value of the lane whose number differs in one bit.
    fn shuffle_xor(&mut self, value: ExprId, distance: ExprId) -> ExprId {
        let own = self.b.scalar(&value);
        // Shuffles move 32 bits or 64.
        let wide = if own.bytes() < 4 { Scalar::I32 } else { own };
        let value = self.b.cast(wide, &value);
        let moved = self.b.shuffle(Shuffle::Xor, value, distance);
        self.b.cast(own, &moved)
    }
}
