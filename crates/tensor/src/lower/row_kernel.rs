//! Row kernels: one thread, warp or block per row, in passes over its columns.
//!
//! A pass computes the reductions whose inputs are available; the last pass computes and stores the
//! outputs that have all columns. `row_launch.rs` chooses the tensors that are cached between
//! passes and the number of threads per row.

use std::collections::HashMap;

use bornite_ir::{Axis, Builtin, Emit, EmitBits, ExprId, LocalId, Op as ScalarOp, ParamId, SharedId, Stmt, Type};

use super::blocks::WARP;
use super::column_sums::ColumnTotals;
use super::group::{Group, IterationSpace};
use super::indexing::{gathers_one_per_row, scatters_one_per_row};
use super::lowering::{Coordinates, KernelShape, Lowering, RowSpace};
use super::row_launch::RowLaunch;
use super::stages::{Reduction, Stages, stages};
use crate::Tensor;
use crate::graph::infer::constant;
use crate::graph::node::{Node, NodeId, Op};

/// Iterations of the first pass whose loads are issued together, to hide memory latency.
const PREFETCHED_TURNS: usize = 8;

/// Maximum number of nodes with all columns for which iterations are unrolled; more would take long
/// to compile.
const MAX_UNROLLED_NODES: usize = 24;

/// A row kernel.
pub(super) struct RowKernel {
    row_space: RowSpace,
    /// Index of the element that the thread is at.
    own: Option<ExprId>,
    /// If set, it is at its last pass, which writes.
    writes: bool,
    /// If set, elements of the row were gathered before the last pass.
    gathered: bool,
    /// Row and column of the gather being lowered.
    being_gathered: Option<(ExprId, ExprId)>,
    /// Adjacent columns per thread.
    lanes: usize,
    /// The column that the pass is at, and an upper bound of it over all iterations.
    column_bound: Option<(ExprId, usize)>,
    row_cache: RowCache,
}

impl RowKernel {
    pub fn new(rows: usize, columns: usize) -> RowKernel {
        RowKernel {
            row_space: RowSpace { rows, columns },
            own: None,
            writes: false,
            gathered: false,
            being_gathered: None,
            lanes: 0,
            column_bound: None,
            row_cache: RowCache::default(),
        }
    }
}

impl KernelShape for RowKernel {
    fn own_element(&self) -> Option<ExprId> {
        self.own
    }

    fn row_space(&self) -> Option<RowSpace> {
        Some(self.row_space)
    }

    /// A comparison of the column with a constant, as in masks of padded columns, is true at all
    /// positions before the padding. Only at the position of the pass: values at other columns,
    /// such as gathered ones, have no bound.
    fn is_always_true(&self, condition: &Tensor, at: &Coordinates) -> bool {
        let (Op::Map(ScalarOp::Lt), [column, end]) = (&condition.0.op, &condition.0.inputs[..]) else { return false };
        let (Op::Iota { axis }, Node { shape, dtype, .. }) = (&column.0.op, &*column.0) else { return false };
        let (Some((own, below)), Some((_, at))) = (self.column_bound, at.row) else { return false };
        // A float would round up.
        let is_column = dtype.is_int() && axis + 1 == shape.len() && shape.last() == Some(&self.row_space.columns);
        let end = constant(end).map(|end| end.as_i64());
        own == at && is_column && end.is_some_and(|end| below as i64 <= end)
    }

    fn is_gathered_early(&self, at: &Coordinates) -> bool {
        self.being_gathered.is_some() && at.row == self.being_gathered
    }

    fn gather_from_row(l: &mut Lowering<Self>, gather: &Node, at: &Coordinates, column: ExprId) -> Option<ExprId> {
        let x = &gather.inputs[0];
        let row = at.linear.filter(|_| at.row.is_none() && gathers_one_per_row(gather, l.shape.row_space))?;
        let at = l.column_at(row, column, &x.0.shape);
        let before = l.shape.being_gathered.take();
        if !l.shape.writes {
            (l.shape.being_gathered, l.shape.gathered) = (at.row, true);
        }
        let value = l.load(x, at);
        l.shape.being_gathered = before;
        Some(value)
    }

