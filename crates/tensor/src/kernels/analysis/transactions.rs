//! Transactions of one request: sectors of global memory and wavefronts of shared memory.

/// Bytes of a sector, the unit in which caches and global memory move data.
pub const SECTOR_BYTES: u64 = 32;
/// Banks of shared memory, each 4 bytes wide.
const BANKS: u64 = 32;
const BANK_BYTES: u64 = 4;
/// Maximum bytes that a thread accesses in one instruction.
pub const MAX_ACCESS_BYTES: usize = 16;

/// Actual and minimum number of transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transactions {
    pub actual: u64,
    pub min: u64,
}

/// Sectors that the threads of a warp touch. Each accesses `bytes` bytes at its offset, a multiple
/// of `bytes` from an address that is a multiple of the sector. Calls `touch` for each sector.
pub fn sectors(offsets: &[u64], bytes: u64, mut touch: impl FnMut(u64)) -> Transactions {
    let mut distinct = offsets.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let min = (distinct.len() as u64 * bytes).div_ceil(SECTOR_BYTES);
    // An aligned access of at most 16 bytes lies in one sector.
    let mut touched: Vec<u64> = distinct.iter().map(|offset| offset / SECTOR_BYTES).collect();
    touched.dedup();
    touched.iter().for_each(|&sector| touch(sector));
    Transactions { actual: touched.len() as u64, min }
}

/// Wavefronts of an access to shared memory by the active threads of a warp, as (lane, offset).
///
/// A wavefront reads or writes one word of each bank, for any number of threads. Accesses of 8
/// bytes take place in two halves of the warp, those of 16 bytes in four quarters. Atomic updates
/// of one word follow each other.
pub fn wavefronts(threads: &[(usize, u64)], bytes: u64, is_atomic: bool) -> Transactions {
    let threads_per_part = (BANKS * BANK_BYTES / bytes.max(BANK_BYTES)) as usize;
    let mut total = Transactions { actual: 0, min: 0 };
    for part in threads.chunk_by(|a, b| a.0 / threads_per_part == b.0 / threads_per_part) {
        let words = part.iter().flat_map(|&(_, offset)| (offset / BANK_BYTES)..(offset + bytes).div_ceil(BANK_BYTES));
        let mut words: Vec<u64> = words.collect();
        words.sort_unstable();
        if !is_atomic {
            words.dedup();
        }
        let mut banks = [0; BANKS as usize];
        words.iter().for_each(|word| banks[(word % BANKS) as usize] += 1);
        total.actual += banks.into_iter().max().unwrap_or(0);
        total.min += 1;
    }
    total
}

/// Largest number of threads that access the same address.
pub fn contention(offsets: &[u64]) -> u64 {
    let mut sorted = offsets.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|equal| equal.len() as u64).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts by sets of bytes and words, for any pattern.
    fn counted(offsets: &[u64], bytes: u64) -> (u64, u64) {
        use std::collections::BTreeSet;
        let all: BTreeSet<u64> = offsets.iter().flat_map(|offset| *offset..offset + bytes).collect();
        let sectors: BTreeSet<u64> = all.iter().map(|byte| byte / 32).collect();
        (sectors.len() as u64, (all.len() as u64).div_ceil(32))
    }

    #[test]
    fn sectors_of_random_patterns_equal_those_of_their_bytes() {
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let bytes = 1 << next(5);
            let (threads, span) = (next(33), 1 + next(400));
            let offsets: Vec<u64> = (0..threads).map(|_| next(span) * bytes).collect();
            let mut touched = vec![];
            let found = sectors(&offsets, bytes, |sector| touched.push(sector));
            assert_eq!((found.actual, found.min), counted(&offsets, bytes), "{bytes}: {offsets:?}");
            assert_eq!(touched.len() as u64, found.actual);
        }
    }

    #[test]
    fn wavefronts_of_known_patterns() {
        let pattern = |stride: u64| (0..32).map(|lane| (lane as usize, lane * stride)).collect::<Vec<_>>();
        // (stride in bytes, bytes, wavefronts, minimum)
        for (stride, bytes, actual, min) in [
            (4, 4, 1, 1),
            (0, 4, 1, 1),
            (8, 4, 2, 1),
            (128, 4, 32, 1),
            (132, 4, 1, 1),
            (1, 1, 1, 1),
            (2, 2, 1, 1),
            (8, 8, 2, 2),
            (16, 8, 4, 2),
            (16, 16, 4, 4),
            (32, 16, 8, 4),
            (0, 16, 4, 4),
        ] {
            let found = wavefronts(&pattern(stride), bytes, false);
            assert_eq!((found.actual, found.min), (actual, min), "stride {stride}, {bytes} bytes");
        }
        assert_eq!(wavefronts(&pattern(0), 4, true).actual, 32);
        assert_eq!(wavefronts(&[], 4, false), Transactions { actual: 0, min: 0 });
        // Only the last quarter of the warp is active.
        assert_eq!(wavefronts(&[(24, 0), (25, 16)], 16, false), Transactions { actual: 1, min: 1 });
        assert_eq!((contention(&[4, 8, 4, 4, 8]), contention(&[])), (3, 0));
    }
}
