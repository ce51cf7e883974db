//! Nodes of the lazy graph: what an operation is, and what a node remembers.

mod facts;
mod snapshot;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bornite_ir::Value;

use crate::graph::checkpoint::Recompute;
use crate::graph::multi_output::{self, MultiOutput};
use crate::runtime::buffer::Buffer;
use crate::{DType, Device, Error, SourceLocation, Tensor};
pub(crate) use facts::{Flops, Role};
pub(crate) use snapshot::with_snapshot;

/// How elements along reduced axes become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduce {
    Sum,
    Prod,
    Max,
    Min,
}

/// Every `step`-th of an axis from `start`, `len` of them; backwards where the step is negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AxisSlice {
    pub start: usize,
    pub step: isize,
    pub len: usize,
}

impl AxisSlice {
    /// All of an axis.
    pub fn full(len: usize) -> AxisSlice {
        AxisSlice { start: 0, step: 1, len }
    }
}

/// The closed set of graph operations. Everything else is a function over these.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// An earlier mistake, carried to the first read.
    Failed(Error),
    /// Values given by the user.
    Data,
    /// A version of a variable. Its storage may move: see `var.rs`.
    Var,
    /// An argument of a function under trace, or a variable read there: no value of its own.
    Input,
    /// A result of a trace. Its storage may move: see `trace.rs`.
    Output,
    /// One value everywhere.
    Full(Value),
    /// A row of the op table, element by element; inputs have one shape.
    Map(bornite_ir::Op),
    /// Conversion to the node's dtype.
    Cast(DType),
    /// Reduction over sorted axes, which vanish.
    Reduce(Reduce, Vec<usize>),
    /// `[…, m, k] · […, k, n]` with equal leading axes.
    Matmul,
    /// The same elements in the same order under another shape.
    Reshape(Vec<usize>),
    /// Axes of length 1 repeated, to this shape of the same rank.
    Expand(Vec<usize>),
    /// Axis `n` of the result is this axis of the input.
    Permute(Vec<usize>),
    /// Some elements of each axis.
    Slice(Vec<AxisSlice>),
    /// What a slice undoes: the elements in those places of a larger shape, one value everywhere else.
    Pad(Vec<AxisSlice>, Vec<usize>, Value),
    /// One input after the other along an axis.
    Concat(usize),
    /// `x` and an index tensor that differs from it along one axis only: the element that the index names there.
    Gather(usize),
    /// `x`, an index tensor and values of its shape: `x` with each value added where the index names along the axis, in
    /// order.
    ScatterAdd(usize),
    /// Running sums along an axis.
    Cumsum(usize),
    /// Where along an axis the largest or smallest element is; the first of equal ones. The axis vanishes.
    ArgReduce(Reduce, usize),
    /// The order that sorts an axis; equal elements keep theirs, NaN counts as largest.
    ArgSort { axis: usize, descending: bool },
    /// The place along an axis.
    Iota { axis: usize },
    /// Random 32-bit words of this shape, from a seed and an offset.
    Random(Vec<usize>),
    /// Its first input, which a function made of the others; the gradient runs the function again.
    Checkpoint(Recompute),
    /// Results computed together, which are parts; no value of its own. Inputs: see `multi_output.rs`.
    MultiOutput(Arc<MultiOutput>),
    /// The n-th result of its joint input.
    GetOutput(usize),
    /// The same value without history.
    Detach,
}