    /// Loads elements in the first pass that needs them, and stores them in shared memory for later
    /// passes if the tensor is cached.
    fn load_cached(
        l: &mut Lowering<Self>,
        base: &Tensor,
        at: &Coordinates,
        load: impl FnOnce(&mut Lowering<Self>) -> Vec<ExprId>,
    ) -> Vec<ExprId> {
        let (pass, own) = (l.shape.row_cache.pass, l.shape.row_cache.column);
        let column = at.row.map(|(_, column)| column).filter(|_| l.lanes == l.shape.lanes);
        let Some((column, (tile, filled))) = column
            .filter(|_| column == own)
            .and_then(|column| Some((column, l.shape.row_cache.tiles.get_mut(&base.0.id)?)))
        else {
            return load(l);
        };
        let (tile, first) = (*tile, *filled.get_or_insert(pass) == pass);
        let (dtype, width) = (base.0.dtype, (16 / base.0.dtype.bytes()).min(l.lanes));
        if !first {
            return l.load_adjacent(tile.into(), column, dtype);
        }
        let values = load(l);
        for (n, part) in values.chunks(width).enumerate() {
            let slot = l.offset_by(column, n * width);
            let value = match part {
                [value] => *value,
                part => l.b.construct(Type::Vector(dtype, width as u8), part),
            };
            l.b.store(tile, slot, value);
        }
        values
    }
}

/// Rows cached in shared memory, and the state of the passes over them.
#[derive(Default)]
pub(super) struct RowCache {
    /// By tensor: its shared memory, and the pass that fills it.
    tiles: HashMap<NodeId, (SharedId, Option<usize>)>,
    pass: usize,
    /// The column that the pass is at. Each thread reads only what it stored itself, so no barrier
    /// is needed.
    column: Option<ExprId>,
}

impl RowCache {
    fn new(l: &mut Lowering<RowKernel>, plan: &RowLaunch<'_>) -> RowCache {
        let tile = |(n, tensor): (usize, &&Tensor)| {
            (tensor.0.id, (l.b.shared(format!("row{n}"), tensor.0.dtype, plan.columns as u64), None))
        };
        RowCache { tiles: plan.cached.iter().enumerate().map(tile).collect(), pass: 0, column: None }
    }
}

impl Lowering<RowKernel> {
    /// One instance per row, with serial loops over the columns.
    pub(super) fn rows(&mut self, group: &Group, outs: &[ParamId], columns: usize) {
        let row = self.b.index();
        let start_of_row = self.index_op(ScalarOp::Mul, row, columns);
        let end = self.b.index_constant(columns as u64);
        let at = |l: &mut Lowering<RowKernel>, column: ExprId, shape: &[usize]| {
            let linear = l.b.add(&start_of_row, &column);
            l.shape.own = Some(linear);
            Coordinates { shape: shape.to_vec(), linear: Some(linear), axes: None, row: Some((row, column)) }
        };
        self.check_rows(&group.order, row, None);
        let Stages { reductions, known } = stages(group);
        self.row_values(&known[0], row);
        for (n, stage) in reductions.iter().enumerate() {
            let totals: Vec<LocalId> = stage.iter().map(|reduction| self.total(*reduction)).collect();
            self.for_each(&format!("column{n}"), end, |l, column| {
                let at = at(l, column, &[]);
                for (&reduction, &total) in stage.iter().zip(&totals) {
                    let x = l.reduction_input(reduction, &at)[0];
                    l.accumulate(reduction, total, x);
                }
            });
            for (Reduction { tensor, .. }, total) in stage.iter().zip(totals) {
                let total = self.b.read(total);
                let value = self.b.cast(tensor.0.dtype, &total);
                self.cache_values(tensor.0.id, row, vec![value]);
            }
            self.row_values(&known[n + 1], row);
        }
        self.store_row_outputs(group, outs, row);
        let wide = wide_outputs(group, outs);
        if !wide.is_empty() {
            self.shape.writes = true;
            self.for_each("column", end, |l, column| {
                let at = at(l, column, &[]);
                l.store_wide_outputs(&wide, &at);
            });
        }
    }

