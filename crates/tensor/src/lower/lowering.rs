//! Core of lowering: a kernel under construction, its inputs, and index arithmetic.
//!
//! A [`KernelShape`] defines how a kernel iterates over elements and holds the state for it:
//! elements (`elementwise.rs`), rows (`row_kernel.rs`), columns (`columns.rs`), tiles (`tiles.rs`).
//! A kernel of a single node has none.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bornite_codegen::cuda::THREADS_PER_BLOCK;
use bornite_ir::{Access, Builder, Dim, Emit, EmitBits, ExprId, Extent, Op as ScalarOp, ParamId, Scalar, Stmt, Value};

use super::{Input, Lowered, address};
use crate::graph::node::{Node, NodeId};
use crate::{DType, Result, Tensor};

/// Position in a shape: a linear row-major index, one index per axis, or both.
#[derive(Clone)]
pub(super) struct Coordinates {
    pub shape: Vec<usize>,
    pub linear: Option<ExprId>,
    pub axes: Option<Vec<ExprId>>,
    /// Row and column of the linear index, in a row kernel.
    pub row: Option<(ExprId, ExprId)>,
}

impl Coordinates {
    pub fn linear(index: ExprId, shape: &[usize]) -> Coordinates {
        Coordinates { shape: shape.to_vec(), linear: Some(index), axes: None, row: None }
    }

    pub fn axes(axes: Vec<ExprId>, shape: &[usize]) -> Coordinates {
        Coordinates { shape: shape.to_vec(), linear: None, axes: Some(axes), row: None }
    }

    /// The same linear index in another shape.
    pub fn reshaped(&self, shape: &[usize]) -> Coordinates {
        Coordinates { shape: shape.to_vec(), axes: None, ..self.clone() }
    }
}

/// Rows and columns of a row kernel.
#[derive(Clone, Copy)]
pub(crate) struct RowSpace {
    pub rows: usize,
    pub columns: usize,
}

/// Iteration of a kernel over elements, as far as the evaluation of nodes depends on it. The
/// defaults are for a kernel that is not a row kernel and overwrites none of its inputs.
pub(super) trait KernelShape: Sized {
    /// Index of the element that the thread is at, which no other thread reads or writes.
    fn own_element(&self) -> Option<ExprId> {
        None
    }

    /// Rows and columns, in a row kernel.
    fn row_space(&self) -> Option<RowSpace> {
        None
    }

    /// True if a condition is known to hold for the elements at these coordinates.
    fn is_always_true(&self, condition: &Tensor, at: &Coordinates) -> bool {
        let _ = (condition, at);
        false
    }

    /// True if the element is gathered before anything of its row is written.
    fn is_gathered_early(&self, _at: &Coordinates) -> bool {
        false
    }

    /// Element of a gather's input at `column`, if there is one index per row.
    fn gather_from_row(_l: &mut Lowering<Self>, _gather: &Node, _at: &Coordinates, _column: ExprId) -> Option<ExprId> {
        None
    }

    /// Elements of a tensor in memory: from a cache filled by an earlier pass, or by `load`.
    fn load_cached(
        l: &mut Lowering<Self>,
        _base: &Tensor,
        _at: &Coordinates,
        load: impl FnOnce(&mut Lowering<Self>) -> Vec<ExprId>,
    ) -> Vec<ExprId> {
        load(l)
    }
}

/// A kernel of a single node, element by element.
pub(super) struct Single;

impl KernelShape for Single {}

/// A kernel under construction.
pub(super) struct Lowering<S = Single> {
    pub b: Builder,
    /// Iteration over elements.
    pub shape: S,
    /// Parameters of tensors, or ranges of tensors, that are loaded.
    pub loads: Vec<(ValueId, ParamId)>,
    pub inputs: Vec<Input>,
    /// Index type.
    pub index: Scalar,
    /// Parameter of the status words.
    pub status: Option<ParamId>,
    /// Scalar arguments.
    pub values: Vec<Value>,
    /// Number of elements, if it is an argument of the kernel.
    pub length: Option<(usize, Extent)>,
    /// Nodes that the kernel computes rather than loads.
    pub computed: HashSet<NodeId>,
    /// Adjacent elements that are computed at once.
    pub lanes: usize,
    /// The index 0.
    pub zero: Option<ExprId>,
    /// Tensors in memory that are read at other indices than the thread's own.
    pub other_index_inputs: HashSet<NodeId>,
    /// Caches of computed values and indices, innermost scope last.
    pub scopes: Vec<ScopeCache>,
}

/// A node that a kernel computes, a tensor in memory, or a range of one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ValueId {
    pub node: NodeId,
    pub part: Option<Range<usize>>,
}

impl From<NodeId> for ValueId {
    fn from(node: NodeId) -> ValueId {
        ValueId { node, part: None }
    }
}

/// Values and indices computed in a scope, by linear index.
#[derive(Default)]
pub(super) struct ScopeCache {
    pub values: HashMap<(ValueId, ExprId, usize), Vec<ExprId>>,
    pub indices: HashMap<(address::CoalescedAxes, ExprId), ExprId>,
}

impl Lowering {
    /// A kernel of a single node.
    pub fn single(b: Builder, index: Scalar) -> Lowering {
        Lowering::new(b, index, Single)
    }
}

impl<S: KernelShape> Lowering<S> {
    pub fn new(b: Builder, index: Scalar, shape: S) -> Lowering<S> {
        Lowering {
            b,
            shape,
            loads: vec![],
            inputs: vec![],
            index,
            status: None,
            values: vec![],
            length: None,
            computed: HashSet::new(),
            lanes: 1,
            zero: None,
            other_index_inputs: HashSet::new(),
            scopes: vec![ScopeCache::default()],
        }
    }

