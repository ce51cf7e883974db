//! Sums of columns that ride on a kernel over rows. The gradient of a norm has each row in registers; what its weight, its bias
//! and the bias before it are summed of is made of the same elements, and another kernel would load them all again.
//!
//! A block has the rows of one part of the sums. Its warps take rows in turn, a lane keeps the sums of its columns, and at the end
//! the warps' sums are added up. That is the order of the kernel that sums columns alone (`blocks.rs`): which way it is done changes
//! no bit.

use bornite_ir::{Axis, Builtin, Emit, ExprId, LocalId, Op as ScalarOp, ParamId, Stmt, Type};

use super::blocks::{MIN_ROWS, WARP, rows_at_a_time};
use super::group::{Group, IterationSpace};
use super::lowering::Lowering;
use super::row_kernel::RowKernel;
use super::row_launch::RowLaunch;
use super::stages::Reduction;
use super::{broadcasts_rows, is_identity, look_through, strided_view};
use crate::graph::infer;
use crate::graph::node::{NodeId, Op, Reduce};
use crate::{DType, Tensor};

/// Warps of a block.
const WARPS: usize = 8;
/// Fewest blocks that keep a GPU busy.
const BLOCKS: usize = 128;
/// Most sums: a lane has its columns of each in registers.
const MOST: usize = 3;

/// Rows a block, for sums of so many parts.
pub(super) struct ColumnSumLaunch<'a> {
    pub rows: RowLaunch<'a>,
    pub parts: usize,
    /// Rows of a part.
    rows_per_part: usize,
}