    /// A warp or a block per row: threads process adjacent columns in turn, then reduce their
    /// totals.
    pub(super) fn rows_by_blocks(&mut self, group: &Group, outs: &[ParamId], plan: &RowLaunch<'_>) {
        let RowLaunch { rows, threads, rows_per_block, .. } = *plan;
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        let (row, thread) = if rows_per_block == 1 {
            (block, thread)
        } else {
            let first = self.index_op(ScalarOp::Mul, block, rows_per_block);
            let own = self.index_op(ScalarOp::Div, thread, threads);
            (self.b.add(&first, &own), self.index_op(ScalarOp::Rem, thread, threads))
        };
        let uneven = !rows.is_multiple_of(rows_per_block);
        if uneven {
            // A warp past the last row exits; no other warp waits for it.
            let end = self.b.index_constant(rows as u64);
            let past = self.b.op(ScalarOp::Ge, &[&row, &end]);
            self.b.if_else(past, |b| b.push_stmt(Stmt::Return(None)), |_| {});
        }
        self.row_by_threads(group, outs, plan, [row, thread], None);
    }

    /// Computes one row by all its threads. `sums` holds attached column sums.
    pub(super) fn row_by_threads(
        &mut self,
        group: &Group,
        outs: &[ParamId],
        plan: &RowLaunch<'_>,
        [row, thread]: [ExprId; 2],
        sums: Option<&ColumnTotals>,
    ) {
        let RowLaunch { rows, columns, threads, lanes, .. } = *plan;
        self.lanes = lanes;
        self.shape.lanes = lanes;
        self.shape.row_cache = RowCache::new(self, plan);
        let start = self.index_op(ScalarOp::Mul, row, columns);
        let first = self.index_op(ScalarOp::Mul, thread, lanes);
        let unroll = group.order.iter().filter(|t| t.0.elements() > rows).count() <= MAX_UNROLLED_NODES;
        let mut passes = Passes { row, start, first, columns, step: threads * lanes, positions: vec![], unroll };
        if plan.in_registers() {
            let at = |iteration: usize| passes.position(self, first, iteration);
            passes.positions = (0..columns / passes.step).map(at).collect();
        }
        let zero = self.zero();
        let leads = self.b.op(ScalarOp::Eq, &[&thread, &zero]);
        self.check_rows(&group.order, row, Some(leads));
        if sums.is_some() {
            // A multiprocessor runs too few warps of such a kernel to hide the latency of one load
            // after the other (gradients of a layer norm on an H200: 107 to 97 µs). 32-bit elements
            // would take too many registers (157 to 164 µs).
            let narrow = plan.narrow_inputs(group);
            passes.run(self, "load", &mut |l, at| narrow.iter().for_each(|tensor| drop(l.values(tensor, at))));
        }
        let Stages { reductions, known } = stages(group);
        self.row_values(&known[0], row);
        for (n, stage) in reductions.iter().enumerate() {
            let totals: Vec<Vec<LocalId>> =
                stage.iter().map(|reduction| (0..lanes).map(|_| self.total(*reduction)).collect()).collect();
            if sums.is_some() {
                // The totals still hold the values of the previous row.
                stage.iter().zip(&totals).for_each(|(reduction, totals)| self.reset_totals(*reduction, totals));
            }
            passes.run(self, &format!("turn{n}"), &mut |l, at| {
                for (&reduction, totals) in stage.iter().zip(&totals) {
                    let values = l.reduction_input(reduction, at);
                    for (lane, &total) in totals.iter().enumerate() {
                        l.accumulate(reduction, total, values[if values.len() == 1 { 0 } else { lane }]);
                    }
                }
            });
            let own: Vec<ExprId> =
                stage.iter().zip(&totals).map(|(reduction, totals)| self.thread_total(*reduction, totals)).collect();
            let whole = self.block_reduce(stage, own, thread, threads, n);
            for (Reduction { tensor, .. }, total) in stage.iter().zip(whole) {
                let value = self.b.cast(tensor.0.dtype, &total);
                self.cache_values(tensor.0.id, row, vec![value]);
            }
            self.row_values(&known[n + 1], row);
        }
        self.b.open_block();
        self.scope(|l| l.store_row_outputs(group, outs, row));
        let then = self.b.close_block();
        if !then.is_empty() {
            self.b.push_stmt(Stmt::If { condition: leads, then, otherwise: vec![] });
        }
        let wide = wide_outputs(group, outs);
        if self.shape.gathered && !wide.is_empty() {
            // Gathered elements may be overwritten by an output.
            self.b.push_stmt(if threads == WARP { Stmt::WarpBarrier } else { Stmt::Barrier });
        }
        if !wide.is_empty() || sums.is_some() {
            self.shape.writes = true;
            let mut iteration = 0;
            passes.run(self, "turn", &mut |l, at| {
                // Before anything is stored, since an output may overwrite an input.
                if let Some(sums) = sums {
                    l.accumulate_columns(group, sums, iteration, at);
                }
                iteration += 1;
                l.store_wide_outputs(&wide, at);
            });
        }
    }

