//! Deterministic random numbers: a key gives the same numbers on every machine and in every
//! release.

/// SplitMix64 generator, simple enough to be specified in an input recipe.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Increment of the state per number.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes a word; each bit of the result depends on all bits of the argument.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl Random {
    /// Creates the generator of a key.
    pub fn new(key: u64) -> Random {
        Random(key)
    }

    /// Creates the generator of a list of keys.
    pub fn from_keys(keys: &[u64]) -> Random {
        Random(keys.iter().fold(0, |key, &next| mix(key.wrapping_add(STEP) ^ mix(next.wrapping_add(STEP)))))
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns a number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next_u64() as u128 * n as u128) >> 64) as usize
    }

    /// Returns an integer from `low` to `high`, both inclusive.
    pub fn in_range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as usize) as i64
    }

    /// Returns a number in [0, 1) with 24 bits, exact in f32 and f64.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 40) as f64 / (1u64 << 24) as f64
    }

    /// Returns true with a probability of `percent` / 100.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns a random element; the probability is proportional to the weight.
    pub fn pick_weighted<'a, T>(&mut self, items: &'a [(usize, T)]) -> &'a T {
        let mut left = self.below(items.iter().map(|(weight, _)| weight).sum());
        for (weight, item) in items {
            if left < *weight {
                return item;
            }
            left -= weight;
        }
        &items[0].1
    }
}
