//! Selection of a dataset's programs: distinct ones in index order.
//!
//! Programs are generated in parallel batches and admitted one by one, so that the lowest index of
//! several similar ones is kept regardless of the number of threads.

use std::collections::{HashSet, VecDeque};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Error, Result, Settings};
use crate::distinct::{Group, SKETCH_BYTES, Seen, Sketch, Verdict, group, side};
use crate::{Category, Row};

/// Candidates without a new program after which generation gives up.
const BARREN: u64 = 20_000;

/// Candidates tried so far, by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reached {
    /// Indices that were tried.
    pub candidates: u64,
    /// Distinct programs among them.
    pub distinct: u64,
    /// Rejected by the front end.
    pub unmade: u64,
    /// Duplicates of an earlier program up to names and constants.
    pub duplicates: u64,
    /// Near duplicates of an earlier program.
    pub near: u64,
    /// Similar to rows of two splits.
    #[serde(default)]
    pub between: u64,
    /// Distinct structures: names, constants, operators and functions ignored.
    pub structures: u64,
}

/// A distinct program.
pub(super) struct Admitted {
    pub row: Row,
    /// Number among the distinct programs.
    pub number: u64,
    /// Index of the first row of its cluster.
    pub cluster: u64,
    pub sketch: Sketch,
}

/// Bytes stored per admitted row in order to resume after it.
pub(super) const KEPT_BYTES: usize = 9 + SKETCH_BYTES;

/// Encodes [`Group::Apart`].
const APART: u8 = u8::MAX;

/// Generates candidates and admits the distinct ones.
pub(super) struct Plan {
    seed: u64,
    categories: Vec<Category>,
    seen: Seen,
    structures: HashSet<u64>,
    ahead: VecDeque<Option<(Row, Sketch)>>,
    pub reached: Reached,
    barren: u64,
}

impl Plan {
    pub(super) fn new(settings: &Settings) -> Plan {
        Plan {
            seed: settings.seed,
            categories: settings.category_list(),
            seen: Seen::new(),
            structures: HashSet::new(),
            ahead: VecDeque::new(),
            reached: Reached::default(),
            barren: 0,
        }
    }

    /// Returns at most `max` distinct programs among the next `batch` candidates. Runs on the
    /// current thread pool.
    pub(super) fn next_batch(&mut self, max: u64, batch: usize) -> Result<Vec<Admitted>> {
        if self.ahead.is_empty() {
            let from = self.reached.candidates;
            let (seed, categories) = (self.seed, &self.categories);
            let generated: Vec<Option<(Row, Sketch)>> = (from..from + batch as u64)
                .into_par_iter()
                .map(|index| {
                    let row = crate::make(seed, index, categories).ok()?;
                    let sketch = Sketch::new(&row.source, &row.cuda);
                    Some((row, sketch))
                })
                .collect();
            self.ahead.extend(generated);
        }
        let mut admitted = vec![];
        while (admitted.len() as u64) < max {
            let Some(candidate) = self.ahead.pop_front() else { break };
            self.reached.candidates += 1;
            self.barren += 1;
            let Some((row, sketch)) = candidate else {
                self.reached.unmade += 1;
                continue;
            };
            let group = group(&row);
            if let Some(cluster) = self.admit(row.index, &sketch, group) {
                let cluster = self.seen.index_of(cluster);
                admitted.push(Admitted { row, number: self.reached.distinct - 1, cluster, sketch });
            }
        }
        if self.barren > BARREN {
            return Err(Error::Asked(format!(
                "only about {} distinct rows exist for {}: lower --count or add categories",
                self.reached.distinct,
                self.categories.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(admitted)
    }

    fn admit(&mut self, index: u64, sketch: &Sketch, group: Group) -> Option<u32> {
        let seed = self.seed;
        match self.seen.admit_to(index, sketch, group, |first| side(seed, first)) {
            Verdict::New { cluster } => {
                self.structures.insert(sketch.skeleton);
                self.reached.distinct += 1;
                self.reached.structures = self.structures.len() as u64;
                self.barren = 0;
                Some(cluster)
            }
            Verdict::Duplicate => {
                self.reached.duplicates += 1;
                None
            }
            Verdict::Near { .. } => {
                self.reached.near += 1;
                None
            }
            Verdict::Between => {
                self.reached.between += 1;
                None
            }
        }
    }

    /// Skips rows that were admitted in an earlier run and stored with [`store`].
    pub(super) fn skip(&mut self, stored: &[u8], reached: Reached) {
        for one in stored.chunks_exact(KEPT_BYTES) {
            let index = u64::from_le_bytes(std::array::from_fn(|n| one[n]));
            let group = if one[8] == APART { Group::Apart } else { Group::Of(one[8]) };
            if let Some(sketch) = one[9..].first_chunk() {
                self.admit(index, &Sketch::from_bytes(sketch), group);
            }
        }
        // Drop candidates generated ahead that lie before this point.
        let skipped = reached.candidates.saturating_sub(self.reached.candidates).min(self.ahead.len() as u64);
        self.ahead.drain(..skipped as usize);
        self.reached = reached;
    }
}

/// Stores what is needed to skip a row when resuming.
pub(super) fn store(row: &Admitted, stored: &mut Vec<u8>) {
    stored.extend(row.row.index.to_le_bytes());
    stored.push(if let Group::Of(group) = group(&row.row) { group } else { APART });
    stored.extend(row.sketch.to_bytes());
}
