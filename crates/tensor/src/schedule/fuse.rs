//! Pass 4, fuse: groups of nodes that one kernel computes.
//!
//! Reads `nodes`, `calls` and `direct_writes`; adds `units` in execution order. Afterwards every
//! root is computed by one unit, and every value that a unit reads is in memory or stored by an
//! earlier unit.
//!
//! Nodes are visited in topological order. An elementwise op joins the group of an input that it
//! reads element by element. A reduction over the last axes turns the group into a row kernel, in
//! which later ops may read the row's result and reduce again. A value read by another group is
//! stored, or recomputed there if that moves fewer bytes (`recompute.rs`). No rule is specific to
//! softmax or layer norm: these rules fuse them into one kernel. `column_sums.rs` then attaches
//! column reductions to row kernels.

mod column_sums;
mod recompute;

use std::collections::{HashMap, HashSet};

use column_sums::attach_column_sums;

use super::{Schedule, is_source};
use crate::graph::infer::reduction_extents;
use crate::graph::node::{Node, NodeId, Op, Role};
use crate::lower::{
    Group, IterationSpace, broadcasts_rows, gathers_one_per_row, is_identity, look_through, scatters_one_per_row,
    strided_view, targets_gpu,
};
use crate::{Result, Tensor};

/// Maximum number of nodes per kernel; longer kernels take long to compile.
const MAX_NODES: usize = 96;
/// Maximum number of tensors that a kernel reads.
const MAX_INPUTS: usize = 24;

/// A unit of execution.
pub(super) enum WorkItem {
    /// One kernel for several nodes.
    Group(Group),
    /// A node that is not fused with others: a library call, a multi-output op, a direct write or
    /// an unfusible op.
    Single(Tensor),
}

/// A group under construction.
struct GroupBuilder {
    space: IterationSpace,
    nodes: Vec<usize>,
    /// Inputs from outside the group: ids of nodes and of tensors in memory.
    reads: HashSet<NodeId>,
    /// Groups that must run before it.
    depends_on: HashSet<usize>,
    /// The group that absorbed this one.
    merged_into: Option<usize>,
}

/// Access pattern by which a node reads another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AccessPattern {
    /// Element i reads element i.
    SameIndex,
    /// Every element of row i reads element i.
    PerRow,
    Other,
}

struct Fuser<'a> {
    /// The nodes to compute, in topological order.
    nodes: Vec<&'a Tensor>,
    /// Index in `nodes`.
    position: HashMap<NodeId, usize>,
    /// Group of each node, before merges.
    group: Vec<usize>,
    groups: Vec<GroupBuilder>,
    schedule: &'a Schedule,
}

/// Groups the nodes into units.
pub(super) fn fuse(schedule: &mut Schedule) -> Result<()> {
    let nodes: Vec<&Tensor> = schedule.nodes.values().collect();
    let position = nodes.iter().enumerate().map(|(n, t)| (t.0.id, n)).collect();
    let count = nodes.len();
    let mut fuser = Fuser { nodes, position, group: vec![usize::MAX; count], groups: vec![], schedule };
    for n in 0..count {
        fuser.assign_group(n);
    }
    let units = fuser.into_units(&schedule.root_ids);
    let attaches = schedule.fusion_enabled && targets_gpu(schedule.device);
    schedule.units = if attaches { attach_column_sums(units, schedule) } else { units };
    Ok(())
}

/// Ids of the nodes and of the tensors in memory that a node reads, looking through views.
fn reads(node: &Node) -> impl Iterator<Item = NodeId> + '_ {
    let read = node.reads().iter().map(|input| look_through(input).0);
    read.filter(|base| !base.0.op.is_constant()).map(|base| base.0.id)
}

/// True if each element of a node can be computed independently in the kernel that reads it.
fn is_computed_per_element(node: &Node) -> bool {
    match node.op.facts().role {
        Role::Pointwise | Role::Indexed => true,
        // With one index per slice along the axis, each element compares with one index.
        Role::Scatter => matches!(node.op, Op::ScatterAdd(axis) if node.inputs[1].0.shape.get(axis) == Some(&1)),
        Role::Source | Role::Constant | Role::View | Role::Reduction | Role::Single => false,
        Role::MultiOutput | Role::Output => false,
    }
}

impl<'a> Fuser<'a> {
    /// The group that holds a group's nodes after merges.
    fn current(&self, mut group: usize) -> usize {
        while let Some(next) = self.groups[group].merged_into {
            group = next;
        }
        group
    }

    fn group_of(&self, node: usize) -> usize {
        self.current(self.group[node])
    }

