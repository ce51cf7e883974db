//! Orders of windows: permutations that are computed, not stored.

use crate::random::mix;

/// A permutation of `0..count` that follows from its key: a Feistel network over the next power of four, walked until it
/// comes back into range (fewer than four steps on average).
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

/// Four are a pseudorandom permutation if the round function is; two more for a cheap one.
const ROUNDS: usize = 6;

impl Permutation {
    pub(super) fn new(count: u64, key: u64) -> Permutation {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let mut state = key;
        let keys = std::array::from_fn(|_| {
            state = mix(state);
            state
        });
        Permutation { count, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Where `place`, which must be below the count, goes.
    pub(super) fn get(&self, place: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = place;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            value = left << self.half_bits | right;
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_place_is_taken_once() {
        let mut random = Random::fresh();
        for count in (1..200).chain([1_000, 4_095, 4_096, 4_097, 65_537]) {
            let order = Permutation::new(count, random.next());
            let mut found: Vec<u64> = (0..count).map(|place| order.get(place)).collect();
            found.sort_unstable();
            assert!(found.into_iter().eq(0..count), "{count}");
        }
        let order = Permutation::new(u64::MAX / 3, 1);
        assert!((0..1_000).all(|place| order.get(place) < u64::MAX / 3));
    }

    #[test]
    fn neighbours_part_and_keys_differ() {
        let count = 10_000;
        let (one, other) = (Permutation::new(count, 1), Permutation::new(count, 2));
        let near = (1..count).filter(|&n| one.get(n).abs_diff(one.get(n - 1)) < 10).count();
        assert!(near < 60, "{near} of {count} pairs of neighbours stayed neighbours; about 20 by chance");
        let same = (0..count).filter(|&n| one.get(n) == other.get(n)).count();
        assert!(same < 15, "{same} places are the same with another key; about 1 by chance");
    }
}
