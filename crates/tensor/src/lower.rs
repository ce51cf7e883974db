//! One kernel of a schedule: loads through views, computes, stores.
//!
//! `fused.rs` lowers groups of elementwise ops and reductions; what stands alone (plain products, sorts, scans, indices) is
//! lowered here and in the files beside it, one instance an element of the result, in serial order.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Access, Builder, Dim, Emit, EmitBits, ExprId, Extent, Kernel, Op as Row, ParamId, Scalar, Value};

use crate::node::{Cut, Node, NodeId, Op, Reduce};
use crate::{DType, Result, Tensor};

mod address;
mod blocks;
mod digits;
mod fused;
mod into;
mod lines;
mod places;
mod pretend;
mod reads;
mod rows;
mod scatter;
mod spread;
mod stages;
mod sums;
mod tiles;

pub(crate) use address::{aligned, look_through, repeats_rows, seen};
pub(crate) use fused::{Form, Group, InPlaceOf, Overwrite, kernel_name, lower_group};
pub(crate) use into::{lower_pieces, lower_row};
pub(crate) use places::one_a_row;
pub(crate) use pretend::{for_gpu, only_kernels, plans_for_gpu};
pub use pretend::{with_gpu_kernels, with_gpu_plans};
pub(crate) use reads::{Reads, reads as group_reads};
pub(crate) use scatter::PART as SUMMED_TOGETHER;
pub(crate) use scatter::lower_scatter;
pub(crate) use spread::{Spread, spreads};
pub(crate) use stages::extent;
pub(crate) use sums::with_sums;

/// A kernel and the tensors it reads. Its first parameters are the results, then comes the device's status if it reports
/// bad indices, then these in order; numbers that differ between nodes are values.
pub(crate) struct Lowered {
    pub kernel: Kernel,
    pub inputs: Vec<Input>,
    pub reports: bool,
    /// Whether it looks at the status, which comes in the same place, before it writes.
    pub guarded: bool,
    pub values: Vec<Value>,
    /// Threads a block on a GPU, where the kernel does not say.
    pub threads: u32,
    /// Tensors in memory of which an element is read for other elements of the results.
    pub out_of_step: HashSet<NodeId>,
}

/// A tensor in memory that a kernel reads: all of it, or some elements.
pub(crate) struct Input {
    pub tensor: Tensor,
    pub part: Option<Range<usize>>,
}

/// Lowers a node whose inputs are sources or computed by other kernels, but for the views and constants between.
pub(crate) fn lower(tensor: &Tensor) -> Result<Lowered> {
    let node = &*tensor.0;
    let elements = node.elements() as u64;
    let generated = matches!(node.op, Op::Iota { .. });
    let copies = node.value().is_some() || node.op.is_view() || node.inputs.is_empty() && !generated;
    if !copies && matches!(node.op, Op::Cumsum(_) | Op::ArgSort { .. }) {
        return lines::lower(tensor);
    }
    let name = format!("{}_{}", if copies { "copy" } else { node.op.name() }, node.dtype);
    let index_scalar = index_type(tensor, copies);
    let mut b = Builder::new(name, elements, index_scalar);
    let out = b.param("out", node.dtype, elements, Access::Write);
    let index = b.index();
    let mut l = Lowering::new(b, index_scalar);
    if !copies && reports(node) {
        l.status = Some(l.b.param("status", DType::I64, crate::status::WORDS, Access::ReadWrite));
    }
    let at = Coordinates::linear(index, &node.shape);
    let value = match node.op.is_pointwise() && elements == 0 {
        // Groups have elements; without any there is nothing to compute.
        true => l.b.constant(Value::int(node.dtype, 0)),
        false if copies => l.load(tensor, at),
        false => l.compute(node, at),
    };
    l.b.store(out, index, value);
    l.finish()
}

