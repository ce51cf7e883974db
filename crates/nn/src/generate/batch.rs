//! Batched text generation: every model step generates one token of each text.

use super::Sampling;
use super::cached::CachedModel;
use crate::error::located;
use crate::model::Gpt;
use crate::tokenizer::Tokenizer;
use crate::train::Precision;
use crate::{Error, Result};

/// Generates several texts in lockstep: at each position a text that is still in its prompt takes
/// the prompt's next token, and the others sample one. So prompts of different lengths share every
/// matrix product.
pub struct BatchGenerator(CachedModel);

/// A prompt with its sampling options.
#[derive(Clone, PartialEq, Debug)]
pub struct Prompt {
    /// Tokens; at least one.
    pub tokens: Vec<u32>,
    /// Sampling options.
    pub sampling: Sampling,
}

impl BatchGenerator {
    /// Creates a generator for up to `rows` texts of up to `length` tokens, prompts included.
    #[track_caller]
    pub fn new(gpt: &Gpt, precision: Precision, rows: usize, length: usize) -> Result<BatchGenerator> {
        located(|| Ok(BatchGenerator(CachedModel::new(gpt, precision, rows, length)?)))
    }

    /// Returns the maximum number of texts.
    pub fn rows(&self) -> usize {
        self.0.rows
    }

    /// Continues each prompt until the end of the text or the maximum length. `progress` receives
    /// every position that was reached.
    #[track_caller]
    pub fn generate(
        &self,
        tokenizer: &Tokenizer,
        prompts: &[Prompt],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<u32>>> {
        located(|| {
            let CachedModel { rows, length, .. } = self.0;
            if prompts.len() > rows {
                return Err(Error::config(format!(
                    "there are {} prompts, but the generator has room for {rows}",
                    prompts.len()
                )));
            }
            for prompt in prompts {
                prompt.sampling.check()?;
                self.0.check(&prompt.tokens)?;
            }
            let Some(shared) = prompts.iter().map(|prompt| prompt.tokens.len()).min() else { return Ok(vec![]) };
            self.0.update_weights()?;
            let mut logits = self.0.prefill(prompts.iter().map(|prompt| &prompt.tokens[..]), shared)?;
            let mut texts: Vec<(Vec<u32>, bool)> = vec![(vec![], false); prompts.len()];
            for position in shared..length {
                let mut tokens = vec![0; rows];
                let vocabulary = logits.len() / rows;
                // The model's vocabulary may be larger than the tokenizer's.
                let known = vocabulary.min(tokenizer.vocabulary());
                for (n, prompt) in prompts.iter().enumerate() {
                    let (text, ended) = &mut texts[n];
                    let next = match prompt.tokens.get(position) {
                        Some(token) => *token,
                        None if *ended => continue,
                        None => {
                            let token =
                                prompt.sampling.sample(&logits[n * vocabulary..][..known], text.len() as u64)?;
                            if Some(token) == tokenizer.end_of_text() || self.0.is_end(token) {
                                *ended = true;
                                continue;
                            }
                            text.push(token);
                            token
                        }
                    };
                    tokens[n] = i64::from(next);
                }
                progress(position);
                if texts.iter().all(|(_, ended)| *ended) {
                    break;
                }
                logits = self.0.advance(&tokens, position, 1)?;
            }
            Ok(texts.into_iter().map(|(text, _)| text).collect())
        })
    }
}
