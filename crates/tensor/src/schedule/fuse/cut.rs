//! What the kernels store, what they compute again, and the order in which they run.

use std::collections::HashSet;

use bornite_ir::Kind;

use super::{Fuser, Unit};
use crate::lower::{Group, look_through};
use crate::node::Op;

/// Most nodes that are computed again rather than stored.
const MOST_AGAIN: usize = 24;

impl<'a> Fuser<'a> {
    /// Decides what is stored and what computed again, and puts the kernels in order.
    pub(super) fn cut(self, wanted: &HashSet<u64>) -> Vec<Unit<'a>> {
        let order = self.order();
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
                    units.push(Unit::Alone(self.nodes[n]));
                }
                continue;
            }
            let computed = self.reach(group, &outputs, &mut stored);
            let outputs = outputs.iter().map(|&n| self.nodes[n]).collect();
            let order = computed.iter().map(|&n| self.nodes[n]);
            let order = order.filter(|t| !t.0.op.is_view() && !matches!(t.0.op, Op::Full(_))).collect();
            units.push(Unit::Group(Group { form: growing.form, outputs, order }));
        }
        units.reverse();
        units
    }

    /// The nodes that a group's kernel computes for its outputs, its own and those of others that it computes again. What
    /// it reads from others is marked as stored.
    fn reach(&self, group: usize, outputs: &[usize], stored: &mut HashSet<usize>) -> Vec<usize> {
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
        // Deepest first, so that what is computed again from stored things is seen to be cheap.
        let mut loaded: HashSet<usize> = foreign.iter().copied().filter(|n| stored.contains(n)).collect();
        for n in foreign.into_iter().rev() {
            if stored.contains(&n) {
                continue;
            }
            match self.again(n, &loaded, stored) {
                Some((nodes, leaves)) => {
                    stored.extend(&leaves);
                    loaded.extend(leaves);
                    computed.extend(nodes);
                }
                None => {
                    stored.insert(n);
                    loaded.insert(n);
                }
            }
        }
        let mut computed: Vec<usize> = computed.into_iter().collect();
        computed.sort_unstable();
        computed
    }

    /// What to compute, and from which nodes, to have a node without storing it; `None` if storing is cheaper.
    fn again(&self, n: usize, loaded: &HashSet<usize>, stored: &HashSet<usize>) -> Option<(Vec<usize>, Vec<usize>)> {
        if !self.fuses {
            return None;
        }
        let (mut nodes, mut leaves, mut heavy, mut bytes) = (vec![], vec![], 0, 0);
        let mut memory: HashSet<u64> = HashSet::new();
        let mut stack = vec![n];
        while let Some(n) = stack.pop() {
            if nodes.contains(&n) || leaves.contains(&n) {
                continue;
            }
            let node = &*self.nodes[n].0;
            let simple = matches!(node.op, Op::Map(_) | Op::Cast(_) | Op::Iota { .. } | Op::Random(_))
                && !self.library.contains_key(&node.id)
                && !self.placed.contains_key(&node.id);
            if !simple || (stored.contains(&n) && !nodes.is_empty()) {
                leaves.push(n);
                if !loaded.contains(&n) {
                    bytes += node.bytes();
                }
                continue;
            }
            nodes.push(n);
            if let Op::Map(row) = node.op {
                heavy += usize::from(row.row().kind != Kind::Primitive);
            }
            if nodes.len() > MOST_AGAIN || heavy > 3 {
                return None;
            }
            stack.extend(self.edges(n).iter().map(|(from, _)| *from));
            for input in node.reads() {
                let base = look_through(input).0;
                let there = !self.position.contains_key(&base.0.id) && !matches!(base.0.op, Op::Full(_));
                if there && memory.insert(base.0.id) {
                    bytes += base.0.bytes();
                }
            }
        }
        // Storing it is a write and a read.
        (bytes <= 2 * self.nodes[n].0.bytes()).then_some((nodes, leaves))
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
