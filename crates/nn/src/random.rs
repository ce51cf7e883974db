//! Reproducible random numbers for shuffling and tests.

use bornite_support::random::{self, STEP};

/// One step of SplitMix64: a bijective 64-bit mixing function.
pub(crate) fn mix(value: u64) -> u64 {
    random::mix(value.wrapping_add(STEP))
}

#[cfg(test)]
pub(crate) struct Random(u64);

#[cfg(test)]
impl Random {
    /// Seeded by the clock, or by `BORNITE_TEST_SEED` to reproduce a failure.
    pub(crate) fn from_clock() -> Random {
        let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64));
        println!("random cases from BORNITE_TEST_SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
