//! What the kernels store, what they compute again, and the order in which they run.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Fuser, Unit};
use crate::graph::node::NodeId;
use crate::lower::{Group, look_through};

/// Most nodes that are computed again rather than stored, and most of them that are no single instruction.
const MAX_RECOMPUTED_NODES: usize = 24;
const MAX_EXPENSIVE_NODES: usize = 3;

/// What is as small as this costs no traffic, but a kernel to store something made of it would cost a launch.
const CACHED_BYTES: usize = 64 << 10;

/// How a node can be computed again.
#[derive(Default)]
struct Recomputation {
    nodes: Vec<usize>,
    /// What it is computed from: nodes that are stored for it, and tensors in memory with their bytes.
    leaves: Vec<usize>,
    memory: Vec<(NodeId, usize)>,
    /// Bytes that this moves.
    bytes: usize,
}

impl Recomputation {
    /// With what another one computes.
    fn join(&mut self, other: &Recomputation) {
        let more = |all: &mut Vec<usize>, of: &[usize]| {
            let new: Vec<usize> = of.iter().copied().filter(|n| !all.contains(n)).collect();
            all.extend(new);
        };
        more(&mut self.nodes, &other.nodes);
        more(&mut self.leaves, &other.leaves);
        let new = other.memory.iter().filter(|entry| !self.memory.contains(entry)).copied().collect::<Vec<_>>();
        self.memory.extend(new);
    }
}

