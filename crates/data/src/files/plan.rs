//! Which programs a dataset has: distinct ones in the order of their indices, from the first.
//!
//! Programs are made many at a time, and admitted one by one, so that the lowest index of several like ones stays however
//! many threads work.

use std::collections::{HashSet, VecDeque};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Error, Result, Settings};
use crate::distinct::{Group, SKETCH_BYTES, Seen, Sketch, Verdict, group, side};
use crate::{Category, Row};

/// So many candidates in a row without a new one: there are no more.
const BARREN: u64 = 20_000;

/// How far a plan is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reached {
    /// Indices that were tried.
    pub candidates: u64,
    /// Distinct programs among them.
    pub distinct: u64,
    /// Of which the texts are not understood.
    pub unmade: u64,
    /// Differ from an earlier one in names and constants alone.
    pub duplicates: u64,
    /// Near duplicates of an earlier one.
    pub near: u64,
    /// Like rows of two splits.
    #[serde(default)]
    pub between: u64,
    /// Structures of distinct programs, all that people choose freely and operators left out.
    pub structures: u64,
}

/// A distinct program.
pub(super) struct Admitted {
    pub row: Row,
    /// Its number among the distinct ones.
    pub number: u64,
    /// The index of the first row of its cluster.
    pub cluster: u64,
    pub sketch: Sketch,
}

/// What is kept of admitted rows to go on after them.
pub(super) const KEPT_BYTES: usize = 9 + SKETCH_BYTES;

/// Stands for [`Group::Apart`].
const APART: u8 = u8::MAX;

/// Admits programs.
pub(super) struct Plan {
    seed: u64,
    among: Vec<Category>,
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
            among: settings.among(),
            seen: Seen::new(),
            structures: HashSet::new(),
            ahead: VecDeque::new(),
            reached: Reached::default(),
            barren: 0,
        }
    }

    /// The next distinct programs, `most` at most: those among the next `wave` candidates. Runs on the current pool.
    pub(super) fn next(&mut self, most: u64, wave: usize) -> Result<Vec<Admitted>> {
        if self.ahead.is_empty() {
            let from = self.reached.candidates;
            let (seed, among) = (self.seed, &self.among);
            let made: Vec<Option<(Row, Sketch)>> = (from..from + wave as u64)
                .into_par_iter()
                .map(|index| {
                    let row = crate::make(seed, index, among).ok()?;
                    let sketch = Sketch::new(&row.source, &row.cuda);
                    Some((row, sketch))
                })
                .collect();
            self.ahead.extend(made);
        }
        let mut admitted = vec![];
        while (admitted.len() as u64) < most {
            let Some(made) = self.ahead.pop_front() else { break };
            self.reached.candidates += 1;
            self.barren += 1;
            let Some((row, sketch)) = made else {
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
                "there are no more than about {} distinct rows of {}: ask for fewer with --count, or for more categories",
                self.reached.distinct,
                self.among.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ")
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

    /// Goes past rows that were admitted in an earlier run, of which [`kept`] was written down.
    pub(super) fn pass(&mut self, kept: &[u8], reached: Reached) {
        for one in kept.chunks_exact(KEPT_BYTES) {
            let index = u64::from_le_bytes(std::array::from_fn(|n| one[n]));
            let group = if one[8] == APART { Group::Apart } else { Group::Of(one[8]) };
            if let Some(sketch) = one[9..].first_chunk() {
                self.admit(index, &Sketch::from_bytes(sketch), group);
            }
        }
        // What was made ahead lies behind now.
        let passed = reached.candidates.saturating_sub(self.reached.candidates).min(self.ahead.len() as u64);
        self.ahead.drain(..passed as usize);
        self.reached = reached;
    }
}

/// Writes down what it takes to go past a row.
pub(super) fn keep(row: &Admitted, kept: &mut Vec<u8>) {
    kept.extend(row.row.index.to_le_bytes());
    kept.push(if let Group::Of(group) = group(&row.row) { group } else { APART });
    kept.extend(row.sketch.to_bytes());
}
