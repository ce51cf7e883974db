//! Encoder with a word cache, for many texts on one thread.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Tokenizer;

/// Maximum length of a cached word; longer ones are rare.
const MAX_WORD_BYTES: usize = 48;
/// Maximum number of cached words, a few megabytes.
const MAX_WORDS: usize = 1 << 16;

/// Encodes texts with a [`Tokenizer`] and caches words, which is faster than encoding them
/// independently.
pub struct Encoder<'t> {
    tokenizer: &'t Tokenizer,
    /// Range of a word's tokens in `cached_tokens`.
    words: HashMap<Box<[u8]>, (u32, u32), RandomState>,
    cached_tokens: Vec<u32>,
    word: Vec<u32>,
}

impl<'t> Encoder<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Encoder<'t> {
        Encoder { tokenizer, words: HashMap::default(), cached_tokens: vec![], word: vec![] }
    }

    /// Appends the tokens of a text; see [`Tokenizer::encode`].
    pub fn encode(&mut self, text: &str, tokens: &mut Vec<u32>) {
        if self.tokenizer.add_prefix_space && !text.is_empty() && !text.starts_with(' ') {
            self.encode_continuation(&format!(" {text}"), tokens);
        } else {
            self.encode_continuation(text, tokens);
        }
    }

    /// Appends the tokens of a text that continues another one: without a prefix space.
    pub(crate) fn encode_continuation(&mut self, text: &str, tokens: &mut Vec<u32>) {
        let tokenizer = self.tokenizer;
        if tokenizer.merges.in_order().is_empty() && tokenizer.word_tokens.is_none() {
            tokens.extend(text.bytes().map(|byte| tokenizer.bytes[byte as usize]));
            return;
        }
        for word in tokenizer.pre_tokenizer.words(text) {
            self.encode_word(word.as_bytes(), tokens);
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

    fn encode_word(&mut self, word: &[u8], tokens: &mut Vec<u32>) {
        if word.len() > MAX_WORD_BYTES {
            self.merge(word);
            tokens.extend_from_slice(&self.word);
            return;
        }
        if let Some(&(start, end)) = self.words.get(word) {
            tokens.extend_from_slice(&self.cached_tokens[start as usize..end as usize]);
            return;
        }
        self.merge(word);
        tokens.extend_from_slice(&self.word);
        if self.words.len() < MAX_WORDS {
            let start = self.cached_tokens.len() as u32;
            self.cached_tokens.extend_from_slice(&self.word);
            self.words.insert(word.into(), (start, self.cached_tokens.len() as u32));
        }
    }

    /// Writes the tokens of a word to `self.word`.
    fn merge(&mut self, word: &[u8]) {
        let tokenizer = self.tokenizer;
        self.word.clear();
        if let Some(id) = tokenizer.word_tokens.as_ref().and_then(|tokens| tokens.get(word)) {
            self.word.push(*id);
            return;
        }
        self.word.extend(word.iter().map(|&byte| tokenizer.bytes[byte as usize]));
        tokenizer.merges.apply(&mut self.word);
    }
}
