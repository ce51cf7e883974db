//! Column sums attached to a row kernel. The gradient of a norm has each row in registers, and the
//! gradients of its weight and biases are column sums of the same elements, which a separate kernel
//! would load again.
//!
//! Each block processes the rows of one part of the sums. Its warps take rows in turn, each lane
//! accumulates the sums of its columns, and at the end the warps' sums are added. This is the
//! summation order of the separate column kernel (`columns.rs`), so the results are the same.
//!
//! The sums are accumulated in shared memory where two blocks of a multiprocessor have enough of
//! it, else in registers. With rows of 768 elements and three sums, 72 registers of a thread hold
//! sums, and only eight warps fit a multiprocessor, too few to hide the latency of loads (2.1 of
//! 4.3 TB/s on an H200). Every lane accesses only its own slots until the end, so no barrier is
//! needed in between.

use bornite_ir::{Axis, Builtin, Emit, EmitBits, ExprId, LocalId, Op as ScalarOp, ParamId, SharedId, Stmt, Type};

use super::blocks::{MIN_ROWS, WARP, rows_at_a_time};
use super::group::{Group, IterationSpace};
use super::launch_shape::SumStorage;
use super::lowering::{Coordinates, Lowering};
use super::row_kernel::RowKernel;
use super::row_launch::RowLaunch;
use super::stages::Reduction;
use super::{broadcasts_rows, is_identity, look_through, strided_view};
use crate::graph::infer;
use crate::graph::node::{NodeId, Op, Reduce};
use crate::{DType, Tensor};

/// Warps per block.
const WARPS: usize = 8;
/// Minimum number of blocks that keep a GPU busy.
const MIN_BLOCKS: usize = 128;
/// Maximum number of attached sums; each needs registers.
const MAX_SUMS: usize = 3;

/// Launch shape of a row kernel with column sums.
pub(super) struct ColumnSumLaunch<'a> {
    pub rows: RowLaunch<'a>,
    /// Number of partial sums, one block each.
    pub parts: usize,
    /// Rows per part.
    rows_per_part: usize,
    pub storage: SumStorage,
}

/// Column sums while a kernel runs.
pub(super) enum ColumnTotals {
    /// By sum, one local per column of the lane.
    Registers(Vec<Vec<LocalId>>),
    /// By sum, an element per warp and column.
    Shared {
        tiles: Vec<SharedId>,
        /// First slot of the lane.
        first: ExprId,
    },
}

