//! Groups of elementwise ops and reductions to one kernel.
//!
//! A kernel over elements computes some neighbours a thread. A kernel over rows runs in stages: each loop over the columns
//! computes the reductions whose inputs are known, and a last one what has all columns; softmax, norms, losses and their
//! gradients are of that form. What a stage needs again it computes again, from memory that is still in a cache.
//!
//! The order in which a row is summed depends on its length alone, so that a group gives the bits that its nodes give one
//! by one.

use std::collections::HashMap;

use bornite_ir::{
    Access, Axis, Builder, Builtin, Emit, EmitBits, ExprId, LocalId, Op as Row, ParamId, Scalar, Shuffle, Stmt, Type,
    Value,
};

use super::{Coordinates, Lowered, Lowering, accumulator, extreme, look_through, reports};
use crate::node::{Node, Op, Reduce};
use crate::{DType, Device, Result, Tensor};

/// What a group's kernel runs over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Elements.
    Elements(usize),
    /// Rows of columns, reduced to one element a row.
    Rows { rows: usize, columns: usize },
    /// `outer · middle · inner` elements, reduced over the middle.
    Middle { outer: usize, middle: usize, inner: usize },
}

/// Nodes that one kernel computes.
pub(crate) struct Group<'a> {
    pub form: Form,
    /// Nodes whose values are stored.
    pub outputs: Vec<&'a Tensor>,
    /// Nodes that are computed, inputs before those that read them.
    pub order: Vec<&'a Tensor>,
}

/// Threads of a block that computes a row, or several.
const THREADS: usize = 256;
const WARP: usize = 32;

/// Lowers a group for a device. Results that are to take the place of a tensor in memory are named with it; every element
/// of that must be read for the same element of the results alone ([`Lowered::in_step`]).
pub(crate) fn lower_group(group: &Group<'_>, device: Device, in_place: &[(u64, Tensor)]) -> Result<Lowered> {
    let on_gpu = matches!(device, Device::Cuda(_));
    let name = name(group);
    let index = index_type(group);
    let (mut l, shape) = match group.form {
        Form::Elements(elements) => {
            let lanes = if on_gpu { lanes_of(group, elements) } else { 1 };
            let mut l = Lowering::new(Builder::new(name, (elements / lanes) as u64, index), index);
            l.lanes = lanes;
            (l, Shape::Serial)
        }
        Form::Rows { rows, columns } if on_gpu && columns > SERIAL_COLUMNS => {
            let plan = Block::new(columns);
            let grid = [rows.div_ceil(plan.rows) as u32, 1, 1];
            let block = [(plan.threads * plan.rows) as u32, 1, 1];
            (Lowering::new(Builder::blocks(name, grid, block, index), index), Shape::Block(plan))
        }
        Form::Rows { rows, .. } => (Lowering::new(Builder::new(name, rows as u64, index), index), Shape::Serial),
        Form::Middle { outer, inner, .. } => {
            (Lowering::new(Builder::new(name, (outer * inner) as u64, index), index), Shape::Serial)
        }
    };
    l.computed = group.order.iter().map(|t| t.0.id).collect();
    let mut outs = vec![];
    for (n, output) in group.outputs.iter().enumerate() {
        let name = if group.outputs.len() == 1 { "out".into() } else { format!("out{n}") };
        let replaced = in_place.iter().find(|(id, _)| *id == output.0.id).map(|(_, tensor)| tensor);
        let access = if replaced.is_some() { Access::ReadWrite } else { Access::Write };
        let out = l.b.param(name, output.0.dtype, output.0.elements() as u64, access);
        l.loads.extend(replaced.map(|tensor| (tensor.0.id, out)));
        outs.push(out);
    }
    if group.order.iter().any(|t| reports(&t.0)) {
        l.status = Some(l.b.param("status", DType::I64, crate::status::WORDS, Access::ReadWrite));
    }
    match (group.form, shape) {
        (Form::Elements(_), _) => l.elements(group, &outs),
        (Form::Rows { rows, columns }, Shape::Serial) => {
            l.frame = Some((rows, columns));
            l.rows(group, &outs, columns)
        }
        (Form::Rows { rows, columns }, Shape::Block(block)) => {
            l.frame = Some((rows, columns));
            l.rows_by_blocks(group, &outs, rows, columns, block)
        }
        (Form::Middle { middle, inner, .. }, _) => l.middle(group, &outs, middle, inner),
    }
    l.finish()
}

