//! Deduplication of rows, by texts with names and constants removed.
//!
//! A [`Fingerprint`] of a row can be computed anywhere, in any order. [`Deduplicator`] takes
//! fingerprints in index order, so that the lowest index of several similar rows is kept,
//! regardless of threads and processes.

mod bytes;
mod splits;
mod tokens;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bornite_support::random::mix;
pub use bytes::FINGERPRINT_BYTES;
pub use splits::ComparisonGroup;
use splits::SplitTracker;
use tokens::tokens;

/// Number of MinHash values: each is the minimum over its share of all shingle hashes
/// (one-permutation hashing).
const MINHASHES: usize = 128;
/// MinHash values per LSH band, which must all agree for two rows to be compared.
const BAND_SIZE: usize = 8;
/// Tokens per shingle.
const SHINGLE_TOKENS: usize = 5;
/// Share of common shingles (Jaccard) from which two rows are near duplicates.
pub const NEAR_DUPLICATE_SIMILARITY: f64 = 0.85;
/// Estimated similarity from which a row is dropped: estimates from 128 values are off by more than
/// 0.03 in one case of three.
const DROP_SIMILARITY: f64 = 0.8;
/// Estimated similarity from which two rows must be in the same split.
const CLUSTER_SIMILARITY: f64 = 0.65;
/// Maximum rows compared per bucket, newest first.
const MAX_COMPARED: usize = 24;

/// Summary of a row for comparison with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fingerprint {
    /// Hash of the source up to names and constants, independent of the CUDA text.
    pub exact: u64,
    /// Hash of both texts up to names, constants, operators and functions.
    pub skeleton: u64,
    minhashes: [u16; MINHASHES],
}

impl Fingerprint {
    /// Computes the fingerprint of a row's source and CUDA text.
    pub fn new(source: &str, cuda: &str) -> Fingerprint {
        let (mut exact, mut skeleton) = (0u64, 0u64);
        let mut min = [u64::MAX; MINHASHES];
        each_token(source, cuda, |of_source, token, skeletal, shingle| {
            if of_source {
                exact = mix(exact ^ token).wrapping_add(0x9e37_79b9_7f4a_7c15);
            }
            skeleton = mix(skeleton ^ skeletal).wrapping_add(0x9e37_79b9_7f4a_7c15);
            if let Some(hash) = shingle {
                let slot = (hash >> 57) as usize;
                min[slot] = min[slot].min(hash & (u64::MAX >> 7));
            }
        });
        // A value without shingles takes the next one's (densification), so that short rows can be
        // compared too.
        let mut minhashes = [0u16; MINHASHES];
        for (slot, value) in minhashes.iter_mut().enumerate() {
            let mut from = slot;
            let mut steps = 0u64;
            while min[from] == u64::MAX && steps < MINHASHES as u64 {
                from = (from + 1) % MINHASHES;
                steps += 1;
            }
            *value = mix(min[from] ^ steps.wrapping_mul(0x51ed_270b)) as u16;
        }
        Fingerprint { exact, skeleton, minhashes }
    }

    /// Estimated share of common shingles.
    pub fn similarity(&self, other: &Fingerprint) -> f64 {
        similarity(&self.minhashes, &other.minhashes)
    }
}

/// Calls `visit` for each token of a row's texts with: whether it is from the source, the token,
/// the token with operators and functions removed, and the hash of the shingle that it ends.
fn each_token(source: &str, cuda: &str, mut visit: impl FnMut(bool, u64, u64, Option<u64>)) {
    let mut recent = [0u64; SHINGLE_TOKENS];
    let mut count = 0;
    for (text, of_source) in [(source, true), (cuda, false)] {
        tokens(text, &mut |token, skeletal| {
            recent.rotate_left(1);
            recent[SHINGLE_TOKENS - 1] = token;
            count += 1;
            let shingle = (count >= SHINGLE_TOKENS).then(|| {
                let join = |hash: u64, token: &u64| hash.rotate_left(13).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ token;
                mix(recent.iter().fold(0, join))
            });
            visit(of_source, token, skeletal, shingle);
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

fn similarity(a: &[u16; MINHASHES], b: &[u16; MINHASHES]) -> f64 {
    count_equal(a, b) as f64 / MINHASHES as f64
}

/// Number of equal values; counted in their own width, so that the loop vectorizes.
fn count_equal<const N: usize>(a: &[u16; N], b: &[u16; N]) -> u16 {
    a.iter().zip(b).fold(0, |same, (a, b)| same + u16::from(a == b))
}

/// Outcome of admitting a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Admission {
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
        index: u64,
        /// Estimated similarity.
        similarity: f64,
    },
    /// Similar to rows of two splits.
    SplitConflict,
}

impl Admission {
    /// True if the row is admitted.
    pub fn is_new(self) -> bool {
        matches!(self, Admission::New { .. })
    }
}

/// Identity hasher: keys are hashes already.
#[derive(Default, Clone, Copy)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = mix(self.0 ^ *byte as u64));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write_u32(&mut self, key: u32) {
        // Hash maps use both ends of a hash.
        self.0 = key as u64 * 0x1_0000_0001;
    }
}

