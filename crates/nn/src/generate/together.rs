//! Many texts at once: every step of the model makes a token of each.

use bornite::{Arena, DType, Device, Tensor, Trace, trace};

use super::{PIECE, Sampling};
use crate::model::Gpt;
use crate::parameters::Context;
use crate::tokenizer::Tokenizer;
use crate::train::Precision;
use crate::{Error, Result};

/// A model with memory for several texts, which go forward in step: at each place a text that is still in its prompt takes the
/// prompt's next token, and the others choose one. So prompts of different lengths share every product of matrices.
pub struct Together {
    step: Trace<'static>,
    precision: Precision,
    device: Device,
    rows: usize,
    length: usize,
}

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
    pub fn new(gpt: &Gpt, weights: &Arena, precision: Precision, rows: usize, length: usize) -> Result<Together> {
        let (rows, length) = (rows.max(1), length.clamp(1, gpt.config().context));
        let device = weights.get().device()?;
        let caches = gpt.caches(rows, length, precision.dtype(), device)?;
        let (gpt, weights) = (gpt.clone(), weights.clone());
        let step = trace(move |given| {
            let values = Context::new(weights.tensors());
            let (scores, updates) = gpt.advance(&values, &given[0], &given[1], &given[2], &caches);
            Ok((vec![scores.cast(DType::F32)], updates))
        });
        Ok(Together { step, precision, device, rows, length })
    }

    /// Texts that it has memory for.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Scores of the next token of each text, one text after the other.
    fn advance(&self, tokens: &[i64], position: usize, count: usize) -> Result<Vec<f32>> {
        let number = |n: usize| Tensor::from_slice(&[n as i64], &[], self.device);
        let more = tokens.len() / self.rows;
        let given = [Tensor::from_slice(tokens, &[self.rows, more], self.device), number(position), number(count)];
        Ok(self.precision.within(|| self.step.call(&given))?[0].to_vec()?)
    }

    /// Writes after each prompt until the end of the text, or as many tokens as there is memory for. `progress` hears of
    /// every place that was reached.
    pub fn write(
        &self,
        tokenizer: &Tokenizer,
        prompts: &[Prompt],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<u32>>> {
        if prompts.len() > self.rows {
            return Err(Error::Config(format!("{} prompts at once; there is memory for {}", prompts.len(), self.rows)));
        }
        for prompt in prompts {
            prompt.sampling.check()?;
            if !(1..=self.length).contains(&prompt.tokens.len()) {
                let found = prompt.tokens.len();
                return Err(Error::Config(format!("a prompt has {found} tokens; it must have 1 to {}", self.length)));
            }
        }
        let Some(shared) = prompts.iter().map(|prompt| prompt.tokens.len()).min() else { return Ok(vec![]) };
        let mut scores = vec![];
        for first in (0..shared).step_by(PIECE) {
            let count = PIECE.min(shared - first);
            let each = if count == 1 { 1 } else { PIECE.min(self.length) };
            let mut tokens = vec![0; self.rows * each];
            for (row, prompt) in tokens.chunks_mut(each).zip(prompts) {
                row.iter_mut().zip(&prompt.tokens[first..first + count]).for_each(|(to, from)| *to = i64::from(*from));
            }
            scores = self.advance(&tokens, first, count)?;
        }
        let mut texts: Vec<(Vec<u32>, bool)> = vec![(vec![], false); prompts.len()];
        for at in shared..self.length {
            let mut tokens = vec![0; self.rows];
            let each = scores.len() / self.rows;
            // Rows that the tokenizer has no text for are never chosen.
            let known = each.min(tokenizer.vocabulary());
            for (n, prompt) in prompts.iter().enumerate() {
                let (text, ended) = &mut texts[n];
                let next = match prompt.tokens.get(at) {
                    Some(token) => *token,
                    None if *ended => continue,
                    None => {
                        let token = prompt.sampling.choose(&scores[n * each..][..known], text.len() as u64)?;
                        if Some(token) == tokenizer.end_of_text() {
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
            scores = self.advance(&tokens, at, 1)?;
        }
        Ok(texts.into_iter().map(|(text, _)| text).collect())
    }
}