enum Shape {
    /// One instance a row or element.
    Serial,
    Block(Block),
}

/// Rows of at most so many columns are one thread's work each.
const SERIAL_COLUMNS: usize = 16;

/// How threads share rows.
#[derive(Clone, Copy)]
struct Block {
    /// Threads a row.
    threads: usize,
    /// Rows a block.
    rows: usize,
    /// Neighbours that a thread takes at once. Of the length of the row alone, as all that decides the order of sums.
    lanes: usize,
}

impl Block {
    fn new(columns: usize) -> Block {
        let lanes = if columns.is_multiple_of(4) { 4 } else { 1 };
        let threads = match columns / lanes {
            0..=256 => WARP,
            257..=1024 => 128,
            _ => THREADS,
        };
        Block { threads, rows: if threads == WARP { THREADS / 2 / WARP } else { 1 }, lanes }
    }
}

fn index_type(group: &Group<'_>) -> Scalar {
    let mut largest = match group.form {
        Form::Elements(n) => n,
        // The index may run past the last column by what a block takes at once.
        Form::Rows { rows, columns } => rows * (columns + 4 * THREADS * 4),
        Form::Middle { outer, middle, inner } => outer * middle * inner,
    };
    for tensor in &group.order {
        for input in tensor.0.reads() {
            let (base, views) = look_through(input);
            largest = views.iter().chain([&base]).fold(largest, |n, t| n.max(t.0.elements()));
        }
        largest = largest.max(tensor.0.elements());
    }
    for output in &group.outputs {
        let (base, views) = look_through(output);
        largest = views.iter().chain([&base]).fold(largest, |n, t| n.max(t.0.elements()));
    }
    if largest <= i32::MAX as usize { Scalar::I32 } else { Scalar::I64 }
}

/// Elements a thread: 16 bytes of the widest type in memory, unless there are too few to keep all of a GPU busy.
fn lanes_of(group: &Group<'_>, elements: usize) -> usize {
    const BUSY: usize = 1 << 17;
    let inputs = group.order.iter().flat_map(|t| t.0.reads()).map(|input| look_through(input).0);
    let loaded = inputs.filter(|base| group.order.iter().all(|t| t.0.id != base.0.id) && base.0.elements() == elements);
    let bytes = loaded.chain(group.outputs.iter().copied()).map(|t| t.0.dtype.bytes()).max().unwrap_or(4);
    [16 / bytes, 4, 2].into_iter().find(|n| elements.is_multiple_of(*n) && elements / n >= BUSY).unwrap_or(1)
}

/// What the kernel is called: its ops in order, not too many of them.
fn name(group: &Group<'_>) -> String {
    const LONGEST: usize = 40;
    let mut names: Vec<&str> = vec![];
    for tensor in &group.order {
        let name = tensor.0.op.name();
        let cast = matches!(tensor.0.op, Op::Cast(_)) && group.order.len() > 1;
        if !cast && names.last() != Some(&name) {
            names.push(name);
        }
    }
    let dtype = group.outputs.first().map_or(DType::F32, |t| t.0.dtype);
    let mut text = match names[..] {
        [] => "copy".to_owned(),
        _ => names.join("_"),
    };
    if text.len() > LONGEST {
        let end = text[..LONGEST].rfind('_').unwrap_or(LONGEST);
        text.truncate(end);
    }
    format!("{text}_{dtype}")
}

