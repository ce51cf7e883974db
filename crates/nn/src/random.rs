//! Random numbers that a seed repeats: SplitMix64, which is enough for shuffles and tests.

/// One step of SplitMix64: a bijection of 64 bits that leaves no trace of its input's order.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
pub(crate) struct Random(u64);

#[cfg(test)]
impl Random {
    /// Fresh for every run, repeatable with `BORNITE_TEST_SEED`.
    pub(crate) fn fresh() -> Random {
        let given = std::env::var("BORNITE_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64));
        println!("random cases from BORNITE_TEST_SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