    /// Sets the totals to the identity of the reduction.
    fn reset_totals(&mut self, reduction: Reduction<'_>, totals: &[LocalId]) {
        let none = self.b.constant(reduction.identity());
        totals.iter().for_each(|&total| self.b.assign(total, none));
    }

    /// Stores the outputs that have all columns, at one position.
    fn store_wide_outputs(&mut self, outputs: &[(&Tensor, ParamId)], at: &Coordinates) {
        // All values before the first store, since an output may overwrite an input.
        let values: Vec<Vec<ExprId>> = outputs.iter().map(|(output, _)| self.output_values(output, at)).collect();
        let linear = self.linear_of(at);
        for ((output, out), values) in outputs.iter().zip(values) {
            self.store(*out, linear, values, output.0.dtype);
        }
    }

    /// Computes values with one element per row, or a single element, outside of the loops.
    fn row_values(&mut self, tensors: &[&Tensor], row: ExprId) {
        let lanes = std::mem::replace(&mut self.lanes, 1);
        let rows = self.shape.row_space.rows;
        for tensor in tensors {
            let index = if tensor.0.elements() == rows { row } else { self.zero() };
            self.compute_values(tensor, &Coordinates::linear(index, &tensor.0.shape));
        }
        self.lanes = lanes;
    }

    /// Stores the outputs with one element per row.
    fn store_row_outputs(&mut self, group: &Group, outs: &[ParamId], row: ExprId) {
        let rows = self.shape.row_space.rows;
        let lanes = std::mem::replace(&mut self.lanes, 1);
        for (output, &out) in group.outputs.iter().zip(outs) {
            if output.0.elements() == rows {
                let value = self.output_values(output, &Coordinates::linear(row, &output.0.shape))[0];
                self.b.store(out, row, value);
            }
        }
        self.lanes = lanes;
    }

    /// Coordinates of a column of a row.
    fn column_at(&mut self, row: ExprId, column: ExprId, shape: &[usize]) -> Coordinates {
        let start = self.index_op(ScalarOp::Mul, row, self.shape.row_space.columns);
        let linear = self.b.add(&start, &column);
        Coordinates { shape: shape.to_vec(), linear: Some(linear), axes: None, row: Some((row, column)) }
    }

    /// Checks the indices of scatters with one value per row, once per row: by the thread that
    /// `leads`, if there are several.
    fn check_rows(&mut self, order: &[Tensor], row: ExprId, leads: Option<ExprId>) {
        let row_space = self.shape.row_space;
        for tensor in order {
            if !scatters_one_per_row(&tensor.0, row_space) {
                continue;
            }
            let index = &tensor.0.inputs[1];
            let (wide, inside) = self.index_at(index, Coordinates::linear(row, &index.0.shape), row_space.columns);
            let fine = match leads {
                Some(leads) => {
                    let follows = self.b.op(ScalarOp::Not, &[&leads]);
                    self.b.op(ScalarOp::Or, &[&inside, &follows])
                }
                None => inside,
            };
            self.report_unless(&tensor.0, fine, wide);
        }
    }
}

/// Passes of the threads of a row over its columns.
struct Passes {
    row: ExprId,
    /// Index of the row's first element.
    start: ExprId,
    /// First column of the thread.
    first: ExprId,
    columns: usize,
    /// Columns that all threads process per iteration.
    step: usize,
    /// All positions of the thread, if their values stay in registers.
    positions: Vec<Coordinates>,
    /// If set, iterations may be unrolled.
    unroll: bool,
}

