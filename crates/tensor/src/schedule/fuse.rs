//! Pass 4, fuse: which nodes one kernel computes.
//!
//! Reads nodes, calls and `direct_writes`; adds units, in an order in which they can run. Afterwards every root is computed by one unit, and
//! every value that a unit reads is in memory or stored by a unit before it.
//!
//! Nodes are taken in order. An elementwise op joins the kernel of an input that it reads element by element; a reduction
//! over the last axes makes it a kernel over rows, where later ops read the result of their row and may reduce again.
//! What another kernel reads is stored, or computed there again where that moves fewer bytes. Nothing here knows softmax
//! or layer norm: they come out as one kernel by these rules.

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

/// Most nodes of a kernel: longer ones take long to compile.
const MAX_NODES: usize = 96;
/// Most tensors that a kernel reads.
const MAX_INPUTS: usize = 24;

/// What computes some nodes.
pub(super) enum Unit {
    /// One kernel for several nodes.
    Group(Group),
    /// A node by itself: `steps.rs` knows how.
    Single(Tensor),
}

/// A group as it grows.
struct GroupBuilder {
    space: IterationSpace,
    nodes: Vec<usize>,
    /// What it reads from elsewhere: ids of nodes and of tensors in memory.
    reads: HashSet<NodeId>,
    /// Groups that must come before.
    after: HashSet<usize>,
    /// Where its nodes went, if they joined another group.
    merged: Option<usize>,
}

/// How a node reads another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// Element by element.
    Aligned,
    /// Rows read the element that has their number.
    Rows,
    Other,
}

struct Fuser<'a> {
    /// The nodes to compute, inputs first; and where each is.
    nodes: Vec<&'a Tensor>,
    position: HashMap<NodeId, usize>,
    /// The group of each node.
    group: Vec<usize>,
    groups: Vec<GroupBuilder>,
    schedule: &'a Schedule,
}

/// Finds the units that compute the roots, and other nodes where they need them.
pub(super) fn fuse(schedule: &mut Schedule) -> Result<()> {
    let nodes: Vec<&Tensor> = schedule.nodes.values().collect();
    let position = nodes.iter().enumerate().map(|(n, t)| (t.0.id, n)).collect();
    let count = nodes.len();
    let mut fuser = Fuser { nodes, position, group: vec![usize::MAX; count], groups: vec![], schedule };
    for n in 0..count {
        fuser.place(n);
    }
    let units = fuser.cut(&schedule.root_ids);
    schedule.units =
        if schedule.fusion_enabled && targets_gpu(schedule.device) { attach_column_sums(units) } else { units };
    Ok(())
}

/// What a node reads, behind views: ids of nodes and of tensors in memory.
fn reads(node: &Node) -> impl Iterator<Item = NodeId> + '_ {
    let read = node.reads().iter().map(|input| look_through(input).0);
    read.filter(|base| !base.0.op.is_constant()).map(|base| base.0.id)
}

/// True if a node's value is computed element by element where it is read.
fn is_elementwise(node: &Node) -> bool {
    match node.op.facts().role {
        Role::Pointwise | Role::Indexed => true,
        // One value for each line: each element looks at one index.
        Role::Scatter => matches!(node.op, Op::ScatterAdd(axis) if node.inputs[1].0.shape.get(axis) == Some(&1)),
        Role::Source | Role::Constant | Role::View | Role::Reduction | Role::Single => false,
        Role::MultiOutput | Role::Output => false,
    }
}

impl<'a> Fuser<'a> {
    /// The group that a group's nodes are in by now.
    fn current(&self, mut group: usize) -> usize {
        while let Some(next) = self.groups[group].merged {
            group = next;
        }
        group
    }

    fn group_of(&self, node: usize) -> usize {
        self.current(self.group[node])
    }

    /// The nodes that a node reads, each with the input by which it does.
    fn edges(&self, n: usize) -> Vec<(usize, &'a Tensor)> {
        let tensor = self.nodes[n];
        if is_source(tensor) {
            return vec![];
        }
        let call = self.schedule.call_inputs(tensor);
        let own: &[Tensor] = match self.schedule.direct_writes.writes.get(&tensor.0.id) {
            Some(placed) => &placed.reads,
            None if tensor.0.op.is_view() => std::slice::from_ref(tensor),
            None => tensor.0.reads(),
        };
        let (inputs, from_memory) = (call.unwrap_or(own), call.is_some());
        (inputs.iter())
            .filter_map(|input| {
                let (base, views) = look_through(input);
                let copied = views.iter().find_map(|view| self.position.get(&view.0.id)).filter(|_| from_memory);
                Some((*copied.or_else(|| self.position.get(&base.0.id))?, input))
            })
            .filter(|(from, _)| *from != n)
            .collect()
    }

