//! BPE merging of one word: the adjacent pair of the lowest rank is merged first; ties go to the
//! leftmost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::RandomState;

/// Rank and resulting token of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Merge {
    pub rank: u32,
    pub id: u32,
}

/// Marks pairs without a merge; ranks after all others.
const NEVER: Merge = Merge { rank: u32::MAX, id: u32::MAX };

/// Maximum number of tokens for which a linear scan finds the next merge, without allocation.
/// Longer words, which are rare, use a heap: the scan takes quadratic time.
const SCAN_TOKENS: usize = 100;

#[derive(Clone, Default)]
pub(super) struct Merges {
    by_pair: HashMap<(u32, u32), Merge, RandomState>,
    in_order: Vec<(u32, u32)>,
}

impl Merges {
    pub(super) fn with_capacity(count: usize) -> Merges {
        Merges {
            by_pair: HashMap::with_capacity_and_hasher(count, RandomState::default()),
            in_order: Vec::with_capacity(count),
        }
    }

    /// Adds the next merge; returns false if the pair already has one.
    pub(super) fn push(&mut self, pair: (u32, u32), id: u32) -> bool {
        let rank = self.in_order.len() as u32;
        let new = self.by_pair.insert(pair, Merge { rank, id }).is_none();
        self.in_order.push(pair);
        new
    }

    /// Returns the pairs by rank.
    pub(super) fn in_order(&self) -> &[(u32, u32)] {
        &self.in_order
    }

    fn get(&self, left: u32, right: u32) -> Merge {
        self.by_pair.get(&(left, right)).copied().unwrap_or(NEVER)
    }

    /// Merges the tokens of a word until no pair has a merge.
    pub(super) fn apply(&self, word: &mut Vec<u32>) {
        if self.in_order.is_empty() {
        } else if word.len() <= SCAN_TOKENS {
            self.scan(word);
        } else {
            self.heap(word);
        }
    }

    fn scan(&self, word: &mut Vec<u32>) {
        let mut buffer = [NEVER; SCAN_TOKENS];
        // `pairs[n]` is the merge of tokens n and n + 1.
        let pairs = &mut buffer[..word.len().saturating_sub(1)];
        for (pair, tokens) in pairs.iter_mut().zip(word.windows(2)) {
            *pair = self.get(tokens[0], tokens[1]);
        }
        let mut length = word.len();
        while length > 1 {
            let (mut at, mut best) = (0, NEVER);
            for (n, pair) in pairs[..length - 1].iter().enumerate() {
                if pair.rank < best.rank {
                    (at, best) = (n, *pair);
                }
            }
            if best.rank == NEVER.rank {
                break;
            }
            word[at] = best.id;
            word.copy_within(at + 2..length, at + 1);
            pairs.copy_within(at + 1..length - 1, at);
            length -= 1;
            if at > 0 {
                pairs[at - 1] = self.get(word[at - 1], word[at]);
            }
            if at + 1 < length {
                pairs[at] = self.get(word[at], word[at + 1]);
            }
        }
        word.truncate(length);
    }

    fn heap(&self, word: &mut Vec<u32>) {
        /// End of the list.
        const NONE: usize = usize::MAX;
        let count = word.len();
        let mut next: Vec<usize> = (1..count).chain([NONE]).collect();
        let mut before: Vec<usize> = [NONE].into_iter().chain(0..count - 1).collect();
        let mut removed = vec![false; count];
        let mut heap = BinaryHeap::new();
        let push_pair = |heap: &mut BinaryHeap<_>, word: &[u32], left: usize, right: usize| {
            let merge = self.get(word[left], word[right]);
            if merge != NEVER {
                heap.push(Reverse((merge.rank, left, merge.id)));
            }
        };
        for left in 0..count - 1 {
            push_pair(&mut heap, word, left, left + 1);
        }
        while let Some(Reverse((rank, left, id))) = heap.pop() {
            let right = next[left];
            // Entries of pairs that have changed are outdated.
            if removed[left] || right == NONE || self.get(word[left], word[right]) != (Merge { rank, id }) {
                continue;
            }
            word[left] = id;
            removed[right] = true;
            next[left] = next[right];
            if next[left] != NONE {
                before[next[left]] = left;
                push_pair(&mut heap, word, left, next[left]);
            }
            if before[left] != NONE {
                push_pair(&mut heap, word, before[left], left);
            }
        }
        let mut index = 0;
        word.retain(|_| {
            index += 1;
            !removed[index - 1]
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Reference implementation.
    fn merge_reference(merges: &Merges, word: &mut Vec<u32>) {
        loop {
            let best = word.windows(2).enumerate().map(|(at, pair)| (merges.get(pair[0], pair[1]), at)).min();
            match best {
                Some((merge, at)) if merge != NEVER => {
                    word.splice(at..at + 2, [merge.id]);
                }
                _ => break,
            }
        }
    }

    #[test]
    fn scan_and_heap_match_the_reference() {
        let mut random = Random::from_clock();
        for _ in 0..2_000 {
            let tokens = 2 + random.below(30) as u32;
            let mut merges = Merges::default();
            // Arbitrary pairs in arbitrary order, also ones that training would not produce.
            for _ in 0..random.below(60) {
                let pair = (random.below(tokens as u64) as u32, random.below(tokens as u64) as u32);
                if !merges.by_pair.contains_key(&pair) {
                    merges.push(pair, random.below(tokens as u64) as u32);
                }
            }
            let length = 1 + random.below(SCAN_TOKENS as u64) as usize;
            let word: Vec<u32> = (0..length).map(|_| random.below(tokens as u64) as u32).collect();
            let (mut expected, mut scanned, mut heaped) = (word.clone(), word.clone(), word);
            merge_reference(&merges, &mut expected);
            merges.scan(&mut scanned);
            merges.heap(&mut heaped);
            assert_eq!(scanned, expected);
            assert_eq!(heaped, expected);
        }
    }
}
