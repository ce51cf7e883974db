//! Lowering of scheduled kernels to IR.
//!
//! `group.rs` lowers fused groups of elementwise ops and reductions. Ops that are not fused
//! (generated matrix products, sorts, scans, indexing) are lowered here and in the files beside it,
//! one instance per output element, with serial loops.

use std::collections::HashSet;
use std::ops::Range;

use bornite_ir::{Access, Builder, Emit, EmitBits, ExprId, Kernel, Op as ScalarOp, Scalar, Value};

use lowering::{Coordinates, KernelShape, Lowering};

use crate::graph::node::{AxisSlice, Node, NodeId, Op, Reduce};
use crate::{DType, Result, Tensor};

mod address;
mod blocks;
mod column_sums;
mod columns;
mod elementwise;
mod gpu_emulation;
mod group;
mod group_inputs;
mod indexing;
mod launch_shape;
mod lowering;
mod radix_sort;
mod row_kernel;
mod row_launch;
mod scan_sort;
mod scatter;
mod slice_write;
mod stages;
mod tiles;
mod values;

pub(crate) use address::{broadcasts_rows, is_identity, look_through, strided_view};
pub(crate) use column_sums::attach_sums;
pub(crate) use gpu_emulation::{only_gpu_kernels, plans_as_for_gpu, targets_gpu};
pub use gpu_emulation::{with_gpu_kernels, with_gpu_plans};
pub(crate) use group::{Group, InPlaceOutputs, IterationSpace, Overwrite, kernel_name, lower_group};
pub(crate) use group_inputs::{GroupInputs, analyze_inputs};
pub(crate) use indexing::{gathers_one_per_row, scatters_one_per_row};
pub(crate) use launch_shape::{LaunchShape, SumStorage, launch_shapes};
pub(crate) use scatter::SUM_BLOCK;
pub(crate) use scatter::lower_scatter;
pub(crate) use slice_write::{lower_concat_inputs, lower_row_update};

/// A kernel and the tensors that it reads. Parameters are the outputs, the status words if it
/// reports out-of-range indices or is guarded, then the inputs. Scalars that differ between nodes
/// are passed as values.
pub(crate) struct Lowered {
    pub kernel: Kernel,
    pub inputs: Vec<Input>,
    pub can_report_bad_index: bool,
    /// If set, it reads the status words and writes nothing after an error.
    pub guarded: bool,
    pub values: Vec<Value>,
    /// Threads per block on a GPU, for kernels without a block size.
    pub threads: u32,
    /// Inputs that are read at other indices than the output's own.
    pub other_index_inputs: HashSet<NodeId>,
}

/// A tensor in memory that a kernel reads: all of it, or a range of elements.
pub(crate) struct Input {
    pub tensor: Tensor,
    pub part: Option<Range<usize>>,
}

/// Lowers a single node whose inputs are in memory, seen through views, or constants.
pub(crate) fn lower(tensor: &Tensor) -> Result<Lowered> {
    let node = &*tensor.0;
    let elements = node.elements() as u64;
    let generated = matches!(node.op, Op::Iota { .. });
    let copies = node.has_value() || node.op.is_view() || node.inputs.is_empty() && !generated;
    // One instance per line along the axis; all other ops have one per element.
    if let (Op::Cumsum(axis), false) = (&node.op, copies) {
        return scan_sort::cumsum(tensor, *axis);
    }
    if let (Op::ArgSort { axis, descending }, false) = (&node.op, copies) {
        return scan_sort::arg_sort(tensor, *axis, *descending);
    }
    let name = format!("{}_{}", if copies { "copy" } else { node.op.name() }, node.dtype);
    let index_scalar = index_type(tensor, copies);
    let mut b = Builder::new(name, elements, index_scalar);
    let out = b.param("out", node.dtype, elements, Access::Write);
    let index = b.index();
    let mut l = Lowering::single(b, index_scalar);
    if !copies && can_report_bad_index(node) {
        l.status = Some(l.b.param("status", DType::I64, crate::runtime::status::WORDS, Access::ReadWrite));
    }
    let at = Coordinates::linear(index, &node.shape);
    let value = match node.op.is_pointwise() && elements == 0 {
        // Pointwise ops are lowered in groups, which are never empty.
        true => l.b.constant(Value::int(node.dtype, 0)),
        false if copies => l.load(tensor, at),
        false => l.compute(node, at),
    };
    l.b.store(out, index, value);
    l.finish()
}

/// Index type: 32 bits if every extent allows it, since 64-bit division is slow on GPUs.
fn index_type(tensor: &Tensor, copies: bool) -> Scalar {
    let mut stack: Vec<&Tensor> = if copies { vec![tensor] } else { tensor.0.inputs.iter().collect() };
    let mut largest = tensor.0.elements();
    while let Some(t) = stack.pop() {
        largest = largest.max(t.0.elements());
        if t.0.op.is_view() && !t.0.has_value() {
            stack.extend(&t.0.inputs);
        }
    }
    if largest <= i32::MAX as usize { Scalar::I32 } else { Scalar::I64 }
}

