//! Kernels for GPUs over rows: a warp or a block a row, in passes over its columns.
//!
//! Short rows stay in registers between passes, longer ones in the memory of the block, in the dtype that they are stored
//! in; only what is longer than that is loaded again. Where a row is kept changes no bit: the order of its sums follows
//! from its length.

use std::collections::HashMap;

use bornite_ir::{Axis, Builtin, Emit, EmitBits, ExprId, LocalId, Op as Row, ParamId, SharedId, Stmt, Type};

use super::blocks::WARP;
use super::fused::{Form, Group, wide_outputs};
use super::stages::{Stages, reduction, stages, start};
use super::{Coordinates, Lowering, accumulator, aligned, look_through, seen};
use crate::node::{NodeId, Role};
use crate::{DType, Tensor};

/// A warp or a block a row.
pub(super) struct Rows<'a> {
    pub rows: usize,
    pub columns: usize,
    /// Threads a row.
    pub threads: usize,
    /// Rows a block.
    pub together: usize,
    /// Neighbours that a thread takes at once.
    pub lanes: usize,
    /// Tensors whose rows are kept in the memory of the block.
    kept: Vec<&'a Tensor>,
}

/// Elements of a row that a thread keeps in registers rather than read again.
const IN_REGISTERS: usize = 24;

/// Rows of at most so many columns are in the cache when they are read again.
const IN_CACHE: usize = 4096;

/// Shared memory that is left for the sums of a block's warps.
const SUMS_BYTES: usize = 4 << 10;

/// Turns of the first pass that are loaded at once: memory is far.
const TURNS_AHEAD: usize = 8;

/// Nodes with all columns from which turns are no longer written out side by side: it would take long to compile.
const MOST_SIDE_BY_SIDE: usize = 24;

