//! Kernels for GPUs in which the threads of a block work together: on rows, on columns, on tiles that change places.
//!
//! How elements are shared, and so the order of sums, follows from a group's form alone.

use bornite_ir::{Axis, Builtin, Emit, EmitBits, ExprId, LocalId, Op as Row, ParamId, Scalar, SharedId, Shuffle, Stmt};

use super::address::runs;
use super::fused::{Form, Group, Stages, reduction, stages, step, wide_outputs};
use super::{Coordinates, Lowering, accumulator, look_through, seen};
use crate::Tensor;
use crate::matmul::strided::Strided;
use crate::node::Op;

const WARP: usize = 32;

/// Rows of at most so many columns are one thread's work each.
const SERIAL_COLUMNS: usize = 16;

/// How far an index may run past the last element of the last row: what a block takes at once.
pub(super) const BEYOND: usize = 256 * 4;

/// How blocks are shaped.
pub(super) enum Shape<'a> {
    Rows(Rows),
    Columns(Columns),
    Tiles(Tiles<'a>),
}

/// A warp or a block a row.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    rows: usize,
    columns: usize,
    /// Threads a row.
    threads: usize,
    /// Rows a block.
    together: usize,
    /// Neighbours that a thread takes at once.
    lanes: usize,
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

/// A block a square of elements, which some input has the other way round.
pub(super) struct Tiles<'a> {
    batch: usize,
    height: usize,
    width: usize,
    /// Inputs that are read along the other axis.
    turned: Vec<(&'a Tensor, Strided)>,
}

/// Elements of a side of a tile, and how many rows of it the threads of a block are.
const TILE: usize = 32;
const TILE_ROWS: usize = 8;

/// The blocks for a group, if there should be any.
pub(super) fn shape<'a>(group: &Group<'a>) -> Option<Shape<'a>> {
    match group.form {
        Form::Rows { rows, columns } if columns > SERIAL_COLUMNS => Some(Shape::Rows(Rows::new(rows, columns))),
        Form::Middle { outer, middle, inner } if inner >= WARP && middle >= 16 => {
            let lanes = if inner.is_multiple_of(4 * WARP) { 4 } else { 1 };
            let blocks = outer * inner.div_ceil(lanes * WARP);
            // Few blocks need more threads to be quick.
            let down = if outer * inner.div_ceil(WARP) < 256 { 32 } else { 8 };
            Some(Shape::Columns(Columns { middle, inner, blocks, down, lanes }))
        }
        Form::Elements(elements) => Tiles::new(group, elements).map(Shape::Tiles),
        _ => None,
    }
}

/// Elements of a row that a thread keeps in registers rather than read again.
const KEPT: usize = 24;

impl Rows {
    fn new(rows: usize, columns: usize) -> Rows {
        let lanes = if columns.is_multiple_of(4) && columns >= 4 * WARP { 4 } else { 1 };
        let steps = columns / lanes;
        // Few threads with all of a row in registers, if they share it evenly; else so many that the rows which are at work
        // at once fit into a cache.
        let even = |threads: &usize| steps.is_multiple_of(*threads) && columns / threads <= KEPT;
        let threads = [WARP, 64, 128, 256, 512, 1024].into_iter().find(even).unwrap_or(match columns {
            0..=1024 => WARP,
            1025..=4096 => 128,
            4097..=16384 => 256,
            _ => 512,
        });
        Rows { rows, columns, threads, together: if threads == WARP { 4 } else { 1 }, lanes }
    }
}

impl Shape<'_> {
    /// Grid and block.
    pub fn launch(&self) -> ([u32; 3], [u32; 3]) {
        let (blocks, threads) = match self {
            Shape::Rows(plan) => (plan.rows.div_ceil(plan.together), plan.threads * plan.together),
            Shape::Columns(plan) => (plan.blocks, plan.down * WARP),
            Shape::Tiles(plan) => (plan.batch * plan.across() * plan.height.div_ceil(TILE), TILE * TILE_ROWS),
        };
        ([blocks as u32, 1, 1], [threads as u32, 1, 1])
    }
}

