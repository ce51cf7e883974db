//! Analysis of a group before it is lowered: the tensors in memory that its kernel reads, and those
//! among them that it reads only at the index of the output element it computes.
//!
//! It walks the same expressions as lowering, with abstract positions instead of indices. In-place
//! assignment decides by it, so that each group is lowered once;
//! [`lower_group`](super::lower_group) checks it against the kernel in debug builds.

use std::collections::HashSet;

use super::address::window;
use super::blocks::{self, BlockKernel};
use super::gpu_emulation::targets_gpu;
use super::group::{Group, IterationSpace, shared_bytes};
use super::indexing::{gathers_one_per_row, scatters_one_per_row};
use super::launch_shape::default_launch_shape;
use super::lowering::RowSpace;
use super::stages::stages;
use super::{broadcasts_rows, can_report_bad_index, is_identity, look_through, strided_view};
use crate::graph::node::{Node, NodeId, Op};
use crate::{Device, Tensor};

/// Tensors that a group's kernel reads.
pub(crate) struct GroupInputs {
    /// Tensors in memory, in order of first read.
    pub inputs: Vec<Tensor>,
    /// Inputs read only at the output's own index, so that an output may overwrite them.
    /// Conservative: an input whose index arithmetic happens to give the own index, as in a gather
    /// along a broadcast axis, may be missing.
    pub own_index_inputs: HashSet<NodeId>,
    /// If set, the kernel can report an out-of-range index.
    pub can_report_bad_index: bool,
}

/// Abstract index at which a value is read, relative to the output element.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Position {
    /// The output element's own index.
    Own,
    /// Another element of the same row or thread.
    SameRow,
    /// An element of the row that is gathered before the row is written.
    Gathered,
    /// The row index.
    Row,
    /// Any other index.
    Other,
}

impl Position {
    /// True if row and column of the position are known.
    fn is_in_row(self) -> bool {
        matches!(self, Position::Own | Position::SameRow | Position::Gathered)
    }
}

/// Analyzes the kernel of a group for a device.
pub(crate) fn analyze_inputs(group: &Group, device: Device) -> GroupInputs {
    let on_gpu = targets_gpu(device);
    let shape = if on_gpu { blocks::block_kernel(group, || shared_bytes(device)) } else { None };
    let row_space = group.space.row_space();
    let mut walk = InputWalk {
        row_space,
        computed: group.order.iter().map(|tensor| tensor.0.id).collect(),
        writes: false,
        known: vec![HashSet::new()],
        inputs: vec![],
        found: HashSet::new(),
        other_index_inputs: HashSet::new(),
    };
    let mut has_own_index = true;
    match (&shape, group.space) {
        (Some(BlockKernel::Rows(rows)), _) => walk.rows(group, rows.lanes, rows.in_registers()),
        (Some(BlockKernel::RowsWithColumnSums(summed)), _) => {
            walk.rows(group, summed.rows.lanes, summed.rows.in_registers())
        }
        (None, IterationSpace::Rows { .. }) => walk.rows(group, 1, false),
        (None, IterationSpace::Elements(elements)) => {
            let launch_shape = || group.launch_shape.unwrap_or_else(|| default_launch_shape(group, elements));
            let lanes = if on_gpu { launch_shape().lanes } else { 1 };
            group.outputs.iter().for_each(|output| walk.output(output, Position::Own, lanes));
        }
        (Some(BlockKernel::Columns(_) | BlockKernel::Tiles(_)), _) | (None, IterationSpace::Middle { .. }) => {
            has_own_index = false;
            for reduction in stages(group).reductions.into_iter().flatten() {
                walk.tensor(&reduction.tensor.0.inputs[0], Position::Other, 1);
            }
            group.outputs.iter().for_each(|output| walk.output(output, Position::Other, 1));
        }
    }
    let ids = walk.inputs.iter().map(|input| input.0.id);
    let own_index_inputs = ids.filter(|id| has_own_index && !walk.other_index_inputs.contains(id)).collect();
    GroupInputs {
        inputs: walk.inputs,
        own_index_inputs,
        can_report_bad_index: group.order.iter().any(|tensor| can_report_bad_index(&tensor.0)),
    }
}

struct InputWalk {
    /// Rows and columns of a row kernel.
    row_space: Option<RowSpace>,
    computed: HashSet<NodeId>,
    /// If set, a row kernel is at its last pass, which writes.
    writes: bool,
    /// Values already computed, as (node, position, lanes), innermost scope last.
    known: Vec<HashSet<(NodeId, Position, usize)>>,
    inputs: Vec<Tensor>,
    /// Ids of `inputs`.
    found: HashSet<NodeId>,
    other_index_inputs: HashSet<NodeId>,
}

impl InputWalk {
    /// A row kernel, in passes over the columns.
    fn rows(&mut self, group: &Group, lanes: usize, in_registers: bool) {
        let Some(row_space) = self.row_space else { return };
        let rows = row_space.rows;
        for tensor in &group.order {
            if scatters_one_per_row(&tensor.0, row_space) {
                self.tensor(&tensor.0.inputs[1], Position::Row, 1);
            }
        }
        let stages = stages(group);
        self.row_values(&stages.known[0], rows);
        for (n, stage) in stages.reductions.iter().enumerate() {
            self.pass(in_registers, |walk| {
                stage.iter().for_each(|reduction| walk.tensor(&reduction.tensor.0.inputs[0], Position::Own, lanes));
            });
            stage.iter().for_each(|reduction| self.remember(reduction.tensor.0.id, Position::Row, 1));
            self.row_values(&stages.known[n + 1], rows);
        }
        let (narrow, wide): (Vec<&Tensor>, Vec<&Tensor>) =
            group.outputs.iter().partition(|output| output.0.elements() == rows);
        self.pass(false, |walk| narrow.iter().for_each(|output| walk.output(output, Position::Row, 1)));
        self.writes = true;
        self.pass(in_registers, |walk| {
            group.column_sums.iter().for_each(|sum| walk.tensor(&sum.0.inputs[0], Position::Own, lanes));
            wide.iter().for_each(|output| walk.output(output, Position::Own, lanes));
        });
    }

