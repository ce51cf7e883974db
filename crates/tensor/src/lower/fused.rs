//! Groups of elementwise ops and reductions to one kernel.
//!
//! A kernel over elements computes some neighbours a thread. A kernel over rows runs in stages: each loop over the columns
//! computes the reductions whose inputs are known, and a last one what has all columns; softmax, norms, losses and their
//! gradients are of that form. What a stage needs again it computes again, from memory that is still in a cache.
//!
//! The order in which a row is summed depends on its length alone, so that a group gives the bits that its nodes give one
//! by one.

use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Access, Builder, Emit, EmitBits, ExprId, LocalId, Op as Row, ParamId, Scalar, Stmt, Type, Value};

use super::blocks;
use super::pretend::for_gpu;
use super::spread::{Spread, usual_spread};
use super::stages::{Stages, reduction, stages, start, step};
use super::{Coordinates, Lowered, Lowering, ValueId, accumulator, aligned, look_through, reports, seen};
use crate::node::{NodeId, Op};
use crate::{DType, Device, Result, Tensor};

/// What a group's kernel runs over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Form {
    /// Elements.
    Elements(usize),
    /// Rows of columns, reduced to one element a row.
    Rows { rows: usize, columns: usize },
    /// `outer · middle · inner` elements, reduced over the middle.
    Middle { outer: usize, middle: usize, inner: usize },
}

/// Nodes that one kernel computes.
#[derive(Clone)]
pub(crate) struct Group {
    pub form: Form,
    /// Nodes whose values are stored.
    pub outputs: Vec<Tensor>,
    /// Nodes that are computed, inputs before those that read them.
    pub order: Vec<Tensor>,
    /// How the work is spread on a GPU, where that was measured.
    pub spread: Option<Spread>,
    /// Sums of columns that ride on a kernel over rows (`sums.rs`): results after the others.
    pub sums: Vec<Tensor>,
}

/// A value that is written over a tensor in memory.
#[derive(Clone)]
pub(crate) struct Overwrite {
    pub value: NodeId,
    pub old: Tensor,
}

/// Results that overwrite a tensor in memory.
#[derive(Default)]
pub(crate) struct InPlaceOf {
    /// Every element of that must be read for the same element of the results alone ([`Lowered::out_of_step`]).
    pub replaced: Vec<Overwrite>,
    /// Whether nothing may be written where a step before has met a bad index.
    pub guarded: bool,
}

/// Lowers a group for a device.
pub(crate) fn lower_group(group: &Group, device: Device, in_place: &InPlaceOf) -> Result<Lowered> {
    let on_gpu = for_gpu(device);
    let (name, index) = (kernel_name(group), index_type(group));
    let blocks = if on_gpu { blocks::shape(group, || shared_bytes(device)) } else { None };
    let mut threads = BLOCK;
    let instances = match group.form {
        Form::Elements(elements) => elements,
        Form::Rows { rows, .. } => rows,
        Form::Middle { outer, inner, .. } => outer * inner,
    };
    let mut lanes = 1;
    let b = match (&blocks, group.form) {
        (Some(blocks), _) => {
            let (grid, block) = blocks.launch();
            Builder::blocks(name, grid, block, index)
        }
        (None, Form::Elements(elements)) if on_gpu => {
            let spread = group.spread.unwrap_or_else(|| usual_spread(group, elements));
            (lanes, threads) = (spread.lanes, spread.threads);
            Builder::new(name, (elements / lanes) as u64, index)
        }
        _ => Builder::new(name, instances as u64, index),
    };
    let mut l = Lowering::new(b, index);
    l.lanes = lanes;
    l.computed = group.order.iter().map(|t| t.0.id).collect();
    if let (Form::Elements(elements), None) = (group.form, &blocks)
        && on_gpu
        && is_flat(group, elements)
    {
        l.pass_length(elements);
    }
    let mut outs = vec![];
    for (n, output) in group.outputs.iter().enumerate() {
        let name = if group.outputs.len() == 1 { "out".into() } else { format!("out{n}") };
        let replaced = in_place.replaced.iter().find(|o| o.value == output.0.id).map(|o| &o.old);
        let access = if replaced.is_some() { Access::ReadWrite } else { Access::Write };
        let out = l.param(name, output, access);
        l.loads.extend(replaced.map(|tensor| (tensor.0.id.into(), out)));
        outs.push(out);
    }
    for (n, sum) in group.sums.iter().enumerate() {
        outs.push(l.param(format!("sums{n}"), sum, Access::Write));
    }
    if group.order.iter().any(|t| reports(&t.0)) {
        l.status = Some(l.b.param("status", DType::I64, crate::status::WORDS, Access::ReadWrite));
    }
    if in_place.guarded {
        let status = l.b.param("status", DType::I64, crate::status::WORDS, Access::Read);
        let (first, fine) = (l.b.index_constant(0), l.b.constant(Value::int(DType::I64, 0)));
        let code = l.b.load(status, first);
        let bad = l.b.op(Row::Ne, &[&code, &fine]);
        l.b.if_else(bad, |b| b.simple(Stmt::Return(None)), |_| {});
    }
    if let Form::Rows { rows, columns } = group.form {
        l.frame = Some((rows, columns));
    }
    match (blocks, group.form) {
        (Some(blocks::Shape::Rows(plan)), _) => l.rows_by_blocks(group, &outs, &plan),
        (Some(blocks::Shape::Summed(plan)), _) => l.rows_and_sums(group, &outs, &plan),
        (Some(blocks::Shape::Columns(plan)), _) => l.columns_by_blocks(group, &outs, plan),
        (Some(blocks::Shape::Tiles(plan)), _) => l.tiles(group, &outs, &plan),
        (None, Form::Elements(_)) => l.elements(group, &outs),
        (None, Form::Rows { columns, .. }) => l.rows(group, &outs, columns),
        (None, Form::Middle { middle, inner, .. }) => l.middle(group, &outs, middle, inner),
    }
    Ok(Lowered { threads, guarded: in_place.guarded, ..l.finish()? })
}

