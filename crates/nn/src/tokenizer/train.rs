//! Learning merges from text.
//!
//! Words are counted once; then the most frequent pair of neighbours becomes a token, over and over. A merge changes the
//! counts only of pairs beside it: words are found through the pairs they hold, the best pair through a heap whose
//! entries may be out of date and are put right when they come up.

use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::RandomState;

use super::alphabet::bytes_in_order;
use super::merges::Merges;
use super::{END_OF_TEXT, Split, Tokenizer};
use crate::error::located;
use crate::{Error, Result};

/// Bytes and the end of text.
const SMALLEST: usize = 257;
/// No vocabulary in use has a tenth of this.
const LARGEST: usize = 1 << 22;

type Pair = (u32, u32);

/// Learns a vocabulary from texts: [`add`](Trainer::add) them, then [`finish`](Trainer::finish).
///
/// The result follows from the texts alone, in whatever order: the pair with the largest count is merged first; of equal
/// counts the one with the smaller left token, then the smaller right token. Memory grows with the number of different
/// words, not with the amount of text.
pub struct Trainer {
    split: Split,
    words: HashMap<Box<[u8]>, u64, RandomState>,
}

/// A word and how often it was met.
struct Word {
    tokens: Vec<u32>,
    count: u64,
}

/// Where the merging stands.
#[derive(Default)]
struct Counts {
    by_pair: HashMap<Pair, u64, RandomState>,
    /// Words that hold a pair, and some that no longer do.
    places: HashMap<Pair, Vec<u32>, RandomState>,
}

impl Counts {
    fn add(&mut self, pair: Pair, count: u64, word: u32) {
        *self.by_pair.entry(pair).or_default() += count;
        let places = self.places.entry(pair).or_default();
        if places.last() != Some(&word) {
            places.push(word);
        }
    }

    fn remove(&mut self, pair: Pair, count: u64) {
        if let Some(found) = self.by_pair.get_mut(&pair) {
            *found -= count;
        }
    }
}

/// What the heap orders: large counts first, then small tokens.
type Candidate = (u64, std::cmp::Reverse<Pair>);

impl Trainer {
    /// A trainer that splits text into words this way, as the tokenizer will.
    pub fn new(split: Split) -> Trainer {
        Trainer { split, words: HashMap::default() }
    }

    /// Counts the words of a text.
    pub fn add(&mut self, text: &str) {
        for word in self.split.words(text) {
            match self.words.get_mut(word.as_bytes()) {
                Some(count) => *count += 1,
                None => {
                    self.words.insert(word.as_bytes().into(), 1);
                }
            }
        }
    }

    /// Counts what another trainer has counted, say on another thread.
    pub fn merge(&mut self, other: Trainer) {
        for (word, count) in other.words {
            *self.words.entry(word).or_default() += count;
        }
    }

    /// Makes the tokenizer: 256 bytes, merges, and `<|endoftext|>` as the last token. Fewer than `vocabulary` tokens come out
    /// where the texts have no more pairs that occur twice. `progress` hears how many tokens there are, of how many.
    #[track_caller]
    pub fn finish(self, vocabulary: usize, progress: &mut dyn FnMut(usize, usize)) -> Result<Tokenizer> {
        located(|| {
            if !(SMALLEST..=LARGEST).contains(&vocabulary) {
                return Err(Error::tokenizer(format!(
                    "a vocabulary of {vocabulary} tokens was asked for; from {SMALLEST} (256 bytes and the end of text) to \
                 {LARGEST} are possible"
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
            for (place, word) in words.iter().enumerate() {
                for pair in word.tokens.windows(2) {
                    counts.add((pair[0], pair[1]), word.count, place as u32);
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
                for place in counts.places.remove(&pair).unwrap_or_default() {
                    replace(&mut words[place as usize], place, pair, id, &mut counts, &mut grown);
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
            let mut tokenizer = Tokenizer::plain(tokens, merges, self.split);
            tokenizer.add(END_OF_TEXT);
            progress(tokenizer.vocabulary(), tokenizer.vocabulary());
            Ok(tokenizer)
        })
    }
}

/// Replaces a pair in a word by its token, with the counts of the pairs around it.
fn replace(word: &mut Word, place: u32, pair: Pair, id: u32, counts: &mut Counts, grown: &mut Vec<Pair>) {
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
            // The left neighbour may be this same token, new itself; its old pair was taken back as a right neighbour.
            counts.remove((left, pair.0), word.count);
            counts.add((left, id), word.count, place);
            grown.push((left, id));
        }
        if let Some(&right) = tokens.get(from + 2) {
            counts.remove((pair.1, right), word.count);
            counts.add((id, right), word.count, place);
            grown.push((id, right));
        }
        tokens[to] = id;
        (from, to) = (from + 2, to + 1);
    }
    tokens.truncate(to);
}
