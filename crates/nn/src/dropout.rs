//! Seeds and offsets of dropout's random numbers, two u64 each: distinct for every draw of a run.
//!
//! The offset holds the step, the batch within the step and the draw within the batch. Bits of these that it has no room for
//! select another seed, so that longer runs do not repeat and shorter ones keep their numbers.

/// Bits of the offset for the draws of a batch.
const DRAW_BITS: u32 = 20;
/// Bits of the offset for the batches of a step.
const BATCH_BITS: u32 = 12;
/// Bits of the offset above those of a step.
const STEP_BITS: u32 = 64 - BATCH_BITS - DRAW_BITS;

/// The seed's distance from the run's, by the high bits of a draw (16 bits), of a batch (36) and of a step (12). The factor
/// is odd: no two of these words give one distance. It is 2⁶⁴ by the golden ratio, far from the distances of usual seeds.
fn seed_distance(high_bits: u64) -> u64 {
    high_bits.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Seed and offset where the draws of a batch begin. Distinct for steps below 2⁴⁴ of up to 2⁴⁸ batches.
pub(crate) fn state(seed: u64, step: u64, batch: u64) -> [u64; 2] {
    let high_bits = step >> STEP_BITS << 52 | batch >> BATCH_BITS << 16;
    let batch = batch & ((1 << BATCH_BITS) - 1);
    [seed.wrapping_add(seed_distance(high_bits)), step << (64 - STEP_BITS) | batch << DRAW_BITS]
}

/// The distance of a draw from where the draws of its batch begin. Distinct for up to 2³⁶ draws.
pub(crate) fn distance(draw: u64) -> [u64; 2] {
    [seed_distance(draw >> DRAW_BITS), draw & ((1 << DRAW_BITS) - 1)]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn drawn(seed: u64, step: u64, batch: u64, draw: u64) -> [u64; 2] {
        let ([seed, offset], [further_seed, further]) = (state(seed, step, batch), distance(draw));
        [seed.wrapping_add(further_seed), offset.wrapping_add(further)]
    }

    #[test]
    fn no_two_draws_share_an_offset() {
        let steps = [1, 2, 3, 4095, 4096, 4097, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 33, (1 << 44) - 1];
        let batches =
            [0, 1, 2, 3, 4095, 4096, 4097, 8191, 8192, 12_288, 1 << 20, 1 << 24, 1 << 32, 1 << 44, (1 << 48) - 1];
        // The last block of 10,000 that are recomputed begins at draw 10,238,977.
        let draws = [0, 1, 2, 1023, 1024, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 21, 10_238_977, (1 << 36) - 1];
        let mut seen = HashSet::new();
        for step in steps {
            for batch in batches {
                for draw in draws {
                    assert!(seen.insert(drawn(7, step, batch, draw)), "step {step}, batch {batch}, draw {draw}");
                }
            }
        }
    }

    #[test]
    fn short_runs_keep_their_numbers() {
        for (step, batch, draw) in [(1, 0, 0), (1, 0, 1), (3, 7, 25), (1_000_000, 4095, 1024), (u32::MAX.into(), 1, 2)]
        {
            let expected = [7, (step << 32 | batch << 20) + draw];
            assert_eq!(drawn(7, step, batch, draw), expected, "step {step}, batch {batch}, draw {draw}");
        }
    }
}