/// The reductions of a group by the stage that computes them.
fn stages<'a>(group: &Group<'a>) -> Vec<Vec<&'a Tensor>> {
    let mut after: HashMap<u64, usize> = HashMap::new();
    let mut stages: Vec<Vec<&Tensor>> = vec![];
    for tensor in &group.order {
        let inputs = tensor.0.reads().iter().map(|input| look_through(input).0.0.id);
        let stage = inputs.filter_map(|id| after.get(&id).copied()).max().unwrap_or(0);
        let reduces = matches!(tensor.0.op, Op::Reduce(..));
        after.insert(tensor.0.id, stage + usize::from(reduces));
        if reduces {
            stages.resize_with(stages.len().max(stage + 1), Vec::new);
            stages[stage].push(tensor);
        }
    }
    stages
}

/// How a reduction goes on.
fn step(reduce: Reduce) -> Row {
    match reduce {
        Reduce::Sum => Row::Add,
        Reduce::Prod => Row::Mul,
        Reduce::Max => Row::Max,
        Reduce::Min => Row::Min,
    }
}

fn start(reduce: Reduce, dtype: DType) -> Value {
    match reduce {
        Reduce::Sum => Value::from_f64(dtype, 0.0),
        Reduce::Prod => Value::from_f64(dtype, 1.0),
        Reduce::Max => extreme(dtype, false),
        Reduce::Min => extreme(dtype, true),
    }
}

fn reduction(tensor: &Tensor) -> Reduce {
    match tensor.0.op {
        Op::Reduce(reduce, _) => reduce,
        _ => Reduce::Sum,
    }
}

impl Lowering {
    /// The values of a node that is computed here.
    pub(super) fn compute_values(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let linear = self.linear_of(at);
        let node = &*tensor.0;
        let row_level = matches!(node.op, Op::Reduce(..));
        for lanes in [1, self.lanes] {
            let known = self.known.iter().rev().find_map(|known| known.values.get(&(node.id, linear, lanes)));
            if let Some(values) = known {
                return values.clone();
            }
        }
        if row_level {
            self.b.mistake(format!("{} is read before it is computed", node.op.name()));
        }
        let at = &Coordinates { linear: Some(linear), ..at.clone() };
        let values = match &node.op {
            Op::Map(row) => {
                let args: Vec<Vec<ExprId>> = node.inputs.iter().map(|input| self.values(input, at)).collect();
                let count = args.iter().map(Vec::len).max().unwrap_or(1);
                (0..count)
                    .map(|n| {
                        let args: Vec<&ExprId> =
                            args.iter().map(|arg| &arg[if arg.len() == 1 { 0 } else { n }]).collect();
                        self.b.op(*row, &args)
                    })
                    .collect()
            }
            Op::Cast(to) => {
                let values = self.values(&node.inputs[0], at);
                values.iter().map(|value| self.b.cast(*to, value)).collect()
            }
            // Lanes begin at a multiple of their number: four of them are what one call gives.
            Op::Random(_) if self.lanes.is_multiple_of(4) => {
                (0..self.lanes / 4).flat_map(|n| self.four_random(node, linear, n)).collect()
            }
            _ => {
                let lanes = std::mem::replace(&mut self.lanes, 1);
                let values: Vec<ExprId> = (0..lanes)
                    .map(|lane| {
                        let at = self.lane(at, lane);
                        self.compute(node, at)
                    })
                    .collect();
                self.lanes = lanes;
                values
            }
        };
        self.remember(node.id, linear, values.clone());
        values
    }

    fn remember(&mut self, id: u64, linear: ExprId, values: Vec<ExprId>) {
        if let Some(known) = self.known.last_mut() {
            known.values.insert((id, linear, values.len()), values);
        }
    }

    /// The values of an output, which may also be a view or something in memory.
    fn output_values(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let at = at.reshaped(&tensor.0.shape);
        if self.computed.contains(&tensor.0.id) { self.compute_values(tensor, &at) } else { self.values(tensor, &at) }
    }

    fn elements(&mut self, group: &Group<'_>, outs: &[ParamId]) {
        let index = self.b.index();
        let first = if self.lanes == 1 { index } else { self.index_op(Row::Mul, index, self.lanes) };
        self.own = Some(first);
        // All values before the first store: a result may take the place of an input.
        let values: Vec<Vec<ExprId>> = (group.outputs.iter())
            .map(|output| self.output_values(output, &Coordinates::linear(first, &output.0.shape)))
            .collect();
        for ((output, &out), values) in group.outputs.iter().zip(outs).zip(values) {
            self.store(out, first, values, output.0.dtype);
        }
    }

