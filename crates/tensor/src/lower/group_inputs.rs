//! Analysis of a group before it is lowered: the tensors in memory that its kernel reads, and which of them it reads in step.
//!
//! It follows the same expressions as lowering, with positions instead of indices. In-place assignment decides by it, so that each
//! group is lowered once; [`lower_group`](super::lower_group) checks it against the kernel in debug builds.

use std::collections::HashSet;

use super::address::window;
use super::blocks::{self, BlockKernel};
use super::gpu_emulation::targets_gpu;
use super::group::{Group, IterationSpace, shared_bytes};
use super::indexing::{gathers_one_per_row, scatters_one_per_row};
use super::launch_shape::default_launch_shape;
use super::lowering::RowSpace;
use super::stages::stages;
use super::{broadcasts_rows, is_identity, look_through, reports, strided_view};
use crate::graph::node::{Node, NodeId, Op};
use crate::{Device, Tensor};

/// Tensors that a group's kernel reads.
pub(crate) struct Reads {
    /// Tensors in memory, in the order in which they are first read.
    pub inputs: Vec<Tensor>,
    /// Those of which each element is read for the same element of the results alone. One that is only by arithmetic, as a gather
    /// from a repeated axis is, need not be among them.
    pub own_index_inputs: HashSet<NodeId>,
    /// Whether it can meet a bad index.
    pub reports: bool,
}

/// Position at which a value is needed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    /// The element that the thread is at.
    Own,
    /// Another element of the row, or of the thread.
    Near,
    /// An element of the row that is picked before the row is written.
    Picked,
    /// The row's number.
    Row,
    /// Any other.
    Elsewhere,
}

impl At {
    /// Whether row and column of the position are known.
    fn is_in_row(self) -> bool {
        matches!(self, At::Own | At::Near | At::Picked)
    }
}

/// Analyses a group for a device.
pub(crate) fn reads(group: &Group, device: Device) -> Reads {
    let on_gpu = targets_gpu(device);
    let shape = if on_gpu { blocks::shape(group, || shared_bytes(device)) } else { None };
    let row_space = group.space.row_space();
    let mut walk = Walk {
        row_space,
        computed: group.order.iter().map(|tensor| tensor.0.id).collect(),
        writes: false,
        known: vec![HashSet::new()],
        inputs: vec![],
        found: HashSet::new(),
        other_index_inputs: HashSet::new(),
    };
    let mut steps = true;
    match (&shape, group.space) {
        (Some(BlockKernel::Rows(rows)), _) => walk.rows(group, rows.lanes, rows.in_registers()),
        (Some(BlockKernel::ColumnSumLaunch(summed)), _) => {
            walk.rows(group, summed.rows.lanes, summed.rows.in_registers())
        }
        (None, IterationSpace::Rows { .. }) => walk.rows(group, 1, false),
        (None, IterationSpace::Elements(elements)) => {
            let launch_shape = || group.launch_shape.unwrap_or_else(|| default_launch_shape(group, elements));
            let lanes = if on_gpu { launch_shape().lanes } else { 1 };
            group.outputs.iter().for_each(|output| walk.output(output, At::Own, lanes));
        }
        (Some(BlockKernel::Columns(_) | BlockKernel::Tiles(_)), _) | (None, IterationSpace::Middle { .. }) => {
            steps = false;
            for reduction in stages(group).reductions.into_iter().flatten() {
                walk.tensor(&reduction.tensor.0.inputs[0], At::Elsewhere, 1);
            }
            group.outputs.iter().for_each(|output| walk.output(output, At::Elsewhere, 1));
        }
    }
    let ids = walk.inputs.iter().map(|input| input.0.id);
    let own_index_inputs = ids.filter(|id| steps && !walk.other_index_inputs.contains(id)).collect();
    Reads { inputs: walk.inputs, own_index_inputs, reports: group.order.iter().any(|tensor| reports(&tensor.0)) }
}

struct Walk {
    /// Rows and columns, in a kernel over rows.
    row_space: Option<RowSpace>,
    computed: HashSet<NodeId>,
    /// Whether a kernel over rows is at its last pass, which writes.
    writes: bool,
    /// Values that are known, innermost scope last: node, position, lanes.
    known: Vec<HashSet<(NodeId, At, usize)>>,
    inputs: Vec<Tensor>,
    /// Ids of `inputs`.
    found: HashSet<NodeId>,
    other_index_inputs: HashSet<NodeId>,
}

impl Walk {
    /// A kernel over rows, in passes over the columns.
    fn rows(&mut self, group: &Group, lanes: usize, in_registers: bool) {
        let Some(row_space) = self.row_space else { return };
        let rows = row_space.rows;
        for tensor in &group.order {
            if scatters_one_per_row(&tensor.0, row_space) {
                self.tensor(&tensor.0.inputs[1], At::Row, 1);
            }
        }
        let stages = stages(group);
        self.row_values(&stages.known[0], rows);
        for (n, stage) in stages.reductions.iter().enumerate() {
            self.pass(in_registers, |walk| {
                stage.iter().for_each(|reduction| walk.tensor(&reduction.tensor.0.inputs[0], At::Own, lanes));
            });
            stage.iter().for_each(|reduction| self.remember(reduction.tensor.0.id, At::Row, 1));
            self.row_values(&stages.known[n + 1], rows);
        }
        let (narrow, wide): (Vec<&Tensor>, Vec<&Tensor>) =
            group.outputs.iter().partition(|output| output.0.elements() == rows);
        self.pass(false, |walk| narrow.iter().for_each(|output| walk.output(output, At::Row, 1)));
        self.writes = true;
        self.pass(in_registers, |walk| {
            group.column_sums.iter().for_each(|sum| walk.tensor(&sum.0.inputs[0], At::Own, lanes));
            wide.iter().for_each(|output| walk.output(output, At::Own, lanes));
        });
    }