    /// A pass over the columns. Values computed in a loop are not available after it; values in
    /// registers are.
    fn pass(&mut self, in_registers: bool, body: impl FnOnce(&mut InputWalk)) {
        if in_registers {
            return body(self);
        }
        self.known.push(HashSet::new());
        body(self);
        self.known.pop();
    }

    fn row_values(&mut self, tensors: &[&Tensor], rows: usize) {
        for tensor in tensors {
            let at = if tensor.0.elements() == rows { Position::Row } else { Position::Other };
            self.node(tensor, at, 1);
        }
    }

    fn output(&mut self, tensor: &Tensor, at: Position, lanes: usize) {
        match self.computed.contains(&tensor.0.id) {
            true => self.node(tensor, at, lanes),
            false => self.tensor(tensor, at, lanes),
        }
    }

    /// Reads a tensor through its views.
    fn tensor(&mut self, tensor: &Tensor, at: Position, lanes: usize) {
        let (base, views) = look_through(tensor);
        if base.0.op.is_constant() && !base.0.has_value() {
            return;
        }
        let Some(layout) = strided_view(base, &views) else {
            return self.tensor(&tensor.0.inputs[0], Position::Other, 1);
        };
        let same = is_identity(&layout);
        if !self.computed.contains(&base.0.id) {
            if self.found.insert(base.0.id) {
                self.inputs.push(base.clone());
            }
            let at_own_index = same && (at == Position::Own || at == Position::Gathered && lanes == 1);
            if !at_own_index || window(base, &layout).is_some() {
                self.other_index_inputs.insert(base.0.id);
            }
            return;
        }
        let by_row =
            self.row_space.is_some_and(|RowSpace { columns, .. }| at.is_in_row() && broadcasts_rows(&layout, columns));
        match (same, by_row) {
            (true, _) => self.node(base, at, lanes),
            (false, true) => self.node(base, Position::Row, 1),
            (false, false) => self.node(base, Position::Other, 1),
        }
    }

    /// Reads a node that the kernel computes.
    fn node(&mut self, tensor: &Tensor, at: Position, lanes: usize) {
        let node = &*tensor.0;
        if self.known.iter().any(|known| [1, lanes].iter().any(|lanes| known.contains(&(node.id, at, *lanes)))) {
            return;
        }
        match node.op.is_pointwise() {
            true => node.inputs.iter().for_each(|input| self.tensor(input, at, lanes)),
            // Each lane is computed separately.
            false => self.single_element(node, if lanes > 1 && at == Position::Own { Position::SameRow } else { at }),
        }
        self.remember(node.id, at, lanes);
    }

    /// One element of a node that is not pointwise.
    fn single_element(&mut self, node: &Node, at: Position) {
        match (&node.op, &node.inputs[..]) {
            (Op::Gather(_), [x, index]) => {
                self.tensor(index, at, 1);
                let gathers_from_row =
                    !at.is_in_row() && self.row_space.is_some_and(|row_space| gathers_one_per_row(node, row_space));
                let from = match (gathers_from_row, self.writes) {
                    (true, false) => Position::Gathered,
                    (true, true) => Position::SameRow,
                    (false, _) => Position::Other,
                };
                self.pass(false, |walk| walk.tensor(x, from, 1));
            }
            (Op::ScatterAdd(_), [x, index, values]) => {
                let by_row =
                    at.is_in_row() && self.row_space.is_some_and(|row_space| scatters_one_per_row(node, row_space));
                if by_row {
                    self.tensor(index, Position::Row, 1);
                }
                self.tensor(x, at, 1);
                let rest = if by_row { Position::Row } else { Position::Other };
                self.pass(by_row, |walk| [index, values].iter().for_each(|input| walk.tensor(input, rest, 1)));
            }
            (Op::Concat(axis), inputs) => {
                let nonempty = inputs.iter().filter(|input| input.0.shape[*axis] > 0);
                nonempty.for_each(|input| self.tensor(input, Position::Other, 1));
            }
            // Reductions are computed before they are read.
            (Op::Reduce(..), _) => {}
            (Op::Pad(..) | Op::Iota { .. } | Op::Random(_) | Op::Gather(_) | Op::ScatterAdd(_), inputs)
            | (
                Op::Map(_) | Op::Cast(_) | Op::Matmul | Op::Cumsum(_) | Op::ArgReduce(..) | Op::ArgSort { .. },
                inputs,
            )
            | (Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Slice(_) | Op::Checkpoint(_), inputs)
            | (Op::Failed(_) | Op::Data | Op::Var | Op::Input | Op::Output | Op::Full(_), inputs)
            | (Op::Detach | Op::After | Op::MultiOutput(_) | Op::GetOutput(_), inputs) => {
                inputs.iter().for_each(|input| self.tensor(input, Position::Other, 1));
            }
        }
    }

    fn remember(&mut self, id: NodeId, at: Position, lanes: usize) {
        if let Some(known) = self.known.last_mut() {
            known.insert((id, at, lanes));
        }
    }
}