/// Code of a pass at one position.
type Body<'b> = dyn FnMut(&mut Lowering<RowKernel>, &Coordinates) + 'b;

impl Passes {
    /// Coordinates `iterations` iterations after a column.
    fn position(&self, l: &mut Lowering<RowKernel>, column: ExprId, iterations: usize) -> Coordinates {
        let column = l.offset_by(column, iterations * self.step);
        let linear = l.b.add(&self.start, &column);
        Coordinates { shape: vec![], linear: Some(linear), axes: None, row: Some((self.row, column)) }
    }

    /// Emits one pass over the row.
    fn run(&self, l: &mut Lowering<RowKernel>, name: &str, body: &mut Body<'_>) {
        // Without a loop, values loaded and computed in one pass are available in the next.
        if !self.positions.is_empty() {
            for (iteration, at) in self.positions.iter().enumerate() {
                l.shape.own = at.linear;
                l.shape.column_bound = at.row.map(|(_, column)| (column, (iteration + 1) * self.step));
                body(l, at);
            }
            l.shape.column_bound = None;
            return;
        }
        let (full, even) = (self.columns / self.step, self.columns.is_multiple_of(self.step));
        let ahead = if l.shape.row_cache.pass == 0 { PREFETCHED_TURNS } else { 2 };
        if !self.unroll {
            let iterations = if even { full } else { full + 1 };
            self.unrolled_loop(l, name, iterations, 1, &mut |l, at| {
                if even { body(l, at) } else { self.inside(l, at, body) }
            });
        } else {
            let unrolled = full / ahead * ahead;
            if unrolled > 0 {
                self.unrolled_loop(l, name, full / ahead, ahead, body);
            }
            let last = l.b.index_constant((unrolled * self.step) as u64);
            let column = l.b.add(&self.first, &last);
            for iteration in 0..full % ahead {
                l.scope(|l| self.at(l, column, iteration, (unrolled + iteration + 1) * self.step, body));
            }
            if !even {
                let inside = &mut |l: &mut Lowering<RowKernel>, at: &Coordinates| self.inside(l, at, body);
                l.scope(|l| self.at(l, column, full % ahead, self.columns, inside));
            }
        }
        l.shape.column_bound = None;
        l.shape.row_cache.pass += 1;
        l.shape.row_cache.column = None;
    }

    /// Emits a loop, unrolled `unrolled` times.
    fn unrolled_loop(
        &self,
        l: &mut Lowering<RowKernel>,
        name: &str,
        count: usize,
        unrolled: usize,
        body: &mut Body<'_>,
    ) {
        let end = l.b.index_constant(count as u64);
        l.for_each(name, end, |l, iteration| {
            let ahead = l.index_op(ScalarOp::Mul, iteration, self.step * unrolled);
            let column = l.b.add(&ahead, &self.first);
            let below = (count * unrolled * self.step).min(self.columns);
            (0..unrolled).for_each(|iteration| self.at(l, column, iteration, below, body));
        });
    }

    /// Emits the body at a position whose columns are below `below`.
    fn at(&self, l: &mut Lowering<RowKernel>, column: ExprId, iteration: usize, below: usize, body: &mut Body<'_>) {
        let at = self.position(l, column, iteration);
        l.shape.row_cache.column = at.row.map(|(_, column)| column);
        l.shape.column_bound = at.row.map(|(_, column)| (column, below));
        l.shape.own = at.linear;
        body(l, &at);
    }

    /// Emits the body, guarded by the number of columns.
    fn inside(&self, l: &mut Lowering<RowKernel>, at: &Coordinates, body: &mut Body<'_>) {
        let Some((_, column)) = at.row else { return };
        let end = l.b.index_constant(self.columns as u64);
        let inside = l.b.lt(&column, &end);
        l.when(Some(inside), &mut |l| body(l, at));
    }
}

/// The outputs that have all columns.
fn wide_outputs<'a>(group: &'a Group, outs: &[ParamId]) -> Vec<(&'a Tensor, ParamId)> {
    let IterationSpace::Rows { rows, .. } = group.space else { return vec![] };
    let both = group.outputs.iter().zip(outs);
    both.filter(|(output, _)| output.0.elements() != rows).map(|(output, &out)| (output, out)).collect()
}
