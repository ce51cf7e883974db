//! Text from a model: token by token through a cache of keys and values, chosen by score, chance and seed.
//!
//! `cached.rs` runs the model, `sample.rs` chooses tokens, `stops.rs` watches for the texts that end it, `together.rs` writes
//! many texts at once.

mod cached;
mod sample;
mod stops;
mod together;

use bornite::var::Arena;

use crate::error::located;
use crate::model::Gpt;
use crate::tokenizer::Tokenizer;
use crate::train::Precision;
use crate::{Error, Result};

use cached::Cached;
pub use sample::Sampling;
use stops::Stops;
pub use together::{Prompt, Together};

/// Tokens of a prompt that are read at once.
const PIECE: usize = 64;

/// What is to be written.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens to write.
    pub max_tokens: usize,
    /// Texts that end it; they are not part of what is written.
    pub stops: Vec<String>,
}

impl Default for Request {
    fn default() -> Request {
        Request { sampling: Sampling::default(), max_tokens: 128, stops: vec![] }
    }
}

/// Why writing ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The model ended the text.
    EndOfText,
    /// As many tokens as were asked for.
    MaxTokens,
    /// One of the texts that end it.
    Stop,
    /// Whoever reads wants no more.
    Reader,
}

impl Finish {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Finish::EndOfText => "end_of_text",
            Finish::MaxTokens => "max_tokens",
            Finish::Stop => "stop",
            Finish::Reader => "reader",
        }
    }
}

/// What was written.
#[derive(Clone, PartialEq, Debug)]
pub struct Written {
    /// The text, without the prompt.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub finish: Finish,
    /// How often the context was full, so that the model went on with the more recent half of it.
    pub context_shifts: usize,
}

/// The tokens of a prompt. An empty one begins with the token that ends a text, as documents do in training.
#[track_caller]
pub fn prompt_tokens(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>> {
    located(|| {
        let mut tokens = tokenizer.encode_with_special(prompt);
        if tokens.is_empty() {
            let Some(end) = tokenizer.end_of_text() else {
                return Err(Error::config("the prompt is empty, and the tokenizer has no token to start with"));
            };
            tokens.push(end);
        }
        Ok(tokens)
    })
}

/// A model with memory for one text.
///
/// Where a text outgrows that memory, the model goes on with the more recent half of it, read anew from position 0. So every
/// token depends on at least that many tokens before it, with learned and with rotary positions.
pub struct Generator(Cached);

impl Generator {
    /// A generator that runs on the weights of an arena, as they are at each call. It has memory for `length` tokens of a
    /// text with its prompt, at most the context of the model.
    #[track_caller]
    pub fn new(gpt: &Gpt, weights: &Arena, precision: Precision, length: usize) -> Result<Generator> {
        located(|| Ok(Generator(Cached::new(gpt, weights, precision, 1, length)?)))
    }

    /// How often the model was run so far: once a piece of a prompt and once a token.
    pub fn replays(&self) -> usize {
        self.0.replays()
    }

    /// Writes a text that continues a prompt. `emit` is given whole characters as they come, and says whether to go on.
    #[track_caller]
    pub fn write(
        &self,
        tokenizer: &Tokenizer,
        prompt: &str,
        request: &Request,
        emit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Written> {
        located(|| self.write_after(tokenizer, &prompt_tokens(tokenizer, prompt)?, request, emit))
    }

    /// As [`Generator::write`], of a prompt in tokens.
    #[track_caller]
    pub fn write_after(
        &self,
        tokenizer: &Tokenizer,
        prompt: &[u32],
        request: &Request,
        emit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Written> {
        located(|| {
            request.sampling.check()?;
            self.0.check(prompt)?;
            let (mut all, prompt_tokens) = (prompt.to_vec(), prompt.len());
            let mut scores = self.0.prefill(std::iter::once(prompt), prompt_tokens)?;
            let (mut cached, mut context_shifts) = (prompt_tokens, 0);
            let (mut stream, mut stops) = (tokenizer.stream(), Stops::new(&request.stops));
            let mut text = String::new();
            let mut tell = |new: String| -> bool {
                text += &new;
                new.is_empty() || emit(&new)
            };
            let finish = loop {
                let written = all.len() - prompt_tokens;
                if written == request.max_tokens {
                    break Finish::MaxTokens;
                }
                // Rows that the tokenizer has no text for are never chosen.
                scores.truncate(tokenizer.vocabulary());
                let token = request.sampling.choose(&scores, written as u64)?;
                if Some(token) == tokenizer.end_of_text() || self.0.ends(token) {
                    break Finish::EndOfText;
                }
                all.push(token);
                let (new, stopped) = stops.push(&stream.push(token));
                if !tell(new) {
                    break Finish::Reader;
                }
                if stopped {
                    break Finish::Stop;
                }
                if all.len() - prompt_tokens == request.max_tokens {
                    break Finish::MaxTokens;
                }
                if cached == self.0.length {
                    let recent = &all[all.len() - (cached / 2).max(1)..];
                    scores = self.0.prefill(std::iter::once(recent), recent.len())?;
                    (cached, context_shifts) = (recent.len(), context_shifts + 1);
                } else {
                    scores = self.0.advance(&[token.into()], cached, 1)?;
                    cached += 1;
                }
            };
            if !matches!(finish, Finish::Stop | Finish::Reader) {
                let (new, stopped) = stops.push(&stream.finish());
                tell(new);
                if !stopped {
                    tell(stops.finish());
                }
            }
            Ok(Written { text, tokens: all.split_off(prompt_tokens), prompt_tokens, finish, context_shifts })
        })
    }
}
