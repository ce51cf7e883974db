//! What makes two rows the same: texts compared after names and constants are taken out.
//!
//! A [`Sketch`] of a row is made anywhere, in any order. [`Seen`] takes sketches in the order of their indices, so that the
//! lowest index of several like rows is the one that stays, whoever made them.

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

/// Numbers of a sketch: each the least hash of its part of all shingles.
const LANES: usize = 128;
/// Lanes that must all agree for two rows to be compared.
const BAND: usize = 8;
/// Tokens of a shingle.
const SHINGLE: usize = 5;
/// Shared shingles, of all, from which two rows are near duplicates.
pub const NEAR: f64 = 0.85;
/// Estimated likeness from which a row is left out: estimates of 128 numbers are off by 0.03 in one case of three.
const LEFT_OUT: f64 = 0.8;
/// Estimated likeness from which two rows stay on one side of every split.
const CLUSTER: f64 = 0.65;
/// Rows of a bucket that are compared, newest first.
const MOST_COMPARED: usize = 24;

/// What is kept of a row to compare it with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sketch {
    /// Equal for rows whose sources differ in names and constants alone, however their CUDA texts are written.
    pub exact: u64,
    /// Equal for rows that differ in operators and functions too.
    pub skeleton: u64,
    lanes: [u16; LANES],
}

impl Sketch {
    /// The sketch of a row's source and CUDA text.
    pub fn new(source: &str, cuda: &str) -> Sketch {
        let (mut exact, mut skeleton) = (0u64, 0u64);
        let mut least = [u64::MAX; LANES];
        each_token(source, cuda, |of_source, token, plain, shingle| {
            if of_source {
                exact = mixed(exact ^ token).wrapping_add(0x9e37_79b9_7f4a_7c15);
            }
            skeleton = mixed(skeleton ^ plain).wrapping_add(0x9e37_79b9_7f4a_7c15);
            if let Some(hash) = shingle {
                let lane = (hash >> 57) as usize;
                least[lane] = least[lane].min(hash & (u64::MAX >> 7));
            }
        });
        // A lane that no shingle fell into takes the next one's, so that short rows can be compared too.
        let mut lanes = [0u16; LANES];
        for (lane, kept) in lanes.iter_mut().enumerate() {
            let mut from = lane;
            let mut steps = 0u64;
            while least[from] == u64::MAX && steps < LANES as u64 {
                from = (from + 1) % LANES;
                steps += 1;
            }
            *kept = mixed(least[from] ^ steps.wrapping_mul(0x51ed_270b)) as u16;
        }
        Sketch { exact, skeleton, lanes }
    }

    /// The share of shingles that two rows have in common, estimated.
    pub fn likeness(&self, other: &Sketch) -> f64 {
        likeness(&self.lanes, &other.lanes)
    }
}

/// Calls `see` for each token of a row's texts: with whether it is of the source, the token, the same without operators and
/// functions, and a hash of the shingle that it ends.
fn each_token(source: &str, cuda: &str, mut see: impl FnMut(bool, u64, u64, Option<u64>)) {
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
            see(of_source, token, plain, shingle);
        });
    }
}

/// Hashes of all shingles of a row's texts, sorted: what a [`Sketch`] estimates likeness from.
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

/// How many lanes are equal; counted in their own width, so that vectors of them are compared at once.
fn agreeing<const N: usize>(a: &[u16; N], b: &[u16; N]) -> u16 {
    a.iter().zip(b).fold(0, |same, (a, b)| same + u16::from(a == b))
}

/// What became of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Verdict {
    /// It is new. Rows of one cluster are alike enough to stay on one side of every split.
    New {
        /// The cluster: the number of its first row among those admitted.
        cluster: u32,
    },
    /// Its source differs from that of an earlier row in names and constants alone.
    Duplicate,
    /// It is a near duplicate of an earlier row.
    Near {
        /// The index of that row.
        of: u64,
        /// The share of what they have in common.
        likeness: f64,
    },
    /// It is like rows on two sides of a split.
    Between,
}

impl Verdict {
    /// Whether the row is kept.
    pub fn is_new(self) -> bool {
        matches!(self, Verdict::New { .. })
    }
}

/// Keys that are hashes need no other hash.
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
        // Both ends of a hash are looked at.
        self.0 = key as u64 * 0x1_0000_0001;
    }
}

type Map<K> = HashMap<K, u32, BuildHasherDefault<Mixed>>;

/// The rows that were admitted so far.
#[derive(Default)]
pub struct Seen {
    exact: Map<u64>,
    skeletons: Map<u64>,
    /// Of each band: the newest row of a bucket, and of each row the one before it.
    bands: Vec<(Map<u32>, Vec<u32>)>,
    lanes: Vec<[u16; LANES]>,
    indices: Vec<u64>,
    clusters: Vec<u32>,
    sides: Sides,
}

const NONE: u32 = u32::MAX;

impl Seen {
    /// Nothing seen yet.
    pub fn new() -> Seen {
        Seen { bands: vec![Default::default(); LANES / BAND], ..Seen::default() }
    }

    /// How many rows were admitted.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// True if none was.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Takes the next row in the order of indices: admits it, or says which earlier row it is like.
    pub fn admit(&mut self, index: u64, sketch: &Sketch) -> Verdict {
        self.admit_to(index, sketch, Group::Of(0), |_| 0)
    }

    /// The same where rows are split: `side` says by the index of a cluster's first row on which side it lies, 0 for the one that
    /// most are on. No row of another side of its group is then like the row.
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
                if best.is_none_or(|(most, other)| likeness > most || likeness == most && at < other) {
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

    /// The index of an admitted row.
    pub fn index_of(&self, number: u32) -> u64 {
        self.indices[number as usize]
    }
}

/// Operators and functions that only the split `held_out` has, so that a model meets them nowhere else.
pub const HELD_OUT: &[&str] = &["cbrt", "erfc", "smoothstep", "cw_div", "atomic_xor", "log10", "copysign"];

/// Parts of a dataset by their sides: most rows are on the first.
const SPLITS: [&str; 3] = ["train", "test", "validation"];

/// Which part of a dataset a row belongs to: by its cluster, and by its ops.
pub fn split(seed: u64, cluster_index: u64, ops: &[&str]) -> &'static str {
    if is_held_out(ops) { "held_out" } else { SPLITS[side(seed, cluster_index) as usize] }
}

/// Whether a row belongs to the split `held_out`, whatever it is like.
fn is_held_out(ops: &[&str]) -> bool {
    ops.iter().any(|op| HELD_OUT.contains(op))
}

/// What a row is compared with before it is split: those of its category.
pub fn group(row: &crate::Row) -> Group {
    if is_held_out(&row.ops) { Group::Apart } else { Group::Of(row.category as u8) }
}

/// The side of a split that a cluster lies on.
pub fn side(seed: u64, cluster_index: u64) -> u8 {
    match mixed(seed ^ mixed(cluster_index ^ 0x5b17)) % 100 {
        0..=1 => 1,
        2..=3 => 2,
        _ => 0,
    }
}