/// 32-bit indices where every extent they run over allows it: 64-bit division is slow on GPUs.
fn index_type(tensor: &Tensor, copies: bool) -> Scalar {
    let mut stack: Vec<&Tensor> = if copies { vec![tensor] } else { tensor.0.inputs.iter().collect() };
    let mut largest = tensor.0.elements();
    while let Some(t) = stack.pop() {
        largest = largest.max(t.0.elements());
        if t.0.op.is_view() && t.0.value().is_none() {
            stack.extend(&t.0.inputs);
        }
    }
    if largest <= i32::MAX as usize { Scalar::I32 } else { Scalar::I64 }
}

/// True if a node can meet a bad index.
pub(crate) fn reports(node: &Node) -> bool {
    node.op.facts().reports
}

/// Where in a shape: as one row-major index, as one index an axis, or both.
#[derive(Clone)]
struct Coordinates {
    shape: Vec<usize>,
    linear: Option<ExprId>,
    axes: Option<Vec<ExprId>>,
    /// Row and column of the linear index, where the kernel is one over rows.
    row: Option<(ExprId, ExprId)>,
}

impl Coordinates {
    fn linear(index: ExprId, shape: &[usize]) -> Coordinates {
        Coordinates { shape: shape.to_vec(), linear: Some(index), axes: None, row: None }
    }

    fn axes(axes: Vec<ExprId>, shape: &[usize]) -> Coordinates {
        Coordinates { shape: shape.to_vec(), linear: None, axes: Some(axes), row: None }
    }

    /// The same linear index in another shape.
    fn reshaped(&self, shape: &[usize]) -> Coordinates {
        Coordinates { shape: shape.to_vec(), axes: None, ..self.clone() }
    }
}

struct Lowering {
    b: Builder,
    /// Tensors loaded so far, or parts of them.
    loads: Vec<(ValueId, ParamId)>,
    inputs: Vec<Input>,
    /// Type of indices.
    index: Scalar,
    /// Where bad indices are reported.
    status: Option<ParamId>,
    /// What is passed by value.
    values: Vec<Value>,
    /// How many elements tensors have, where the kernel is told.
    length: Option<(usize, Extent)>,
    /// Nodes that are computed here rather than loaded.
    computed: HashSet<NodeId>,
    /// Rows and columns, in a kernel over rows.
    frame: Option<(usize, usize)>,
    /// How many neighbours are computed at once.
    lanes: usize,
    /// The element that a kernel over elements or rows is at; nobody else reads or writes it.
    own: Option<ExprId>,
    /// Whether a kernel over rows is at its last pass, which writes; and whether it has picked elements of a row before.
    writes: bool,
    picked: bool,
    /// The row and column that are being picked.
    row_picked: Option<(ExprId, ExprId)>,
    /// How many of a row's columns a thread takes at once, and the rows that a block keeps.
    row_lanes: usize,
    kept: rows::Kept,
    /// The index 0.
    zero: Option<ExprId>,
    /// Tensors in memory of which it reads other elements, too.
    out_of_step: HashSet<NodeId>,
    /// What is known already, innermost scope last: values of nodes and indices, by the linear index they belong to.
    known: Vec<Known>,
}

/// A node that a kernel computes, or a tensor in memory, or a part of one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ValueId {
    node: NodeId,
    part: Option<Range<usize>>,
}

impl From<NodeId> for ValueId {
    fn from(node: NodeId) -> ValueId {
        ValueId { node, part: None }
    }
}

/// What a scope has computed.
#[derive(Default)]
struct Known {
    values: HashMap<(ValueId, ExprId, usize), Vec<ExprId>>,
    indices: HashMap<(address::Runs, ExprId), ExprId>,
}

impl Lowering {
    fn new(b: Builder, index: Scalar) -> Lowering {
        Lowering {
            b,
            loads: vec![],
            inputs: vec![],
            index,
            status: None,
            values: vec![],
            length: None,
            computed: HashSet::new(),
            frame: None,
            lanes: 1,
            own: None,
            writes: false,
            picked: false,
            row_picked: None,
            row_lanes: 0,
            kept: rows::Kept::default(),
            zero: None,
            out_of_step: HashSet::new(),
            known: vec![Known::default()],
        }
    }

    /// What is computed in a block is known only there.
    fn scope<R>(&mut self, work: impl FnOnce(&mut Lowering) -> R) -> R {
        self.known.push(Known::default());
        let result = work(self);
        self.known.pop();
        result
    }