/// True if a node can report an out-of-range index.
pub(crate) fn can_report_bad_index(node: &Node) -> bool {
    node.op.facts().reports
}

impl<S: KernelShape> Lowering<S> {
    pub(super) fn compute(&mut self, node: &Node, at: Coordinates) -> ExprId {
        match &node.op {
            Op::Reduce(reduce, axes) => self.reduce(node, *reduce, axes, &at),
            Op::Matmul => self.matmul(node, &at),
            Op::Pad(cuts, _, value) => self.pad(node, cuts, *value, &at),
            Op::Concat(axis) => self.concat(node, *axis, &at),
            Op::Gather(axis) => self.gather(node, *axis, &at),
            Op::ScatterAdd(axis) => self.scatter_add(node, *axis, &at),
            Op::ArgReduce(reduce, axis) => self.arg_reduce(node, *reduce, *axis, &at),
            Op::Iota { axis, .. } => {
                let index = self.axes_of(&at)[*axis];
                self.b.cast(node.dtype, &index)
            }
            Op::Random(_) => self.random(node, &at),
            // Pointwise ops are lowered in groups, scans and sorts in `scan_sort.rs`; sources,
            // constants and views are loaded.
            Op::Map(_) | Op::Cast(_) | Op::Cumsum(_) | Op::ArgSort { .. } => self.not_lowered(node),
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) => self.not_lowered(node),
            Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Slice(_) => self.not_lowered(node),
            Op::Checkpoint(_) | Op::Detach | Op::After => self.not_lowered(node),
            Op::MultiOutput(_) | Op::GetOutput(_) => self.not_lowered(node),
        }
    }

    /// Makes the kernel fail with an error: the op cannot be lowered in this kernel.
    fn not_lowered(&mut self, node: &Node) -> ExprId {
        self.b.record_error(format!(
            "internal error: {} cannot be lowered in this kernel; please report this bug",
            node.op.name()
        ));
        self.b.constant(Value::int(node.dtype, 0))
    }

    fn reduce(&mut self, node: &Node, reduce: Reduce, axes: &[usize], at: &Coordinates) -> ExprId {
        let input = &node.inputs[0];
        let shape = &input.0.shape;
        let reduced: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
        let wide = accumulator_type(node.dtype);
        let total = self.b.local("total", stages::identity(reduce, wide));
        let outer = self.axes_of(at);
        let end = self.b.index_constant(reduced.iter().product::<usize>() as u64);
        self.for_each("r", end, |l, r| {
            let (mut inner, mut outer) = (l.axes_of(&Coordinates::linear(r, &reduced)).into_iter(), outer.into_iter());
            let all = (0..shape.len()).filter_map(|a| if axes.contains(&a) { inner.next() } else { outer.next() });
            let x = l.load(input, Coordinates::axes(all.collect(), shape));
            let (x, before) = (l.b.cast(wide, &x), l.b.read(total));
            let after = l.b.op(stages::combine_op(reduce), &[&before, &x]);
            l.b.assign(total, after);
        });
        let total = self.b.read(total);
        self.b.cast(node.dtype, &total)
    }

    fn matmul(&mut self, node: &Node, at: &Coordinates) -> ExprId {
        let (a, b) = (&node.inputs[0], &node.inputs[1]);
        let depth = a.0.shape[a.0.shape.len() - 1];
        let wide = accumulator_type(node.dtype);
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

    /// Coordinates in a view's input, of shape `from`, for coordinates in the view.
    fn apply_view(&mut self, op: &Op, at: Coordinates, from: &[usize]) -> Coordinates {
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
            Op::Checkpoint(_) | Op::Detach | Op::After => at,
            Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_) => self.not_a_view(op, at),
            Op::Map(_) | Op::Cast(_) | Op::Reduce(..) | Op::Matmul | Op::Pad(..) => self.not_a_view(op, at),
            Op::Concat(_) | Op::Gather(_) | Op::ScatterAdd(_) | Op::Cumsum(_) => self.not_a_view(op, at),
            Op::ArgReduce(..) | Op::ArgSort { .. } | Op::Iota { .. } | Op::Random(_) => self.not_a_view(op, at),
            Op::MultiOutput(_) | Op::GetOutput(_) => self.not_a_view(op, at),
        }
    }

    /// Makes the kernel fail with an error: the op is not a view.
    fn not_a_view(&mut self, op: &Op, at: Coordinates) -> Coordinates {
        self.b.record_error(format!("internal error: {} is not a view; please report this bug", op.name()));
        at
    }

    /// start + step · i.
    fn cut(&mut self, i: ExprId, cut: &AxisSlice) -> ExprId {
        let scaled = match cut.step {
            1 => i,
            step => {
                let step = self.b.constant(Value::int(self.index, step as i64));
                self.b.mul(&i, &step)
            }
        };
        if cut.start == 0 { scaled } else { self.index_op(ScalarOp::Add, scaled, cut.start) }
    }
}

/// Accumulator type of sums and products: f32 for 16-bit floats, whose rounding at every step would
/// lose precision.
fn accumulator_type(dtype: DType) -> DType {
    if dtype.is_float() { dtype.compute_type() } else { dtype }
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