    /// How a node of a kernel over rows reads another.
    fn edge(&self, reader: &Node, input: &Tensor, space: IterationSpace) -> Edge {
        let (base, views) = look_through(input);
        let Some(place) = strided_view(base, &views) else { return Edge::Other };
        let same = is_identity(&place);
        let row_space = space.row_space();
        let along_rows = match reader.op.facts().role {
            Role::Pointwise | Role::Reduction if same => return Edge::Aligned,
            Role::Pointwise | Role::Reduction => {
                let by_row =
                    row_space.is_some_and(|f| base.0.elements() == f.rows && broadcasts_rows(&place, f.columns));
                return if by_row { Edge::Rows } else { Edge::Other };
            }
            // Of those, a gather that picks an element of each row.
            Role::Indexed => row_space.is_some_and(|row_space| gathers_one_per_row(reader, row_space)),
            Role::Scatter => row_space.is_some_and(|row_space| scatters_one_per_row(reader, row_space)),
            Role::Source | Role::Constant | Role::View | Role::Single | Role::MultiOutput | Role::Output => false,
        };
        if along_rows && same { Edge::Aligned } else { Edge::Other }
    }

    /// Puts a node into a group.
    fn place(&mut self, n: usize) {
        let node = &*self.nodes[n].0;
        let edges = self.edges(n);
        let from: HashSet<usize> = edges.iter().map(|(from, _)| self.group_of(*from)).collect();
        let own_form = match reduction_extents(node) {
            Some((outer, middle, inner)) if middle > 1 && outer * inner > 0 => match inner {
                1 => Some(IterationSpace::Rows { rows: outer, columns: middle }),
                _ => Some(IterationSpace::Middle { outer, middle, inner }),
            },
            _ if is_elementwise(node) || node.op.is_view() || node.op.is_constant() => {
                Some(IterationSpace::Elements(node.elements()))
            }
            _ => None,
        };
        let called = self.schedule.call_inputs(self.nodes[n]).is_some()
            || self.schedule.direct_writes.writes.contains_key(&node.id);
        let Some(own_form) = own_form.filter(|_| node.elements() > 0 && !called && !is_source(self.nodes[n])) else {
            self.start(n, IterationSpace::Elements(0), from);
            return;
        };
        // Latest first: what joins an early group must wait for all else that it reads.
        let mut candidates: Vec<usize> =
            if self.schedule.fusion_enabled { from.iter().copied().collect() } else { vec![] };
        // Rows before elements, which may be what rows have one of each.
        candidates.sort_unstable_by_key(|&group| {
            (!matches!(self.groups[group].space, IterationSpace::Rows { .. }), usize::MAX - group)
        });
        let candidates: Vec<(usize, IterationSpace)> = candidates
            .into_iter()
            .filter_map(|group| Some((group, self.joined(n, group, own_form, &edges)?)))
            .collect();
        // What the node reads element by element can be one kernel, if neither part needs the other.
        if let Some(((first, _), more)) = candidates.split_first() {
            more.iter().for_each(|(other, _)| self.merge(*first, *other));
        }
        for (group, _) in candidates {
            let group = self.current(group);
            let others: HashSet<usize> =
                from.iter().map(|&other| self.current(other)).filter(|&o| o != group).collect();
            let Some(space) = self.joined(n, group, own_form, &edges) else { continue };
            if others.iter().any(|&other| self.reaches(other, group)) || self.is_full(group, node) {
                continue;
            }
            let growing = &mut self.groups[group];
            growing.space = space;
            growing.nodes.push(n);
            growing.after.extend(others);
            self.group[n] = group;
            self.note_reads(group, n);
            return;
        }
        match self.sibling(n, own_form, &from) {
            Some(group) => {
                let growing = &mut self.groups[group];
                growing.nodes.push(n);
                growing.after.extend(from);
                self.group[n] = group;
                self.note_reads(group, n);
            }
            None => self.start(n, own_form, from),
        }
    }

    fn start(&mut self, n: usize, space: IterationSpace, after: HashSet<usize>) {
        self.group[n] = self.groups.len();
        let reads = reads(&self.nodes[n].0).collect();
        self.groups.push(GroupBuilder { space, nodes: vec![n], reads, after, merged: None });
    }

    /// Adds what a node of a group reads from elsewhere.
    fn note_reads(&mut self, group: usize, n: usize) {
        let outside: Vec<NodeId> = reads(&self.nodes[n].0).filter(|id| self.kernel_of(*id) != Some(group)).collect();
        self.groups[group].reads.extend(outside);
    }

    /// The group of a node, by its id; none if it is in memory.
    fn kernel_of(&self, id: NodeId) -> Option<usize> {
        self.position.get(&id).filter(|&&n| self.group[n] != usize::MAX).map(|&n| self.group_of(n))
    }

    /// True if a group with one more node would be too much for one kernel.
    fn is_full(&self, group: usize, node: &Node) -> bool {
        let growing = &self.groups[group];
        let more = reads(node).filter(|id| self.kernel_of(*id) != Some(group) && !growing.reads.contains(id)).count();
        growing.nodes.len() >= MAX_NODES || growing.reads.len() + more > MAX_INPUTS
    }

    /// The form of a group with a node in it, if the node can be.
    fn joined(
        &self,
        n: usize,
        group: usize,
        own: IterationSpace,
        edges: &[(usize, &Tensor)],
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
        // A reduction over the middle has its input computed anew: other nodes of the input's shape have no place here.
        if let IterationSpace::Middle { .. } = space
            && matches!(own, IterationSpace::Middle { .. })
        {
            return None;
        }
        let fits =
            |(from, input): &(usize, &Tensor)| self.group_of(*from) != group || self.fits(n, *from, input, space);
        edges.iter().all(fits).then_some(space)
    }

