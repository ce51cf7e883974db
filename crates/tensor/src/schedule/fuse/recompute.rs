//! Stored and recomputed values: which nodes a group stores, which nodes of other groups it
//! recomputes instead of loading, and the execution order of the groups.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Fuser, WorkItem};
use crate::graph::node::NodeId;
use crate::lower::{Group, look_through};

/// Maximum number of nodes that are recomputed instead of stored, and of those that take more than
/// one instruction.
const MAX_RECOMPUTED_NODES: usize = 24;
const MAX_EXPENSIVE_NODES: usize = 3;

/// Tensors up to this size stay in a cache: reading them counts as free.
const CACHED_BYTES: usize = 64 << 10;

/// A way to recompute a node.
#[derive(Default)]
struct Recomputation {
    nodes: Vec<usize>,
    /// Outputs of other kernels that it loads; they are stored for it.
    loaded_nodes: Vec<usize>,
    /// Tensors in memory that it reads, with their bytes.
    loaded_inputs: Vec<(NodeId, usize)>,
    /// Bytes moved.
    bytes: usize,
}

impl Recomputation {
    /// Adds the nodes and inputs of another recomputation.
    fn merge(&mut self, other: &Recomputation) {
        let more = |all: &mut Vec<usize>, of: &[usize]| {
            let new: Vec<usize> = of.iter().copied().filter(|n| !all.contains(n)).collect();
            all.extend(new);
        };
        more(&mut self.nodes, &other.nodes);
        more(&mut self.loaded_nodes, &other.loaded_nodes);
        let new =
            other.loaded_inputs.iter().filter(|entry| !self.loaded_inputs.contains(entry)).copied().collect::<Vec<_>>();
        self.loaded_inputs.extend(new);
    }
}

impl<'a> Fuser<'a> {
    /// Decides which values are stored and which recomputed, and returns the units in execution
    /// order.
    pub(super) fn into_units(self, root_ids: &HashSet<NodeId>) -> Vec<WorkItem> {
        let (order, readers) = (self.order(), self.readers());
        let mut stored: HashSet<usize> =
            (0..self.nodes.len()).filter(|&n| root_ids.contains(&self.nodes[n].0.id)).collect();
        let mut units = vec![];
        // Readers first: they decide which values must be stored.
        for &group in order.iter().rev() {
            let growing = &self.groups[group];
            let outputs: Vec<usize> = growing.nodes.iter().copied().filter(|n| stored.contains(n)).collect();
            if outputs.is_empty() {
                continue;
            }
            if !self.fusible(group) {
                for &n in &growing.nodes {
                    stored.extend(self.producers(n).iter().map(|(from, _)| *from));
                    units.push(WorkItem::Single(self.nodes[n].clone()));
                }
                continue;
            }
            let computed = self.computed_nodes(group, &outputs, &mut stored, &readers);
            let outputs = outputs.iter().map(|&n| self.nodes[n].clone()).collect();
            let order = computed.iter().map(|&n| self.nodes[n]);
            let order = order.filter(|t| !t.0.op.is_view() && !t.0.op.is_constant()).cloned().collect();
            units.push(WorkItem::Group(Group {
                space: growing.space,
                outputs,
                order,
                launch_shape: None,
                column_sums: vec![],
            }));
        }
        units.reverse();
        units
    }

