//! Encoding many texts on one thread.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Tokenizer;

/// Longer words are rare, and are not remembered.
const WORD_BYTES: usize = 48;
/// So many words are remembered, the first ones: a few megabytes.
const WORDS: usize = 1 << 16;

/// Encodes texts with a [`Tokenizer`], faster than one by one: words that were met before are not merged again.
pub struct Encoder<'t> {
    tokenizer: &'t Tokenizer,
    /// Where the tokens of a word lie in `found`.
    words: HashMap<Box<[u8]>, (u32, u32), RandomState>,
    found: Vec<u32>,
    word: Vec<u32>,
}

impl<'t> Encoder<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Encoder<'t> {
        Encoder { tokenizer, words: HashMap::default(), found: vec![], word: vec![] }
    }

    /// Appends the tokens of a text; see [`Tokenizer::encode`].
    pub fn encode(&mut self, text: &str, tokens: &mut Vec<u32>) {
        if self.tokenizer.space_first && !text.is_empty() && !text.starts_with(' ') {
            self.encode_rest(&format!(" {text}"), tokens);
        } else {
            self.encode_rest(text, tokens);
        }
    }

    /// Appends the tokens of a text that continues another: never with a space before it.
    pub(crate) fn encode_rest(&mut self, text: &str, tokens: &mut Vec<u32>) {
        let tokenizer = self.tokenizer;
        if tokenizer.merges.in_order().is_empty() && tokenizer.whole.is_none() {
            tokens.extend(text.bytes().map(|byte| tokenizer.bytes[byte as usize]));
            return;
        }
        for word in tokenizer.split.words(text) {
            self.word(word.as_bytes(), tokens);
        }
    }

    /// Appends the tokens of a text; see [`Tokenizer::encode_with_special`].
    pub fn encode_with_special(&mut self, mut text: &str, tokens: &mut Vec<u32>) {
        while let Some((at, token)) = self.tokenizer.added.find(text) {
            self.encode(&text[..at], tokens);
            tokens.push(token.id);
            text = &text[at + token.text.len()..];
        }
        self.encode(text, tokens);
    }

    fn word(&mut self, word: &[u8], tokens: &mut Vec<u32>) {
        if word.len() > WORD_BYTES {
            self.merge(word);
            tokens.extend_from_slice(&self.word);
            return;
        }
        if let Some(&(start, end)) = self.words.get(word) {
            tokens.extend_from_slice(&self.found[start as usize..end as usize]);
            return;
        }
        self.merge(word);
        tokens.extend_from_slice(&self.word);
        if self.words.len() < WORDS {
            let start = self.found.len() as u32;
            self.found.extend_from_slice(&self.word);
            self.words.insert(word.into(), (start, self.found.len() as u32));
        }
    }

    /// Leaves the tokens of a word in `self.word`.
    fn merge(&mut self, word: &[u8]) {
        let tokenizer = self.tokenizer;
        self.word.clear();
        if let Some(id) = tokenizer.whole.as_ref().and_then(|whole| whole.get(word)) {
            self.word.push(*id);
            return;
        }
        self.word.extend(word.iter().map(|&byte| tokenizer.bytes[byte as usize]));
        tokenizer.merges.apply(&mut self.word);
    }
}
