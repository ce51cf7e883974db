//! Many texts at once: every step of the model makes a token of each.

use bornite::var::Arena;

use super::Sampling;
use super::cached::Cached;
use crate::error::located;
use crate::model::Gpt;
use crate::tokenizer::Tokenizer;
use crate::train::Precision;
use crate::{Error, Result};

/// A model with memory for several texts, which go forward in step: at each place a text that is still in its prompt takes the
/// prompt's next token, and the others choose one. So prompts of different lengths share every product of matrices.
pub struct Together(Cached);

/// A prompt, and how tokens after it are chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Prompt {
    /// Its tokens; at least one.
    pub tokens: Vec<u32>,
    /// How its tokens are chosen.
    pub sampling: Sampling,
}

impl Together {
    /// For up to `rows` texts of up to `length` tokens, with their prompts.
    #[track_caller]
    pub fn new(gpt: &Gpt, weights: &Arena, precision: Precision, rows: usize, length: usize) -> Result<Together> {
        located(|| Ok(Together(Cached::new(gpt, weights, precision, rows, length)?)))
    }

    /// Texts that it has memory for.
    pub fn rows(&self) -> usize {
        self.0.rows
    }

    /// Writes after each prompt until the end of the text, or as many tokens as there is memory for. `progress` hears of
    /// every place that was reached.
    #[track_caller]
    pub fn write(
        &self,
        tokenizer: &Tokenizer,
        prompts: &[Prompt],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<u32>>> {
        located(|| {
            let Cached { rows, length, .. } = self.0;
            if prompts.len() > rows {
                return Err(Error::config(format!("{} prompts at once; there is memory for {rows}", prompts.len())));
            }
            for prompt in prompts {
                prompt.sampling.check()?;
                self.0.check(&prompt.tokens)?;
            }
            let Some(shared) = prompts.iter().map(|prompt| prompt.tokens.len()).min() else { return Ok(vec![]) };
            let mut scores = self.0.prefill(prompts.iter().map(|prompt| &prompt.tokens[..]), shared)?;
            let mut texts: Vec<(Vec<u32>, bool)> = vec![(vec![], false); prompts.len()];
            for at in shared..length {
                let mut tokens = vec![0; rows];
                let each = scores.len() / rows;
                // Rows that the tokenizer has no text for are never chosen.
                let known = each.min(tokenizer.vocabulary());
                for (n, prompt) in prompts.iter().enumerate() {
                    let (text, ended) = &mut texts[n];
                    let next = match prompt.tokens.get(at) {
                        Some(token) => *token,
                        None if *ended => continue,
                        None => {
                            let token = prompt.sampling.choose(&scores[n * each..][..known], text.len() as u64)?;
                            if Some(token) == tokenizer.end_of_text() || self.0.ends(token) {
                                *ended = true;
                                continue;
                            }
                            text.push(token);
                            token
                        }
                    };
                    tokens[n] = i64::from(next);
                }
                progress(at);
                if texts.iter().all(|(_, ended)| *ended) {
                    break;
                }
                scores = self.0.advance(&tokens, at, 1)?;
            }
            Ok(texts.into_iter().map(|(text, _)| text).collect())
        })
    }
}