    /// The nodes that a group's kernel computes for its outputs: its own, and nodes of other groups
    /// that it recomputes. The nodes that it loads are added to `stored`.
    fn computed_nodes(
        &self,
        group: usize,
        outputs: &[usize],
        stored: &mut HashSet<usize>,
        readers: &[usize],
    ) -> Vec<usize> {
        let mut computed: HashSet<usize> = HashSet::new();
        let mut foreign = vec![];
        let mut stack: Vec<usize> = outputs.to_vec();
        while let Some(n) = stack.pop() {
            if !computed.insert(n) {
                continue;
            }
            for (from, _) in self.producers(n) {
                if self.group_of(from) == group { stack.push(from) } else { foreign.push(from) }
            }
        }
        foreign.sort_unstable();
        foreign.dedup();
        let is_stored = |n: &usize| stored.contains(n) || !self.fusible(self.group_of(*n));
        let mut loaded: HashSet<usize> = foreign.iter().copied().filter(is_stored).collect();
        // Cheapest first: tensors that one recomputation loads are free for the others. The budget
        // grows from half the node's bytes to twice, the cost of a store and a load.
        let half = |n: usize| self.nodes[n].0.bytes() / 2;
        for limit in [1, 2, 4] {
            for &n in foreign.iter().rev() {
                if computed.contains(&n) || loaded.contains(&n) || stored.contains(&n) {
                    continue;
                }
                if let Some((nodes, loaded_nodes)) = self.recompute(n, group, &loaded, stored, readers, limit * half(n))
                {
                    stored.extend(&loaded_nodes);
                    loaded.extend(loaded_nodes);
                    computed.extend(nodes);
                }
            }
        }
        for n in foreign {
            if !computed.contains(&n) {
                stored.insert(n);
            }
        }
        let mut computed: Vec<usize> = computed.into_iter().collect();
        computed.sort_unstable();
        computed
    }

    /// Nodes to compute, and nodes to load, to recompute `n` in the kernel of `reader`; `None` if
    /// that moves more than `max_bytes`. (Storing it costs a write and a read.)
    fn recompute(
        &self,
        n: usize,
        reader: usize,
        loaded: &HashSet<usize>,
        stored: &HashSet<usize>,
        readers: &[usize],
        max_bytes: usize,
    ) -> Option<(Vec<usize>, Vec<usize>)> {
        if !self.schedule.fusion_enabled {
            return None;
        }
        let recomputable = self.recomputable_inputs(n, stored);
        let mut recomputations: HashMap<usize, Recomputation> = HashMap::new();
        // In order, so that a node's inputs are decided before it.
        for &m in &recomputable {
            let recomputation = self.recomputation(m, &recomputable, &recomputations, loaded, stored, readers);
            let cheaper = recomputation
                .filter(|recomputation| m == n || recomputation.bytes < self.load_bytes(m, loaded, stored, readers));
            recomputations.extend(cheaper.map(|recomputation| (m, recomputation)));
        }
        let recomputation = recomputations.remove(&n)?;
        // A scalar that all elements read would be recomputed for each of them.
        let largest = self.groups[reader].nodes.iter().map(|&n| self.nodes[n].0.elements()).max().unwrap_or(1);
        if self.nodes[n].0.elements() == 1 && largest > 1 && recomputation.nodes.iter().any(|&n| self.is_expensive(n)) {
            return None;
        }
        (recomputation.bytes <= max_bytes).then_some((recomputation.nodes, recomputation.loaded_nodes))
    }

    /// A node and the nodes below it that are recomputable and not stored, in topological order, up
    /// to a limit.
    fn recomputable_inputs(&self, n: usize, stored: &HashSet<usize>) -> Vec<usize> {
        let mut found = vec![];
        let mut queue = VecDeque::from([n]);
        while let Some(m) = queue.pop_front() {
            if found.len() == 4 * MAX_RECOMPUTED_NODES {
                break;
            }
            if self.is_recomputable(m) && (m == n || !stored.contains(&m)) && !found.contains(&m) {
                found.push(m);
                queue.extend(self.producers(m).iter().map(|(from, _)| *from));
            }
        }
        found.sort_unstable();
        found
    }