/// Shared memory that a block can have on a device.
pub(super) fn shared_bytes(device: Device) -> usize {
    // What every GPU has, and where there is none what the largest have.
    const LEAST: usize = 48 << 10;
    const MOST: usize = 227 << 10;
    match device {
        Device::Cuda(ordinal) => bornite_cuda::Device::open(ordinal)
            .map_or(LEAST, |device| device.info().max_shared_bytes_per_block as usize),
        _ => MOST,
    }
}

fn index_type(group: &Group) -> Scalar {
    let mut largest = match group.form {
        Form::Elements(n) => n,
        // The index may run past the last column by what a block takes at once.
        Form::Rows { rows, columns } => rows * columns + blocks::BEYOND,
        Form::Middle { outer, middle, inner } => outer * middle * inner,
    };
    for tensor in group.order.iter().chain(&group.sums) {
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

/// True if a kernel over elements is the same for any number of them: each is computed from elements that have its number,
/// and from single ones.
fn is_flat(group: &Group, elements: usize) -> bool {
    let plain = group.order.iter().all(|tensor| tensor.0.op.is_pointwise());
    let inputs = group.order.iter().flat_map(|tensor| tensor.0.reads());
    let flat = |tensor: &Tensor| {
        let (base, views) = look_through(tensor);
        let single = base.0.elements() == 1;
        let same = base.0.elements() == elements && seen(base, &views).is_some_and(|place| aligned(&place));
        single || same || base.0.op.is_constant()
    };
    elements > 1 && plain && inputs.chain(&group.outputs).all(flat)
}

/// What the kernel is called: its ops in order, not too many of them.
pub(crate) fn kernel_name(group: &Group) -> String {
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
    let sums = if group.sums.is_empty() { "" } else { "_with_sums" };
    format!("{text}{sums}_{dtype}")
}

impl Lowering {
    /// The values of a node that is computed here.
    pub(super) fn compute_values(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let linear = self.linear_of(at);
        let node = &*tensor.0;
        let row_level = node.op.is_reduction();
        for lanes in [1, self.lanes] {
            let known = self.known.iter().rev().find_map(|known| known.values.get(&(node.id.into(), linear, lanes)));
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
            Op::Random(_)
            | Op::Reduce(..)
            | Op::Matmul
            | Op::Pad(..)
            | Op::Concat(_)
            | Op::Gather(_)
            | Op::ScatterAdd(_)
            | Op::Cumsum(_)
            | Op::ArgReduce(..)
            | Op::ArgSort { .. }
            | Op::Iota { .. }
            | Op::Reshape(_)
            | Op::Expand(_)
            | Op::Permute(_)
            | Op::Slice(_)
            | Op::Checkpoint(_)
            | Op::Detach
            | Op::Failed(_)
            | Op::Data
            | Op::Var
            | Op::Input
            | Op::Output
            | Op::Full(_)
            | Op::Joint(_)
            | Op::Part(_) => {
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

    pub(super) fn remember(&mut self, id: impl Into<ValueId>, linear: ExprId, values: Vec<ExprId>) {
        if let Some(known) = self.known.last_mut() {
            known.values.insert((id.into(), linear, values.len()), values);
        }
    }

    /// The values of an output, which may also be a view or something in memory.
    pub(super) fn output_values(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let at = at.reshaped(&tensor.0.shape);
        if self.computed.contains(&tensor.0.id) { self.compute_values(tensor, &at) } else { self.values(tensor, &at) }
    }

    fn elements(&mut self, group: &Group, outs: &[ParamId]) {
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
    pub(super) fn store(&mut self, out: ParamId, first: ExprId, values: Vec<ExprId>, dtype: DType) {
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
    fn rows(&mut self, group: &Group, outs: &[ParamId], columns: usize) {
        let row = self.b.index();
        let start_of_row = self.index_op(Row::Mul, row, columns);
        let end = self.b.index_constant(columns as u64);
        let at = |l: &mut Lowering, column: ExprId, shape: &[usize]| {
            let linear = l.b.add(&start_of_row, &column);
            l.own = Some(linear);
            Coordinates { shape: shape.to_vec(), linear: Some(linear), axes: None, row: Some((row, column)) }
        };
        self.check_rows(&group.order, row, None);
        let Stages { reductions, known } = stages(group);
        self.row_values(&known[0], row);
        for (n, stage) in reductions.iter().enumerate() {
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
            self.row_values(&known[n + 1], row);
        }
        self.row_outputs(group, outs, row);
        let wide = wide_outputs(group, outs);
        if !wide.is_empty() {
            self.writes = true;
            self.for_each("column", end, |l, column| {
                let at = at(l, column, &[]);
                l.wide_outputs(&wide, &at);
            });
        }
    }

    /// Stores what has all columns, at a place of the row.
    pub(super) fn wide_outputs(&mut self, outputs: &[(&Tensor, ParamId)], at: &Coordinates) {
        // All values before the first store: a result may take the place of an input.
        let values: Vec<Vec<ExprId>> = outputs.iter().map(|(output, _)| self.output_values(output, at)).collect();
        let linear = self.linear_of(at);
        for ((output, out), values) in outputs.iter().zip(values) {
            self.store(*out, linear, values, output.0.dtype);
        }
    }

    /// A variable that a reduction is kept in.
    pub(super) fn total(&mut self, tensor: &Tensor) -> LocalId {
        self.b.local("total", start(reduction(tensor), accumulator(tensor.0.dtype)))
    }

    /// What a reduction reads at a place of its input.
    pub(super) fn reduced(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let input = &tensor.0.inputs[0];
        let values = self.values(input, &at.reshaped(&input.0.shape));
        let wide = accumulator(tensor.0.dtype);
        values.iter().map(|value| self.b.cast(wide, value)).collect()
    }

    pub(super) fn accumulate(&mut self, tensor: &Tensor, total: LocalId, value: ExprId) {
        let before = self.b.read(total);
        let after = self.b.op(step(reduction(tensor)), &[&before, &value]);
        self.b.assign(total, after);
    }

    /// Computes what has one element a row, or one in all, where all loops know it.
    pub(super) fn row_values(&mut self, tensors: &[&Tensor], row: ExprId) {
        let lanes = std::mem::replace(&mut self.lanes, 1);
        let rows = self.frame.map_or(0, |(rows, _)| rows);
        for tensor in tensors {
            let index = if tensor.0.elements() == rows { row } else { self.zero() };
            self.compute_values(tensor, &Coordinates::linear(index, &tensor.0.shape));
        }
        self.lanes = lanes;
    }

    /// Stores what has one element a row.
    pub(super) fn row_outputs(&mut self, group: &Group, outs: &[ParamId], row: ExprId) {
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
    fn middle(&mut self, group: &Group, outs: &[ParamId], middle: usize, inner: usize) {
        let index = self.b.index();
        let (outer, within) = (self.index_op(Row::Div, index, inner), self.index_op(Row::Rem, index, inner));
        let block = self.index_op(Row::Mul, outer, middle * inner);
        let first = self.b.add(&block, &within);
        let reductions: Vec<&Tensor> = stages(group).reductions.into_iter().flatten().collect();
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
}

/// The outputs that have all columns, of which there are at least two.
pub(super) fn wide_outputs<'a>(group: &'a Group, outs: &[ParamId]) -> Vec<(&'a Tensor, ParamId)> {
    let Form::Rows { rows, .. } = group.form else { return vec![] };
    let both = group.outputs.iter().zip(outs);
    both.filter(|(output, _)| output.0.elements() != rows).map(|(output, &out)| (output, out)).collect()
}