    fn finish(self) -> Result<Lowered> {
        let Lowering { b, loads, inputs, status, values, own, mut out_of_step, .. } = self;
        if own.is_none() {
            out_of_step.extend(loads.into_iter().map(|(id, _)| id.node));
        }
        Ok(Lowered {
            kernel: b.finish()?,
            inputs,
            reports: status.is_some(),
            guarded: false,
            values,
            threads: BLOCK,
            out_of_step,
        })
    }

    /// A number of the graph. All but 0 and 1 are passed at the call, so that a kernel serves every learning rate.
    fn number(&mut self, value: Value) -> ExprId {
        if !value.scalar().is_float() || value.as_f64() == 0.0 || value.as_f64() == 1.0 {
            return self.b.constant(value);
        }
        self.values.push(value);
        self.b.value(format!("c{}", self.values.len() - 1), value.scalar())
    }

    fn compute(&mut self, node: &Node, at: Coordinates) -> ExprId {
        match &node.op {
            Op::Reduce(reduce, axes) => self.reduce(node, *reduce, axes, &at),
            Op::Matmul => self.matmul(node, &at),
            Op::Pad(cuts, _, value) => self.pad(node, cuts, *value, &at),
            Op::Concat(axis) => self.concat(node, *axis, &at),
            Op::Gather(axis) => self.gather(node, *axis, &at),
            Op::ScatterAdd(axis) => self.scatter_add(node, *axis, &at),
            Op::ArgReduce(reduce, axis) => self.arg_reduce(node, *reduce, *axis, &at),
            Op::Iota { axis, .. } => {
                let place = self.axes_of(&at)[*axis];
                self.b.cast(node.dtype, &place)
            }
            Op::Random(_) => self.random(node, &at),
            // Pointwise ops are computed in groups, lines by kernels of their own; sources, constants and views are loaded.
            Op::Map(_) | Op::Cast(_) | Op::Cumsum(_) | Op::ArgSort { .. } => self.not_lowered(node),
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) => self.not_lowered(node),
            Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Slice(_) => self.not_lowered(node),
            Op::Checkpoint(_) | Op::Detach | Op::Joint(_) | Op::Part(_) => self.not_lowered(node),
        }
    }

    /// Makes the kernel an error that names an op which has no kernel of this form.
    fn not_lowered(&mut self, node: &Node) -> ExprId {
        self.b.mistake(format!("{} cannot be lowered to this kernel: a bug worth reporting", node.op.name()));
        self.b.constant(Value::int(node.dtype, 0))
    }

    fn reduce(&mut self, node: &Node, reduce: Reduce, axes: &[usize], at: &Coordinates) -> ExprId {
        let input = &node.inputs[0];
        let shape = &input.0.shape;
        let reduced: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
        let (wide, init) = (accumulator(node.dtype), |x| Value::from_f64(accumulator(node.dtype), x));
        let init = match reduce {
            Reduce::Sum => init(0.0),
            Reduce::Prod => init(1.0),
            Reduce::Max => extreme(wide, false),
            Reduce::Min => extreme(wide, true),
        };
        let total = self.b.local("total", init);
        let kept = self.axes_of(at);
        let end = self.b.index_constant(reduced.iter().product::<usize>() as u64);
        self.for_each("r", end, |l, r| {
            let (mut inner, mut outer) = (l.axes_of(&Coordinates::linear(r, &reduced)).into_iter(), kept.into_iter());
            let all = (0..shape.len()).filter_map(|a| if axes.contains(&a) { inner.next() } else { outer.next() });
            let x = l.load(input, Coordinates::axes(all.collect(), shape));
            let (x, before) = (l.b.cast(wide, &x), l.b.read(total));
            let row = match reduce {
                Reduce::Sum => Row::Add,
                Reduce::Prod => Row::Mul,
                Reduce::Max => Row::Max,
                Reduce::Min => Row::Min,
            };
            let after = l.b.op(row, &[&before, &x]);
            l.b.assign(total, after);
        });
        let total = self.b.read(total);
        self.b.cast(node.dtype, &total)
    }

    fn matmul(&mut self, node: &Node, at: &Coordinates) -> ExprId {
        let (a, b) = (&node.inputs[0], &node.inputs[1]);
        let depth = a.0.shape[a.0.shape.len() - 1];
        let wide = accumulator(node.dtype);
        let sum = self.b.local("sum", Value::from_f64(wide, 0.0));
        let axes = self.axes_of(at);
        let (batch, row_column) = axes.split_at(axes.len() - 2);
        let end = self.b.index_constant(depth as u64);
        self.for_each("k", end, |l, k| {
            let left = Coordinates::axes([batch, &[row_column[0], k]].concat(), &a.0.shape);
            let right = Coordinates::axes([batch, &[k, row_column[1]]].concat(), &b.0.shape);
            let (x, y) = (l.load(a, left), l.load(b, right));
            let (x, y, before) = (l.b.cast(wide, &x), l.b.cast(wide, &y), l.b.read(sum));
            let after = if node.dtype.is_float() {
                l.b.fma(&x, &y, &before)
            } else {
                let product = l.b.mul(&x, &y);
                l.b.add(&before, &product)
            };
            l.b.assign(sum, after);
        });
        let sum = self.b.read(sum);
        self.b.cast(node.dtype, &sum)
    }

    /// A loop whose body may use all of `self`.
    fn for_each(&mut self, name: &str, end: ExprId, body: impl FnOnce(&mut Lowering, ExprId)) {
        let counter = self.b.open_loop(name);
        let i = self.b.read(counter);
        self.scope(|l| body(l, i));
        self.b.close_loop(counter, end);
    }

    /// Coordinates in a view's input of shape `from`, for coordinates in the view.
    fn through(&mut self, op: &Op, at: Coordinates, from: &[usize]) -> Coordinates {
        match op {
            Op::Reshape(_) => Coordinates::linear(self.linear_of(&at), from),
            Op::Permute(axes) => {
                let outer = self.axes_of(&at);
                let mut inner = outer.clone();
                for (n, &axis) in axes.iter().enumerate() {
                    inner[axis] = outer[n];
                }
                Coordinates::axes(inner, from)
            }
            Op::Expand(to) => {
                let mut axes = self.axes_of(&at);
                for (n, axis) in axes.iter_mut().enumerate() {
                    if from[n] == 1 && to[n] != 1 {
                        *axis = self.b.index_constant(0);
                    }
                }
                Coordinates::axes(axes, from)
            }
            Op::Slice(cuts) => {
                let mut axes = self.axes_of(&at);
                for (axis, cut) in axes.iter_mut().zip(cuts) {
                    *axis = self.cut(*axis, cut);
                }
                Coordinates::axes(axes, from)
            }
            Op::Checkpoint(_) | Op::Detach => at,
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) => self.no_view(op, at),
            Op::Map(_) | Op::Cast(_) | Op::Reduce(..) | Op::Matmul | Op::Pad(..) => self.no_view(op, at),
            Op::Concat(_) | Op::Gather(_) | Op::ScatterAdd(_) | Op::Cumsum(_) => self.no_view(op, at),
            Op::ArgReduce(..) | Op::ArgSort { .. } | Op::Iota { .. } | Op::Random(_) => self.no_view(op, at),
            Op::Joint(_) | Op::Part(_) => self.no_view(op, at),
        }
    }

    /// Makes the kernel an error that names an op which is taken for a view.
    fn no_view(&mut self, op: &Op, at: Coordinates) -> Coordinates {
        self.b.mistake(format!("{} is no view: a bug worth reporting", op.name()));
        at
    }

    /// start + step · i.
    fn cut(&mut self, i: ExprId, cut: &Cut) -> ExprId {
        let scaled = match cut.step {
            1 => i,
            step => {
                let step = self.b.constant(Value::int(self.index, step as i64));
                self.b.mul(&i, &step)
            }
        };
        if cut.start == 0 { scaled } else { self.index_op(Row::Add, scaled, cut.start) }
    }

    /// Makes the kernel one for any number of elements: it is told how many, and so serves tensors of all lengths.
    fn pass_length(&mut self, elements: usize) {
        let numbers = [("instances", elements / self.lanes), ("elements", elements)];
        for (name, number) in numbers {
            self.values.push(Value::int(self.index, number as i64));
            self.b.value(name, self.index);
        }
        self.b.count(Extent::Value(0));
        self.length = Some((elements, Extent::Value(1)));
    }

    /// A parameter for a tensor.
    fn param(&mut self, name: String, tensor: &Tensor, access: Access) -> ParamId {
        self.param_of(name, tensor.0.dtype, tensor.0.elements(), access)
    }

    fn param_of(&mut self, name: String, dtype: DType, elements: usize, access: Access) -> ParamId {
        let extent = match self.length {
            Some((length, extent)) if length == elements => extent,
            _ => Extent::from(elements as u64),
        };
        self.b.view(name, dtype, &[Dim { extent, stride: Extent::Const(1) }], access)
    }

    fn view(&mut self, tensor: &Tensor) -> ParamId {
        self.view_of(tensor, None)
    }

    /// The parameter through which a tensor is read, or a part of it.
    fn view_of(&mut self, tensor: &Tensor, part: Option<Range<usize>>) -> ParamId {
        let id = ValueId { node: tensor.0.id, part: part.clone() };
        if let Some((_, view)) = self.loads.iter().find(|(loaded, _)| *loaded == id) {
            return *view;
        }
        let name = format!("in{}", self.inputs.len());
        let elements = part.as_ref().map_or(tensor.0.elements(), |part| part.len());
        let view = self.param_of(name, tensor.0.dtype, elements, Access::Read);
        self.loads.push((id, view));
        self.inputs.push(Input { tensor: tensor.clone(), part });
        view
    }

    fn linear_of(&mut self, at: &Coordinates) -> ExprId {
        if let Some(linear) = at.linear {
            return linear;
        }
        let mut sum = None;
        let mut stride = 1;
        for (axis, &length) in at.axes.as_deref().unwrap_or_default().iter().zip(&at.shape).rev() {
            if length != 1 && self.b.known(*axis).is_none_or(|v| v.as_i64() != 0) {
                let term = if stride == 1 { *axis } else { self.index_op(Row::Mul, *axis, stride) };
                sum = Some(match sum {
                    Some(sum) => self.b.add(&term, &sum),
                    None => term,
                });
            }
            stride *= length;
        }
        sum.unwrap_or_else(|| self.b.index_constant(0))
    }

    fn axes_of(&mut self, at: &Coordinates) -> Vec<ExprId> {
        if let Some(axes) = &at.axes {
            return axes.clone();
        }
        let Some(linear) = at.linear else { return vec![] };
        let mut axes = vec![linear; at.shape.len()];
        let first = at.shape.iter().position(|&length| length != 1);
        let mut stride = 1;
        for (n, &length) in at.shape.iter().enumerate().rev() {
            axes[n] = if length == 1 {
                self.b.index_constant(0)
            } else {
                let quotient = if stride == 1 { linear } else { self.index_op(Row::Div, linear, stride) };
                // Nothing is above the first axis: the quotient is already below its length.
                if Some(n) == first { quotient } else { self.index_op(Row::Rem, quotient, length) }
            };
            stride *= length;
        }
        axes
    }

    fn index_op(&mut self, row: Row, a: ExprId, b: usize) -> ExprId {
        let b = self.b.index_constant(b as u64);
        self.b.op(row, &[&a, &b])
    }
}

/// The type that sums and products are kept in: rounding a 16-bit float at every step would lose most of it.
fn accumulator(dtype: DType) -> DType {
    if dtype.is_float() { dtype.wide() } else { dtype }
}

/// The identity of max, or of min.
fn extreme(dtype: DType, of_min: bool) -> Value {
    if dtype.is_int() {
        let (low, high) = dtype.int_range();
        Value::int(dtype, if of_min { high } else { low } as i64)
    } else {
        Value::from_f64(dtype, if of_min { f64::INFINITY } else { f64::NEG_INFINITY })
    }
}
