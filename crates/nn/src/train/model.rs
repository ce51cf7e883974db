//! Section `[model]` of a run's settings: from settings to a [`GptConfig`] and back.

use super::config::{ModelSection, Position, RunConfig};
use crate::error::located;
use crate::model::{GptConfig, MlpKind, PositionKind, RopeScaling};
use crate::{Error, Result};

impl RunConfig {
    /// The model that is asked for, for a tokenizer of so many tokens.
    #[track_caller]
    pub fn gpt(&self, tokens: usize) -> Result<GptConfig> {
        located(|| {
            let m = &self.model;
            let vocabulary = m.vocabulary.unwrap_or(tokens);
            if vocabulary < tokens {
                return Err(Error::config(format!(
                    "model.vocabulary is {vocabulary}, but the tokenizer has {tokens} tokens; leave it out or make it larger"
                )));
            }
            let of = GptConfig::named(m.name.as_deref().unwrap_or("tiny"), vocabulary)?;
            let (layers, heads, width) =
                (m.layers.unwrap_or(of.layers), m.heads.unwrap_or(of.heads), m.width.unwrap_or(of.width));
            // What follows from other sizes follows from those that are asked for.
            let changed = (layers, heads, width) != (of.layers, of.heads, of.width);
            let derived = match of.mlp {
                MlpKind::Gelu | MlpKind::GeluErf => {
                    GptConfig { kv_heads: heads, hidden: width.saturating_mul(4), ..of.clone() }
                }
                MlpKind::Swiglu => GptConfig {
                    kv_heads: if heads.is_multiple_of(2) { heads / 2 } else { heads },
                    hidden: (width.saturating_mul(8) / 3).next_multiple_of(32),
                    ..of.clone()
                },
            };
            let of = if changed { derived } else { of };
            let base = match (m.rope_base, of.position) {
                (Some(base), _) | (None, PositionKind::Rope(base)) => base,
                (None, PositionKind::Learned) => 10_000.0,
            };
            let config = GptConfig {
                context: m.context.unwrap_or(of.context),
                layers,
                heads,
                width,
                kv_heads: m.kv_heads.unwrap_or(of.kv_heads),
                hidden: m.hidden.unwrap_or(of.hidden),
                norm: m.norm.unwrap_or(of.norm),
                position: match m.position {
                    Some(Position::Learned) => PositionKind::Learned,
                    Some(Position::Rope) => PositionKind::Rope(base),
                    None if matches!(of.position, PositionKind::Rope(_)) => PositionKind::Rope(base),
                    None => PositionKind::Learned,
                },
                mlp: m.mlp.unwrap_or(of.mlp),
                bias: m.bias.unwrap_or(of.bias),
                tied: m.tied.unwrap_or(of.tied),
                dropout: m.dropout.unwrap_or(of.dropout),
                eps: m.eps.unwrap_or(of.eps),
                head_width: m.head_width.filter(|head| head.checked_mul(heads) != Some(width)),
                attention_bias: m.attention_bias.filter(|bias| *bias != m.bias.unwrap_or(of.bias)),
                scale_by_head: m.scale_by_head.unwrap_or(of.scale_by_head),
                scale_by_layer: m.scale_by_layer.unwrap_or(of.scale_by_layer),
                rope_scaling: self.rope_scaling()?,
                ..of
            };
            config.check()?;
            Ok(config)
        })
    }

    /// The frequency scaling that `model.rope_factor` asks for; Llama 3.1's values for what it leaves open.
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

    /// Writes a model into its section, so that nothing of it depends on names.
    pub fn set_gpt(&mut self, gpt: &GptConfig) {
        let (position, rope_base) = match gpt.position {
            PositionKind::Learned => (Position::Learned, None),
            PositionKind::Rope(base) => (Position::Rope, Some(base)),
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
            hidden: Some(gpt.hidden),
            norm: Some(gpt.norm),
            position: Some(position),
            rope_base,
            mlp: Some(gpt.mlp),
            bias: Some(gpt.bias),
            tied: Some(gpt.tied),
            dropout: Some(gpt.dropout),
            eps: Some(gpt.eps),
            head_width: Some(gpt.head_width()),
            attention_bias: Some(gpt.attention_bias()),
            scale_by_head: Some(gpt.scale_by_head),
            scale_by_layer: Some(gpt.scale_by_layer),
            rope_factor: gpt.rope_scaling.map(|scaling| scaling.factor),
            rope_low_freq_factor: gpt.rope_scaling.map(|scaling| scaling.low_freq_factor),
            rope_high_freq_factor: gpt.rope_scaling.map(|scaling| scaling.high_freq_factor),
            rope_original_context: gpt.rope_scaling.map(|scaling| scaling.original_context),
        };
    }
}
