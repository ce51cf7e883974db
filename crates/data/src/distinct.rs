//! Deduplication of rows, by texts with names and constants removed.
//!
//! A [`Sketch`] of a row can be computed anywhere, in any order. [`Seen`] takes fingerprints in
//! index order, so that the lowest index of several similar rows is kept, regardless of threads and
//! processes.

mod bytes;
mod sides;
mod tokens;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bornite_support::random::mixed;
pub use bytes::SKETCH_BYTES;
pub use sides::Group;
use sides::Sides;
use tokens::tokens;

/// Number of MinHash values: each is the minimum over its share of all shingle hashes
/// (one-permutation hashing).
const LANES: usize = 128;
/// MinHash values per LSH band, which must all agree for two rows to be compared.
const BAND: usize = 8;
/// Tokens per shingle.
const SHINGLE: usize = 5;
/// Share of common shingles (Jaccard) from which two rows are near duplicates.
pub const NEAR: f64 = 0.85;
/// Estimated similarity from which a row is dropped: estimates from 128 values are off by more than
/// 0.03 in one case of three.
const LEFT_OUT: f64 = 0.8;
/// Estimated similarity from which two rows must be in the same split.
const CLUSTER: f64 = 0.65;
/// Maximum rows compared per bucket, newest first.
const MOST_COMPARED: usize = 24;

/// Summary of a row for comparison with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sketch {
    /// Hash of the source up to names and constants, independent of the CUDA text.
    pub exact: u64,
    /// Hash of both texts up to names, constants, operators and functions.
    pub skeleton: u64,
    lanes: [u16; LANES],
}

impl Sketch {
    /// Computes the fingerprint of a row's source and CUDA text.
    pub fn new(source: &str, cuda: &str) -> Sketch {
        let (mut exact, mut skeleton) = (0u64, 0u64);
        let mut min = [u64::MAX; LANES];
        each_token(source, cuda, |of_source, token, plain, shingle| {
            if of_source {
                exact = mixed(exact ^ token).wrapping_add(0x9e37_79b9_7f4a_7c15);
            }
            skeleton = mixed(skeleton ^ plain).wrapping_add(0x9e37_79b9_7f4a_7c15);
            if let Some(hash) = shingle {
                let lane = (hash >> 57) as usize;
                min[lane] = min[lane].min(hash & (u64::MAX >> 7));
            }
        });
        // A value without shingles takes the next one's (densification), so that short rows can be
        // compared too.
        let mut lanes = [0u16; LANES];
        for (lane, value) in lanes.iter_mut().enumerate() {
            let mut from = lane;
            let mut steps = 0u64;
            while min[from] == u64::MAX && steps < LANES as u64 {
                from = (from + 1) % LANES;
                steps += 1;
            }
            *value = mixed(min[from] ^ steps.wrapping_mul(0x51ed_270b)) as u16;
        }
        Sketch { exact, skeleton, lanes }
    }

    /// Estimated share of common shingles.
    pub fn likeness(&self, other: &Sketch) -> f64 {
        likeness(&self.lanes, &other.lanes)
    }
}

/// Calls `visit` for each token of a row's texts with: whether it is from the source, the token,
/// the token with operators and functions removed, and the hash of the shingle that it ends.
fn each_token(source: &str, cuda: &str, mut visit: impl FnMut(bool, u64, u64, Option<u64>)) {
    let mut recent = [0u64; SHINGLE];
    let mut count = 0;
    for (text, of_source) in [(source, true), (cuda, false)] {
        tokens(text, &mut |token, plain| {
            recent.rotate_left(1);
            recent[SHINGLE - 1] = token;
            count += 1;
            let shingle = (count >= SHINGLE).then(|| {
                let join = |hash: u64, token: &u64| hash.rotate_left(13).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ token;
                mixed(recent.iter().fold(0, join))
            });
            visit(of_source, token, plain, shingle);
        });
    }
}

/// Sorted hashes of all shingles of a row's texts, from which the exact similarity is computed.
pub fn shingles(source: &str, cuda: &str) -> Vec<u64> {
    let mut all = vec![];
    each_token(source, cuda, |_, _, _, shingle| all.extend(shingle));
    all.sort_unstable();
    all.dedup();
    all
}

fn likeness(a: &[u16; LANES], b: &[u16; LANES]) -> f64 {
    agreeing(a, b) as f64 / LANES as f64
}

/// Number of equal values; counted in their own width, so that the loop vectorizes.
fn agreeing<const N: usize>(a: &[u16; N], b: &[u16; N]) -> u16 {
    a.iter().zip(b).fold(0, |same, (a, b)| same + u16::from(a == b))
}

/// Outcome of admitting a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Verdict {
    /// The row is new. Rows of one cluster are similar enough to belong to the same split.
    New {
        /// Cluster: the number of its first row among those admitted.
        cluster: u32,
    },
    /// The source equals that of an earlier row up to names and constants.
    Duplicate,
    /// Near duplicate of an earlier row.
    Near {
        /// Index of that row.
        of: u64,
        /// Estimated similarity.
        likeness: f64,
    },
    /// Similar to rows of two splits.
    Between,
}

impl Verdict {
    /// True if the row is admitted.
    pub fn is_new(self) -> bool {
        matches!(self, Verdict::New { .. })
    }
}