impl<'a> Fuser<'a> {
    /// Decides what is stored and what computed again, and puts the kernels in order.
    pub(super) fn cut(self, wanted: &HashSet<NodeId>) -> Vec<Unit> {
        let (order, readers) = (self.order(), self.readers());
        let mut stored: HashSet<usize> =
            (0..self.nodes.len()).filter(|&n| wanted.contains(&self.nodes[n].0.id)).collect();
        let mut units = vec![];
        // Readers first: they decide what must be stored.
        for &group in order.iter().rev() {
            let growing = &self.groups[group];
            let outputs: Vec<usize> = growing.nodes.iter().copied().filter(|n| stored.contains(n)).collect();
            if outputs.is_empty() {
                continue;
            }
            if !self.fusible(group) {
                for &n in &growing.nodes {
                    stored.extend(self.edges(n).iter().map(|(from, _)| *from));
                    units.push(Unit::Single(self.nodes[n].clone()));
                }
                continue;
            }
            let computed = self.computed_nodes(group, &outputs, &mut stored, &readers);
            let outputs = outputs.iter().map(|&n| self.nodes[n].clone()).collect();
            let order = computed.iter().map(|&n| self.nodes[n]);
            let order = order.filter(|t| !t.0.op.is_view() && !t.0.op.is_constant()).cloned().collect();
            units.push(Unit::Group(Group {
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

    /// The nodes that a group's kernel computes for its outputs, its own and those of others that it computes again. What
    /// it reads from others is marked as stored.
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
            for (from, _) in self.edges(n) {
                if self.group_of(from) == group { stack.push(from) } else { foreign.push(from) }
            }
        }
        foreign.sort_unstable();
        foreign.dedup();
        let there = |n: &usize| stored.contains(n) || !self.fusible(self.group_of(*n));
        let mut loaded: HashSet<usize> = foreign.iter().copied().filter(there).collect();
        // What is cheapest first: what it loads costs nothing for others.
        let half = |n: usize| self.nodes[n].0.bytes() / 2;
        for most in [1, 2, 4] {
            for &n in foreign.iter().rev() {
                if computed.contains(&n) || loaded.contains(&n) || stored.contains(&n) {
                    continue;
                }
                if let Some((nodes, leaves)) = self.recompute(n, group, &loaded, stored, readers, most * half(n)) {
                    stored.extend(&leaves);
                    loaded.extend(leaves);
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

    /// What to compute, and from which nodes, to have a node without storing it; `None` if that moves too many bytes.
    /// (Storing it is a write and a read.)
    fn recompute(
        &self,
        n: usize,
        reader: usize,
        loaded: &HashSet<usize>,
        stored: &HashSet<usize>,
        readers: &[usize],
        most_bytes: usize,
    ) -> Option<(Vec<usize>, Vec<usize>)> {
        if !self.schedule.fusion_enabled {
            return None;
        }
        let recomputable = self.recomputable_inputs(n, stored);
        let mut recomputations: HashMap<usize, Recomputation> = HashMap::new();
        // In order, so that what a node reads is decided before it.
        for &m in &recomputable {
            let recomputation = self.recomputation(m, &recomputable, &recomputations, loaded, stored, readers);
            let kept = recomputation
                .filter(|recomputation| m == n || recomputation.bytes < self.load_bytes(m, loaded, stored, readers));
            recomputations.extend(kept.map(|recomputation| (m, recomputation)));
        }
        let recomputation = recomputations.remove(&n)?;
        // A number that all elements read would be computed for each of them.
        let largest = self.groups[reader].nodes.iter().map(|&n| self.nodes[n].0.elements()).max().unwrap_or(1);
        if self.nodes[n].0.elements() == 1 && largest > 1 && recomputation.nodes.iter().any(|&n| self.is_expensive(n)) {
            return None;
        }
        (recomputation.bytes <= most_bytes).then_some((recomputation.nodes, recomputation.leaves))
    }

    /// A node and those below it that are simple to compute again and not stored, inputs first; not too many.
    fn recomputable_inputs(&self, n: usize, stored: &HashSet<usize>) -> Vec<usize> {
        let mut found = vec![];
        let mut queue = VecDeque::from([n]);
        while let Some(m) = queue.pop_front() {
            if found.len() == 4 * MAX_RECOMPUTED_NODES {
                break;
            }
            if self.is_recomputable(m) && (m == n || !stored.contains(&m)) && !found.contains(&m) {
                found.push(m);
                queue.extend(self.edges(m).iter().map(|(from, _)| *from));
            }
        }
        found.sort_unstable();
        found
    }

    /// How a node is computed from what it reads, each of which is computed too if that is cheaper.
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
        for (from, _) in self.edges(n) {
            match recomputations.get(&from).filter(|_| recomputable.contains(&from)) {
                Some(other) => recomputation.join(other),
                None if !recomputation.leaves.contains(&from) => recomputation.leaves.push(from),
                None => {}
            }
        }
        for input in self.nodes[n].0.reads() {
            let base = look_through(input).0;
            let there = !self.position.contains_key(&base.0.id) && !base.0.op.is_constant();
            if there && !recomputation.memory.iter().any(|(id, _)| *id == base.0.id) {
                let bytes = base.0.bytes();
                recomputation.memory.push((base.0.id, if bytes > CACHED_BYTES { bytes } else { 0 }));
            }
        }
        if recomputation.nodes.len() > MAX_RECOMPUTED_NODES
            || recomputation.nodes.iter().filter(|&&n| self.is_expensive(n)).count() > MAX_EXPENSIVE_NODES
        {
            return None;
        }
        let leaves = recomputation.leaves.iter().map(|&leaf| self.load_bytes(leaf, loaded, stored, readers));
        recomputation.bytes =
            leaves.sum::<usize>() + recomputation.memory.iter().map(|(_, bytes)| bytes).sum::<usize>();
        Some(recomputation)
    }

    /// Bytes that move to have a node from memory; what is not stored yet is stored for all that may read it.
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

    /// For each node, how many other groups read it, or something that is simple to compute from it.
    fn readers(&self) -> Vec<usize> {
        let mut readers: Vec<HashSet<usize>> = vec![HashSet::new(); self.nodes.len()];
        for n in (0..self.nodes.len()).rev() {
            let group = self.group_of(n);
            let passed_on = if self.is_recomputable(n) { std::mem::take(&mut readers[n]) } else { HashSet::new() };
            for (from, _) in self.edges(n) {
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

    /// True if a node is no single instruction.
    fn is_expensive(&self, n: usize) -> bool {
        self.nodes[n].0.op.facts().heavy
    }

    /// True if a node may be computed again.
    fn is_recomputable(&self, n: usize) -> bool {
        let node = &*self.nodes[n].0;
        node.op.facts().recomputable
            && self.schedule.call_inputs(self.nodes[n]).is_none()
            && !self.schedule.direct_writes.writes.contains_key(&node.id)
    }

    /// Groups in an order in which they can run.
    fn order(&self) -> Vec<usize> {
        let mut order = vec![];
        let mut done = HashSet::new();
        for start in (0..self.groups.len()).filter(|&group| self.groups[group].merged.is_none()) {
            let mut stack = vec![(start, false)];
            while let Some((group, left)) = stack.pop() {
                if left {
                    order.push(group);
                } else if done.insert(group) {
                    stack.push((group, true));
                    let mut after: Vec<usize> = self.groups[group].after.iter().map(|&g| self.current(g)).collect();
                    after.sort_unstable();
                    after.dedup();
                    stack.extend(after.into_iter().filter(|after| *after != group).map(|after| (after, false)));
                }
            }
        }
        order
    }
}
