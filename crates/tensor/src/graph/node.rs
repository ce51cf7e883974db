//! Nodes of the lazy graph and the set of graph ops. Properties of ops that the scheduler uses are
//! in `node/facts.rs`.

mod facts;
mod snapshot;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bornite_ir::Value;

use crate::graph::checkpoint::CheckpointGradient;
use crate::graph::multi_output::{self, MultiOutput};
use crate::runtime::buffer::Buffer;
use crate::{DType, Device, Error, SourceLocation, Tensor};
pub(crate) use facts::{Flops, Role};
pub(crate) use snapshot::with_snapshot;

/// The operator of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduce {
    Sum,
    Prod,
    Max,
    Min,
}

/// A slice of one axis: `len` elements from `start`, `step` apart; `step` may be negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AxisSlice {
    pub start: usize,
    pub step: isize,
    pub len: usize,
}

impl AxisSlice {
    /// The complete axis.
    pub fn full(len: usize) -> AxisSlice {
        AxisSlice { start: 0, step: 1, len }
    }
}

/// The closed set of graph ops. All other operations are functions over these.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// An error, carried to the first read.
    Failed(Error),
    /// Values from the user.
    Data,
    /// The value of a variable. Its storage may be overwritten: see `runtime/var.rs`.
    Var,
    /// An argument of a function being traced, or a variable read in it: a placeholder without
    /// value.
    Input,
    /// An output of a trace. Its storage may be overwritten: see `runtime/trace.rs`.
    Output,
    /// A constant: one value for all elements.
    Full(Value),
    /// A scalar op applied elementwise; inputs have the same shape.
    Map(bornite_ir::Op),
    /// Conversion to the node's dtype.
    Cast(DType),
    /// Reduction over sorted axes, which are removed.
    Reduce(Reduce, Vec<usize>),
    /// `[…, m, k] · […, k, n]` with equal leading axes.
    Matmul,
    /// The same elements in the same order under another shape.
    Reshape(Vec<usize>),
    /// Axes of length 1 repeated, to this shape of the same rank.
    Expand(Vec<usize>),
    /// Axis `n` of the output is this axis of the input.
    Permute(Vec<usize>),
    /// A slice of every axis.
    Slice(Vec<AxisSlice>),
    /// The inverse of a slice: the elements at these positions of a larger shape, a constant
    /// everywhere else.
    Pad(Vec<AxisSlice>, Vec<usize>, Value),
    /// Concatenation along an axis.
    Concat(usize),
    /// Inputs are `x` and an index tensor whose shape differs along one axis only: selects elements
    /// of `x` along that axis.
    Gather(usize),
    /// Inputs are `x`, an index tensor and values of the index's shape: `x` with each value added
    /// at its index along the axis, in order.
    ScatterAdd(usize),
    /// Cumulative sum along an axis.
    Cumsum(usize),
    /// Index of the largest or smallest element along an axis, the first of equal ones. The axis is
    /// removed.
    ArgReduce(Reduce, usize),
    /// Indices of a stable sort along an axis; NaN counts as largest.
    ArgSort { axis: usize, descending: bool },
    /// The index along an axis.
    Iota { axis: usize },
    /// Random 32-bit words of this shape; the input is a seed and an offset.
    Random(Vec<usize>),
    /// The first input, which the function computed from the others; the gradient runs the function
    /// again.
    Checkpoint(CheckpointGradient),
    /// An op with several outputs, which are [`Op::GetOutput`] nodes; has no value itself. See
    /// `multi_output.rs`.
    MultiOutput(Arc<MultiOutput>),
    /// The n-th output of its input, a multi-output node.
    GetOutput(usize),
    /// The same value; no gradient flows through it.
    Detach,
    /// The first input, for readers that run after the second is computed.
    After,
}

impl Op {
    /// Name in messages and of kernels.
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
            Op::GetOutput(_) => "get_output",
            Op::Detach => "detach",
            Op::After => "after",
        }
    }

    /// True if the storage belongs to a variable or a trace, which may overwrite it later.
    pub fn storage_may_move(&self) -> bool {
        matches!(self, Op::Var | Op::Output)
    }
}

/// Identity of a node. Ids increase as nodes are created, so the order of ids is a topological
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NodeId(u64);

impl NodeId {
    /// A new unique id.
    pub fn new() -> NodeId {
        NodeId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// A lower bound of the ids of nodes created from now on.
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
    /// The elements, if computed. The handle may be replaced by one with equal contents.
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

    /// A placeholder of the same dtype, shape and device, without value or inputs.
    pub fn without_history(&self) -> Node {
        Node::new(Op::Input, self.dtype, self.shape.clone(), self.device, vec![], self.location)
    }

    pub fn value(&self) -> Option<Buffer> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_value(&self, value: Buffer) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// Sets the value if there is none. If two threads compute a node the first value stays, since
    /// it may have been read.
    pub fn set_value_once(&self, value: Buffer) {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(value);
    }

    /// True if the node has a value now. Scheduler passes call [`has_value`](Node::has_value)
    /// instead.
    pub fn has_value_now(&self) -> bool {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Name in messages and of kernels: for an output of a multi-output op, that of the op.
    pub fn name(&self) -> &'static str {
        match (&self.op, self.inputs.first()) {
            (Op::GetOutput(_), Some(multi_output)) => multi_output.0.op.name(),
            (op, _) => op.name(),
        }
    }

    /// The tensors that the value is computed from.
    pub fn reads(&self) -> &[Tensor] {
        match (&self.op, self.inputs.first()) {
            (Op::Checkpoint(_) | Op::After, _) => &self.inputs[..1],
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
    /// Drops long chains iteratively: recursion would overflow the stack.
    fn drop(&mut self) {
        let mut rest = std::mem::take(&mut self.inputs);
        while let Some(Tensor(node)) = rest.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                rest.append(&mut node.inputs);
            }
        }
    }
}
