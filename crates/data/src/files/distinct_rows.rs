//! Selection of a dataset's programs: distinct ones in index order.
//!
//! Programs are generated in parallel batches and admitted one by one, so that the lowest index of
//! several similar ones is kept regardless of the number of threads.

use std::collections::{HashSet, VecDeque};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{DatasetSettings, Error, Result};
use crate::distinct::{Admission, ComparisonGroup, Deduplicator, FINGERPRINT_BYTES, Fingerprint, group, split_number};
use crate::{Category, Row};

/// Candidates without a new program after which generation gives up.
const MAX_MISSES: u64 = 20_000;

/// Candidates tried so far, by outcome. Aliases are names in older manifests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CandidateCounts {
    /// Indices that were tried.
    pub candidates: u64,
    /// Distinct programs among them.
    pub distinct: u64,
    /// Rejected by the front end.
    #[serde(alias = "unmade")]
    pub unsupported: u64,
    /// Duplicates of an earlier program up to names and constants.
    pub duplicates: u64,
    /// Near duplicates of an earlier program.
    #[serde(alias = "near")]
    pub near_duplicates: u64,
    /// Similar to rows of two splits.
    #[serde(default, alias = "between")]
    pub split_conflicts: u64,
    /// Distinct structures: names, constants, operators and functions ignored.
    pub structures: u64,
}

/// A distinct program.
pub(super) struct AdmittedRow {
    pub row: Row,
    /// Number among the distinct programs.
    pub number: u64,
    /// Index of the first row of its cluster.
    pub cluster: u64,
    pub fingerprint: Fingerprint,
}

/// Bytes stored per admitted row in order to resume after it.
pub(super) const STORED_BYTES: usize = 9 + FINGERPRINT_BYTES;

/// Encodes [`ComparisonGroup::Excluded`].
const EXCLUDED: u8 = u8::MAX;

/// Generates candidates and admits the distinct ones.
pub(super) struct DistinctRows {
    seed: u64,
    categories: Vec<Category>,
    seen: Deduplicator,
    structures: HashSet<u64>,
    prefetched: VecDeque<Option<(Row, Fingerprint)>>,
    pub counts: CandidateCounts,
    misses: u64,
}

impl DistinctRows {
    pub(super) fn new(settings: &DatasetSettings) -> DistinctRows {
        DistinctRows {
            seed: settings.seed,
            categories: settings.category_list(),
            seen: Deduplicator::new(),
            structures: HashSet::new(),
            prefetched: VecDeque::new(),
            counts: CandidateCounts::default(),
            misses: 0,
        }
    }

    /// Returns at most `max` distinct programs among the next `batch` candidates. Runs on the
    /// current thread pool.
    pub(super) fn next_batch(&mut self, max: u64, batch: usize) -> Result<Vec<AdmittedRow>> {
        if self.prefetched.is_empty() {
            let from = self.counts.candidates;
            let (seed, categories) = (self.seed, &self.categories);
            let generated: Vec<Option<(Row, Fingerprint)>> = (from..from + batch as u64)
                .into_par_iter()
                .map(|index| {
                    let row = crate::generate_in(seed, index, categories).ok()?;
                    let fingerprint = Fingerprint::new(&row.source, &row.cuda);
                    Some((row, fingerprint))
                })
                .collect();
            self.prefetched.extend(generated);
        }
        let mut admitted = vec![];
        while (admitted.len() as u64) < max {
            let Some(candidate) = self.prefetched.pop_front() else { break };
            self.counts.candidates += 1;
            self.misses += 1;
            let Some((row, fingerprint)) = candidate else {
                self.counts.unsupported += 1;
                continue;
            };
            let group = group(&row);
            if let Some(cluster) = self.admit(row.index, &fingerprint, group) {
                let cluster = self.seen.index_of(cluster);
                admitted.push(AdmittedRow { row, number: self.counts.distinct - 1, cluster, fingerprint });
            }
        }
        if self.misses > MAX_MISSES {
            return Err(Error::InvalidRequest(format!(
                "only about {} distinct rows exist for {}: lower --count or add categories",
                self.counts.distinct,
                self.categories.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(admitted)
    }

    fn admit(&mut self, index: u64, fingerprint: &Fingerprint, group: ComparisonGroup) -> Option<u32> {
        let seed = self.seed;
        match self.seen.admit_to_group(index, fingerprint, group, |first| split_number(seed, first)) {
            Admission::New { cluster } => {
                self.structures.insert(fingerprint.skeleton);
                self.counts.distinct += 1;
                self.counts.structures = self.structures.len() as u64;
                self.misses = 0;
                Some(cluster)
            }
            Admission::Duplicate => {
                self.counts.duplicates += 1;
                None
            }
            Admission::Near { .. } => {
                self.counts.near_duplicates += 1;
                None
            }
            Admission::SplitConflict => {
                self.counts.split_conflicts += 1;
                None
            }
        }
    }

    /// Skips rows that were admitted in an earlier run and stored with [`store`].
    pub(super) fn skip(&mut self, stored: &[u8], counts: CandidateCounts) {
        for one in stored.chunks_exact(STORED_BYTES) {
            let index = u64::from_le_bytes(std::array::from_fn(|n| one[n]));
            let group = if one[8] == EXCLUDED { ComparisonGroup::Excluded } else { ComparisonGroup::Numbered(one[8]) };
            if let Some(fingerprint) = one[9..].first_chunk() {
                self.admit(index, &Fingerprint::from_bytes(fingerprint), group);
            }
        }
        // Drop candidates generated ahead that lie before this point.
        let skipped = counts.candidates.saturating_sub(self.counts.candidates).min(self.prefetched.len() as u64);
        self.prefetched.drain(..skipped as usize);
        self.counts = counts;
    }
}

/// Stores what is needed to skip a row when resuming.
pub(super) fn store(row: &AdmittedRow, stored: &mut Vec<u8>) {
    stored.extend(row.row.index.to_le_bytes());
    stored.push(if let ComparisonGroup::Numbered(group) = group(&row.row) { group } else { EXCLUDED });
    stored.extend(row.fingerprint.to_bytes());
}
