//! GPT-2's vocabulary: 256 bytes, one token per merge, and the end-of-text token.

use super::byte_alphabet::{ByteAlphabet, bytes_in_order};
use super::merges::Merges;
use super::{END_OF_TEXT, PreTokenizer, Tokenizer};

/// The published list: a version line, then one merge per line, two tokens separated by a space.
use gpt_tokenizer::VOCAB_BPE;

pub(super) fn tokenizer() -> Tokenizer {
    let alphabet = ByteAlphabet::new();
    let mut tokens: Vec<Box<[u8]>> = bytes_in_order().map(|byte| Box::from([byte])).collect();
    let mut ids: std::collections::HashMap<Box<[u8]>, u32, foldhash::fast::RandomState> =
        tokens.iter().cloned().zip(0..).collect();
    let mut merges = Merges::with_capacity(50_000);
    for line in VOCAB_BPE.lines().skip(1) {
        // A test checks the hash of the list, so lines that are not merges can be skipped.
        let Some((left, right)) = line.split_once(' ') else { continue };
        let (Some(left), Some(right)) = (alphabet.bytes(left), alphabet.bytes(right)) else { continue };
        let (Some(&left_id), Some(&right_id)) = (ids.get(&left[..]), ids.get(&right[..])) else { continue };
        let id = tokens.len() as u32;
        let token: Box<[u8]> = [left, right].concat().into();
        merges.push((left_id, right_id), id);
        ids.insert(token.clone(), id);
        tokens.push(token);
    }
    let mut tokenizer = Tokenizer::without_added_tokens(tokens, merges, PreTokenizer::Gpt2);
    tokenizer.add(END_OF_TEXT);
    tokenizer
}

#[cfg(test)]
mod tests {
    use super::super::hex;
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn merge_list_matches_the_published_hash() {
        let hash = hex(&Sha256::digest(VOCAB_BPE));
        assert_eq!(hash, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5");
        let tokenizer = tokenizer();
        assert_eq!(tokenizer.vocabulary(), 50_257);
        assert_eq!(tokenizer.end_of_text(), Some(50_256));
    }
}