impl<'a> Tiles<'a> {
    fn new(group: &Group<'a>, elements: usize) -> Option<Tiles<'a>> {
        let mut found: Option<Tiles<'a>> = None;
        let views = group.outputs.iter().filter(|t| t.0.op.is_view());
        let inputs = group.order.iter().filter(|t| matches!(t.0.op, Op::Map(_) | Op::Cast(_)));
        for input in inputs.flat_map(|t| t.0.reads()).chain(views.copied()) {
            let (base, views) = look_through(input);
            let own = group.order.iter().any(|t| t.0.id == base.0.id) || matches!(base.0.op, Op::Full(_));
            let Some(place) = seen(base, &views).filter(|_| !own && input.0.elements() == elements) else { continue };
            let ([(width, apart), (height, 1)] | [(width, apart), (height, 1), _]) =
                runs(&place.shape, &place.strides)[..]
            else {
                continue;
            };
            if apart < TILE as isize || width < TILE || height < TILE {
                continue;
            }
            let batch = elements / (width * height);
            let tiles = found.get_or_insert(Tiles { batch, height, width, turned: vec![] });
            let same = |(other, seen): &(&Tensor, Strided)| other.0.id == base.0.id && *seen == place;
            // As many tiles as shared memory certainly has room for.
            if (tiles.height, tiles.width) == (height, width)
                && tiles.turned.len() < 4
                && !tiles.turned.iter().any(same)
            {
                tiles.turned.push((base, place));
            }
        }
        found
    }

    fn across(&self) -> usize {
        self.width.div_ceil(TILE)
    }
}

impl Lowering {
    /// A warp or a block a row: threads take neighbours in turn, then combine what they have.
    pub(super) fn rows_by_blocks(&mut self, group: &Group<'_>, outs: &[ParamId], plan: Rows) {
        let Rows { rows, columns, threads, together, lanes } = plan;
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
        let start_of_row = self.index_op(Row::Mul, row, columns);
        let first = self.index_op(Row::Mul, thread, lanes);
        self.lanes = lanes;
        let turns = columns.div_ceil(threads * lanes);
        let even = columns.is_multiple_of(threads * lanes);
        let kept = even && turns * lanes <= KEPT;
        let places: Vec<Coordinates> = (0..if kept { turns } else { 0 })
            .map(|turn| {
                let column = self.index_op(Row::Add, first, turn * threads * lanes);
                let linear = self.b.add(&start_of_row, &column);
                Coordinates { shape: vec![], linear: Some(linear), axes: None, row: Some((row, column)) }
            })
            .collect();
        let each = |l: &mut Lowering, name: &str, body: &mut dyn FnMut(&mut Lowering, &Coordinates)| {
            // Without a loop, what one stage has loaded and computed is known to the next.
            if kept {
                return places.iter().for_each(|at| body(l, at));
            }
            let end = l.b.index_constant(turns as u64);
            l.for_each(name, end, |l, turn| {
                let ahead = l.index_op(Row::Mul, turn, threads * lanes);
                let column = l.b.add(&ahead, &first);
                let linear = l.b.add(&start_of_row, &column);
                let at = Coordinates { shape: vec![], linear: Some(linear), axes: None, row: Some((row, column)) };
                if even {
                    return body(l, &at);
                }
                let end = l.b.index_constant(columns as u64);
                let inside = l.b.lt(&column, &end);
                l.b.open_block();
                l.scope(|l| body(l, &at));
                let then = l.b.close_block();
                l.b.simple(Stmt::If { condition: inside, then, otherwise: vec![] });
            });
        };
        let zero = self.zero();
        let leads = self.b.op(Row::Eq, &[&thread, &zero]);
        self.check_rows(&group.order, row, Some(leads));
        let Stages { reductions, known } = stages(group);
        self.row_values(&known[0], row);
        for (n, stage) in reductions.iter().enumerate() {
            let totals: Vec<Vec<LocalId>> =
                stage.iter().map(|tensor| (0..lanes).map(|_| self.total(tensor)).collect()).collect();
            each(self, &format!("turn{n}"), &mut |l, at| {
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
        if !wide.is_empty() {
            each(self, "turn", &mut |l, at| {
                for (output, out) in &wide {
                    let values = l.output_values(output, at);
                    let linear = l.linear_of(at);
                    l.store(*out, linear, values, output.0.dtype);
                }
            });
        }
    }

    /// What a thread has, of all its lanes: pairs, then pairs of pairs.
    fn own_total(&mut self, tensor: &Tensor, totals: &[LocalId]) -> ExprId {
        let values = totals.iter().map(|&total| self.b.read(total)).collect();
        self.in_pairs(tensor, values)
    }

    /// A reduction of few values: pairs, then pairs of pairs. Their number is a power of 2.
    fn in_pairs(&mut self, tensor: &Tensor, mut values: Vec<ExprId>) -> ExprId {
        let row = step(reduction(tensor));
        while values.len() > 1 {
            values = values.chunks(2).map(|pair| self.b.op(row, &[&pair[0], &pair[pair.len() - 1]])).collect();
        }
        values[0]
    }

    /// What all threads of a row have, known to each of them.
    fn whole_totals(
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
    pub(super) fn columns_by_blocks(&mut self, group: &Group<'_>, outs: &[ParamId], plan: Columns) {
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
        let end = self.b.index_constant(middle.div_ceil(down) as u64);
        self.for_each("turn", end, |l, turn| {
            let ahead = l.index_op(Row::Mul, turn, down);
            let row = l.b.add(&ahead, &own_row);
            let mut condition = (!inner.is_multiple_of(lanes * WARP)).then_some(inside);
            if !middle.is_multiple_of(down) {
                let end = l.b.index_constant(middle as u64);
                let above = l.b.lt(&row, &end);
                condition = Some(condition.map_or(above, |inside| l.b.op(Row::And, &[&inside, &above])));
            }
            let mut body = |l: &mut Lowering| {
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
            l.under(condition, &mut body);
        });
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
    fn under(&mut self, condition: Option<ExprId>, body: &mut dyn FnMut(&mut Lowering)) {
        let Some(condition) = condition else { return body(self) };
        self.b.open_block();
        self.scope(body);
        let then = self.b.close_block();
        self.b.simple(Stmt::If { condition, then, otherwise: vec![] });
    }

    /// Squares of elements: what lies the other way round is read along its own rows first.
    pub(super) fn tiles(&mut self, group: &Group<'_>, outs: &[ParamId], plan: &Tiles<'_>) {
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        let (x, y) = (self.index_op(Row::Rem, thread, TILE), self.index_op(Row::Div, thread, TILE));
        let across = plan.across();
        let (rest, left) = (self.index_op(Row::Div, block, across), self.index_op(Row::Rem, block, across));
        let down = plan.height.div_ceil(TILE);
        let (batch, top) = (self.index_op(Row::Div, rest, down), self.index_op(Row::Rem, rest, down));
        let (left, top) = (self.index_op(Row::Mul, left, TILE), self.index_op(Row::Mul, top, TILE));
        let area = self.index_op(Row::Mul, batch, plan.height * plan.width);
        let even = plan.height.is_multiple_of(TILE) && plan.width.is_multiple_of(TILE);
        // The element in row `i` and column `j` of the tile, and whether there is one.
        let element = |l: &mut Lowering, i: ExprId, j: ExprId| {
            let (row, column) = (l.b.add(&top, &i), l.b.add(&left, &j));
            let start = l.index_op(Row::Mul, row, plan.width);
            let within = l.b.add(&start, &column);
            let linear = l.b.add(&area, &within);
            let inside = (!even).then(|| {
                let (height, width) = (l.b.index_constant(plan.height as u64), l.b.index_constant(plan.width as u64));
                let (above, before) = (l.b.lt(&row, &height), l.b.lt(&column, &width));
                l.b.op(Row::And, &[&above, &before])
            });
            (linear, inside)
        };
        let pitch = TILE + 1; // so that columns of a tile are in different banks
        let tiles: Vec<SharedId> = (plan.turned.iter().enumerate())
            .map(|(n, (base, _))| self.b.shared(format!("tile{n}"), base.0.dtype, (TILE * pitch) as u64))
            .collect();
        for turn in 0..TILE / TILE_ROWS {
            let j = self.index_op(Row::Add, y, turn * TILE_ROWS);
            let (linear, inside) = element(self, x, j);
            self.under(inside, &mut |l| {
                for ((base, place), &tile) in plan.turned.iter().zip(&tiles) {
                    let value = l.load_values(base, place, &Coordinates::linear(linear, &place.shape))[0];
                    let start = l.index_op(Row::Mul, j, pitch);
                    let at = l.b.add(&start, &x);
                    l.b.store(tile, at, value);
                }
            });
        }
        self.b.simple(Stmt::Barrier);
        for turn in 0..TILE / TILE_ROWS {
            let i = self.index_op(Row::Add, y, turn * TILE_ROWS);
            let (linear, inside) = element(self, i, x);
            let mut body = |l: &mut Lowering| {
                for ((base, place), &tile) in plan.turned.iter().zip(&tiles) {
                    let start = l.index_op(Row::Mul, x, pitch);
                    let at = l.b.add(&start, &i);
                    let value = l.b.load(tile, at);
                    let index = l.place_of(&Coordinates::linear(linear, &place.shape), place);
                    l.remember(base.0.id, index, vec![value]);
                }
                let values: Vec<Vec<ExprId>> = (group.outputs.iter())
                    .map(|output| l.output_values(output, &Coordinates::linear(linear, &output.0.shape)))
                    .collect();
                for ((output, &out), values) in group.outputs.iter().zip(outs).zip(values) {
                    l.store(out, linear, values, output.0.dtype);
                }
            };
            match inside {
                Some(_) => self.under(inside, &mut body),
                None => self.scope(|l| body(l)),
            }
        }
    }
}
