//! A compiled step of a model with its key/value cache: scores of the next token of each row.

use bornite::{DType, Device, Tensor, trace, trace::Trace, var::Arena};

use super::PIECE;
use crate::inputs::{AdvanceInputs, unpack_outputs};
use crate::model::Gpt;
use crate::parameters::Context;
use crate::train::{Precision, available, size};
use crate::{Error, Result};

/// A model with a key/value cache for `rows` texts of `length` tokens.
pub(super) struct Cached {
    step: Trace<'static>,
    precision: Precision,
    device: Device,
    vocabulary: usize,
    eos: Vec<u32>,
    pub rows: usize,
    pub length: usize,
}

impl Cached {
    /// Allocates the cache; `length` is at most the context of the model.
    pub fn new(gpt: &Gpt, weights: &Arena, precision: Precision, rows: usize, length: usize) -> Result<Cached> {
        let config = gpt.config();
        let (rows, length) = (rows.max(1), length.clamp(1, config.context));
        let device = weights.get().device()?;
        let sizes = [2, config.layers, rows, config.kv_heads, length, config.head_width(), precision.dtype().bytes()];
        let bytes = sizes.iter().fold(1u128, |product, n| product.saturating_mul(*n as u128));
        if let Some(available) = available(device).filter(|available| bytes > u128::from(*available)) {
            return Err(Error::config(format!(
                "a key/value cache of {rows} × {length} tokens needs {}, and {device} has {}; generate fewer tokens",
                size(bytes),
                size(available.into())
            )));
        }
        let caches = gpt.caches(rows, length, precision.dtype(), device)?;
        let (vocabulary, eos) = (config.vocabulary, config.eos.clone());
        let (gpt, weights) = (gpt.clone(), weights.clone());
        let step = trace(move |inputs| {
            let values = Context::new(weights.tensors());
            let AdvanceInputs { tokens, position, count } = AdvanceInputs::from_list(inputs)?;
            let (scores, updates) = gpt.advance(&values, tokens, position, count, &caches);
            Ok((vec![scores.cast(DType::F32)], updates))
        });
        Ok(Cached { step, precision, device, vocabulary, eos, rows, length })
    }

    /// How often the model was run so far.
    pub fn replays(&self) -> usize {
        self.step.replays()
    }

    /// Whether a token is one that the model ends texts with.
    pub fn ends(&self, token: u32) -> bool {
        self.eos.contains(&token)
    }

    /// Validates the tokens of a prompt.
    pub fn check(&self, prompt: &[u32]) -> Result<()> {
        let (count, length) = (prompt.len(), self.length);
        if count == 0 {
            return Err(Error::config("a prompt has no tokens; it must have at least one"));
        }
        if count > length {
            let what = format!("the prompt has {count} tokens, and the model looks at {length}; shorten it");
            return Err(Error::config(what));
        }
        match prompt.iter().find(|token| **token as usize >= self.vocabulary) {
            None => Ok(()),
            Some(token) => Err(Error::config(format!(
                "the prompt has token {token}, but the model has {} tokens, from 0",
                self.vocabulary
            ))),
        }
    }

    /// Scores of the next token of each row after the first `count` tokens of each, which come at `position`. `tokens` are
    /// the rows, one after the other.
    pub fn advance(&self, tokens: &[i64], position: usize, count: usize) -> Result<Vec<f32>> {
        let number = |n: usize| Tensor::from_slice(&[n as i64], &[], self.device);
        let shape = [self.rows, tokens.len() / self.rows];
        let tokens = Tensor::from_slice(tokens, &shape, self.device);
        let inputs = AdvanceInputs { tokens, position: number(position), count: number(count) }.into_list();
        let [scores] = unpack_outputs("advance", self.precision.within(|| self.step.call(&inputs))?)?;
        Ok(scores.to_vec()?)
    }

    /// Reads the first `count` tokens of each row into an empty cache; scores as [`Cached::advance`] has them.
    pub fn prefill<'a>(&self, rows: impl Iterator<Item = &'a [u32]> + Clone, count: usize) -> Result<Vec<f32>> {
        let mut scores = vec![];
        for first in (0..count).step_by(PIECE) {
            let more = PIECE.min(count - first);
            let padded = if more == 1 { 1 } else { PIECE.min(self.length) };
            let mut tokens = vec![0; self.rows * padded];
            for (row, prompt) in tokens.chunks_mut(padded).zip(rows.clone()) {
                row.iter_mut().zip(&prompt[first..first + more]).for_each(|(to, from)| *to = i64::from(*from));
            }
            scores = self.advance(&tokens, first, more)?;
        }
        Ok(scores)
    }
}
