//! Statistics of a dataset, updated while its rows are written.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::RowRecord;
use crate::coverage::OpTypePair;

/// Counts by name.
pub type Tally = BTreeMap<String, u64>;

/// Statistics of a dataset or a shard.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Number of rows.
    pub rows: u64,
    /// Rows per category.
    pub categories: Tally,
    /// Rows per split.
    pub splits: Tally,
    /// Rows per difficulty.
    pub difficulty: Tally,
    /// Rows per complexity range of ten, keyed by its lower end: "0", "10", … "100" (and above).
    pub complexity: Tally,
    /// Rows per type.
    pub types: Tally,
    /// Per operation: rows in which it has an operand of each type.
    pub ops: BTreeMap<String, Tally>,
    /// Total bytes per text column.
    pub bytes: Tally,
    /// Rows per text column that is empty because compilation failed.
    #[serde(default)]
    pub missing: Tally,
    /// Incorrect variants per kind of bug.
    pub faults: Tally,
    /// Rejected rows per reason.
    #[serde(deserialize_with = "rejection_counts")]
    pub rejected: Tally,
}

const TEXTS: [&str; 7] = ["source", "cuda", "cpp", "ir", "ptx", "sass", "cuda_warp"];

fn count(tally: &mut Tally, name: &str, more: u64) {
    match tally.get_mut(name) {
        Some(sum) => *sum += more,
        None => drop(tally.insert(name.to_owned(), more)),
    }
}

impl Counts {
    /// Adds a row and the (operation, type) combinations it uses.
    pub fn add(&mut self, record: &RowRecord, pairs: &[OpTypePair]) {
        self.rows += 1;
        count(&mut self.categories, record.text("category"), 1);
        count(&mut self.splits, record.text("split"), 1);
        count(&mut self.difficulty, &record.int("difficulty").to_string(), 1);
        count(&mut self.complexity, &(record.int("complexity") / 10 * 10).min(100).to_string(), 1);
        record.text("types").split_whitespace().for_each(|ty| count(&mut self.types, ty, 1));
        for (op, ty) in pairs {
            match self.ops.get_mut(*op) {
                Some(tally) => count(tally, ty, 1),
                None => drop(self.ops.insert((*op).to_owned(), [((*ty).to_owned(), 1)].into())),
            }
        }
        for name in TEXTS.into_iter().filter(|name| record.has(name)) {
            count(&mut self.bytes, name, record.text(name).len() as u64);
            if record.text(name).is_empty() {
                count(&mut self.missing, name, 1);
            }
        }
        if !record.text("fault_kind").is_empty() {
            count(&mut self.faults, record.text("fault_kind"), 1);
        }
    }

    /// Counts a rejected row.
    pub(super) fn reject(&mut self, why: &str) {
        count(&mut self.rejected, why, 1);
    }

    /// Adds the statistics of another part of the dataset.
    pub fn merge(&mut self, other: &Counts) {
        self.rows += other.rows;
        for (mine, theirs) in [
            (&mut self.categories, &other.categories),
            (&mut self.splits, &other.splits),
            (&mut self.difficulty, &other.difficulty),
            (&mut self.complexity, &other.complexity),
            (&mut self.types, &other.types),
            (&mut self.bytes, &other.bytes),
            (&mut self.missing, &other.missing),
            (&mut self.faults, &other.faults),
            (&mut self.rejected, &other.rejected),
        ] {
            theirs.iter().for_each(|(name, more)| count(mine, name, *more));
        }
        for (op, tally) in &other.ops {
            let mine = self.ops.entry(op.clone()).or_default();
            tally.iter().for_each(|(name, more)| count(mine, name, *more));
        }
    }
}

/// Names of rejections in older datasets, and their present ones.
const RETIRED_REJECTIONS: [(&str, &str); 12] = [
    ("text", "cuda"),
    ("source", "python"),
    ("blunt", "loose_bound"),
    ("constant", "constant_output"),
    ("unused", "unused_input"),
    ("dead", "dead_code"),
    ("report", "fault"),
    ("differs", "mismatch"),
    ("compiler_died", "compiler_crashed"),
    ("compiler_hung", "compiler_timeout"),
    ("compiler_memory", "compiler_out_of_memory"),
    ("compiler_garbage", "compiler_invalid_response"),
];

/// Reads counts of rejections; retired names become the present ones.
fn rejection_counts<'de, D: Deserializer<'de>>(input: D) -> Result<Tally, D::Error> {
    let mut counts = Tally::new();
    for (name, count) in Tally::deserialize(input)? {
        let present = RETIRED_REJECTIONS.iter().find(|(retired, _)| *retired == name).map_or(&name[..], |(_, new)| new);
        *counts.entry(present.into()).or_default() += count;
    }
    Ok(counts)
}