impl<'a> ColumnSumLaunch<'a> {
    /// The blocks for a group with sums.
    pub fn new(group: &'a Group, shared_bytes: impl FnOnce() -> usize) -> Option<ColumnSumLaunch<'a>> {
        let (parts, rows_per_part) = sum_extent(group.space, group.column_sums.first()?)?;
        let rows = RowLaunch::new(group, shared_bytes)?;
        rows.is_one_warp().then_some(ColumnSumLaunch { rows, parts, rows_per_part })
    }

    /// Blocks and threads.
    pub fn launch(&self) -> (usize, usize) {
        (self.parts, WARPS * WARP)
    }
}

/// How many parts a sum has, and the rows of each, if it is one that can ride on a kernel of this form.
fn sum_extent(form: IterationSpace, sum: &Tensor) -> Option<(usize, usize)> {
    let IterationSpace::Rows { rows, columns } = form else { return None };
    let (outer, middle, inner) = infer::reduction_extents(&sum.0)?;
    let fits = inner == columns && outer * middle == rows && middle.is_multiple_of(WARPS) && middle >= MIN_ROWS;
    let like = sum.0.dtype == DType::F32 && rows_at_a_time(outer, inner) == WARPS;
    (fits && like && outer >= BLOCKS).then_some((outer, middle))
}

/// A group over rows with the sums of another group, if one kernel can compute both: what the sums read was `there` before the group
/// over rows runs, or is what that computes, read element by element or row by row.
pub(crate) fn attach_sums(rows: &Group, sums: &Group, there: impl Fn(&Tensor) -> bool) -> Option<Group> {
    let IterationSpace::Rows { rows: count, columns } = rows.space else { return None };
    let reduces = |tensor: &Tensor| tensor.0.op.is_reduction();
    let plain = |tensor: &Tensor| tensor.0.op.is_pointwise();
    let (summed, below): (Vec<&Tensor>, Vec<&Tensor>) = sums.order.iter().partition(|tensor| reduces(tensor));
    // Results of the sums are the sums themselves.
    let bare = sums.outputs.iter().all(|output| summed.iter().any(|sum| sum.0.id == output.0.id));
    let few = rows.column_sums.is_empty() && (1..=MOST).contains(&summed.len()) && sums.outputs.len() == summed.len();
    let ride = summed
        .iter()
        .all(|sum| matches!(sum.0.op, Op::Reduce(Reduce::Sum, _)) && sum_extent(rows.space, sum).is_some());
    let level = |tensor: &Tensor| [count * columns, count, 1].contains(&tensor.0.elements());
    let simple = below.iter().all(|tensor| plain(tensor) && level(tensor))
        && rows.order.iter().all(|tensor| plain(tensor) || reduces(tensor));
    if !(bare && few && ride && simple) {
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
        let place = strided_view(base, &views);
        let in_step = place.as_ref().is_some_and(is_identity);
        let by_row = base.0.elements() == count && place.is_some_and(|place| broadcasts_rows(&place, columns));
        let fits = if computed(base.0.id) { in_step || by_row } else { there(base) };
        if !fits {
            return None;
        }
        shared |= in_step && base.0.elements() == count * columns && read_by_rows(base.0.id);
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

/// The sums that ride on a group.
pub(super) fn column_sums_of(group: &Group) -> impl Iterator<Item = Reduction<'_>> {
    group.column_sums.iter().filter_map(Reduction::of)
}

impl Lowering<RowKernel> {
    /// A block a part of the sums, a warp a row.
    pub(super) fn rows_with_column_sums(&mut self, group: &Group, outs: &[ParamId], plan: &ColumnSumLaunch<'_>) {
        let ColumnSumLaunch { rows, rows_per_part, .. } = plan;
        let (outs, sums) = outs.split_at(group.outputs.len());
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        let (warp, lane) = (self.index_op(ScalarOp::Div, thread, WARP), self.index_op(ScalarOp::Rem, thread, WARP));
        let first = self.index_op(ScalarOp::Mul, block, *rows_per_part);
        let first = self.b.add(&first, &warp);
        let own = rows.columns / WARP;
        let totals: Vec<Vec<LocalId>> =
            column_sums_of(group).map(|sum| (0..own).map(|_| self.total(sum)).collect()).collect();
        let end = self.b.index_constant((rows_per_part / WARPS) as u64);
        self.for_each("turn", end, |l, turn| {
            let down = l.index_op(ScalarOp::Mul, turn, WARPS);
            let row = l.b.add(&first, &down);
            l.row_by_threads(group, outs, rows, [row, lane], &totals);
        });
        self.lanes = 1;
        let columns = rows.columns;
        let tile = self.b.shared("sums", DType::F32, (WARPS * columns) as u64);
        let begins = self.index_op(ScalarOp::Mul, warp, columns);
        let across = self.index_op(ScalarOp::Mul, lane, rows.lanes);
        let begins = self.b.add(&begins, &across);
        let result = self.index_op(ScalarOp::Mul, block, columns);
        for (n, ((sum, &out), totals)) in column_sums_of(group).zip(sums).zip(&totals).enumerate() {
            if n > 0 {
                // The sum before has been read from there.
                self.b.simple(Stmt::Barrier);
            }
            for (turn, totals) in totals.chunks(rows.lanes).enumerate() {
                let values: Vec<ExprId> = totals.iter().map(|&total| self.b.read(total)).collect();
                let value = self.b.construct(Type::Vector(DType::F32, rows.lanes as u8), &values);
                let place = self.offset_by(begins, turn * WARP * rows.lanes);
                self.b.store(tile, place, value);
            }
            self.b.simple(Stmt::Barrier);
            for turn in 0..columns.div_ceil(WARPS * WARP) {
                let column = self.offset_by(thread, turn * WARPS * WARP);
                let end = self.b.index_constant(columns as u64);
                let inside = self.b.lt(&column, &end);
                let last = (turn + 1) * WARPS * WARP > columns;
                self.when(last.then_some(inside), &mut |l| {
                    let parts = (0..WARPS)
                        .map(|warp| {
                            let place = l.offset_by(column, warp * columns);
                            l.b.load(tile, place)
                        })
                        .collect();
                    let (whole, place) = (l.tree_reduce(sum, parts), l.b.add(&result, &column));
                    l.b.store(out, place, whole);
                });
            }
        }
    }
}