    /// A pass over the columns. A loop forgets what it has computed; registers do not.
    fn pass(&mut self, in_registers: bool, body: impl FnOnce(&mut Walk)) {
        if in_registers {
            return body(self);
        }
        self.known.push(HashSet::new());
        body(self);
        self.known.pop();
    }

    fn row_values(&mut self, tensors: &[&Tensor], rows: usize) {
        for tensor in tensors {
            let at = if tensor.0.elements() == rows { At::Row } else { At::Elsewhere };
            self.node(tensor, at, 1);
        }
    }

    fn output(&mut self, tensor: &Tensor, at: At, lanes: usize) {
        match self.computed.contains(&tensor.0.id) {
            true => self.node(tensor, at, lanes),
            false => self.tensor(tensor, at, lanes),
        }
    }

    /// Elements of a tensor, through the views between.
    fn tensor(&mut self, tensor: &Tensor, at: At, lanes: usize) {
        let (base, views) = look_through(tensor);
        if base.0.op.is_constant() && !base.0.has_value() {
            return;
        }
        let Some(place) = strided_view(base, &views) else { return self.tensor(&tensor.0.inputs[0], At::Elsewhere, 1) };
        let same = is_identity(&place);
        if !self.computed.contains(&base.0.id) {
            if self.found.insert(base.0.id) {
                self.inputs.push(base.clone());
            }
            let in_step = same && (at == At::Own || at == At::Picked && lanes == 1);
            if !in_step || window(base, &place).is_some() {
                self.other_index_inputs.insert(base.0.id);
            }
            return;
        }
        let by_row =
            self.row_space.is_some_and(|RowSpace { columns, .. }| at.is_in_row() && broadcasts_rows(&place, columns));
        match (same, by_row) {
            (true, _) => self.node(base, at, lanes),
            (false, true) => self.node(base, At::Row, 1),
            (false, false) => self.node(base, At::Elsewhere, 1),
        }
    }

    /// Elements of a node that the kernel computes.
    fn node(&mut self, tensor: &Tensor, at: At, lanes: usize) {
        let node = &*tensor.0;
        if self.known.iter().any(|known| [1, lanes].iter().any(|lanes| known.contains(&(node.id, at, *lanes)))) {
            return;
        }
        match node.op.is_pointwise() {
            true => node.inputs.iter().for_each(|input| self.tensor(input, at, lanes)),
            // Each lane is computed apart.
            false => self.apart(node, if lanes > 1 && at == At::Own { At::Near } else { at }),
        }
        self.remember(node.id, at, lanes);
    }

    /// One element of a node that is neither a map nor a cast.
    fn apart(&mut self, node: &Node, at: At) {
        match (&node.op, &node.inputs[..]) {
            (Op::Gather(_), [x, index]) => {
                self.tensor(index, at, 1);
                let picks =
                    !at.is_in_row() && self.row_space.is_some_and(|row_space| gathers_one_per_row(node, row_space));
                let from = match (picks, self.writes) {
                    (true, false) => At::Picked,
                    (true, true) => At::Near,
                    (false, _) => At::Elsewhere,
                };
                self.pass(false, |walk| walk.tensor(x, from, 1));
            }
            (Op::ScatterAdd(_), [x, index, values]) => {
                let by_row =
                    at.is_in_row() && self.row_space.is_some_and(|row_space| scatters_one_per_row(node, row_space));
                if by_row {
                    self.tensor(index, At::Row, 1);
                }
                self.tensor(x, at, 1);
                let rest = if by_row { At::Row } else { At::Elsewhere };
                self.pass(by_row, |walk| [index, values].iter().for_each(|input| walk.tensor(input, rest, 1)));
            }
            (Op::Concat(axis), inputs) => {
                let nonempty = inputs.iter().filter(|input| input.0.shape[*axis] > 0);
                nonempty.for_each(|input| self.tensor(input, At::Elsewhere, 1));
            }
            // A reduction is known by now.
            (Op::Reduce(..), _) => {}
            (Op::Pad(..) | Op::Iota { .. } | Op::Random(_) | Op::Gather(_) | Op::ScatterAdd(_), inputs)
            | (
                Op::Map(_) | Op::Cast(_) | Op::Matmul | Op::Cumsum(_) | Op::ArgReduce(..) | Op::ArgSort { .. },
                inputs,
            )
            | (Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Slice(_) | Op::Checkpoint(_), inputs)
            | (Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_), inputs)
            | (Op::Detach | Op::MultiOutput(_) | Op::GetOutput(_), inputs) => {
                inputs.iter().for_each(|input| self.tensor(input, At::Elsewhere, 1));
            }
        }
    }

    fn remember(&mut self, id: NodeId, at: At, lanes: usize) {
        if let Some(known) = self.known.last_mut() {
            known.insert((id, at, lanes));
        }
    }
}