impl<'a> ColumnSumLaunch<'a> {
    /// Launch shape for a group with column sums.
    pub fn new(group: &'a Group, shared_bytes: impl FnOnce() -> usize) -> Option<ColumnSumLaunch<'a>> {
        let (parts, rows_per_part) = sum_extent(group.space, group.column_sums.first()?)?;
        let shared_bytes = shared_bytes();
        let rows = RowLaunch::new(group, || shared_bytes)?;
        let sum_bytes = group.column_sums.len() * WARPS * rows.columns * DType::F32.bytes();
        let storage = match group.launch_shape.and_then(|shape| shape.sum_storage) {
            _ if 2 * sum_bytes > shared_bytes => SumStorage::Registers,
            storage => storage.unwrap_or(SumStorage::Shared),
        };
        rows.is_one_warp().then_some(ColumnSumLaunch { rows, parts, rows_per_part, storage })
    }

    /// Number of blocks, and threads per block.
    pub fn launch(&self) -> (usize, usize) {
        (self.parts, WARPS * WARP)
    }
}

/// Number of parts of a sum, and rows per part, if it can be attached to a row kernel over this
/// space.
fn sum_extent(space: IterationSpace, sum: &Tensor) -> Option<(usize, usize)> {
    let IterationSpace::Rows { rows, columns } = space else { return None };
    let (outer, middle, inner) = infer::reduction_extents(&sum.0)?;
    let fits = inner == columns && outer * middle == rows && middle.is_multiple_of(WARPS) && middle >= MIN_ROWS;
    let like = sum.0.dtype == DType::F32 && rows_at_a_time(outer, inner) == WARPS;
    (fits && like && outer >= MIN_BLOCKS).then_some((outer, middle))
}

/// Attaches the column sums of a group to a row group, if one kernel can compute both: every input
/// of the sums must be available before the row group runs (`is_available`), or be computed by it
/// and read elementwise or per row.
pub(crate) fn attach_sums(rows: &Group, sums: &Group, is_available: impl Fn(&Tensor) -> bool) -> Option<Group> {
    let IterationSpace::Rows { rows: count, columns } = rows.space else { return None };
    let reduces = |tensor: &Tensor| tensor.0.op.is_reduction();
    let plain = |tensor: &Tensor| tensor.0.op.is_pointwise();
    let (summed, below): (Vec<&Tensor>, Vec<&Tensor>) = sums.order.iter().partition(|tensor| reduces(tensor));
    // The outputs must be the sums themselves.
    let bare = sums.outputs.iter().all(|output| summed.iter().any(|sum| sum.0.id == output.0.id));
    let few =
        rows.column_sums.is_empty() && (1..=MAX_SUMS).contains(&summed.len()) && sums.outputs.len() == summed.len();
    let supported = summed
        .iter()
        .all(|sum| matches!(sum.0.op, Op::Reduce(Reduce::Sum, _)) && sum_extent(rows.space, sum).is_some());
    let level = |tensor: &Tensor| [count * columns, count, 1].contains(&tensor.0.elements());
    let simple = below.iter().all(|tensor| plain(tensor) && level(tensor))
        && rows.order.iter().all(|tensor| plain(tensor) || reduces(tensor));
    if !(bare && few && supported && simple) {
        return None;
    }
    let computed = |id: NodeId| rows.order.iter().chain(below.iter().copied()).any(|tensor| tensor.0.id == id);
    let read_by_rows = |id: NodeId| {
        let reads = |tensor: &Tensor| tensor.0.reads().iter().any(|input| look_through(input).0.0.id == id);
        rows.order.iter().any(|tensor| tensor.0.id == id) || rows.order.iter().any(reads)
    };
    let mut shared = false;
    for input in sums.order.iter().flat_map(|tensor| tensor.0.reads()) {
        let (base, views) = look_through(input);
        if base.0.op.is_constant() && !base.0.has_value() {
            continue;
        }
        let layout = strided_view(base, &views);
        let elementwise = layout.as_ref().is_some_and(is_identity);
        let by_row = base.0.elements() == count && layout.is_some_and(|layout| broadcasts_rows(&layout, columns));
        let is_scalar = base.0.elements() == 1;
        let fits = if computed(base.0.id) { elementwise || by_row || is_scalar } else { is_available(base) };
        if !fits {
            return None;
        }
        shared |= elementwise && base.0.elements() == count * columns && read_by_rows(base.0.id);
    }
    let mut order = rows.order.clone();
    let new = |tensor: &&Tensor| rows.order.iter().all(|other| other.0.id != tensor.0.id);
    order.extend(below.into_iter().filter(new).cloned());
    order.sort_by_key(|tensor| tensor.0.id);
    let group = Group {
        space: rows.space,
        outputs: rows.outputs.clone(),
        order,
        launch_shape: None,
        column_sums: sums.outputs.clone(),
    };
    (shared && RowLaunch::new(&group, || 0).is_some_and(|rows| rows.is_one_warp())).then_some(group)
}

/// The column sums attached to a group.
pub(super) fn column_sums_of(group: &Group) -> impl Iterator<Item = Reduction<'_>> {
    group.column_sums.iter().filter_map(Reduction::of)
}

