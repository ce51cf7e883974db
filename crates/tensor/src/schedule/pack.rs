//! Packs blocks with known live ranges into one allocation.
//!
//! All live ranges are known in advance, so this is two-dimensional packing, steps by bytes
//! (dynamic storage allocation). Placing blocks greedily, each in the smallest gap that fits, gives
//! one packing per order of blocks. A few orders are tried; then the blocks that reach the top are
//! moved to the front. The result is within a few percent of the lower bound, the peak of live
//! bytes (the tests measure it).

use std::ops::RangeInclusive;

/// Alignment of buffers in bytes, enough for the widest loads of kernels and libraries.
pub(crate) const ALIGNMENT: usize = 256;

/// Memory needed from one step to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    pub bytes: usize,
    pub steps: RangeInclusive<usize>,
}

impl Allocation {
    fn aligned_bytes(&self) -> usize {
        self.bytes.next_multiple_of(ALIGNMENT)
    }

    fn is_live_with(&self, other: &Allocation) -> bool {
        self.steps.start() <= other.steps.end() && other.steps.start() <= self.steps.end()
    }

    fn area(&self) -> u128 {
        self.aligned_bytes() as u128 * (self.steps.end() - self.steps.start() + 1) as u128
    }
}

/// Offset of each block, and the size of the allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    pub offsets: Vec<usize>,
    pub bytes: usize,
}

/// Live bytes at each step.
fn live_bytes(blocks: &[Allocation], bytes: impl Fn(&Allocation) -> usize) -> Vec<usize> {
    let steps = blocks.iter().map(|block| block.steps.end() + 1).max().unwrap_or(0);
    let mut change = vec![0isize; steps + 1];
    for block in blocks {
        change[*block.steps.start()] += bytes(block) as isize;
        change[block.steps.end() + 1] -= bytes(block) as isize;
    }
    let sums = change[..steps].iter().scan(0isize, |sum, change| {
        *sum += change;
        Some(*sum as usize)
    });
    sums.collect()
}

fn peak(live: &[usize]) -> (usize, usize) {
    let peak = live.iter().copied().enumerate().max_by_key(|&(step, bytes)| (bytes, usize::MAX - step));
    peak.unwrap_or((0, 0))
}

/// Packs blocks so that none that live at the same time overlap.
pub(super) fn pack(blocks: &[Allocation]) -> Packed {
    // Packing takes time quadratic in the number of blocks, so large plans get fewer attempts.
    const PAIRS: usize = 40_000_000;
    let tries = (PAIRS / (blocks.len() * blocks.len()).max(1)).clamp(6, 64);
    let live = live_bytes(blocks, Allocation::aligned_bytes);
    let lower_bound = peak(&live).1;
    let mut best: Option<(Packed, Vec<usize>)> = None;
    let mut attempt = |order: Vec<usize>| {
        let packed = place_in_order(blocks, &order);
        if best.as_ref().is_none_or(|(best, _)| packed.bytes < best.bytes) {
            best = Some((packed, order));
        }
        best.as_ref().is_some_and(|(best, _)| best.bytes <= lower_bound)
    };
    let mut done = false;
    let orders = orders(blocks, &live);
    let tried = orders.len();
    for order in orders {
        done = done || attempt(order);
    }
    // Move the blocks that reach the top to the front.
    let (mut packed, mut order) = best.clone().unwrap_or_default();
    for _ in tried..tries {
        if done {
            break;
        }
        let top = |n: &usize| packed.offsets[*n] + blocks[*n].aligned_bytes() == packed.bytes;
        let (high, low): (Vec<usize>, Vec<usize>) = order.iter().partition(|n| top(n));
        let next = [high, low].concat();
        if next == order {
            break;
        }
        order = next;
        packed = place_in_order(blocks, &order);
        if best.as_ref().is_none_or(|(best, _)| packed.bytes < best.bytes) {
            done = packed.bytes <= lower_bound;
            best = Some((packed.clone(), order.clone()));
        }
    }
    best.map(|(packed, _)| packed).unwrap_or_default()
}

/// Initial orders to try.
fn orders(blocks: &[Allocation], live: &[usize]) -> Vec<Vec<usize>> {
    let sorted = |key: &dyn Fn(&Allocation) -> (u128, u128)| {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&n| std::cmp::Reverse(key(&blocks[n])));
        order
    };
    let length = |block: &Allocation| (block.steps.end() - block.steps.start()) as u128;
    let early = |block: &Allocation| u128::MAX - *block.steps.start() as u128;
    // Peak of live bytes during the block's live range.
    let pressure = |block: &Allocation| block.steps.clone().map(|step| live[step]).max().unwrap_or(0) as u128;
    vec![
        sorted(&|block| (pressure(block), block.aligned_bytes() as u128)),
        sorted(&|block| (block.aligned_bytes() as u128, length(block))),
        sorted(&|block| (block.area(), early(block))),
        sorted(&|block| (pressure(block), length(block))),
        sorted(&|block| (length(block), block.aligned_bytes() as u128)),
        sorted(&|block| (early(block), block.aligned_bytes() as u128)),
    ]
}

