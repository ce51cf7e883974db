//! Cache of a trace's CUDA graphs, one per set of argument addresses.
//!
//! A graph launches kernels with the addresses that it was captured with. Calls with the same
//! addresses, also several sets in rotation, find their graph. Other calls run step by step; a
//! graph is captured only when addresses repeat, since a capture costs more than the launches
//! themselves.

use std::collections::VecDeque;

/// Maximum number of graphs per trace. Double buffering needs two; each takes driver memory.
const MAX_GRAPHS: usize = 4;
/// Maximum number of remembered address sets without a graph.
const MAX_SEEN: usize = 8;
/// Number of calls after which an unused graph may be updated to other addresses. Without it,
/// rotating through more sets than there are graphs would capture at every call.
const IDLE_CALLS: u64 = 16;

/// Graphs of type `G`, with the addresses for which each was captured.
pub(super) struct Graphs<G> {
    captured: Vec<Captured<G>>,
    /// Recent address sets without a graph, latest last.
    seen: VecDeque<Vec<u64>>,
    calls: u64,
}

struct Captured<G> {
    addresses: Vec<u64>,
    graph: G,
    /// Call that launched it last.
    last_call: u64,
}

/// Way to run a call that has no graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Miss {
    /// Launch each step.
    Steps,
    /// Capture another graph.
    Capture,
    /// Capture, and update the graph of this index.
    Update(usize),
}

impl<G> Default for Graphs<G> {
    fn default() -> Graphs<G> {
        Graphs { captured: vec![], seen: VecDeque::new(), calls: 0 }
    }
}

impl<G> Graphs<G> {
    /// Index of the graph for a call with arguments at these addresses.
    pub fn find(&mut self, addresses: &[u64]) -> Option<usize> {
        self.calls += 1;
        let found = self.captured.iter().position(|captured| captured.addresses == addresses)?;
        self.captured[found].last_call = self.calls;
        Some(found)
    }

    /// For each argument, true if its address is new: no graph has it, and no remembered call had
    /// it.
    pub fn novel(&self, addresses: &[u64]) -> Vec<bool> {
        let known = || self.captured.iter().map(|captured| &captured.addresses).chain(&self.seen);
        let novel = |(n, address): (usize, &u64)| !known().any(|known| known.get(n) == Some(address));
        addresses.iter().enumerate().map(novel).collect()
    }

    /// Chooses how a call without a graph runs. `fixed` addresses are the same for all further
    /// calls.
    pub fn miss(&mut self, addresses: &[u64], fixed: bool) -> Miss {
        if !fixed && !self.seen.iter().any(|seen| seen == addresses) {
            if self.seen.len() >= MAX_SEEN {
                self.seen.pop_front();
            }
            self.seen.push_back(addresses.to_vec());
            return Miss::Steps;
        }
        if self.captured.len() < MAX_GRAPHS {
            return Miss::Capture;
        }
        let oldest = (0..self.captured.len()).min_by_key(|&n| self.captured[n].last_call);
        let idle = |&n: &usize| fixed || self.calls - self.captured[n].last_call > IDLE_CALLS;
        oldest.filter(idle).map_or(Miss::Steps, Miss::Update)
    }

    /// Adds the graph for these addresses; returns its index.
    pub fn insert(&mut self, addresses: Vec<u64>, graph: G) -> usize {
        self.seen.retain(|seen| *seen != addresses);
        self.captured.push(Captured { addresses, graph, last_call: self.calls });
        self.captured.len() - 1
    }

    /// Records that a graph was updated to these addresses.
    pub fn updated(&mut self, index: usize, addresses: Vec<u64>) {
        self.seen.retain(|seen| *seen != addresses);
        (self.captured[index].addresses, self.captured[index].last_call) = (addresses, self.calls);
    }

    /// The graph of an index.
    pub fn get(&mut self, index: usize) -> &mut G {
        &mut self.captured[index].graph
    }

    /// Drops all graphs, because memory other than their arguments has moved.
    pub fn clear(&mut self) {
        self.captured.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs calls with these addresses; returns `L` for a launch, `S` for steps, `C` for a capture,
    /// `U` for an update.
    fn calls(graphs: &mut Graphs<()>, addresses: impl IntoIterator<Item = u64>) -> String {
        let call = |address: u64| {
            let addresses = vec![address, 7];
            if graphs.find(&addresses).is_some() {
                return 'L';
            }
            match graphs.miss(&addresses, false) {
                Miss::Steps => 'S',
                Miss::Capture => {
                    graphs.insert(addresses, ());
                    'C'
                }
                Miss::Update(n) => {
                    graphs.updated(n, addresses);
                    'U'
                }
            }
        };
        addresses.into_iter().map(call).collect()
    }

    #[test]
    fn repeated_addresses_are_captured_once() {
        assert_eq!(calls(&mut Graphs::default(), [1; 5]), "SCLLL");
        assert_eq!(calls(&mut Graphs::default(), [1, 2, 1, 2, 1, 2, 1]), "SSCCLLL");
        // Addresses that do not repeat are never captured, and few are remembered.
        let mut graphs = Graphs::default();
        assert_eq!(calls(&mut graphs, 0..100), "S".repeat(100));
        assert_eq!(graphs.seen.len(), MAX_SEEN);
        assert_eq!(calls(&mut graphs, [99, 0, 0]), "CSC");
    }

    #[test]
    fn rotating_through_more_sets_than_graphs_does_not_recapture() {
        let mut graphs = Graphs::default();
        assert_eq!(calls(&mut graphs, (0..6).cycle().take(24)), "SSSSSSCCCCSSLLLLSSLLLLSS");
        // Graphs that are no longer used are replaced.
        assert_eq!(calls(&mut graphs, [10; 20]), format!("{}U{}", "S".repeat(11), "L".repeat(8)));
        assert_eq!(graphs.captured.len(), MAX_GRAPHS);
    }

    #[test]
    fn fixed_addresses_are_captured_immediately() {
        let mut graphs = Graphs::default();
        assert_eq!(graphs.find(&[3]), None);
        assert_eq!(graphs.miss(&[3], true), Miss::Capture);
        for n in 0..MAX_GRAPHS as u64 {
            graphs.find(&[n]);
            graphs.insert(vec![n], n);
        }
        graphs.find(&[0]);
        assert_eq!(graphs.miss(&[9], true), Miss::Update(1), "the least recently launched one");
        graphs.updated(1, vec![9]);
        let found = graphs.find(&[9]).unwrap();
        assert_eq!((found, *graphs.get(found), graphs.find(&[1])), (1, 1, None));
        graphs.clear();
        assert_eq!(graphs.find(&[9]), None);
    }

    #[test]
    fn new_addresses_are_reported_per_argument() {
        let mut graphs = Graphs::default();
        assert_eq!(graphs.novel(&[1, 2]), [true, true]);
        graphs.miss(&[1, 2], false);
        graphs.insert(vec![5, 6], ());
        assert_eq!(graphs.novel(&[1, 6]), [false, false]);
        assert_eq!(graphs.novel(&[2, 2]), [true, false]);
        assert!(graphs.novel(&[]).is_empty());
    }
}