impl<'a> Rows<'a> {
    /// Rows for a group; a block has this much shared memory.
    pub fn new(group: &'a Group, shared_bytes: impl FnOnce() -> usize) -> Option<Rows<'a>> {
        let Form::Rows { rows, columns } = group.form else { return None };
        let lanes = if columns.is_multiple_of(4) && columns >= 4 * WARP { 4 } else { 1 };
        let steps = columns / lanes;
        // Few threads with all of a row in registers, if they share it evenly; else so many that the rows which are at work
        // at once fit into a cache.
        let even = |threads: &usize| steps.is_multiple_of(*threads) && columns / threads <= IN_REGISTERS;
        let threads = [WARP, 64, 128, 256, 512, 1024].into_iter().find(even).unwrap_or(match columns {
            0..=1024 => WARP,
            1025..=4096 => 128,
            4097..=16384 => 256,
            _ => 512,
        });
        let together = match group.spread {
            _ if threads != WARP => 1,
            Some(spread) => spread.threads as usize / WARP,
            None => 4,
        };
        let mut plan = Rows { rows, columns, threads, together, lanes, kept: vec![] };
        if !plan.in_registers() && columns > IN_CACHE {
            plan.keep(group, shared_bytes);
        }
        Some(plan)
    }

    /// True if a row is one warp's, in registers, several neighbours a thread.
    pub fn is_a_warp(&self) -> bool {
        self.threads == WARP && self.lanes > 1 && self.in_registers()
    }

    pub fn in_registers(&self) -> bool {
        self.columns.is_multiple_of(self.threads * self.lanes) && self.columns / self.threads <= IN_REGISTERS
    }

    /// Chooses what is kept in shared memory: what several passes read.
    fn keep(&mut self, group: &'a Group, shared_bytes: impl FnOnce() -> usize) {
        let mut passes: Vec<Vec<&'a Tensor>> = (stages(group).reductions.iter())
            .map(|stage| self.loaded(group, stage.iter().flat_map(|tensor| tensor.0.reads())))
            .collect();
        let wide = group.outputs.iter().filter(|output| output.0.elements() != self.rows);
        passes.push(self.loaded(group, wide));
        let mut times: Vec<(&'a Tensor, usize)> = vec![];
        for tensor in passes.into_iter().flatten() {
            match times.iter_mut().find(|(other, _)| other.0.id == tensor.0.id) {
                Some((_, times)) => *times += 1,
                None => times.push((tensor, 1)),
            }
        }
        let again: Vec<&'a Tensor> = times.into_iter().filter(|(_, times)| *times > 1).map(|(t, _)| t).collect();
        if again.is_empty() {
            return;
        }
        let mut left = shared_bytes().saturating_sub(SUMS_BYTES);
        for tensor in again {
            let bytes = (self.columns * tensor.0.dtype.bytes()).next_multiple_of(16);
            if bytes <= left && tensor.0.dtype != DType::Bool {
                left -= bytes;
                self.kept.push(tensor);
            }
        }
    }

    /// The tensors in memory of which each element is read for the same element of what these tensors show.
    fn loaded(&self, group: &'a Group, of: impl Iterator<Item = &'a Tensor>) -> Vec<&'a Tensor> {
        let mut stack: Vec<&'a Tensor> = of.collect();
        let (mut loaded, mut seen_nodes): (Vec<&'a Tensor>, Vec<NodeId>) = (vec![], vec![]);
        while let Some(tensor) = stack.pop() {
            let (base, views) = look_through(tensor);
            let in_step = seen(base, &views).is_some_and(|place| aligned(&place));
            if !in_step || base.0.elements() != self.rows * self.columns || seen_nodes.contains(&base.0.id) {
                continue;
            }
            seen_nodes.push(base.0.id);
            let computed = group.order.iter().any(|other| other.0.id == base.0.id);
            match base.0.op.facts().role {
                Role::Constant => {}
                _ if !computed => loaded.push(base),
                Role::Pointwise => stack.extend(base.0.reads()),
                Role::Scatter => stack.extend(base.0.reads().first()),
                Role::Source | Role::View | Role::Indexed | Role::Reduction | Role::Single => {}
                Role::MultiOutput | Role::Output => {}
            }
        }
        loaded
    }
}

/// Rows in the memory of a block, while the passes over them are lowered.
#[derive(Default)]
pub(super) struct Kept {
    /// By tensor: where its row is, and the pass that brings it there.
    tiles: HashMap<NodeId, (SharedId, Option<usize>)>,
    pass: usize,
    /// The column that the pass is at: each thread reads again what it brought itself, so nobody waits.
    column: Option<ExprId>,
}

impl Kept {
    fn new(l: &mut Lowering, plan: &Rows<'_>) -> Kept {
        let tile = |(n, tensor): (usize, &&Tensor)| {
            (tensor.0.id, (l.b.shared(format!("row{n}"), tensor.0.dtype, plan.columns as u64), None))
        };
        Kept { tiles: plan.kept.iter().enumerate().map(tile).collect(), pass: 0, column: None }
    }
}

impl Lowering {
    /// Elements of a tensor in memory, as many as there are lanes, at the place of a pass over rows: loaded by `load` in the
    /// first pass that needs them and kept for others, if the tensor is one of those that are kept.
    pub(super) fn kept_or(
        &mut self,
        base: &Tensor,
        at: &Coordinates,
        load: impl FnOnce(&mut Lowering) -> Vec<ExprId>,
    ) -> Vec<ExprId> {
        let (pass, own) = (self.kept.pass, self.kept.column);
        let column = at.row.map(|(_, column)| column).filter(|_| self.lanes == self.row_lanes);
        let Some((column, (tile, filled))) =
            column.filter(|_| column == own).and_then(|column| Some((column, self.kept.tiles.get_mut(&base.0.id)?)))
        else {
            return load(self);
        };
        let (tile, first) = (*tile, *filled.get_or_insert(pass) == pass);
        let (dtype, width) = (base.0.dtype, (16 / base.0.dtype.bytes()).min(self.lanes));
        if !first {
            return self.load_adjacent(tile.into(), column, dtype);
        }
        let values = load(self);
        for (n, part) in values.chunks(width).enumerate() {
            let place = self.beyond(column, n * width);
            let value = match part {
                [value] => *value,
                part => self.b.construct(Type::Vector(dtype, width as u8), part),
            };
            self.b.store(tile, place, value);
        }
        values
    }

    /// A warp or a block a row: threads take neighbours in turn, then combine what they have.
    pub(super) fn rows_by_blocks(&mut self, group: &Group, outs: &[ParamId], plan: &Rows<'_>) {
        let Rows { rows, threads, together, .. } = *plan;
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        let (row, thread) = if together == 1 {
            (block, thread)
        } else {
            let first = self.index_op(Row::Mul, block, together);
            let own = self.index_op(Row::Div, thread, threads);
            (self.b.add(&first, &own), self.index_op(Row::Rem, thread, threads))
        };
        let uneven = !rows.is_multiple_of(together);
        if uneven {
            // A warp past the last row has nothing to do, and no other waits for it.
            let end = self.b.index_constant(rows as u64);
            let past = self.b.op(Row::Ge, &[&row, &end]);
            self.b.if_else(past, |b| b.simple(Stmt::Return(None)), |_| {});
        }
        self.row_by_threads(group, outs, plan, [row, thread], &[]);
    }

    /// One row by all its threads, of which this is one. Of sums that ride along each thread has a total a column of its own.
    pub(super) fn row_by_threads(
        &mut self,
        group: &Group,
        outs: &[ParamId],
        plan: &Rows<'_>,
        [row, thread]: [ExprId; 2],
        sums: &[Vec<LocalId>],
    ) {
        let Rows { rows, columns, threads, lanes, .. } = *plan;
        self.lanes = lanes;
        self.row_lanes = lanes;
        self.kept = Kept::new(self, plan);
        let start = self.index_op(Row::Mul, row, columns);
        let first = self.index_op(Row::Mul, thread, lanes);
        let long = group.order.iter().filter(|t| t.0.elements() > rows).count() <= MOST_SIDE_BY_SIDE;
        let mut passes = Passes { row, start, first, columns, step: threads * lanes, places: vec![], long };
        if plan.in_registers() {
            let at = |turn: usize| passes.place(self, first, turn);
            passes.places = (0..columns / passes.step).map(at).collect();
        }
        let zero = self.zero();
        let leads = self.b.op(Row::Eq, &[&thread, &zero]);
        self.check_rows(&group.order, row, Some(leads));
        let Stages { reductions, known } = stages(group);
        self.row_values(&known[0], row);
        for (n, stage) in reductions.iter().enumerate() {
            let totals: Vec<Vec<LocalId>> =
                stage.iter().map(|tensor| (0..lanes).map(|_| self.total(tensor)).collect()).collect();
            if !sums.is_empty() {
                // The row before has left its own there.
                stage.iter().zip(&totals).for_each(|(tensor, totals)| self.begin_again(tensor, totals));
            }
            passes.each(self, &format!("turn{n}"), &mut |l, at| {
                for (tensor, totals) in stage.iter().zip(&totals) {
                    let values = l.reduced(tensor, at);
                    for (lane, &total) in totals.iter().enumerate() {
                        l.accumulate(tensor, total, values[if values.len() == 1 { 0 } else { lane }]);
                    }
                }
            });
            let own: Vec<ExprId> =
                stage.iter().zip(&totals).map(|(tensor, totals)| self.own_total(tensor, totals)).collect();
            let whole = self.whole_totals(stage, own, thread, threads, n);
            for (tensor, total) in stage.iter().zip(whole) {
                let value = self.b.cast(tensor.0.dtype, &total);
                self.remember(tensor.0.id, row, vec![value]);
            }
            self.row_values(&known[n + 1], row);
        }
        self.b.open_block();
        self.scope(|l| l.row_outputs(group, outs, row));
        let then = self.b.close_block();
        if !then.is_empty() {
            self.b.simple(Stmt::If { condition: leads, then, otherwise: vec![] });
        }
        let wide = wide_outputs(group, outs);
        if self.picked && !wide.is_empty() {
            // What was picked may be where a result goes.
            self.b.simple(if threads == WARP { Stmt::WarpBarrier } else { Stmt::Barrier });
        }
        if !wide.is_empty() || !sums.is_empty() {
            self.writes = true;
            let mut turn = 0;
            passes.each(self, "turn", &mut |l, at| {
                // Before anything is stored: a result may take the place of an input.
                for (sum, totals) in group.sums.iter().zip(sums) {
                    let values = l.reduced(sum, at);
                    for lane in 0..lanes {
                        l.accumulate(
                            sum,
                            totals[turn * lanes + lane],
                            values[if values.len() == 1 { 0 } else { lane }],
                        );
                    }
                }
                turn += 1;
                l.wide_outputs(&wide, at);
            });
        }
    }

    fn begin_again(&mut self, tensor: &Tensor, totals: &[LocalId]) {
        let none = self.b.constant(start(reduction(tensor), accumulator(tensor.0.dtype)));
        totals.iter().for_each(|&total| self.b.assign(total, none));
    }
}

/// How the threads of a row go over its columns, again and again.
struct Passes {
    row: ExprId,
    /// The row's first element.
    start: ExprId,
    /// The first column of a thread.
    first: ExprId,
    columns: usize,
    /// Columns of all threads in a turn.
    step: usize,
    /// All places of a thread, where it keeps their values in registers.
    places: Vec<Coordinates>,
    /// Whether several turns may be written out side by side.
    long: bool,
}

/// What a pass does at a place.
type Body<'b> = dyn FnMut(&mut Lowering, &Coordinates) + 'b;

impl Passes {
    /// The place some turns after a column.
    fn place(&self, l: &mut Lowering, column: ExprId, turns: usize) -> Coordinates {
        let column = l.beyond(column, turns * self.step);
        let linear = l.b.add(&self.start, &column);
        Coordinates { shape: vec![], linear: Some(linear), axes: None, row: Some((self.row, column)) }
    }

    /// One pass over the row.
    fn each(&self, l: &mut Lowering, name: &str, body: &mut Body<'_>) {
        // Without a loop, what one pass has loaded and computed is known to the next.
        if !self.places.is_empty() {
            return self.places.iter().for_each(|at| {
                l.own = at.linear;
                body(l, at);
            });
        }
        let (full, even) = (self.columns / self.step, self.columns.is_multiple_of(self.step));
        let ahead = if l.kept.pass == 0 { TURNS_AHEAD } else { 2 };
        if full < ahead || !self.long {
            let turns = if even { full } else { full + 1 };
            self.turns(l, name, turns, 1, &mut |l, at| if even { body(l, at) } else { self.inside(l, at, body) });
        } else {
            self.turns(l, name, full / ahead, ahead, body);
            let last = l.b.index_constant((full / ahead * ahead * self.step) as u64);
            let column = l.b.add(&self.first, &last);
            for turn in 0..full % ahead {
                l.scope(|l| self.at(l, column, turn, body));
            }
            if !even {
                l.scope(|l| self.at(l, column, full % ahead, &mut |l, at| self.inside(l, at, body)));
            }
        }
        l.kept.pass += 1;
        l.kept.column = None;
    }

    /// A loop with several turns side by side.
    fn turns(&self, l: &mut Lowering, name: &str, count: usize, together: usize, body: &mut Body<'_>) {
        let end = l.b.index_constant(count as u64);
        l.for_each(name, end, |l, turn| {
            let ahead = l.index_op(Row::Mul, turn, self.step * together);
            let column = l.b.add(&ahead, &self.first);
            (0..together).for_each(|turn| self.at(l, column, turn, body));
        });
    }

    fn at(&self, l: &mut Lowering, column: ExprId, turn: usize, body: &mut Body<'_>) {
        let at = self.place(l, column, turn);
        l.kept.column = at.row.map(|(_, column)| column);
        l.own = at.linear;
        body(l, &at);
    }

    /// The body where the row has such a column.
    fn inside(&self, l: &mut Lowering, at: &Coordinates, body: &mut Body<'_>) {
        let Some((_, column)) = at.row else { return };
        let end = l.b.index_constant(self.columns as u64);
        let inside = l.b.lt(&column, &end);
        l.under(Some(inside), &mut |l| body(l, at));
    }
}
