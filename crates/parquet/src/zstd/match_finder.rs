//! Match finder of the compressor, optimized for speed: a hash of the next bytes leads to their
//! last occurrence. The longer no match is found, the larger the steps.

use ruzstd::encoding::{CompressionLevel, Matcher, Sequence};

/// Size of a block, the maximum of the format.
const BLOCK_BYTES: usize = 128 << 10;
/// Maximum distance between a match and its source.
const WINDOW_BYTES: usize = 1 << 20;
/// Minimum length of a match.
const MIN_MATCH_BYTES: usize = 6;
const HASH_BITS: u32 = 16;
/// Log2 of the number of misses after which the step grows by one.
const SKIP_TRIGGER: u32 = 6;

/// The window with the current block at its end, and the last position of each hash.
pub(super) struct MatchFinder {
    bytes: Vec<u8>,
    block: usize,
    hash_table: Vec<u32>,
    spare: Vec<u8>,
}

impl MatchFinder {
    pub(super) fn new() -> MatchFinder {
        MatchFinder { bytes: vec![], block: 0, hash_table: vec![0; 1 << HASH_BITS], spare: vec![] }
    }

    fn word(&self, at: usize) -> u64 {
        self.bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)) << (64 - 8 * MIN_MATCH_BYTES)
    }

    /// Returns the last position with this hash and replaces it by `at`.
    fn last_occurrence(&mut self, word: u64, at: usize) -> usize {
        let slot = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS);
        std::mem::replace(&mut self.hash_table[slot as usize], at as u32) as usize
    }
}

impl Matcher for MatchFinder {
    fn get_next_space(&mut self) -> Vec<u8> {
        let mut space = std::mem::take(&mut self.spare);
        space.resize(BLOCK_BYTES, 0);
        space
    }

    fn get_last_space(&mut self) -> &[u8] {
        &self.bytes[self.block..]
    }

    fn commit_space(&mut self, space: Vec<u8>) {
        if self.bytes.len() > 2 * WINDOW_BYTES {
            let gone = self.bytes.len() - WINDOW_BYTES;
            self.bytes.drain(..gone);
            // Positions before the window become 0: the bytes are compared before a match is used.
            self.hash_table.iter_mut().for_each(|at| *at = at.saturating_sub(gone as u32));
        }
        self.block = self.bytes.len();
        self.bytes.extend_from_slice(&space);
        self.spare = space;
    }

    fn skip_matching(&mut self) {}

    fn start_matching(&mut self, mut handle_sequence: impl for<'a> FnMut(Sequence<'a>)) {
        let end = self.bytes.len();
        // The first byte of a block is never part of a match: the compressor cannot write a block
        // in which no sequence has literals.
        let first = self.block + 1;
        let (mut at, mut literals, mut misses) = (first, self.block, 0u32);
        while at + 8 <= end {
            let word = self.word(at);
            let mut from = self.last_occurrence(word, at);
            if from >= at || at - from > WINDOW_BYTES || self.word(from) != word {
                misses += 1;
                at += 1 + (misses >> SKIP_TRIGGER) as usize;
                continue;
            }
            misses = 0;
            let mut length = MIN_MATCH_BYTES
                + common_prefix(&self.bytes[from + MIN_MATCH_BYTES..end], &self.bytes[at + MIN_MATCH_BYTES..end]);
            while at > literals.max(first) && from > 0 && self.bytes[at - 1] == self.bytes[from - 1] {
                (at, from, length) = (at - 1, from - 1, length + 1);
            }
            let literal = &self.bytes[literals..at];
            handle_sequence(Sequence::Triple { literals: literal, offset: at - from, match_len: length });
            at += length;
            literals = at;
            if at + 6 <= end {
                let near = self.word(at - 2);
                self.last_occurrence(near, at - 2);
            }
        }
        if literals < end {
            handle_sequence(Sequence::Literals { literals: &self.bytes[literals..] });
        }
    }

    fn reset(&mut self, _: CompressionLevel) {
        self.bytes.clear();
        self.block = 0;
        self.hash_table.fill(0);
    }

    fn window_size(&self) -> u64 {
        WINDOW_BYTES as u64
    }
}

/// Length of the common prefix.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use bornite_support::random::Random;
    use ruzstd::decoding::StreamingDecoder;

    use super::super::{compress, compress_to_vec};

    /// Random bytes, copies from near and far, and runs.
    fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
        let mut all: Vec<u8> = vec![];
        while all.len() < length {
            let max = if random.chance(5) { 300_000 } else { 400 };
            let count = 1 + random.below(max);
            match random.below(4) {
                0 => all.extend((0..count.min(5_000)).map(|_| random.below(256) as u8)),
                1 => all.extend(std::iter::repeat_n(random.below(256) as u8, count)),
                _ if !all.is_empty() => {
                    let max = if random.chance(50) { 3_000_000 } else { 60 };
                    let back = 1 + random.below(all.len().min(max));
                    for _ in 0..count {
                        all.push(all[all.len() - back]);
                    }
                }
                _ => {}
            }
        }
        all.truncate(length);
        all
    }

    #[test]
    fn compression_round_trips() {
        let from_environment = std::env::var("BORNITE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        let seed: u64 = from_environment.unwrap_or(now);
        println!("BORNITE_TEST_SEED={seed}");
        let mut random = Random::from_keys(&[seed]);
        for length in [0, 1, 7, 8, 9, 1000, 131_071, 131_072, 131_073, 1_050_000, 2_300_001, 5_000_000] {
            let text = bytes(&mut random, length);
            let compressed_bytes = compress_to_vec(&text);
            let mut unpacked = vec![];
            StreamingDecoder::new(&compressed_bytes[..]).unwrap().read_to_end(&mut unpacked).unwrap();
            assert!(unpacked == text, "{length} bytes");
            let mut streamed = vec![];
            compress(&text[..], &mut streamed).unwrap();
            assert!(streamed == compressed_bytes, "{length} bytes");
        }
    }
}