    /// Stores neighbours by the widest stores there are.
    fn store(&mut self, out: ParamId, first: ExprId, values: Vec<ExprId>, dtype: DType) {
        if self.lanes == 1 {
            self.b.store(out, first, values[0]);
            return;
        }
        let values = if values.len() == 1 { vec![values[0]; self.lanes] } else { values };
        // Vectors are made of at most four.
        let width = if dtype == DType::Bool { 1 } else { (16 / dtype.bytes()).min(4).min(self.lanes) };
        for (n, part) in values.chunks(width).enumerate() {
            let place = self.lane(&Coordinates::linear(first, &[1]), n * width);
            let place = self.linear_of(&place);
            let value = match width {
                1 => part[0],
                _ => self.b.construct(Type::Vector(dtype, width as u8), part),
            };
            self.b.store(out, place, value);
        }
    }

    /// One instance a row: each loop over the columns in order.
    fn rows(&mut self, group: &Group<'_>, outs: &[ParamId], columns: usize) {
        let row = self.b.index();
        let start_of_row = self.index_op(Row::Mul, row, columns);
        let end = self.b.index_constant(columns as u64);
        let at = |l: &mut Lowering, column: ExprId, shape: &[usize]| {
            let linear = l.b.add(&start_of_row, &column);
            Coordinates { shape: shape.to_vec(), linear: Some(linear), axes: None, row: Some((row, column)) }
        };
        for (n, stage) in stages(group).iter().enumerate() {
            let totals: Vec<LocalId> = stage.iter().map(|tensor| self.total(tensor)).collect();
            self.for_each(&format!("column{n}"), end, |l, column| {
                let at = at(l, column, &[]);
                for (tensor, &total) in stage.iter().zip(&totals) {
                    let x = l.reduced(tensor, &at)[0];
                    l.accumulate(tensor, total, x);
                }
            });
            for (tensor, total) in stage.iter().zip(totals) {
                let total = self.b.read(total);
                let value = self.b.cast(tensor.0.dtype, &total);
                self.remember(tensor.0.id, row, vec![value]);
            }
        }
        self.row_outputs(group, outs, row);
        let wide = wide_outputs(group, outs);
        if !wide.is_empty() {
            self.for_each("column", end, |l, column| {
                let at = at(l, column, &[]);
                for (output, out) in wide {
                    let value = l.output_values(output, &at)[0];
                    let linear = l.linear_of(&at);
                    l.b.store(out, linear, value);
                }
            });
        }
    }

    /// A variable that a reduction is kept in.
    fn total(&mut self, tensor: &Tensor) -> LocalId {
        self.b.local("total", start(reduction(tensor), accumulator(tensor.0.dtype)))
    }

    /// What a reduction reads at a place of its input.
    fn reduced(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let input = &tensor.0.inputs[0];
        let values = self.values(input, &at.reshaped(&input.0.shape));
        let wide = accumulator(tensor.0.dtype);
        values.iter().map(|value| self.b.cast(wide, value)).collect()
    }

    fn accumulate(&mut self, tensor: &Tensor, total: LocalId, value: ExprId) {
        let before = self.b.read(total);
        let after = self.b.op(step(reduction(tensor)), &[&before, &value]);
        self.b.assign(total, after);
    }

    /// Stores what has one element a row.
    fn row_outputs(&mut self, group: &Group<'_>, outs: &[ParamId], row: ExprId) {
        let rows = self.frame.map_or(0, |(rows, _)| rows);
        let lanes = std::mem::replace(&mut self.lanes, 1);
        for (output, &out) in group.outputs.iter().zip(outs) {
            if output.0.elements() == rows {
                let value = self.output_values(output, &Coordinates::linear(row, &output.0.shape))[0];
                self.b.store(out, row, value);
            }
        }
        self.lanes = lanes;
    }

