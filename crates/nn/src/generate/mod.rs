//! Text generation: autoregressive sampling with a key/value cache.
//!
//! `cached.rs` runs the model, `sample.rs` samples tokens, `stops.rs` matches stop strings,
//! `batch.rs` generates many texts at once. Nothing here knows runs or files.

mod batch;
mod cached;
mod sample;
mod stops;

use crate::error::located;
use crate::model::Gpt;
use crate::parameters::Weights;
use crate::tokenizer::Tokenizer;
use crate::train::Precision;
use crate::{Error, Result};

pub use batch::{BatchGenerator, Prompt};
use cached::CachedModel;
pub use sample::Sampling;
use stops::StopMatcher;

/// Tokens of a prompt that are processed at once.
const PREFILL_TOKENS: usize = 64;

/// Options of text generation.
#[derive(Clone, PartialEq, Debug)]
pub struct GenerationOptions {
    /// Sampling options.
    pub sampling: Sampling,
    /// Maximum number of tokens to generate.
    pub max_tokens: usize,
    /// Stop strings, which end the text and are not part of it.
    pub stops: Vec<String>,
}

impl Default for GenerationOptions {
    fn default() -> GenerationOptions {
        GenerationOptions { sampling: Sampling::default(), max_tokens: 128, stops: vec![] }
    }
}

/// Reason why generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinishReason {
    /// The model generated an end-of-text token.
    EndOfText,
    /// The maximum number of tokens was reached.
    MaxTokens,
    /// A stop string was generated.
    Stop,
    /// The callback returned false.
    Cancelled,
}

impl FinishReason {
    /// Returns the name used in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::EndOfText => "end_of_text",
            FinishReason::MaxTokens => "max_tokens",
            FinishReason::Stop => "stop",
            FinishReason::Cancelled => "reader",
        }
    }
}

/// A generated text.
#[derive(Clone, PartialEq, Debug)]
pub struct GeneratedText {
    /// Text without the prompt.
    pub text: String,
    /// Tokens without the prompt.
    pub tokens: Vec<u32>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Reason why it ended.
    pub finish: FinishReason,
    /// Number of times that the context was full and generation continued with its more recent
    /// half.
    pub context_shifts: usize,
}

/// Tokenizes a prompt. An empty one becomes the end-of-text token, which precedes documents in
/// training.
#[track_caller]
pub fn prompt_tokens(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>> {
    located(|| {
        let mut tokens = tokenizer.encode_with_special(prompt);
        if tokens.is_empty() {
            let Some(end) = tokenizer.end_of_text() else {
                return Err(Error::config(
                    "the prompt is empty, and the tokenizer has no end-of-text token to start with",
                ));
            };
            tokens.push(end);
        }
        Ok(tokens)
    })
}

/// Generates one text at a time with a key/value cache.
///
/// When the cache is full, its more recent half is processed again from position 0. So every token
/// depends on at least that many previous tokens, with learned and with rotary positions.
pub struct TextGenerator(CachedModel);

impl TextGenerator {
    /// Creates a generator, whose texts depend on the parameters at the time of generation. Its
    /// cache has room for `length` tokens, prompt included, at most the context length of the
    /// model. With a 16-bit precision, it has a rounded copy of the parameters.
    #[track_caller]
    pub fn new(gpt: &Gpt, precision: Precision, length: usize) -> Result<TextGenerator> {
        located(|| Ok(TextGenerator(CachedModel::new(gpt, precision, 1, length)?)))
    }

    /// As [`TextGenerator::new`], with weights in the dtype of `precision` that exist already.
    pub(crate) fn with_weights(
        gpt: &Gpt,
        weights: Weights,
        precision: Precision,
        length: usize,
    ) -> Result<TextGenerator> {
        Ok(TextGenerator(CachedModel::with_weights(gpt, weights, precision, 1, length)?))
    }

    /// Number of model runs so far: one per 64 prompt tokens and one per generated token.
    pub fn replays(&self) -> usize {
        self.0.replays()
    }

    /// Generates a continuation of a prompt. `emit` receives complete characters as they are
    /// generated and returns whether to continue.
    #[track_caller]
    pub fn generate(
        &self,
        tokenizer: &Tokenizer,
        prompt: &str,
        options: &GenerationOptions,
        emit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<GeneratedText> {
        located(|| self.generate_from_tokens(tokenizer, &prompt_tokens(tokenizer, prompt)?, options, emit))
    }

    /// As [`TextGenerator::generate`], with a prompt of tokens.
    #[track_caller]
    pub fn generate_from_tokens(
        &self,
        tokenizer: &Tokenizer,
        prompt: &[u32],
        options: &GenerationOptions,
        emit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<GeneratedText> {
        located(|| {
            options.sampling.check()?;
            self.0.check(prompt)?;
            self.0.update_weights()?;
            let (mut all, prompt_tokens) = (prompt.to_vec(), prompt.len());
            let mut logits = self.0.prefill(std::iter::once(prompt), prompt_tokens)?;
            let (mut cached, mut context_shifts) = (prompt_tokens, 0);
            let (mut stream, mut stops) = (tokenizer.stream(), StopMatcher::new(&options.stops));
            let mut text = String::new();
            let mut emit_text = |new: String| -> bool {
                text += &new;
                new.is_empty() || emit(&new)
            };
            let finish = loop {
                let generated = all.len() - prompt_tokens;
                if generated == options.max_tokens {
                    break FinishReason::MaxTokens;
                }
                // The model's vocabulary may be larger than the tokenizer's.
                logits.truncate(tokenizer.vocabulary());
                let token = options.sampling.sample(&logits, generated as u64)?;
                if Some(token) == tokenizer.end_of_text() || self.0.is_end(token) {
                    break FinishReason::EndOfText;
                }
                all.push(token);
                let (new, stopped) = stops.push(&stream.push(token));
                if !emit_text(new) {
                    break FinishReason::Cancelled;
                }
                if stopped {
                    break FinishReason::Stop;
                }
                if all.len() - prompt_tokens == options.max_tokens {
                    break FinishReason::MaxTokens;
                }
                if cached == self.0.length {
                    let recent = &all[all.len() - (cached / 2).max(1)..];
                    logits = self.0.prefill(std::iter::once(recent), recent.len())?;
                    (cached, context_shifts) = (recent.len(), context_shifts + 1);
                } else {
                    logits = self.0.advance(&[token.into()], cached, 1)?;
                    cached += 1;
                }
            };
            if !matches!(finish, FinishReason::Stop | FinishReason::Cancelled) {
                let (new, stopped) = stops.push(&stream.finish());
                emit_text(new);
                if !stopped {
                    emit_text(stops.finish());
                }
            }
            Ok(GeneratedText { text, tokens: all.split_off(prompt_tokens), prompt_tokens, finish, context_shifts })
        })
    }
}
