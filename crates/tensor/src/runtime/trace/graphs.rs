//! CUDA graphs of a trace, one for each set of addresses of its arguments.
//!
//! A graph launches kernels with the addresses that it was captured with. Arguments that come back at the same addresses, also
//! those of several sets in turn, find their graph; others run step by step, and a graph is captured only when they come a second time:
//! a capture costs more than the launches themselves.

use std::collections::VecDeque;

/// Graphs per trace. Double buffering needs two; each takes memory of the driver for its nodes.
const CAPTURED: usize = 4;
/// Sets of addresses that are remembered without a graph.
const SEEN: usize = 8;
/// Calls after which an unused graph may be updated to other addresses. Without it, more sets in turn than there are graphs would capture
/// at each call.
const IDLE_CALLS: u64 = 16;

/// Graphs of type `G`, with the addresses for which each was captured.
pub(super) struct Graphs<G> {
    captured: Vec<Captured<G>>,
    /// Latest last.
    seen: VecDeque<Vec<u64>>,
    calls: u64,
}

struct Captured<G> {
    addresses: Vec<u64>,
    graph: G,
    /// Number of the call that launched it last.
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

    /// For each argument, whether its address is new: no graph was captured for it, and no remembered call had it.
    pub fn novel(&self, addresses: &[u64]) -> Vec<bool> {
        let known = || self.captured.iter().map(|captured| &captured.addresses).chain(&self.seen);
        let novel = |(n, address): (usize, &u64)| !known().any(|known| known.get(n) == Some(address));
        addresses.iter().enumerate().map(novel).collect()
    }

    /// Chooses how a call without a graph runs. `fixed` addresses stay for all further calls.
    pub fn miss(&mut self, addresses: &[u64], fixed: bool) -> Miss {
        if !fixed && !self.seen.iter().any(|seen| seen == addresses) {
            if self.seen.len() >= SEEN {
                self.seen.pop_front();
            }
            self.seen.push_back(addresses.to_vec());
            return Miss::Steps;
        }
        if self.captured.len() < CAPTURED {
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

    /// Notes that a graph was updated to these addresses.
    pub fn updated(&mut self, index: usize, addresses: Vec<u64>) {
        self.seen.retain(|seen| *seen != addresses);
        (self.captured[index].addresses, self.captured[index].last_call) = (addresses, self.calls);
    }

    /// The graph of an index.
    pub fn get(&mut self, index: usize) -> &mut G {
        &mut self.captured[index].graph
    }

    /// Drops all graphs: other memory than their arguments has moved.
    pub fn clear(&mut self) {
        self.captured.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs calls with these addresses; returns `L` for a launch, `S` for steps, `C` for a capture, `U` for an update.
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
    fn addresses_that_come_back_are_captured_once() {
        assert_eq!(calls(&mut Graphs::default(), [1; 5]), "SCLLL");
        assert_eq!(calls(&mut Graphs::default(), [1, 2, 1, 2, 1, 2, 1]), "SSCCLLL");
        // Ever new ones never are, and those remembered are few.
        let mut graphs = Graphs::default();
        assert_eq!(calls(&mut graphs, 0..100), "S".repeat(100));
        assert_eq!(graphs.seen.len(), SEEN);
        assert_eq!(calls(&mut graphs, [99, 0, 0]), "CSC");
    }

    #[test]
    fn more_sets_in_turn_than_graphs_do_not_capture_again_and_again() {
        let mut graphs = Graphs::default();
        assert_eq!(calls(&mut graphs, (0..6).cycle().take(24)), "SSSSSSCCCCSSLLLLSSLLLLSS");
        // Those that stop coming make room.
        assert_eq!(calls(&mut graphs, [10; 20]), format!("{}U{}", "S".repeat(11), "L".repeat(8)));
        assert_eq!(graphs.captured.len(), CAPTURED);
    }

    #[test]
    fn fixed_addresses_are_captured_at_once() {
        let mut graphs = Graphs::default();
        assert_eq!(graphs.find(&[3]), None);
        assert_eq!(graphs.miss(&[3], true), Miss::Capture);
        for n in 0..CAPTURED as u64 {
            graphs.find(&[n]);
            graphs.insert(vec![n], n);
        }
        graphs.find(&[0]);
        assert_eq!(graphs.miss(&[9], true), Miss::Update(1), "the one that was launched longest ago");
        graphs.updated(1, vec![9]);
        let found = graphs.find(&[9]).unwrap();
        assert_eq!((found, *graphs.get(found), graphs.find(&[1])), (1, 1, None));
        graphs.clear();
        assert_eq!(graphs.find(&[9]), None);
    }

    #[test]
    fn new_addresses_are_known_by_argument() {
        let mut graphs = Graphs::default();
        assert_eq!(graphs.novel(&[1, 2]), [true, true]);
        graphs.miss(&[1, 2], false);
        graphs.insert(vec![5, 6], ());
        assert_eq!(graphs.novel(&[1, 6]), [false, false]);
        assert_eq!(graphs.novel(&[2, 2]), [true, false]);
        assert!(graphs.novel(&[]).is_empty());
    }
}
