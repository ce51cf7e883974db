//! A traced decoding step of a model with its key/value cache.

use bornite::{DType, Device, Tensor, trace, trace::Trace};

use super::PREFILL_TOKENS;
use crate::inputs::{AdvanceInputs, unpack_outputs};
use crate::model::Gpt;
use crate::parameters::Weights;
use crate::train::{Precision, available_bytes, format_bytes};
use crate::{Error, Result};

/// A model with a key/value cache for `rows` sequences of `length` tokens.
pub(super) struct CachedModel {
    step: Trace<'static>,
    weights: Weights,
    precision: Precision,
    device: Device,
    vocabulary: usize,
    eos: Vec<u32>,
    pub rows: usize,
    pub length: usize,
}

impl CachedModel {
    /// Allocates the cache and, with a 16-bit precision, a rounded copy of the parameters; `length`
    /// is limited to the context length of the model.
    pub fn new(gpt: &Gpt, precision: Precision, rows: usize, length: usize) -> Result<CachedModel> {
        let weights = Weights::new(gpt.params(), precision.dtype())?;
        CachedModel::with_weights(gpt, weights, precision, rows, length)
    }

    /// Allocates the cache for these weights.
    pub fn with_weights(
        gpt: &Gpt,
        weights: Weights,
        precision: Precision,
        rows: usize,
        length: usize,
    ) -> Result<CachedModel> {
        let config = gpt.config();
        let (rows, length) = (rows.max(1), length.clamp(1, config.context));
        let device = gpt.params().device();
        let sizes = [2, config.layers, rows, config.kv_heads, length, config.head_width(), precision.dtype().bytes()];
        let bytes = sizes.iter().fold(1u128, |product, n| product.saturating_mul(*n as u128));
        if let Some(available) = available_bytes(device).filter(|available| bytes > u128::from(*available)) {
            return Err(Error::config(format!(
                "a key/value cache of {rows} × {length} tokens needs {}, but {device} has {}; generate fewer tokens",
                format_bytes(bytes),
                format_bytes(available.into())
            )));
        }
        let caches = gpt.kv_caches(rows, length, precision.dtype())?;
        let (vocabulary, eos) = (config.vocabulary, config.eos.clone());
        let (gpt, values) = (gpt.clone(), weights.clone());
        let step = trace(move |inputs| {
            let AdvanceInputs { tokens, position, count } = AdvanceInputs::from_list(inputs)?;
            let (logits, updates) = values.run(|| gpt.advance(tokens, position, count, &caches));
            Ok((vec![logits.cast(DType::F32)], updates))
        });
        Ok(CachedModel { step, weights, precision, device, vocabulary, eos, rows, length })
    }

    /// Rounds the current parameters into the 16-bit copy, if there is one.
    pub fn update_weights(&self) -> Result<()> {
        self.weights.update()
    }

    /// Number of model runs so far.
    pub fn replays(&self) -> usize {
        self.step.replays()
    }

    /// Returns true for an end-of-text token of the model.
    pub fn is_end(&self, token: u32) -> bool {
        self.eos.contains(&token)
    }

    /// Validates the tokens of a prompt.
    pub fn check(&self, prompt: &[u32]) -> Result<()> {
        let (count, length) = (prompt.len(), self.length);
        if count == 0 {
            return Err(Error::config("the prompt has no tokens; it must have at least one"));
        }
        if count > length {
            let what = format!("the prompt has {count} tokens, but the context has {length}; shorten the prompt");
            return Err(Error::config(what));
        }
        match prompt.iter().find(|token| **token as usize >= self.vocabulary) {
            None => Ok(()),
            Some(token) => Err(Error::config(format!(
                "the prompt has token {token}, but the model's vocabulary has {} tokens",
                self.vocabulary
            ))),
        }
    }

    /// Appends tokens at `position` and returns the logits of the next token of each row. `tokens`
    /// are the concatenated rows, of which the first `count` tokens each are not padding.
    pub fn advance(&self, tokens: &[i64], position: usize, count: usize) -> Result<Vec<f32>> {
        let scalar = |n: usize| Tensor::from_slice(&[n as i64], &[], self.device);
        let shape = [self.rows, tokens.len() / self.rows];
        let tokens = Tensor::from_slice(tokens, &shape, self.device);
        let inputs = AdvanceInputs { tokens, position: scalar(position), count: scalar(count) }.into_list();
        let [logits] = unpack_outputs("advance", self.precision.within(|| self.step.call(&inputs))?)?;
        Ok(logits.to_vec()?)
    }

    /// Fills an empty cache with the first `count` tokens of each row; returns logits as
    /// [`CachedModel::advance`] does.
    pub fn prefill<'a>(&self, rows: impl Iterator<Item = &'a [u32]> + Clone, count: usize) -> Result<Vec<f32>> {
        let mut logits = vec![];
        for first in (0..count).step_by(PREFILL_TOKENS) {
            let more = PREFILL_TOKENS.min(count - first);
            let padded = if more == 1 { 1 } else { PREFILL_TOKENS.min(self.length) };
            let mut tokens = vec![0; self.rows * padded];
            for (row, prompt) in tokens.chunks_mut(padded).zip(rows.clone()) {
                row.iter_mut().zip(&prompt[first..first + more]).for_each(|(to, from)| *to = i64::from(*from));
            }
            logits = self.advance(&tokens, first, more)?;
        }
        Ok(logits)
    }
}