    /// The tensors that a node reads, and whether all of them from memory.
    fn inputs(&self, n: usize) -> (&'a [Tensor], bool) {
        let tensor = self.nodes[n];
        if is_source(tensor) {
            return (&[], false);
        }
        if let Some(inputs) = self.schedule.opaque_inputs(tensor) {
            return (inputs, true);
        }
        let inputs = match self.schedule.direct_writes.partial_writes.get(&tensor.0.id) {
            Some(write) => &write.reads,
            None if tensor.0.op.is_view() => std::slice::from_ref(tensor),
            None => tensor.0.reads(),
        };
        (inputs, false)
    }

    /// Groups of the nodes that must be computed before a node, which does not read them.
    fn precedents(&self, n: usize) -> impl Iterator<Item = usize> {
        let views = self.inputs(n).0.iter().flat_map(|input| look_through(input).1);
        let before = views.filter(|view| matches!(view.0.op, Op::After)).map(|view| look_through(&view.0.inputs[1]).0);
        before.filter_map(|before| self.group_of_id(before.0.id))
    }

    /// The nodes that a node reads, each with the input tensor through which it reads.
    fn producers(&self, n: usize) -> Vec<(usize, &'a Tensor)> {
        let (inputs, from_memory) = self.inputs(n);
        (inputs.iter())
            .filter_map(|input| {
                let (base, views) = look_through(input);
                let copied = views.iter().find_map(|view| self.position.get(&view.0.id)).filter(|_| from_memory);
                Some((*copied.or_else(|| self.position.get(&base.0.id))?, input))
            })
            .filter(|(from, _)| *from != n)
            .collect()
    }

    /// Access pattern by which `reader` reads `input` in a kernel over `space`.
    fn access_pattern(&self, reader: &Node, input: &Tensor, space: IterationSpace) -> AccessPattern {
        let (base, views) = look_through(input);
        let Some(layout) = strided_view(base, &views) else { return AccessPattern::Other };
        let same = is_identity(&layout);
        let row_space = space.row_space();
        let along_rows = match reader.op.facts().role {
            Role::Pointwise | Role::Reduction if same => return AccessPattern::SameIndex,
            Role::Pointwise | Role::Reduction => {
                let by_row =
                    row_space.is_some_and(|f| base.0.elements() == f.rows && broadcasts_rows(&layout, f.columns));
                return if by_row { AccessPattern::PerRow } else { AccessPattern::Other };
            }
            // Only a gather of one element per row.
            Role::Indexed => row_space.is_some_and(|row_space| gathers_one_per_row(reader, row_space)),
            Role::Scatter => row_space.is_some_and(|row_space| scatters_one_per_row(reader, row_space)),
            Role::Source | Role::Constant | Role::View | Role::Single | Role::MultiOutput | Role::Output => false,
        };
        if along_rows && same { AccessPattern::SameIndex } else { AccessPattern::Other }
    }

    /// Adds a node to a group, or starts a new one.
    fn assign_group(&mut self, n: usize) {
        let node = &*self.nodes[n].0;
        let producers = self.producers(n);
        let from: HashSet<usize> = producers.iter().map(|(from, _)| self.group_of(*from)).collect();
        let before: HashSet<usize> = from.iter().copied().chain(self.precedents(n)).collect();
        let own_space = match reduction_extents(node) {
            Some((outer, middle, inner)) if middle > 1 && outer * inner > 0 => match inner {
                1 => Some(IterationSpace::Rows { rows: outer, columns: middle }),
                _ => Some(IterationSpace::Middle { outer, middle, inner }),
            },
            _ if is_computed_per_element(node) || node.op.is_view() || node.op.is_constant() => {
                Some(IterationSpace::Elements(node.elements()))
            }
            _ => None,
        };
        let is_single = self.schedule.opaque_inputs(self.nodes[n]).is_some()
            || self.schedule.direct_writes.partial_writes.contains_key(&node.id);
        let Some(own_space) = own_space.filter(|_| node.elements() > 0 && !is_single && !is_source(self.nodes[n]))
        else {
            self.start(n, IterationSpace::Elements(0), before);
            return;
        };
        // Latest first: a node that joins an early group delays it until its other inputs are
        // computed.
        let mut candidates: Vec<usize> =
            if self.schedule.fusion_enabled { from.iter().copied().collect() } else { vec![] };
        // Prefer row groups: an elementwise group may hold one value per row.
        candidates.sort_unstable_by_key(|&group| {
            (!matches!(self.groups[group].space, IterationSpace::Rows { .. }), usize::MAX - group)
        });
        let candidates: Vec<(usize, IterationSpace)> = candidates
            .into_iter()
            .filter_map(|group| Some((group, self.space_with(n, group, own_space, &producers)?)))
            .collect();
        // Groups that the node reads elementwise can become one kernel, if neither depends on the
        // other through a third.
        if let Some(((first, _), more)) = candidates.split_first() {
            more.iter().for_each(|(other, _)| self.merge(*first, *other));
        }
        for (group, _) in candidates {
            let group = self.current(group);
            let others: HashSet<usize> =
                before.iter().map(|&other| self.current(other)).filter(|&o| o != group).collect();
            let Some(space) = self.space_with(n, group, own_space, &producers) else { continue };
            if others.iter().any(|&other| self.reaches(other, group)) || self.is_full(group, node) {
                continue;
            }
            let growing = &mut self.groups[group];
            growing.space = space;
            growing.nodes.push(n);
            growing.depends_on.extend(others);
            self.group[n] = group;
            self.add_reads(group, n);
            return;
        }
        match self.sibling_reduction(n, own_space, &before) {
            Some(group) => {
                let growing = &mut self.groups[group];
                growing.nodes.push(n);
                growing.depends_on.extend(before);
                self.group[n] = group;
                self.add_reads(group, n);
            }
            None => self.start(n, own_space, before),
        }
    }

