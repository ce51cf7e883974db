//! Random inputs: different in every run, reproducible with `BORNITE_TEST_SEED`.

use std::sync::OnceLock;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// A generator that differs between runs; the seed is printed so that a failure can be
    /// repeated.
    pub fn fresh() -> Random {
        static SEED: OnceLock<u64> = OnceLock::new();
        let seed = *SEED.get_or_init(|| {
            let from_env = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
            let seed = from_env.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64));
            println!("random inputs from BORNITE_TEST_SEED={seed}");
            seed
        });
        Random(seed)
    }

    pub fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (self.bits() >> 11) as f64 / (1u64 << 53) as f64 * (high - low)
    }

    pub fn vec(&mut self, len: usize, low: f64, high: f64) -> Vec<f64> {
        (0..len).map(|_| self.between(low, high)).collect()
    }
}