impl Lowering<RowKernel> {
    /// One block per part of the sums, one warp per row.
    pub(super) fn rows_with_column_sums(&mut self, group: &Group, outs: &[ParamId], plan: &ColumnSumLaunch<'_>) {
        let ColumnSumLaunch { rows, rows_per_part, storage, .. } = plan;
        let (outs, sums) = outs.split_at(group.outputs.len());
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        let (warp, lane) = (self.index_op(ScalarOp::Div, thread, WARP), self.index_op(ScalarOp::Rem, thread, WARP));
        let first = self.index_op(ScalarOp::Mul, block, *rows_per_part);
        let first = self.b.add(&first, &warp);
        let columns = rows.columns;
        let first_slot = self.index_op(ScalarOp::Mul, warp, columns);
        let across = self.index_op(ScalarOp::Mul, lane, rows.lanes);
        let first_slot = self.b.add(&first_slot, &across);
        let totals = self.column_totals(group, rows, *storage, first_slot);
        let end = self.b.index_constant((rows_per_part / WARPS) as u64);
        self.for_each("turn", end, |l, iteration| {
            let down = l.index_op(ScalarOp::Mul, iteration, WARPS);
            let row = l.b.add(&first, &down);
            l.row_by_threads(group, outs, rows, [row, lane], Some(&totals));
        });
        self.lanes = 1;
        let tiles = match &totals {
            ColumnTotals::Shared { tiles, .. } => tiles.clone(),
            // The sums take turns.
            ColumnTotals::Registers(_) => vec![self.sum_tile("sums", columns); sums.len()],
        };
        let result = self.index_op(ScalarOp::Mul, block, columns);
        for (n, (sum, &out)) in column_sums_of(group).zip(sums).enumerate() {
            let tile = tiles[n];
            if let ColumnTotals::Registers(totals) = &totals {
                if n > 0 {
                    // Wait until the previous sum has been read from shared memory.
                    self.b.push_stmt(Stmt::Barrier);
                }
                for (iteration, totals) in totals[n].chunks(rows.lanes).enumerate() {
                    let values: Vec<ExprId> = totals.iter().map(|&total| self.b.read(total)).collect();
                    self.store_sums(tile, first_slot, iteration, &values);
                }
            }
            if n == 0 || matches!(totals, ColumnTotals::Registers(_)) {
                self.b.push_stmt(Stmt::Barrier);
            }
            for iteration in 0..columns.div_ceil(WARPS * WARP) {
                let column = self.offset_by(thread, iteration * WARPS * WARP);
                let end = self.b.index_constant(columns as u64);
                let inside = self.b.lt(&column, &end);
                let last = (iteration + 1) * WARPS * WARP > columns;
                self.when(last.then_some(inside), &mut |l| {
                    let parts = (0..WARPS)
                        .map(|warp| {
                            let slot = l.offset_by(column, warp * columns);
                            l.b.load(tile, slot)
                        })
                        .collect();
                    let (total, index) = (l.tree_reduce(sum, parts), l.b.add(&result, &column));
                    l.b.store(out, index, total);
                });
            }
        }
    }
    /// Column sums of zero.
    fn column_totals(
        &mut self,
        group: &Group,
        rows: &RowLaunch<'_>,
        storage: SumStorage,
        first: ExprId,
    ) -> ColumnTotals {
        let own = rows.columns / WARP;
        if storage == SumStorage::Registers {
            let locals = |sum: Reduction<'_>| (0..own).map(|_| self.total(sum)).collect();
            return ColumnTotals::Registers(column_sums_of(group).map(locals).collect());
        }
        let mut tiles = vec![];
        for (n, sum) in column_sums_of(group).enumerate() {
            let tile = self.sum_tile(&format!("tile{n}"), rows.columns);
            let none = self.b.constant(sum.identity());
            for iteration in 0..own / rows.lanes {
                self.store_sums(tile, first, iteration, &vec![none; rows.lanes]);
            }
            tiles.push(tile);
        }
        ColumnTotals::Shared { tiles, first }
    }

    /// Shared memory for one sum of all warps.
    fn sum_tile(&mut self, name: &str, columns: usize) -> SharedId {
        self.b.shared(name, DType::F32, (WARPS * columns) as u64)
    }

    /// Adds the elements of a row at one position to their column sums.
    pub(super) fn accumulate_columns(
        &mut self,
        group: &Group,
        totals: &ColumnTotals,
        iteration: usize,
        at: &Coordinates,
    ) {
        let lanes = self.lanes;
        for (n, sum) in column_sums_of(group).enumerate() {
            let values = self.reduction_input(sum, at);
            let value = |lane: usize| values[if values.len() == 1 { 0 } else { lane }];
            match totals {
                ColumnTotals::Registers(totals) => {
                    let totals = &totals[n][iteration * lanes..][..lanes];
                    totals.iter().enumerate().for_each(|(lane, &total)| self.accumulate(sum, total, value(lane)));
                }
                ColumnTotals::Shared { tiles, first } => {
                    let slot = self.offset_by(*first, iteration * WARP * lanes);
                    let before = self.load_adjacent(tiles[n].into(), slot, DType::F32);
                    let add = |(lane, before)| self.b.op(sum.combine_op(), &[before, &value(lane)]);
                    let after: Vec<ExprId> = before.iter().enumerate().map(add).collect();
                    self.store_sums(tiles[n], *first, iteration, &after);
                }
            }
        }
    }

    /// Stores the sums of a lane's adjacent columns.
    fn store_sums(&mut self, tile: SharedId, first: ExprId, iteration: usize, values: &[ExprId]) {
        let value = self.b.construct(Type::Vector(DType::F32, values.len() as u8), values);
        let slot = self.offset_by(first, iteration * WARP * values.len());
        self.b.store(tile, slot, value);
    }
}