    /// True if a node can read another one in the same kernel.
    fn fits(&self, n: usize, from: usize, input: &Tensor, space: IterationSpace) -> bool {
        let node = &*self.nodes[n].0;
        let (level, own) = (self.level(from, space), self.level(n, space));
        match self.edge(node, input, space) {
            // Elements read elements, rows read rows; a gather picks from elements, a scatter adds what rows have.
            Edge::Aligned => match node.op.facts().role {
                Role::Indexed | Role::Scatter => std::ptr::eq(input, &node.inputs[0]) == (level == Level::Elements),
                Role::Reduction if matches!(space, IterationSpace::Rows { .. }) => level == Level::Elements,
                Role::Pointwise | Role::Reduction | Role::View | Role::Constant => level == own,
                Role::Source | Role::Single | Role::MultiOutput | Role::Output => level == own,
            },
            Edge::Rows => level == Level::Rows && own == Level::Elements,
            Edge::Other => false,
        }
    }

    /// Whether a node of a kernel has an element a row.
    fn level(&self, n: usize, space: IterationSpace) -> Level {
        let elements = self.nodes[n].0.elements();
        match space {
            IterationSpace::Rows { rows, .. } if elements == rows => Level::Rows,
            IterationSpace::Middle { outer, inner, .. } if elements == outer * inner => Level::Rows,
            _ => Level::Elements,
        }
    }

    /// True if more may join.
    fn fusible(&self, group: usize) -> bool {
        self.groups[group].space != IterationSpace::Elements(0)
    }

    /// A reduction over the same middle that reads something in common, and neither needs the other.
    fn sibling(&self, n: usize, space: IterationSpace, from: &HashSet<usize>) -> Option<usize> {
        if !self.schedule.fusion_enabled || !matches!(space, IterationSpace::Middle { .. }) {
            return None;
        }
        let node = &*self.nodes[n].0;
        // The same tensor, two of one kernel, or one that is made of the other.
        let made_of =
            |a: NodeId, b: NodeId| self.kernel_of(a).is_some_and(|group| self.groups[group].reads.contains(&b));
        let common = |a: NodeId, b: NodeId| {
            let kernel = self.kernel_of(a);
            a == b || kernel.is_some() && kernel == self.kernel_of(b) || made_of(a, b) || made_of(b, a)
        };
        (0..self.groups.len()).rev().take(64).find(|&group| {
            let growing = &self.groups[group];
            growing.merged.is_none()
                && growing.space == space
                && growing.reads.iter().any(|&other| reads(node).any(|id| common(id, other)))
                && !self.is_full(group, node)
                && !from.contains(&group)
                && !from.iter().any(|&other| self.reaches(other, group))
        })
    }

    /// True if a group needs another, directly or not.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let (from, to) = (self.current(from), self.current(to));
        let mut seen = HashSet::from([from]);
        let mut stack = vec![from];
        while let Some(group) = stack.pop() {
            if group == to {
                return true;
            }
            let next = self.groups[group].after.iter().map(|&after| self.current(after));
            stack.extend(next.filter(|&after| seen.insert(after)));
        }
        false
    }

    /// True if a group needs another by way of a third.
    fn apart(&self, from: usize, to: usize) -> bool {
        let third = self.groups[from].after.iter().map(|&after| self.current(after));
        third.filter(|&third| third != to && third != from).any(|third| self.reaches(third, to))
    }

    /// Puts two groups together, if neither needs the other by way of a third.
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
            both.into_iter().filter(|id| self.kernel_of(*id).is_none_or(|g| g != into && g != other)).collect();
        let large = a.nodes.len() + b.nodes.len() > MAX_NODES || both.len() > MAX_INPUTS;
        if matches!(space, IterationSpace::Middle { .. }) || large || self.apart(into, other) || self.apart(other, into)
        {
            return;
        }
        // What one reads of the other it must be able to read in one kernel.
        let between = |n: usize, other: usize| {
            let edges = self.edges(n);
            edges.iter().all(|(from, input)| self.group_of(*from) != other || self.fits(n, *from, input, space))
        };
        let all = |group: usize, other: usize| self.groups[group].nodes.iter().all(|&n| between(n, other));
        if !all(into, other) || !all(other, into) {
            return;
        }
        let absorbed = std::mem::take(&mut self.groups[other].nodes);
        let after = self.groups[other].after.clone();
        self.groups[other].merged = Some(into);
        let growing = &mut self.groups[into];
        growing.space = space;
        growing.nodes.extend(absorbed);
        growing.nodes.sort_unstable();
        growing.reads = both;
        growing.after.extend(after);
        let after: HashSet<usize> = std::mem::take(&mut self.groups[into].after);
        self.groups[into].after = after.into_iter().map(|g| self.current(g)).filter(|&g| g != into).collect();
    }
}

/// What a node of a kernel has an element of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Elements,
    Rows,
}
