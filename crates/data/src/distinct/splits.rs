//! Assignment of rows to splits, such that no two similar rows are in different splits.
//!
//! LSH bands find most of the rows similar to a new one, but not all, and the others would leak
//! between splits. The small splits are short, so a new row is compared with all of their rows, and
//! with all rows of the large split before it joins a small one.

use super::{CLUSTER, LANES, Sketch, agreeing, likeness};

/// Rows that are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Rows with the same number; rows of different groups are rarely similar.
    Of(u8),
    /// Compared with no row: it is split off by other means.
    Apart,
}

#[derive(Default)]
pub(super) struct Sides {
    /// Split of each admitted row.
    of: Vec<u8>,
    /// Per group: rows of the large split, and of the others.
    groups: Vec<[Side; 2]>,
}

/// Rows of a group, with their first MinHash values stored contiguously: those suffice to
/// distinguish nearly all rows, and reading them dominates the cost of a comparison.
#[derive(Default)]
struct Side {
    rows: Vec<u32>,
    firsts: Vec<[u16; FIRST]>,
}

/// Split number of excluded rows.
const APART: u8 = u8::MAX;
/// MinHash values compared first, and how many of them must agree for two rows to be similar: of
/// rows at the similarity limit, one in a thousand has fewer.
const FIRST: usize = 32;
const FIRST_ALIKE: u16 = 12;

impl Side {
    /// Rows similar to a fingerprint.
    fn like<'a>(&'a self, lanes: &'a [[u16; LANES]], sketch: &'a Sketch) -> impl Iterator<Item = u32> + 'a {
        let first = first(sketch);
        let both = self.rows.iter().zip(&self.firsts);
        let could_be = both.filter(move |(_, other)| agreeing(&first, other) >= FIRST_ALIKE);
        could_be.map(|(row, _)| *row).filter(|row| likeness(&sketch.lanes, &lanes[*row as usize]) >= CLUSTER)
    }
}

fn first(sketch: &Sketch) -> [u16; FIRST] {
    std::array::from_fn(|lane| sketch.lanes[lane])
}

impl Sides {
    /// The row whose cluster a new row joins, if any; `None` if it is similar to rows of two
    /// splits. `like` is a similar row found otherwise, and `side` returns the split that the row
    /// would get by itself.
    pub(super) fn beside(
        &self,
        lanes: &[[u16; LANES]],
        sketch: &Sketch,
        group: Group,
        like: Option<u32>,
        side: impl Fn() -> u8,
    ) -> Option<Option<u32>> {
        let Group::Of(group) = group else { return Some(None) };
        let like = like.filter(|at| self.of[*at as usize] != APART);
        let none = Default::default();
        let [common, rare] = self.groups.get(group as usize).unwrap_or(&none);
        let mut beside = like;
        for at in rare.like(lanes, sketch) {
            match beside {
                None => beside = Some(at),
                Some(other) if self.of[other as usize] == self.of[at as usize] => {}
                Some(_) => return None,
            }
        }
        let mut common = common.like(lanes, sketch);
        match beside {
            Some(at) if self.of[at as usize] == 0 => Some(beside),
            Some(_) => common.next().is_none().then_some(beside),
            None if side() == 0 => Some(None),
            None => Some(common.next()),
        }
    }

    /// Adds the next row.
    pub(super) fn add(&mut self, row: u32, sketch: &Sketch, group: Group, side: u8) {
        let Group::Of(group) = group else { return self.of.push(APART) };
        self.of.push(side);
        if self.groups.len() <= group as usize {
            self.groups.resize_with(group as usize + 1, Default::default);
        }
        let of_side = &mut self.groups[group as usize][usize::from(side != 0)];
        of_side.rows.push(row);
        of_side.firsts.push(first(sketch));
    }
}
