//! Decoding as tokens arrive.

use super::{REPLACEMENT, Tokenizer};

/// Decodes token by token and gives out whole characters only: what a terminal can show while text is generated.
///
/// ```
/// # use bornite_nn::tokenizer::Tokenizer;
/// let tokenizer = Tokenizer::bytes();
/// let mut stream = tokenizer.stream();
/// assert_eq!(stream.push(0xc3), "");
/// assert_eq!(stream.push(0xa9), "é");
/// ```
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    /// The start of a character, at most three bytes between calls.
    pending: Vec<u8>,
}

impl<'t> StreamDecoder<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> StreamDecoder<'t> {
        StreamDecoder { tokenizer, pending: vec![] }
    }

    /// Takes the next token and returns the characters that are whole now. What can no longer become one is U+FFFD.
    pub fn push(&mut self, token: u32) -> String {
        self.pending.extend_from_slice(self.tokenizer.token(token).unwrap_or(REPLACEMENT));
        let incomplete = match self.pending.utf8_chunks().last() {
            // `from_utf8` says which invalid tail is only unfinished: the one without a length.
            Some(chunk) if !chunk.invalid().is_empty() => match std::str::from_utf8(chunk.invalid()) {
                Err(error) if error.error_len().is_none() => chunk.invalid().len(),
                _ => 0,
            },
            _ => 0,
        };
        let whole = self.pending.len() - incomplete;
        let text = String::from_utf8_lossy(&self.pending[..whole]).into_owned();
        self.pending.drain(..whole);
        text
    }

    /// What is left at the end: the start of a character that never became whole, as U+FFFD, or nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}
