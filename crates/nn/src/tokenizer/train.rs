//! BPE training.
//!
//! Words are counted once; then the most frequent pair of adjacent tokens becomes a token,
//! repeatedly. A merge only changes the counts of adjacent pairs: an index from pairs to words
//! finds them, and a heap finds the best pair. Heap entries may be outdated; they are corrected
//! when they are popped.

use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::RandomState;

use super::byte_alphabet::bytes_in_order;
use super::merges::Merges;
use super::{END_OF_TEXT, PreTokenizer, Tokenizer};
use crate::error::located;
use crate::{Error, Result};

/// Minimum vocabulary: 256 bytes and the end-of-text token.
const MIN_VOCABULARY: usize = 257;
/// Maximum vocabulary: ten times the largest in use.
const MAX_VOCABULARY: usize = 1 << 22;

type Pair = (u32, u32);

/// Trains a BPE vocabulary: [`add`](BpeTrainer::add) texts, then [`finish`](BpeTrainer::finish).
///
/// The result does not depend on the order of the texts: the most frequent pair is merged first;
/// ties are broken by the smaller left token, then the smaller right token. Memory grows with the
/// number of distinct words, not with the amount of text.
pub struct BpeTrainer {
    pre_tokenizer: PreTokenizer,
    words: HashMap<Box<[u8]>, u64, RandomState>,
}

/// A word with its count.
struct Word {
    tokens: Vec<u32>,
    count: u64,
}

/// Counts of pairs.
#[derive(Default)]
struct Counts {
    by_pair: HashMap<Pair, u64, RandomState>,
    /// Words that contain a pair, and some that no longer do.
    words: HashMap<Pair, Vec<u32>, RandomState>,
}

impl Counts {
    fn add(&mut self, pair: Pair, count: u64, word: u32) {
        *self.by_pair.entry(pair).or_default() += count;
        let words = self.words.entry(pair).or_default();
        if words.last() != Some(&word) {
            words.push(word);
        }
    }

    fn remove(&mut self, pair: Pair, count: u64) {
        if let Some(found) = self.by_pair.get_mut(&pair) {
            *found -= count;
        }
    }
}

/// Heap entry: ordered by large counts, then small tokens.
type Candidate = (u64, std::cmp::Reverse<Pair>);

impl BpeTrainer {
    /// Creates a trainer with the pre-tokenizer of the future tokenizer.
    pub fn new(pre_tokenizer: PreTokenizer) -> BpeTrainer {
        BpeTrainer { pre_tokenizer, words: HashMap::default() }
    }

    /// Counts the words of a text.
    pub fn add(&mut self, text: &str) {
        for word in self.pre_tokenizer.words(text) {
            match self.words.get_mut(word.as_bytes()) {
                Some(count) => *count += 1,
                None => {
                    self.words.insert(word.as_bytes().into(), 1);
                }
            }
        }
    }

    /// Adds the counts of another trainer, for example from another thread.
    pub fn merge(&mut self, other: BpeTrainer) {
        for (word, count) in other.words {
            *self.words.entry(word).or_default() += count;
        }
    }

    /// Builds the tokenizer: 256 bytes, merges, and `<|endoftext|>` as the last token. It has fewer
    /// than `vocabulary` tokens if no further pair occurs twice. `progress` receives the number of
    /// tokens so far and the total.
    #[track_caller]
    pub fn finish(self, vocabulary: usize, progress: &mut dyn FnMut(usize, usize)) -> Result<Tokenizer> {
        located(|| {
            if !(MIN_VOCABULARY..=MAX_VOCABULARY).contains(&vocabulary) {
                return Err(Error::tokenizer(format!(
                    "the vocabulary size is {vocabulary}; it must be from {MIN_VOCABULARY} (256 bytes and the end-of-text token) to \
                     {MAX_VOCABULARY}"
                )));
            }
            let mut tokens: Vec<Box<[u8]>> = bytes_in_order().map(|byte| Box::from([byte])).collect();
            let mut ids = [0; 256];
            for (id, byte) in bytes_in_order().enumerate() {
                ids[byte as usize] = id as u32;
            }
            let mut words: Vec<Word> = self
                .words
                .into_iter()
                .map(|(word, count)| Word { tokens: word.iter().map(|&byte| ids[byte as usize]).collect(), count })
                .filter(|word| word.tokens.len() > 1)
                .collect();
            let mut counts = Counts::default();
            for (index, word) in words.iter().enumerate() {
                for pair in word.tokens.windows(2) {
                    counts.add((pair[0], pair[1]), word.count, index as u32);
                }
            }
            let mut heap: BinaryHeap<Candidate> =
                counts.by_pair.iter().map(|(&pair, &count)| (count, std::cmp::Reverse(pair))).collect();
            let mut merges = Merges::default();
            while tokens.len() + 1 < vocabulary {
                let Some((count, std::cmp::Reverse(pair))) = heap.pop() else { break };
                let now = counts.by_pair.get(&pair).copied().unwrap_or(0);
                if now < 2 {
                    continue;
                }
                if now != count {
                    heap.push((now, std::cmp::Reverse(pair)));
                    continue;
                }
                let id = tokens.len() as u32;
                tokens.push([&*tokens[pair.0 as usize], &*tokens[pair.1 as usize]].concat().into());
                merges.push(pair, id);
                let mut grown = vec![];
                for index in counts.words.remove(&pair).unwrap_or_default() {
                    replace(&mut words[index as usize], index, pair, id, &mut counts, &mut grown);
                }
                counts.by_pair.remove(&pair);
                grown.sort_unstable();
                grown.dedup();
                heap.extend(
                    grown.into_iter().filter_map(|pair| Some((*counts.by_pair.get(&pair)?, std::cmp::Reverse(pair)))),
                );
                if id.is_multiple_of(64) {
                    progress(tokens.len(), vocabulary);
                }
            }
            let mut tokenizer = Tokenizer::without_added_tokens(tokens, merges, self.pre_tokenizer);
            tokenizer.add(END_OF_TEXT);
            progress(tokenizer.vocabulary(), tokenizer.vocabulary());
            Ok(tokenizer)
        })
    }
}

/// Replaces a pair in a word by its token and updates the counts of adjacent pairs.
fn replace(word: &mut Word, index: u32, pair: Pair, id: u32, counts: &mut Counts, grown: &mut Vec<Pair>) {
    let tokens = &mut word.tokens;
    let (mut from, mut to) = (0, 0);
    while from < tokens.len() {
        if from + 1 == tokens.len() || (tokens[from], tokens[from + 1]) != pair {
            tokens[to] = tokens[from];
            (from, to) = (from + 1, to + 1);
            continue;
        }
        if to > 0 {
            let left = tokens[to - 1];
            // The left neighbour may be a new token of this same merge; its old pair was removed as
            // a right neighbour.
            counts.remove((left, pair.0), word.count);
            counts.add((left, id), word.count, index);
            grown.push((left, id));
        }
        if let Some(&right) = tokens.get(from + 2) {
            counts.remove((pair.1, right), word.count);
            counts.add((id, right), word.count, index);
            grown.push((id, right));
        }
        tokens[to] = id;
        (from, to) = (from + 2, to + 1);
    }
    tokens.truncate(to);
}