    /// One instance a result, each through the middle in order.
    fn middle(&mut self, group: &Group<'_>, outs: &[ParamId], middle: usize, inner: usize) {
        let index = self.b.index();
        let (outer, within) = (self.index_op(Row::Div, index, inner), self.index_op(Row::Rem, index, inner));
        let block = self.index_op(Row::Mul, outer, middle * inner);
        let first = self.b.add(&block, &within);
        let reductions: Vec<&Tensor> = stages(group).into_iter().flatten().collect();
        let totals: Vec<LocalId> = reductions.iter().map(|tensor| self.total(tensor)).collect();
        let end = self.b.index_constant(middle as u64);
        self.for_each("m", end, |l, m| {
            let down = l.index_op(Row::Mul, m, inner);
            let linear = l.b.add(&first, &down);
            let at = Coordinates::linear(linear, &[]);
            for (tensor, &total) in reductions.iter().zip(&totals) {
                let x = l.reduced(tensor, &at)[0];
                l.accumulate(tensor, total, x);
            }
        });
        for (tensor, total) in reductions.iter().zip(totals) {
            let total = self.b.read(total);
            let value = self.b.cast(tensor.0.dtype, &total);
            self.remember(tensor.0.id, index, vec![value]);
        }
        for (output, &out) in group.outputs.iter().zip(outs) {
            let value = self.output_values(output, &Coordinates::linear(index, &output.0.shape))[0];
            self.b.store(out, index, value);
        }
    }

    /// A warp or a block a row: threads take neighbours in turn, then combine what they have.
    fn rows_by_blocks(&mut self, group: &Group<'_>, outs: &[ParamId], rows: usize, columns: usize, plan: Block) {
        let Block { threads, rows: together, lanes } = plan;
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
        let each = |l: &mut Lowering, name: &str, body: &mut dyn FnMut(&mut Lowering, &Coordinates)| {
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
        for (n, stage) in stages(group).iter().enumerate() {
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
        }
        let zero = self.b.index_constant(0);
        let leads = self.b.op(Row::Eq, &[&thread, &zero]);
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
        let mut values: Vec<ExprId> = totals.iter().map(|&total| self.b.read(total)).collect();
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
                let mut values: Vec<ExprId> = (0..warps)
                    .map(|n| {
                        let n = self.b.index_constant(n as u64);
                        self.b.load(tile, n)
                    })
                    .collect();
                let row = step(reduction(tensor));
                while values.len() > 1 {
                    values = values.chunks(2).map(|pair| self.b.op(row, &[&pair[0], &pair[pair.len() - 1]])).collect();
                }
                values[0]
            })
            .collect()
    }

    /// The value of the lane whose number differs in one bit.
    fn shuffled(&mut self, value: ExprId, distance: ExprId) -> ExprId {
        self.b.shuffle(Shuffle::Xor, value, distance)
    }
}

/// The outputs that have all columns, of which there are at least two.
fn wide_outputs<'a>(group: &Group<'a>, outs: &[ParamId]) -> Vec<(&'a Tensor, ParamId)> {
    let Form::Rows { rows, .. } = group.form else { return vec![] };
    let both = group.outputs.iter().zip(outs);
    both.filter(|(output, _)| output.0.elements() != rows).map(|(output, &out)| (*output, out)).collect()
}

/// What a reduction is over, if its axes are neighbours: elements before them, in them, after them.
pub(crate) fn extent(node: &Node) -> Option<(usize, usize, usize)> {
    let Op::Reduce(_, axes) = &node.op else { return None };
    let shape = &node.inputs[0].0.shape;
    let real: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] != 1).collect();
    let (Some(&first), Some(&last)) = (real.first(), real.last()) else {
        return Some((shape.iter().product(), 1, 1));
    };
    // Axes of length 1 between are no gap.
    let inside = (first..=last).all(|axis| shape[axis] == 1 || real.contains(&axis));
    let product = |range: &[usize]| range.iter().product();
    inside.then(|| (product(&shape[..first]), product(&shape[first..=last]), product(&shape[last + 1..])))
}
