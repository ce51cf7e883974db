//! Tests of the pool without a GPU: a fake backing (`fake.rs`), a model that checks every step
//! (`model.rs`), and an explorer of all thread interleavings (`schedule.rs`).

mod behaviour;
mod callbacks;
mod fake;
mod faults;
mod model;
mod properties;
pub mod schedule;
mod settings;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }
}
