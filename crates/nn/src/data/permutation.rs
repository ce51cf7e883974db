//! Pseudorandom permutations that are computed on the fly, for the order of sequences.

use crate::random::mix;

/// A permutation of `0..count` determined by a key: a Feistel network over the next power of four
/// with cycle walking (fewer than four steps on average).
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

/// Four rounds give a pseudorandom permutation if the round function is pseudorandom; two more
/// since it is cheap.
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

    /// Returns the image of `index`, which must be below the count.
    pub(super) fn get(&self, index: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = index;
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
    fn permutation_is_bijective() {
        let mut random = Random::from_clock();
        for count in (1..200).chain([1_000, 4_095, 4_096, 4_097, 65_537]) {
            let order = Permutation::new(count, random.next());
            let mut found: Vec<u64> = (0..count).map(|index| order.get(index)).collect();
            found.sort_unstable();
            assert!(found.into_iter().eq(0..count), "{count}");
        }
        let order = Permutation::new(u64::MAX / 3, 1);
        assert!((0..1_000).all(|index| order.get(index) < u64::MAX / 3));
    }

    #[test]
    fn order_is_shuffled_and_depends_on_the_key() {
        let count = 10_000;
        let (one, other) = (Permutation::new(count, 1), Permutation::new(count, 2));
        let near = (1..count).filter(|&n| one.get(n).abs_diff(one.get(n - 1)) < 10).count();
        assert!(near < 60, "{near} of {count} pairs of neighbours stayed neighbours; about 20 by chance");
        let same = (0..count).filter(|&n| one.get(n) == other.get(n)).count();
        assert!(same < 15, "{same} indices are the same with another key; about 1 by chance");
    }
}