/// Identity hasher: keys are hashes already.
#[derive(Default, Clone, Copy)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = mixed(self.0 ^ *byte as u64));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write_u32(&mut self, key: u32) {
        // Hash maps use both ends of a hash.
        self.0 = key as u64 * 0x1_0000_0001;
    }
}

type Map<K> = HashMap<K, u32, BuildHasherDefault<Mixed>>;

/// Rows admitted so far.
#[derive(Default)]
pub struct Seen {
    exact: Map<u64>,
    skeletons: Map<u64>,
    /// Per band: the newest row of each bucket, and for each row the previous one in its bucket.
    bands: Vec<(Map<u32>, Vec<u32>)>,
    lanes: Vec<[u16; LANES]>,
    indices: Vec<u64>,
    clusters: Vec<u32>,
    sides: Sides,
}

const NONE: u32 = u32::MAX;

impl Seen {
    /// Creates an empty deduplicator.
    pub fn new() -> Seen {
        Seen { bands: vec![Default::default(); LANES / BAND], ..Seen::default() }
    }

    /// Number of admitted rows.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// True if no row was admitted.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Takes the next row in index order: admits it, or returns why not.
    pub fn admit(&mut self, index: u64, sketch: &Sketch) -> Verdict {
        self.admit_to(index, sketch, Group::Of(0), |_| 0)
    }

    /// Like [`Seen::admit`], for rows that are split: `side` returns the split of a cluster by the
    /// index of its first row, 0 for the largest one. No admitted row of another split in its group
    /// is similar to the row.
    pub fn admit_to(&mut self, index: u64, sketch: &Sketch, group: Group, side: impl Fn(u64) -> u8) -> Verdict {
        if self.exact.contains_key(&sketch.exact) {
            return Verdict::Duplicate;
        }
        let keys: Vec<u32> = (sketch.lanes.chunks(BAND))
            .map(|band| band.iter().fold(0u64, |hash, lane| mixed(hash ^ *lane as u64)) as u32)
            .collect();
        let mut best: Option<(f64, u32)> = None;
        for (key, (newest, before)) in keys.iter().zip(&self.bands) {
            let mut at = newest.get(key).copied().unwrap_or(NONE);
            for _ in 0..MOST_COMPARED {
                if at == NONE {
                    break;
                }
                let likeness = likeness(&sketch.lanes, &self.lanes[at as usize]);
                if best.is_none_or(|(max, other)| likeness > max || likeness == max && at < other) {
                    best = Some((likeness, at));
                }
                at = before[at as usize];
            }
        }
        if let Some((likeness, at)) = best
            && likeness >= LEFT_OUT
        {
            return Verdict::Near { of: self.indices[at as usize], likeness };
        }
        let own = self.indices.len() as u32;
        let like = best.filter(|(likeness, _)| *likeness >= CLUSTER).map(|(_, at)| at);
        let like = like.or(self.skeletons.get(&sketch.skeleton).copied());
        let found = self.sides.beside(&self.lanes, sketch, group, like, || side(index));
        let Some(beside) = found else { return Verdict::Between };
        let cluster = beside.map_or(own, |at| self.clusters[at as usize]);
        let first = if cluster == own { index } else { self.indices[cluster as usize] };
        self.sides.add(own, sketch, group, side(first));
        self.exact.insert(sketch.exact, own);
        if group != Group::Apart {
            self.skeletons.entry(sketch.skeleton).or_insert(own);
        }
        for (key, (newest, before)) in keys.into_iter().zip(&mut self.bands) {
            before.push(newest.insert(key, own).unwrap_or(NONE));
        }
        self.lanes.push(sketch.lanes);
        self.indices.push(index);
        self.clusters.push(cluster);
        Verdict::New { cluster }
    }

    /// Index of an admitted row.
    pub fn index_of(&self, number: u32) -> u64 {
        self.indices[number as usize]
    }
}

/// Operators and functions that occur only in the split `held_out`, so that a model sees them
/// nowhere else in training.
pub const HELD_OUT: &[&str] = &["cbrt", "erfc", "smoothstep", "cw_div", "atomic_xor", "log10", "copysign"];

/// Splits by number; the first has most rows.
const SPLITS: [&str; 3] = ["train", "test", "validation"];

/// Split of a row, by its cluster and its operations.
pub fn split(seed: u64, cluster_index: u64, ops: &[&str]) -> &'static str {
    if is_held_out(ops) { "held_out" } else { SPLITS[side(seed, cluster_index) as usize] }
}

/// True if a row belongs to the split `held_out`, regardless of its cluster.
fn is_held_out(ops: &[&str]) -> bool {
    ops.iter().any(|op| HELD_OUT.contains(op))
}

/// Group of rows that a row is compared with: those of its category.
pub fn group(row: &crate::Row) -> Group {
    if is_held_out(&row.ops) { Group::Apart } else { Group::Of(row.category as u8) }
}

/// Split number of a cluster.
pub fn side(seed: u64, cluster_index: u64) -> u8 {
    match mixed(seed ^ mixed(cluster_index ^ 0x5b17)) % 100 {
        0..=1 => 1,
        2..=3 => 2,
        _ => 0,
    }
}