    fn start(&mut self, n: usize, space: IterationSpace, depends_on: HashSet<usize>) {
        self.group[n] = self.groups.len();
        let reads = reads(&self.nodes[n].0).collect();
        self.groups.push(GroupBuilder { space, nodes: vec![n], reads, depends_on, merged_into: None });
    }

    /// Adds the inputs of a node that come from outside its group.
    fn add_reads(&mut self, group: usize, n: usize) {
        let outside: Vec<NodeId> = reads(&self.nodes[n].0).filter(|id| self.group_of_id(*id) != Some(group)).collect();
        self.groups[group].reads.extend(outside);
    }

    /// Group of the node with this id; `None` if it has none yet or is in memory.
    fn group_of_id(&self, id: NodeId) -> Option<usize> {
        self.position.get(&id).filter(|&&n| self.group[n] != usize::MAX).map(|&n| self.group_of(n))
    }

    /// True if one more node would exceed the limits of a kernel.
    fn is_full(&self, group: usize, node: &Node) -> bool {
        let growing = &self.groups[group];
        let more = reads(node).filter(|id| self.group_of_id(*id) != Some(group) && !growing.reads.contains(id)).count();
        growing.nodes.len() >= MAX_NODES || growing.reads.len() + more > MAX_INPUTS
    }

    /// Iteration space of a group extended by a node; `None` if the node cannot join.
    fn space_with(
        &self,
        n: usize,
        group: usize,
        own: IterationSpace,
        producers: &[(usize, &Tensor)],
    ) -> Option<IterationSpace> {
        let growing = &self.groups[group];
        if !self.fusible(group) {
            return None;
        }
        let space = match (growing.space, own) {
            (IterationSpace::Elements(have), IterationSpace::Elements(more)) if have == more => own,
            (IterationSpace::Elements(have), IterationSpace::Rows { rows, columns }) if have == rows * columns => own,
            (IterationSpace::Rows { rows, columns }, IterationSpace::Elements(more))
                if more == rows || more == rows * columns =>
            {
                growing.space
            }
            (IterationSpace::Middle { outer, inner, .. }, IterationSpace::Elements(more)) if more == outer * inner => {
                growing.space
            }
            (have, more) if have == more => have,
            _ => return None,
        };
        // A kernel that reduces a middle axis computes its input on the fly, so nodes of the
        // input's shape cannot join it.
        if let IterationSpace::Middle { .. } = space
            && matches!(own, IterationSpace::Middle { .. })
        {
            return None;
        }
        let fits = |(from, input): &(usize, &Tensor)| {
            self.group_of(*from) != group || self.can_read_in_kernel(n, *from, input, space)
        };
        producers.iter().all(fits).then_some(space)
    }

    /// True if a node can read another one computed in the same kernel.
    fn can_read_in_kernel(&self, n: usize, from: usize, input: &Tensor, space: IterationSpace) -> bool {
        let node = &*self.nodes[n].0;
        let (level, own) = (self.level(from, space), self.level(n, space));
        match self.access_pattern(node, input, space) {
            // Elements read elements and rows read rows; a gather reads from elements, a scatter
            // adds values that rows have.
            AccessPattern::SameIndex => match node.op.facts().role {
                Role::Indexed | Role::Scatter => std::ptr::eq(input, &node.inputs[0]) == (level == Level::Unreduced),
                Role::Reduction if matches!(space, IterationSpace::Rows { .. }) => level == Level::Unreduced,
                Role::Pointwise | Role::Reduction | Role::View | Role::Constant => level == own,
                Role::Source | Role::Single | Role::MultiOutput | Role::Output => level == own,
            },
            AccessPattern::PerRow => level == Level::Reduced && own == Level::Unreduced,
            AccessPattern::Other => false,
        }
    }