impl Op {
    /// The name in messages and of kernels.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Failed(_) => "failed",
            Op::Data => "data",
            Op::Var => "var",
            Op::Input => "input",
            Op::Output => "output",
            Op::Full(_) => "full",
            Op::Map(op) => op.row().name,
            Op::Cast(_) => "cast",
            Op::Reduce(Reduce::Sum, _) => "sum",
            Op::Reduce(Reduce::Prod, _) => "prod",
            Op::Reduce(Reduce::Max, _) => "max",
            Op::Reduce(Reduce::Min, _) => "min",
            Op::Matmul => "matmul",
            Op::Reshape(_) => "reshape",
            Op::Expand(_) => "expand",
            Op::Permute(_) => "permute",
            Op::Slice(_) => "slice",
            Op::Pad(..) => "pad",
            Op::Concat(_) => "concat",
            Op::Gather(_) => "gather",
            Op::ScatterAdd(_) => "scatter_add",
            Op::Cumsum(_) => "cumsum",
            Op::ArgReduce(Reduce::Min, _) => "argmin",
            Op::ArgReduce(..) => "argmax",
            Op::ArgSort { .. } => "argsort",
            Op::Iota { .. } => "iota",
            Op::Random(_) => "random",
            Op::Checkpoint(_) => "checkpoint",
            Op::MultiOutput(multi_output) => multi_output.name,
            Op::GetOutput(_) => "part",
            Op::Detach => "detach",
        }
    }

    /// True if the node's storage belongs to a variable or a trace, which may write it later.
    pub fn storage_may_move(&self) -> bool {
        matches!(self, Op::Var | Op::Output)
    }
}

/// Identity of a node. Ids rise as nodes are made, so the order of ids is a topological order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NodeId(u64);

impl NodeId {
    /// An id that no other node has.
    pub fn new() -> NodeId {
        NodeId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The id that the next node will have, or one below it.
    pub fn upcoming() -> NodeId {
        NodeId(NEXT.load(Ordering::Relaxed))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A node of the graph.
pub(crate) struct Node {
    pub id: NodeId,
    pub op: Op,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub device: Device,
    pub inputs: Vec<Tensor>,
    pub location: SourceLocation,
    /// The elements, once computed or given. The handle may be exchanged for one with equal contents.
    value: Mutex<Option<Buffer>>,
}

/// The id of the next node.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Node {
    pub fn new(
        op: Op,
        dtype: DType,
        shape: Vec<usize>,
        device: Device,
        inputs: Vec<Tensor>,
        location: SourceLocation,
    ) -> Node {
        let id = NodeId::new();
        Node { id, op, dtype, shape, device, inputs, location, value: Mutex::new(None) }
    }

    /// A node without inputs that holds a value.
    pub fn leaf(op: Op, like: &Node, location: SourceLocation, value: Buffer) -> Node {
        let node = Node::new(op, like.dtype, like.shape.clone(), like.device, vec![], location);
        node.set_value(value);
        node
    }

    /// A node of the same kind without value or inputs.
    pub fn without_history(&self) -> Node {
        Node::new(Op::Input, self.dtype, self.shape.clone(), self.device, vec![], self.location)
    }

    pub fn value(&self) -> Option<Buffer> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_value(&self, value: Buffer) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// Sets the value unless there is one: of two threads that compute a node the first decides, since its value may have been read.
    pub fn set_value_once(&self, value: Buffer) {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(value);
    }

    /// True if the node has a value at this moment. Code that makes plans asks [`has_value`](Node::has_value).
    pub fn has_value_now(&self) -> bool {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The name in messages and of kernels: for a part, that of what computes it.
    pub fn name(&self) -> &'static str {
        match (&self.op, self.inputs.first()) {
            (Op::GetOutput(_), Some(multi_output)) => multi_output.0.op.name(),
            (op, _) => op.name(),
        }
    }

    /// The tensors that its value is computed from.
    pub fn reads(&self) -> &[Tensor] {
        match (&self.op, self.inputs.first()) {
            (Op::Checkpoint(_), _) => &self.inputs[..1],
            (Op::GetOutput(_), Some(multi_output)) => {
                multi_output::as_multi_output(&multi_output.0).map_or(&[], |(_, inputs)| inputs)
            }
            _ => &self.inputs,
        }
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes()
    }
}

impl Drop for Node {
    /// Takes long chains apart one by one: dropping them by recursion would overflow the stack.
    fn drop(&mut self) {
        let mut rest = std::mem::take(&mut self.inputs);
        while let Some(Tensor(node)) = rest.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                rest.append(&mut node.inputs);
            }
        }
    }
}