    /// Recomputation of a node from its inputs, which are recomputed too if that is cheaper.
    fn recomputation(
        &self,
        n: usize,
        recomputable: &[usize],
        recomputations: &HashMap<usize, Recomputation>,
        loaded: &HashSet<usize>,
        stored: &HashSet<usize>,
        readers: &[usize],
    ) -> Option<Recomputation> {
        let mut recomputation = Recomputation { nodes: vec![n], ..Recomputation::default() };
        for (from, _) in self.producers(n) {
            match recomputations.get(&from).filter(|_| recomputable.contains(&from)) {
                Some(other) => recomputation.merge(other),
                None if !recomputation.loaded_nodes.contains(&from) => recomputation.loaded_nodes.push(from),
                None => {}
            }
        }
        for input in self.nodes[n].0.reads() {
            let (base, views) = look_through(input);
            let in_memory = !self.position.contains_key(&base.0.id) && !base.0.op.is_constant();
            if in_memory && !recomputation.loaded_inputs.iter().any(|(id, _)| *id == base.0.id) {
                // A view may read a small part of its base, such as one parameter of an arena.
                let elements = views.iter().map(|view| view.0.elements()).fold(base.0.elements(), usize::min);
                let bytes = elements * base.0.dtype.bytes();
                recomputation.loaded_inputs.push((base.0.id, if bytes > CACHED_BYTES { bytes } else { 0 }));
            }
        }
        if recomputation.nodes.len() > MAX_RECOMPUTED_NODES
            || recomputation.nodes.iter().filter(|&&n| self.is_expensive(n)).count() > MAX_EXPENSIVE_NODES
        {
            return None;
        }
        let loaded_nodes =
            recomputation.loaded_nodes.iter().map(|&leaf| self.load_bytes(leaf, loaded, stored, readers));
        recomputation.bytes =
            loaded_nodes.sum::<usize>() + recomputation.loaded_inputs.iter().map(|(_, bytes)| bytes).sum::<usize>();
        Some(recomputation)
    }

    /// Bytes moved to load a node. The cost of storing one that is not stored yet is shared by its
    /// readers.
    fn load_bytes(&self, n: usize, loaded: &HashSet<usize>, stored: &HashSet<usize>, readers: &[usize]) -> usize {
        let bytes = self.nodes[n].0.bytes();
        if loaded.contains(&n) {
            0
        } else if stored.contains(&n) || !self.fusible(self.group_of(n)) {
            bytes
        } else {
            bytes + bytes / readers[n].max(1)
        }
    }

    /// For each node, the number of other groups that read it, or a recomputable node that depends
    /// on it.
    fn readers(&self) -> Vec<usize> {
        let mut readers: Vec<HashSet<usize>> = vec![HashSet::new(); self.nodes.len()];
        for n in (0..self.nodes.len()).rev() {
            let group = self.group_of(n);
            let passed_on = if self.is_recomputable(n) { std::mem::take(&mut readers[n]) } else { HashSet::new() };
            for (from, _) in self.producers(n) {
                if self.group_of(from) != group {
                    readers[from].insert(group);
                } else {
                    readers[from].extend(&passed_on);
                }
            }
            readers[n].extend(passed_on);
        }
        readers.iter().map(HashSet::len).collect()
    }

    /// True if a node takes more than one instruction.
    fn is_expensive(&self, n: usize) -> bool {
        self.nodes[n].0.op.facts().heavy
    }

    /// True if a node may be recomputed in the kernel of a reader.
    fn is_recomputable(&self, n: usize) -> bool {
        let node = &*self.nodes[n].0;
        node.op.facts().recomputable
            && self.schedule.opaque_inputs(self.nodes[n]).is_none()
            && !self.schedule.direct_writes.partial_writes.contains_key(&node.id)
    }

    /// Groups in execution order (depth-first topological sort).
    fn order(&self) -> Vec<usize> {
        let mut order = vec![];
        let mut done = HashSet::new();
        for start in (0..self.groups.len()).filter(|&group| self.groups[group].merged_into.is_none()) {
            let mut stack = vec![(start, false)];
            while let Some((group, left)) = stack.pop() {
                if left {
                    order.push(group);
                } else if done.insert(group) {
                    stack.push((group, true));
                    let mut after: Vec<usize> =
                        self.groups[group].depends_on.iter().map(|&g| self.current(g)).collect();
                    after.sort_unstable();
                    after.dedup();
                    stack.extend(after.into_iter().filter(|after| *after != group).map(|after| (after, false)));
                }
            }
        }
        order
    }
}
