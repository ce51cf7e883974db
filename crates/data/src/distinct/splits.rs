//! Assignment of rows to splits, such that no two similar rows are in different splits.
//!
//! LSH bands find most of the rows similar to a new one, but not all, and the others would leak
//! between splits. The small splits are short, so a new row is compared with all of their rows, and
//! with all rows of the large split before it joins a small one.

use super::{CLUSTER_SIMILARITY, Fingerprint, MINHASHES, count_equal, similarity};

/// Rows that are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ComparisonGroup {
    /// Rows of the category with this number; rows of different categories are rarely similar.
    Numbered(u8),
    /// Rows of the split `held_out`, which depends only on their operations: compared with no row.
    Excluded,
}

#[derive(Default)]
pub(super) struct SplitTracker {
    /// Split of each admitted row.
    of: Vec<u8>,
    /// Per group: rows of the large split, and of the others.
    groups: Vec<[SplitRows; 2]>,
}

/// Rows of a group, with their first MinHash values stored contiguously: those suffice to
/// distinguish nearly all rows, and reading them dominates the cost of a comparison.
#[derive(Default)]
struct SplitRows {
    rows: Vec<u32>,
    prefixes: Vec<[u16; PREFIX]>,
}

/// Split number of excluded rows.
const EXCLUDED: u8 = u8::MAX;
/// MinHash values compared first, and how many of them must agree for two rows to be similar: of
/// rows at the similarity limit, one in a thousand has fewer.
const PREFIX: usize = 32;
const MIN_PREFIX_MATCHES: u16 = 12;

impl SplitRows {
    /// Rows similar to a fingerprint.
    fn like<'a>(
        &'a self,
        minhashes: &'a [[u16; MINHASHES]],
        fingerprint: &'a Fingerprint,
    ) -> impl Iterator<Item = u32> + 'a {
        let first = first(fingerprint);
        let both = self.rows.iter().zip(&self.prefixes);
        let could_be = both.filter(move |(_, other)| count_equal(&first, other) >= MIN_PREFIX_MATCHES);
        could_be
            .map(|(row, _)| *row)
            .filter(|row| similarity(&fingerprint.minhashes, &minhashes[*row as usize]) >= CLUSTER_SIMILARITY)
    }
}

fn first(fingerprint: &Fingerprint) -> [u16; PREFIX] {
    std::array::from_fn(|slot| fingerprint.minhashes[slot])
}

impl SplitTracker {
    /// The row whose cluster a new row joins, if any; `None` if it is similar to rows of two
    /// splits. `like` is a similar row found otherwise, and `split_number` returns the split that
    /// the row would get by itself.
    pub(super) fn joined_row(
        &self,
        minhashes: &[[u16; MINHASHES]],
        fingerprint: &Fingerprint,
        group: ComparisonGroup,
        like: Option<u32>,
        split_number: impl Fn() -> u8,
    ) -> Option<Option<u32>> {
        let ComparisonGroup::Numbered(group) = group else { return Some(None) };
        let like = like.filter(|at| self.of[*at as usize] != EXCLUDED);
        let none = Default::default();
        let [common, rare] = self.groups.get(group as usize).unwrap_or(&none);
        let mut joined_row = like;
        for at in rare.like(minhashes, fingerprint) {
            match joined_row {
                None => joined_row = Some(at),
                Some(other) if self.of[other as usize] == self.of[at as usize] => {}
                Some(_) => return None,
            }
        }
        let mut common = common.like(minhashes, fingerprint);
        match joined_row {
            Some(at) if self.of[at as usize] == 0 => Some(joined_row),
            Some(_) => common.next().is_none().then_some(joined_row),
            None if split_number() == 0 => Some(None),
            None => Some(common.next()),
        }
    }

    /// Adds the next row.
    pub(super) fn add(&mut self, row: u32, fingerprint: &Fingerprint, group: ComparisonGroup, split_number: u8) {
        let ComparisonGroup::Numbered(group) = group else { return self.of.push(EXCLUDED) };
        self.of.push(split_number);
        if self.groups.len() <= group as usize {
            self.groups.resize_with(group as usize + 1, Default::default);
        }
        let of_side = &mut self.groups[group as usize][usize::from(split_number != 0)];
        of_side.rows.push(row);
        of_side.prefixes.push(first(fingerprint));
    }
}