type Map<K> = HashMap<K, u32, BuildHasherDefault<IdentityHasher>>;

/// Rows admitted so far.
#[derive(Default)]
pub struct Deduplicator {
    exact: Map<u64>,
    skeletons: Map<u64>,
    /// Per band: the newest row of each bucket, and for each row the previous one in its bucket.
    bands: Vec<(Map<u32>, Vec<u32>)>,
    minhashes: Vec<[u16; MINHASHES]>,
    indices: Vec<u64>,
    clusters: Vec<u32>,
    splits: SplitTracker,
}

const NONE: u32 = u32::MAX;

impl Deduplicator {
    /// Creates an empty deduplicator.
    pub fn new() -> Deduplicator {
        Deduplicator { bands: vec![Default::default(); MINHASHES / BAND_SIZE], ..Deduplicator::default() }
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
    pub fn admit(&mut self, index: u64, fingerprint: &Fingerprint) -> Admission {
        self.admit_to_group(index, fingerprint, ComparisonGroup::Numbered(0), |_| 0)
    }

    /// Like [`Deduplicator::admit`], for rows that are split: `split_number` returns the split of a
    /// cluster by the index of its first row, 0 for the largest one. No admitted row of another
    /// split in its group is similar to the row.
    pub fn admit_to_group(
        &mut self,
        index: u64,
        fingerprint: &Fingerprint,
        group: ComparisonGroup,
        split_number: impl Fn(u64) -> u8,
    ) -> Admission {
        if self.exact.contains_key(&fingerprint.exact) {
            return Admission::Duplicate;
        }
        let keys: Vec<u32> = (fingerprint.minhashes.chunks(BAND_SIZE))
            .map(|band| band.iter().fold(0u64, |hash, value| mix(hash ^ *value as u64)) as u32)
            .collect();
        let mut best: Option<(f64, u32)> = None;
        for (key, (newest, before)) in keys.iter().zip(&self.bands) {
            let mut at = newest.get(key).copied().unwrap_or(NONE);
            for _ in 0..MAX_COMPARED {
                if at == NONE {
                    break;
                }
                let similarity = similarity(&fingerprint.minhashes, &self.minhashes[at as usize]);
                if best.is_none_or(|(max, other)| similarity > max || similarity == max && at < other) {
                    best = Some((similarity, at));
                }
                at = before[at as usize];
            }
        }
        if let Some((similarity, at)) = best
            && similarity >= DROP_SIMILARITY
        {
            return Admission::Near { index: self.indices[at as usize], similarity };
        }
        let number = self.indices.len() as u32;
        let like = best.filter(|(similarity, _)| *similarity >= CLUSTER_SIMILARITY).map(|(_, at)| at);
        let like = like.or(self.skeletons.get(&fingerprint.skeleton).copied());
        let found = self.splits.joined_row(&self.minhashes, fingerprint, group, like, || split_number(index));
        let Some(joined_row) = found else { return Admission::SplitConflict };
        let cluster = joined_row.map_or(number, |at| self.clusters[at as usize]);
        let first = if cluster == number { index } else { self.indices[cluster as usize] };
        self.splits.add(number, fingerprint, group, split_number(first));
        self.exact.insert(fingerprint.exact, number);
        if group != ComparisonGroup::Excluded {
            self.skeletons.entry(fingerprint.skeleton).or_insert(number);
        }
        for (key, (newest, before)) in keys.into_iter().zip(&mut self.bands) {
            before.push(newest.insert(key, number).unwrap_or(NONE));
        }
        self.minhashes.push(fingerprint.minhashes);
        self.indices.push(index);
        self.clusters.push(cluster);
        Admission::New { cluster }
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
    if is_held_out(ops) { "held_out" } else { SPLITS[split_number(seed, cluster_index) as usize] }
}

/// True if a row belongs to the split `held_out`, regardless of its cluster.
fn is_held_out(ops: &[&str]) -> bool {
    ops.iter().any(|op| HELD_OUT.contains(op))
}

/// Group of rows that a row is compared with: those of its category.
pub fn group(row: &crate::Row) -> ComparisonGroup {
    if is_held_out(&row.ops) { ComparisonGroup::Excluded } else { ComparisonGroup::Numbered(row.category as u8) }
}

/// Split number of a cluster.
pub fn split_number(seed: u64, cluster_index: u64) -> u8 {
    match mix(seed ^ mix(cluster_index ^ 0x5b17)) % 100 {
        0..=1 => 1,
        2..=3 => 2,
        _ => 0,
    }
}
