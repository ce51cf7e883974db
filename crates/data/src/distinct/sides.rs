//! Which side of a split rows lie on, so that no two like ones lie on different sides.
//!
//! Buckets of a sketch find most rows that are like a new one, not all, and a split leaks by the others. The sides that few
//! rows are on are short: a new row is compared with all of theirs, and with all of the common side before it joins a rare one.

use super::{CLUSTER, LANES, Sketch, likeness};

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
    groups: Vec<(Vec<u32>, Vec<u32>)>,
}

/// The side of rows that are apart.
const APART: u8 = u8::MAX;
/// Lanes that are looked at first, and how many of them agree for two rows that could be alike: of rows at the limit, one in a
/// thousand has fewer.
const FIRST: usize = 32;
const FIRST_ALIKE: usize = 12;

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
        let none = (vec![], vec![]);
        let (common, rare) = self.groups.get(group as usize).unwrap_or(&none);
        let is_like = |at: &u32| {
            let other = &lanes[*at as usize];
            let first = sketch.lanes[..FIRST].iter().zip(&other[..FIRST]).filter(|(a, b)| a == b).count();
            first >= FIRST_ALIKE && likeness(&sketch.lanes, other) >= CLUSTER
        };
        let mut beside = like;
        for at in rare.iter().copied().filter(is_like) {
            match beside {
                None => beside = Some(at),
                Some(other) if self.of[other as usize] == self.of[at as usize] => {}
                Some(_) => return None,
            }
        }
        match beside {
            Some(at) if self.of[at as usize] == 0 => Some(beside),
            Some(_) => (!common.iter().any(is_like)).then_some(beside),
            None if side() == 0 => Some(None),
            None => Some(common.iter().copied().find(is_like)),
        }
    }

    /// Takes the next row.
    pub(super) fn add(&mut self, row: u32, group: Group, side: u8) {
        let Group::Of(group) = group else { return self.of.push(APART) };
        self.of.push(side);
        if self.groups.len() <= group as usize {
            self.groups.resize_with(group as usize + 1, Default::default);
        }
        let (common, rare) = &mut self.groups[group as usize];
        if side == 0 { common.push(row) } else { rare.push(row) }
    }
}
