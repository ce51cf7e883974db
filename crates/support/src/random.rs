//! Random numbers that depend on nothing but a key: the same on every machine and in every release.

/// A stream of random numbers (SplitMix64), small enough to be written down in an input recipe.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Distance between the states of consecutive numbers.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of a word; each bit of the result depends on all of the argument.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl Random {
    /// The stream of a key.
    pub fn new(key: u64) -> Random {
        Random(key)
    }

    /// The stream of several keys.
    pub fn from_keys(keys: &[u64]) -> Random {
        Random(keys.iter().fold(0, |key, &next| mix(key.wrapping_add(STEP) ^ mix(next.wrapping_add(STEP)))))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next_u64() as u128 * n as u128) >> 64) as usize
    }

    /// An integer from `low` to `high`, both included.
    pub fn in_range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as usize) as i64
    }

    /// A number in [0, 1) with 24 bits, exact in every float of 32 bits and more.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 40) as f64 / (1u64 << 24) as f64
    }

    /// True in so many of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// One of several, each as often as its weight says.
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