/// Places each block, in this order, in the smallest gap that fits it between the blocks that are
/// live with it.
fn place_in_order(blocks: &[Allocation], order: &[usize]) -> Packed {
    let mut packed = Packed { offsets: vec![0; blocks.len()], bytes: 0 };
    // By offset.
    let mut placed: Vec<usize> = Vec::with_capacity(blocks.len());
    for &n in order {
        let (block, room) = (&blocks[n], blocks[n].aligned_bytes());
        let (mut end, mut found) = (0, None);
        for &other in placed.iter().filter(|&&other| blocks[other].is_live_with(block)) {
            let begins = packed.offsets[other];
            if begins >= end + room && found.is_none_or(|(gap, _)| begins - end < gap) {
                found = Some((begins - end, end));
            }
            end = end.max(begins + blocks[other].aligned_bytes());
        }
        let offset = found.map_or(end, |(_, offset)| offset);
        packed.offsets[n] = offset;
        packed.bytes = packed.bytes.max(offset + room);
        let at = placed.partition_point(|&other| packed.offsets[other] <= offset);
        placed.insert(at, n);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize, steps: RangeInclusive<usize>) -> Allocation {
        Allocation { bytes, steps }
    }

    /// Panics if two blocks that are live at once overlap, or one exceeds the allocation.
    fn check(blocks: &[Allocation], packed: &Packed) {
        for (n, a) in blocks.iter().enumerate() {
            let end = packed.offsets[n] + a.bytes;
            assert!(packed.offsets[n].is_multiple_of(ALIGNMENT) && end <= packed.bytes, "{a:?}");
            for (m, b) in blocks.iter().enumerate().skip(n + 1) {
                let apart = end <= packed.offsets[m] || packed.offsets[m] + b.bytes <= packed.offsets[n];
                assert!(apart || !a.is_live_with(b), "{a:?} at {}, {b:?} at {}", packed.offsets[n], packed.offsets[m]);
            }
        }
    }

    #[test]
    fn small_plans() {
        assert_eq!(pack(&[]), Packed::default());
        let chain = [block(1000, 0..=1), block(1000, 1..=2), block(1000, 2..=3)];
        let packed = pack(&chain);
        assert_eq!(packed.bytes, 2048);
        check(&chain, &packed);
        // First fit in order of steps would leave holes that the last block cannot use.
        let holes = [block(256, 0..=1), block(256, 0..=9), block(256, 0..=1), block(512, 2..=9)];
        assert_eq!(pack(&holes).bytes, 768);
        // Empty blocks take no memory.
        let packed = pack(&[block(0, 0..=5), block(0, 0..=5)]);
        assert_eq!(packed.bytes, 0);
    }

    /// Linear congruential generator.
    struct Lcg(u64);

    impl Lcg {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) as usize) % end.max(1)
        }
    }

    #[test]
    fn random_lifetimes_never_overlap_and_are_packed_well() {
        let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64));
        println!("BORNITE_TEST_SEED={seed}");
        let mut numbers = Lcg(seed);
        let mut ratios = vec![];
        for plan in 0..4000 {
            let (count, steps) = (1 + numbers.below(60), 1 + numbers.below(50));
            let blocks: Vec<Allocation> = (0..count)
                .map(|_| {
                    let first = numbers.below(steps);
                    // Most values are short-lived; some are saved for the backward pass.
                    let longest = if plan % 2 == 0 { 4 } else { steps };
                    let last = (first + numbers.below(longest)).min(steps - 1);
                    let scale = 8 + numbers.below(12);
                    block(1 + numbers.below(1 << scale), first..=last)
                })
                .collect();
            let packed = pack(&blocks);
            check(&blocks, &packed);
            ratios.push(packed.bytes as f64 / peak(&live_bytes(&blocks, Allocation::aligned_bytes)).1 as f64);
        }
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios[(share * (ratios.len() - 1) as f64) as usize];
        println!(
            "packed bytes relative to peak live bytes: median {:.3}, 90% {:.3}, 99% {:.3}, largest {:.3}",
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0)
        );
        assert!(at(0.5) <= 1.0001 && at(0.99) <= 1.1, "packing is too far from the lower bound");
    }
}
