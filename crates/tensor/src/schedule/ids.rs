//! Names of the parts of a schedule.

use std::fmt;

use crate::Tensor;
use crate::graph::node::NodeId;

/// Number of a group of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupId(pub usize);

/// Memory that steps write: the value of a node, or memory between launches that is no node's value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct BufferId(NodeId);

impl BufferId {
    /// The value of a tensor.
    pub fn of(tensor: &Tensor) -> BufferId {
        BufferId(tensor.0.id)
    }

    /// Memory that is no node's value.
    pub fn unnamed() -> BufferId {
        BufferId(NodeId::new())
    }

    /// The node whose value it is, if it is one.
    pub fn node(self) -> NodeId {
        self.0
    }
}

impl From<NodeId> for BufferId {
    fn from(id: NodeId) -> BufferId {
        BufferId(id)
    }
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A buffer that a step writes, with its size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Output {
    pub buffer: BufferId,
    pub bytes: usize,
}

impl Output {
    /// The value of a tensor.
    pub fn of(tensor: &Tensor) -> Output {
        Output { buffer: BufferId::of(tensor), bytes: tensor.0.bytes() }
    }
}

/// Part of another buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct BufferSlice {
    pub whole: BufferId,
    /// First byte in it.
    pub offset: usize,
}
