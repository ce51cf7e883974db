//! Random state of dropout: seed and offset, two u64, distinct for every draw of a run.
//!
//! The offset packs the step, the batch within the step and the draw within the batch. Bits that do
//! not fit select another seed, so that long runs do not repeat random numbers and the numbers of
//! short runs do not depend on the run's length.

/// Bits of the offset for the draws of a batch.
const DRAW_BITS: u32 = 20;
/// Bits of the offset for the batches of a step.
const BATCH_BITS: u32 = 12;
/// Bits of the offset above those of a step.
const STEP_BITS: u32 = 64 - BATCH_BITS - DRAW_BITS;

/// Difference of the seed from the run's seed, from the high bits of a draw (16 bits), of a batch
/// (36) and of a step (12). The factor is odd, so different bits give different seeds. It is 2⁶⁴
/// divided by the golden ratio, far from the differences of usual seeds.
fn seed_offset(high_bits: u64) -> u64 {
    high_bits.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Seed and offset of a batch's first draw. Distinct for steps below 2⁴⁴ of up to 2⁴⁸ batches.
pub(crate) fn state(seed: u64, step: u64, batch: u64) -> [u64; 2] {
    let high_bits = step >> STEP_BITS << 52 | batch >> BATCH_BITS << 16;
    let batch = batch & ((1 << BATCH_BITS) - 1);
    [seed.wrapping_add(seed_offset(high_bits)), step << (64 - STEP_BITS) | batch << DRAW_BITS]
}

/// Seed and offset of a draw relative to its batch's first draw. Distinct for up to 2³⁶ draws.
pub(crate) fn draw_offset(draw: u64) -> [u64; 2] {
    [seed_offset(draw >> DRAW_BITS), draw & ((1 << DRAW_BITS) - 1)]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn random_state(seed: u64, step: u64, batch: u64, draw: u64) -> [u64; 2] {
        let ([seed, offset], [draw_seed, draw_offset]) = (state(seed, step, batch), draw_offset(draw));
        [seed.wrapping_add(draw_seed), offset.wrapping_add(draw_offset)]
    }

    #[test]
    fn every_draw_has_its_own_random_state() {
        let steps = [1, 2, 3, 4095, 4096, 4097, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 33, (1 << 44) - 1];
        let batches =
            [0, 1, 2, 3, 4095, 4096, 4097, 8191, 8192, 12_288, 1 << 20, 1 << 24, 1 << 32, 1 << 44, (1 << 48) - 1];
        // The last block of 10,000 that are recomputed begins at draw 10,238,977.
        let draws = [0, 1, 2, 1023, 1024, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 21, 10_238_977, (1 << 36) - 1];
        let mut seen = HashSet::new();
        for step in steps {
            for batch in batches {
                for draw in draws {
                    assert!(seen.insert(random_state(7, step, batch, draw)), "step {step}, batch {batch}, draw {draw}");
                }
            }
        }
    }

    #[test]
    fn short_runs_use_the_seed_of_the_run() {
        for (step, batch, draw) in [(1, 0, 0), (1, 0, 1), (3, 7, 25), (1_000_000, 4095, 1024), (u32::MAX.into(), 1, 2)]
        {
            let expected = [7, (step << 32 | batch << 20) + draw];
            assert_eq!(random_state(7, step, batch, draw), expected, "step {step}, batch {batch}, draw {draw}");
        }
    }
}
