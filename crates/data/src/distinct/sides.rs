//! Which side of a split rows lie on, so that no two like ones lie on different sides.
//!
//! Buckets of a sketch find most rows that are like a new one, not all, and a split leaks by the others. The sides that few
//! rows are on are short: a new row is compared with all of theirs, and with all of the common side before it joins a rare one.

use super::{CLUSTER, LANES, Sketch, agreeing, likeness};

/// Rows that are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Those of one number: rows of several are hardly alike.
    Of(u8),
    /// None: it is split off by other means.
    Apart,
}

#[derive(Default)]
pub(super) struct Sides {
    /// Of each admitted row.
    of: Vec<u8>,
    /// Of each group: rows on the common side, and on others.
    groups: Vec<[Side; 2]>,
}

/// Rows of a group, with what is looked at first of each side by side: nearly all are told apart by that, and reading it is
/// what a comparison costs.
#[derive(Default)]
struct Side {
    rows: Vec<u32>,
    firsts: Vec<[u16; FIRST]>,
}

/// The side of rows that are apart.
const APART: u8 = u8::MAX;
/// Lanes that are looked at first, and how many of them agree for two rows that could be alike: of rows at the limit, one in a
/// thousand has fewer.
const FIRST: usize = 32;
const FIRST_ALIKE: u16 = 12;

impl Side {
    /// The rows that are like a sketch.
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
    /// The row whose cluster a new one joins, if any; `None` if it is like rows on two sides. `like` is one that was found
    /// otherwise, and `side` what the row would lie on by itself.
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

    /// Takes the next row.
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