    /// Level of a node in a kernel: one value per element or per row.
    fn level(&self, n: usize, space: IterationSpace) -> Level {
        let elements = self.nodes[n].0.elements();
        match space {
            IterationSpace::Rows { rows, .. } if elements == rows => Level::Reduced,
            IterationSpace::Middle { outer, inner, .. } if elements == outer * inner => Level::Reduced,
            _ => Level::Unreduced,
        }
    }

    /// True if other nodes may join the group.
    fn fusible(&self, group: usize) -> bool {
        self.groups[group].space != IterationSpace::Elements(0)
    }

    /// A group that reduces the same middle axis, shares an input with the node, and neither
    /// depends on the other.
    fn sibling_reduction(&self, n: usize, space: IterationSpace, before: &HashSet<usize>) -> Option<usize> {
        if !self.schedule.fusion_enabled || !matches!(space, IterationSpace::Middle { .. }) {
            return None;
        }
        let node = &*self.nodes[n].0;
        // The same tensor, two outputs of one group, or one an input of the group that computes the
        // other.
        let computed_from =
            |a: NodeId, b: NodeId| self.group_of_id(a).is_some_and(|group| self.groups[group].reads.contains(&b));
        let common = |a: NodeId, b: NodeId| {
            let kernel = self.group_of_id(a);
            a == b || kernel.is_some() && kernel == self.group_of_id(b) || computed_from(a, b) || computed_from(b, a)
        };
        (0..self.groups.len()).rev().take(64).find(|&group| {
            let growing = &self.groups[group];
            growing.merged_into.is_none()
                && growing.space == space
                && growing.reads.iter().any(|&other| reads(node).any(|id| common(id, other)))
                && !self.is_full(group, node)
                && !before.contains(&group)
                && !before.iter().any(|&other| self.reaches(other, group))
        })
    }

    /// True if a group depends on another, directly or not.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let (from, to) = (self.current(from), self.current(to));
        let mut seen = HashSet::from([from]);
        let mut stack = vec![from];
        while let Some(group) = stack.pop() {
            if group == to {
                return true;
            }
            let next = self.groups[group].depends_on.iter().map(|&before| self.current(before));
            stack.extend(next.filter(|&before| seen.insert(before)));
        }
        false
    }

    /// True if a group depends on another through a third.
    fn reaches_indirectly(&self, from: usize, to: usize) -> bool {
        let third = self.groups[from].depends_on.iter().map(|&before| self.current(before));
        third.filter(|&third| third != to && third != from).any(|third| self.reaches(third, to))
    }

    /// Merges two groups into one kernel, if neither depends on the other through a third.
    fn merge(&mut self, into: usize, other: usize) {
        let (into, other) = (self.current(into), self.current(other));
        if into == other {
            return;
        }
        let space = match (self.groups[into].space, self.groups[other].space) {
            (a, b) if a == b => a,
            (space @ IterationSpace::Rows { rows, columns }, IterationSpace::Elements(n))
            | (IterationSpace::Elements(n), space @ IterationSpace::Rows { rows, columns })
                if n == rows * columns || n == rows =>
            {
                space
            }
            _ => return,
        };
        let [a, b] = [&self.groups[into], &self.groups[other]];
        let both: HashSet<NodeId> = a.reads.union(&b.reads).copied().collect();
        let both: HashSet<NodeId> =
            both.into_iter().filter(|id| self.group_of_id(*id).is_none_or(|g| g != into && g != other)).collect();
        let large = a.nodes.len() + b.nodes.len() > MAX_NODES || both.len() > MAX_INPUTS;
        if matches!(space, IterationSpace::Middle { .. })
            || large
            || self.reaches_indirectly(into, other)
            || self.reaches_indirectly(other, into)
        {
            return;
        }
        // Reads between the two must be possible within one kernel.
        let between = |n: usize, other: usize| {
            let producers = self.producers(n);
            producers
                .iter()
                .all(|(from, input)| self.group_of(*from) != other || self.can_read_in_kernel(n, *from, input, space))
        };
        let all = |group: usize, other: usize| self.groups[group].nodes.iter().all(|&n| between(n, other));
        if !all(into, other) || !all(other, into) {
            return;
        }
        let absorbed = std::mem::take(&mut self.groups[other].nodes);
        let before = self.groups[other].depends_on.clone();
        self.groups[other].merged_into = Some(into);
        let growing = &mut self.groups[into];
        growing.space = space;
        growing.nodes.extend(absorbed);
        growing.nodes.sort_unstable();
        growing.reads = both;
        growing.depends_on.extend(before);
        let before: HashSet<usize> = std::mem::take(&mut self.groups[into].depends_on);
        self.groups[into].depends_on = before.into_iter().map(|g| self.current(g)).filter(|&g| g != into).collect();
    }
}

/// Granularity of a node's values in a kernel: one per element, or one per reduced output (a row,
/// or a column of a middle axis).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Unreduced,
    Reduced,
}
