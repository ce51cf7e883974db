//! Section `[model]` of a run's settings: conversion to and from [`GptConfig`].

use super::config::{ModelSection, PositionSetting, RunConfig};
use crate::error::located;
use crate::model::{GptConfig, MlpKind, PositionKind, RopeScaling};
use crate::{Error, Result};

impl RunConfig {
    /// Returns the model that the settings describe, for a tokenizer of `tokens` tokens.
    #[track_caller]
    pub fn gpt(&self, tokens: usize) -> Result<GptConfig> {
        located(|| {
            let m = &self.model;
            let vocabulary = m.vocabulary.unwrap_or(tokens);
            if vocabulary < tokens {
                return Err(Error::config(format!(
                    "model.vocabulary is {vocabulary}, but the tokenizer has {tokens} tokens; remove it or set it to {tokens} or more"
                )));
            }
            let base = GptConfig::named(m.name.as_deref().unwrap_or("tiny"), vocabulary)?;
            let (layers, heads, width) =
                (m.layers.unwrap_or(base.layers), m.heads.unwrap_or(base.heads), m.width.unwrap_or(base.width));
            // Sizes that a named model derives from others are derived from those that were set.
            let changed = (layers, heads, width) != (base.layers, base.heads, base.width);
            let derived = match base.mlp {
                MlpKind::Gelu | MlpKind::GeluErf => {
                    GptConfig { kv_heads: heads, mlp_hidden: width.saturating_mul(4), ..base.clone() }
                }
                MlpKind::Swiglu => GptConfig {
                    kv_heads: if heads.is_multiple_of(2) { heads / 2 } else { heads },
                    mlp_hidden: (width.saturating_mul(8) / 3).next_multiple_of(32),
                    ..base.clone()
                },
            };
            let base = if changed { derived } else { base };
            let rope_base = match (m.rope_base, base.position) {
                (Some(rope_base), _) | (None, PositionKind::Rope(rope_base)) => rope_base,
                (None, PositionKind::Learned) => 10_000.0,
            };
            let config = GptConfig {
                context: m.context.unwrap_or(base.context),
                layers,
                heads,
                width,
                kv_heads: m.kv_heads.unwrap_or(base.kv_heads),
                mlp_hidden: m.mlp_hidden.unwrap_or(base.mlp_hidden),
                norm: m.norm.unwrap_or(base.norm),
                position: match m.position {
                    Some(PositionSetting::Learned) => PositionKind::Learned,
                    Some(PositionSetting::Rope) => PositionKind::Rope(rope_base),
                    None if matches!(base.position, PositionKind::Rope(_)) => PositionKind::Rope(rope_base),
                    None => PositionKind::Learned,
                },
                mlp: m.mlp.unwrap_or(base.mlp),
                bias: m.bias.unwrap_or(base.bias),
                tied_embeddings: m.tied_embeddings.unwrap_or(base.tied_embeddings),
                dropout: m.dropout.unwrap_or(base.dropout),
                eps: m.eps.unwrap_or(base.eps),
                head_width: m.head_width.filter(|head| head.checked_mul(heads) != Some(width)),
                attention_bias: m.attention_bias.filter(|bias| *bias != m.bias.unwrap_or(base.bias)),
                scale_attention: m.scale_attention.unwrap_or(base.scale_attention),
                scale_attention_by_layer: m.scale_attention_by_layer.unwrap_or(base.scale_attention_by_layer),
                rope_scaling: self.rope_scaling()?,
                ..base
            };
            config.check()?;
            Ok(config)
        })
    }

    /// Returns the frequency scaling of `model.rope_factor`; the defaults of the other values are
    /// those of Llama 3.1.
    fn rope_scaling(&self) -> Result<Option<RopeScaling>> {
        let m = &self.model;
        let Some(factor) = m.rope_factor else {
            let dependent = [
                ("rope_low_freq_factor", m.rope_low_freq_factor.is_some()),
                ("rope_high_freq_factor", m.rope_high_freq_factor.is_some()),
                ("rope_original_context", m.rope_original_context.is_some()),
            ];
            return match dependent.iter().find(|(_, set)| *set) {
                Some((name, _)) => Err(Error::config(format!("model.{name} has no effect without model.rope_factor"))),
                None => Ok(None),
            };
        };
        Ok(Some(RopeScaling {
            factor,
            low_freq_factor: m.rope_low_freq_factor.unwrap_or(1.0),
            high_freq_factor: m.rope_high_freq_factor.unwrap_or(4.0),
            original_context: m.rope_original_context.unwrap_or(8192),
        }))
    }

    /// Sets every key of the section `[model]` from a model, so that none depends on `model.name`.
    pub fn set_gpt(&mut self, gpt: &GptConfig) {
        let (position, rope_base) = match gpt.position {
            PositionKind::Learned => (PositionSetting::Learned, None),
            PositionKind::Rope(base) => (PositionSetting::Rope, Some(base)),
        };
        let (name, from) = (self.model.name.take(), self.model.from.take());
        self.model = ModelSection {
            name,
            from,
            vocabulary: Some(gpt.vocabulary),
            context: Some(gpt.context),
            layers: Some(gpt.layers),
            heads: Some(gpt.heads),
            kv_heads: Some(gpt.kv_heads),
            width: Some(gpt.width),
            mlp_hidden: Some(gpt.mlp_hidden),
            norm: Some(gpt.norm),
            position: Some(position),
            rope_base,
            mlp: Some(gpt.mlp),
            bias: Some(gpt.bias),
            tied_embeddings: Some(gpt.tied_embeddings),
            dropout: Some(gpt.dropout),
            eps: Some(gpt.eps),
            head_width: Some(gpt.head_width()),
            attention_bias: Some(gpt.attention_bias()),
            scale_attention: Some(gpt.scale_attention),
            scale_attention_by_layer: Some(gpt.scale_attention_by_layer),
            rope_factor: gpt.rope_scaling.map(|scaling| scaling.factor),
            rope_low_freq_factor: gpt.rope_scaling.map(|scaling| scaling.low_freq_factor),
            rope_high_freq_factor: gpt.rope_scaling.map(|scaling| scaling.high_freq_factor),
            rope_original_context: gpt.rope_scaling.map(|scaling| scaling.original_context),
        };
    }
}
