//! Text from a model: token by token through a cache of keys and values, chosen by score, chance and seed.
//!
//! `sample.rs` chooses tokens, `stops.rs` watches for the texts that end it, `together.rs` writes many texts at once.

mod sample;
mod stops;
mod together;

use bornite::{Arena, DType, Device, Tensor, Trace, trace};

use crate::model::Gpt;
use crate::parameters::Context;
use crate::tokenizer::Tokenizer;
use crate::train::Precision;
use crate::{Error, Result};

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
    /// The model does not look at more tokens.
    Context,
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
            Finish::Context => "context",
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
}

/// A model with memory for one text.
pub struct Generator {
    step: Trace<'static>,
    precision: Precision,
    device: Device,
    context: usize,
}

impl Generator {
    /// A generator that runs on the weights of an arena, as they are at each call.
    pub fn new(gpt: &Gpt, weights: &Arena, precision: Precision) -> Result<Generator> {
        let device = weights.get().device()?;
        let context = gpt.config().context;
        let caches = gpt.caches(1, context, precision.dtype(), device)?;
        let (gpt, weights) = (gpt.clone(), weights.clone());
        let step = trace(move |given| {
            let values = Context::new(weights.tensors());
            let (scores, updates) = gpt.advance(&values, &given[0], &given[1], &given[2], &caches);
            Ok((vec![scores.cast(DType::F32)], updates))
        });
        Ok(Generator { step, precision, device, context })
    }

    /// How often the model was run so far: once a piece of a prompt and once a token.
    pub fn replays(&self) -> usize {
        self.step.replays()
    }

    /// Scores of the next token after more tokens, which come at a position.
    fn advance(&self, tokens: &[u32], position: usize, length: usize) -> Result<Vec<f32>> {
        let mut padded = vec![0i64; length];
        padded.iter_mut().zip(tokens).for_each(|(to, from)| *to = i64::from(*from));
        let number = |n: usize| Tensor::from_slice(&[n as i64], &[], self.device);
        let given = [Tensor::from_slice(&padded, &[1, length], self.device), number(position), number(tokens.len())];
        let scores = self.precision.within(|| self.step.call(&given))?;
        Ok(scores[0].to_vec()?)
    }

    /// Writes a text that continues a prompt. `emit` is given whole characters as they come, and says whether to go on.
    pub fn write(
        &self,
        tokenizer: &Tokenizer,
        prompt: &str,
        request: &Request,
        emit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Written> {
        request.sampling.check()?;
        let mut all = tokenizer.encode_with_special(prompt);
        if all.is_empty() {
            // As documents follow each other in training.
            let Some(end) = tokenizer.end_of_text() else {
                return Err(Error::Config("the prompt is empty, and the tokenizer has no token to start with".into()));
            };
            all.push(end);
        }
        let prompt_tokens = all.len();
        if prompt_tokens > self.context {
            return Err(Error::Config(format!(
                "the prompt has {prompt_tokens} tokens, and the model looks at {}; shorten it",
                self.context
            )));
        }
        let mut scores = vec![];
        for (n, piece) in all.chunks(PIECE).enumerate() {
            let length = if piece.len() == 1 { 1 } else { PIECE.min(self.context) };
            scores = self.advance(piece, n * PIECE, length)?;
        }
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
            if Some(token) == tokenizer.end_of_text() {
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
            if all.len() > self.context {
                break Finish::Context;
            }
            scores = self.advance(&[token], all.len() - 1, 1)?;
        };
        if !matches!(finish, Finish::Stop | Finish::Reader) {
            let (new, stopped) = stops.push(&stream.finish());
            tell(new);
            if !stopped {
                tell(stops.finish());
            }
        }
        Ok(Written { text, tokens: all.split_off(prompt_tokens), prompt_tokens, finish })
    }
}