    pub fn finish(self) -> Result<Lowered> {
        let Lowering { b, shape, loads, inputs, status, values, mut other_index_inputs, .. } = self;
        if shape.own_element().is_none() {
            other_index_inputs.extend(loads.into_iter().map(|(id, _)| id.node));
        }
        Ok(Lowered {
            kernel: b.finish()?,
            inputs,
            can_report_bad_index: status.is_some(),
            guarded: false,
            values,
            threads: THREADS_PER_BLOCK,
            other_index_inputs,
        })
    }

    /// Runs `work` in a new scope: values computed in it are not available afterwards.
    pub fn scope<R>(&mut self, work: impl FnOnce(&mut Lowering<S>) -> R) -> R {
        self.scopes.push(ScopeCache::default());
        let result = work(self);
        self.scopes.pop();
        result
    }

    /// A scalar constant of the graph. Floats other than 0 and 1 become arguments, so that one
    /// kernel serves, for example, every learning rate.
    pub fn scalar_argument(&mut self, value: Value) -> ExprId {
        if !value.scalar().is_float() || value.as_f64() == 0.0 || value.as_f64() == 1.0 {
            return self.b.constant(value);
        }
        self.values.push(value);
        self.b.value(format!("c{}", self.values.len() - 1), value.scalar())
    }

    /// Emits a loop from 0 to `end`.
    pub fn for_each(&mut self, name: &str, end: ExprId, body: impl FnOnce(&mut Lowering<S>, ExprId)) {
        let counter = self.b.open_loop(name);
        let i = self.b.read(counter);
        self.scope(|l| body(l, i));
        self.b.close_loop(counter, end);
    }

    /// Makes the number of elements an argument, so that the kernel serves tensors of any length.
    pub fn take_length_argument(&mut self, elements: usize) {
        let numbers = [("instances", elements / self.lanes), ("elements", elements)];
        for (name, number) in numbers {
            self.values.push(Value::int(self.index, number as i64));
            self.b.value(name, self.index);
        }
        self.b.set_instance_count(Extent::Value(0));
        self.length = Some((elements, Extent::Value(1)));
    }

    /// Adds a parameter for a tensor.
    pub fn param(&mut self, name: String, tensor: &Tensor, access: Access) -> ParamId {
        self.param_of(name, tensor.0.dtype, tensor.0.elements(), access)
    }

    pub fn param_of(&mut self, name: String, dtype: DType, elements: usize, access: Access) -> ParamId {
        let extent = match self.length {
            Some((length, extent)) if length == elements => extent,
            _ => Extent::from(elements as u64),
        };
        self.b.view(name, dtype, &[Dim { extent, stride: Extent::Const(1) }], access)
    }

    pub fn view(&mut self, tensor: &Tensor) -> ParamId {
        self.view_of(tensor, None)
    }

    /// Parameter through which a tensor, or a range of it, is read; added on first use.
    pub fn view_of(&mut self, tensor: &Tensor, part: Option<Range<usize>>) -> ParamId {
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

    pub fn linear_of(&mut self, at: &Coordinates) -> ExprId {
        if let Some(linear) = at.linear {
            return linear;
        }
        let mut sum = None;
        let mut stride = 1;
        for (axis, &length) in at.axes.as_deref().unwrap_or_default().iter().zip(&at.shape).rev() {
            if length != 1 && self.b.constant_value(*axis).is_none_or(|v| v.as_i64() != 0) {
                let term = if stride == 1 { *axis } else { self.index_op(ScalarOp::Mul, *axis, stride) };
                sum = Some(match sum {
                    Some(sum) => self.b.add(&term, &sum),
                    None => term,
                });
            }
            stride *= length;
        }
        sum.unwrap_or_else(|| self.b.index_constant(0))
    }

    pub fn axes_of(&mut self, at: &Coordinates) -> Vec<ExprId> {
        if let Some(axes) = &at.axes {
            return axes.clone();
        }
        let Some(linear) = at.linear else { return vec![] };
        // Row and column are known: no division by the length of a row, which costs more than the
        // rest of a cross-entropy with masked logits.
        if let (Some((row, column)), Some(RowSpace { columns, .. })) = (at.row, self.shape.row_space())
            && let Some(split) = address::split(&at.shape, columns)
        {
            let (outer, inner) = at.shape.split_at(split);
            return [self.unravel(row, outer), self.unravel(column, inner)].concat();
        }
        self.unravel(linear, &at.shape)
    }

    /// The position along each axis of a linear index.
    fn unravel(&mut self, linear: ExprId, shape: &[usize]) -> Vec<ExprId> {
        let mut axes = vec![linear; shape.len()];
        let first = shape.iter().position(|&length| length != 1);
        let mut stride = 1;
        for (n, &length) in shape.iter().enumerate().rev() {
            axes[n] = if length == 1 {
                self.b.index_constant(0)
            } else {
                let quotient = if stride == 1 { linear } else { self.index_op(ScalarOp::Div, linear, stride) };
                // The quotient of the first axis is already below its length.
                if Some(n) == first { quotient } else { self.index_op(ScalarOp::Rem, quotient, length) }
            };
            stride *= length;
        }
        axes
    }

    pub fn index_op(&mut self, row: ScalarOp, a: ExprId, b: usize) -> ExprId {
        let b = self.b.index_constant(b as u64);
        self.b.op(row, &[&a, &b])
    }

    /// Emits code that runs under a condition, or unconditionally.
    pub fn when(&mut self, condition: Option<ExprId>, body: &mut dyn FnMut(&mut Lowering<S>)) {
        let Some(condition) = condition else { return body(self) };
        self.b.open_block();
        self.scope(body);
        let then = self.b.close_block();
        self.b.push_stmt(Stmt::If { condition, then, otherwise: vec![] });
    }
}
