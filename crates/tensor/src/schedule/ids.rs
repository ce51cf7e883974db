//! Ids of groups and buffers of a schedule.

use std::fmt;

use crate::Tensor;
use crate::graph::node::NodeId;

/// Index of a group of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupId(pub usize);

/// A buffer that steps write: the value of a node, or a temporary between launches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct BufferId(NodeId);

impl BufferId {
    /// The buffer of a tensor's value.
    pub fn of(tensor: &Tensor) -> BufferId {
        BufferId(tensor.0.id)
    }

    /// A new temporary.
    pub fn temporary() -> BufferId {
        BufferId(NodeId::new())
    }

    /// Id of the node whose value it holds; of no node if it is a temporary.
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
    /// The buffer of a tensor's value.
    pub fn of(tensor: &Tensor) -> Output {
        Output { buffer: BufferId::of(tensor), bytes: tensor.0.bytes() }
    }
}

/// Position of a buffer within another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct BufferSlice {
    pub parent: BufferId,
    /// First byte within the parent.
    pub offset: usize,
}
