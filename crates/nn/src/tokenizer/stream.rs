//! Streaming decoder.

use super::{REPLACEMENT, Tokenizer};

/// Decodes token by token and emits complete characters only, for showing text while it is
/// generated.
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
    /// Incomplete character, at most three bytes between calls.
    pending: Vec<u8>,
}

impl<'t> StreamDecoder<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> StreamDecoder<'t> {
        StreamDecoder { tokenizer, pending: vec![] }
    }

    /// Appends a token and returns the characters that are complete now. Invalid bytes become
    /// U+FFFD.
    pub fn push(&mut self, token: u32) -> String {
        self.pending.extend_from_slice(self.tokenizer.token(token).unwrap_or(REPLACEMENT));
        let incomplete = match self.pending.utf8_chunks().last() {
            // An error without a length marks an incomplete character.
            Some(chunk) if !chunk.invalid().is_empty() => match std::str::from_utf8(chunk.invalid()) {
                Err(error) if error.error_len().is_none() => chunk.invalid().len(),
                _ => 0,
            },
            _ => 0,
        };
        let complete = self.pending.len() - incomplete;
        let text = String::from_utf8_lossy(&self.pending[..complete]).into_owned();
        self.pending.drain(..complete);
        text
    }

    /// Returns the rest: an incomplete character as U+FFFD, or nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}
