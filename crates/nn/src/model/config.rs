//! What a GPT is made of.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// How rows are normed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Layer norm, as GPT-2.
    Layer,
    /// Root mean square, as Llama.
    Rms,
}

/// How a token knows its place.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PositionKind {
    /// A learned row a place, as GPT-2.
    Learned,
    /// Queries and keys turned by angles, as Llama; the number is the base of the angles.
    Rope(f64),
}

/// What follows attention in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MlpKind {
    /// GELU between two layers, as GPT-2.
    Gelu,
    /// A gate of SiLU beside the first layer, as Llama.
    Swiglu,
}

/// What a GPT is made of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GptConfig {
    /// Tokens there are.
    pub vocabulary: usize,
    /// Most tokens that are looked at.
    pub context: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Heads of keys and values; fewer than `heads` is grouped-query attention.
    pub kv_heads: usize,
    /// Numbers a token.
    pub width: usize,
    /// Numbers in the middle of an MLP.
    pub hidden: usize,
    /// Norms.
    pub norm: NormKind,
    /// Places.
    pub position: PositionKind,
    /// MLPs.
    pub mlp: MlpKind,
    /// Whether linear layers have biases.
    pub bias: bool,
    /// Whether the head is the table of tokens.
    pub tied: bool,
    /// Probability that a number is dropped in training.
    pub dropout: f64,
    /// What keeps norms finite.
    pub eps: f64,
}

/// Named sizes: layers, heads, width, context.
const SIZES: [(&str, [usize; 4]); 7] = [
    ("tiny", [2, 2, 64, 64]),
    ("small", [4, 4, 128, 128]),
    ("medium", [6, 6, 384, 256]),
    ("gpt2-124m", [12, 12, 768, 1024]),
    ("gpt2-355m", [24, 16, 1024, 1024]),
    ("gpt2-774m", [36, 20, 1280, 1024]),
    ("gpt2-1558m", [48, 25, 1600, 1024]),
];

impl GptConfig {
    /// A GPT-2 of these sizes.
    pub fn gpt2(vocabulary: usize, context: usize, layers: usize, heads: usize, width: usize) -> GptConfig {
        GptConfig {
            vocabulary,
            context,
            layers,
            heads,
            kv_heads: heads,
            width,
            hidden: 4 * width,
            norm: NormKind::Layer,
            position: PositionKind::Learned,
            mlp: MlpKind::Gelu,
            bias: true,
            tied: true,
            dropout: 0.0,
            eps: 1e-5,
        }
    }

    /// A Llama of these sizes, with half as many heads of keys as of queries where that divides.
    pub fn llama(vocabulary: usize, context: usize, layers: usize, heads: usize, width: usize) -> GptConfig {
        GptConfig {
            kv_heads: if heads.is_multiple_of(2) { heads / 2 } else { heads },
            hidden: (8 * width / 3).next_multiple_of(32),
            norm: NormKind::Rms,
            position: PositionKind::Rope(10_000.0),
            mlp: MlpKind::Swiglu,
            bias: false,
            tied: false,
            ..GptConfig::gpt2(vocabulary, context, layers, heads, width)
        }
    }

    /// The model of a name: `tiny`, `small`, `medium`, `gpt2-124m` and so on, or with `llama-` in front of the first three.
    pub fn named(name: &str, vocabulary: usize) -> Result<GptConfig> {
        let (of, size) = match name.strip_prefix("llama-") {
            Some(size) => (GptConfig::llama as fn(usize, usize, usize, usize, usize) -> GptConfig, size),
            None => (GptConfig::gpt2 as fn(usize, usize, usize, usize, usize) -> GptConfig, name),
        };
        match SIZES.iter().find(|(known, _)| *known == size) {
            Some((_, [layers, heads, width, context])) => Ok(of(vocabulary, *context, *layers, *heads, *width)),
            None => {
                let names: Vec<&str> = SIZES.iter().map(|(name, _)| *name).collect();
                Err(Error::Config(format!("there is no model '{name}'; there are {}", names.join(", "))))
            }
        }
    }

    /// Numbers a head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads
    }

    /// Refuses what cannot be.
    pub fn check(&self) -> Result<()> {
        let sizes = [
            ("vocabulary", self.vocabulary),
            ("context", self.context),
            ("layers", self.layers),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("width", self.width),
            ("hidden", self.hidden),
        ];
        let refuse = |what: String| Err(Error::Config(what));
        for (name, size) in sizes {
            if size == 0 || size > i32::MAX as usize {
                return refuse(format!("model.{name} is {size}; it must be from 1 to {}", i32::MAX));
            }
        }
        if !self.width.is_multiple_of(self.heads) {
            return refuse(format!("model.width {} is not a multiple of model.heads {}", self.width, self.heads));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return refuse(format!("model.heads {} is not a multiple of model.kv_heads {}", self.heads, self.kv_heads));
        }
        if let PositionKind::Rope(base) = self.position {
            if !(base > 1.0 && base.is_finite()) {
                return refuse(format!("the base of the angles is {base}; it must be above 1"));
            }
            if !self.head_width().is_multiple_of(2) {
                return refuse(format!("heads of {} numbers cannot be turned in pairs", self.head_width()));
            }
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return refuse(format!("model.dropout is {}; it must be from 0 to below 1", self.dropout));
        }
        if !(self.eps > 0.0 && self.eps.is_finite()) {
            return refuse(format!("model.eps is {}; it must be above 0", self.eps));
        }
        Ok(())
    }
}
