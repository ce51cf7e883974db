//! What a GPT is made of.

use serde::{Deserialize, Serialize};

use crate::error::located;
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
    /// GELU between two layers, as GPT-2: the tanh approximation.
    Gelu,
    /// GELU between two layers, by the error function.
    GeluErf,
    /// A gate of SiLU beside the first layer, as Llama.
    Swiglu,
}

/// Frequency scaling of rotary embeddings, as in Llama 3: high frequencies are unchanged, low ones are divided by `factor`,
/// and those between are interpolated.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeScaling {
    /// Divisor of low frequencies.
    pub factor: f64,
    /// Wavelengths above `original_context / low_freq_factor` are low frequencies.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_context / high_freq_factor` are high frequencies.
    pub high_freq_factor: f64,
    /// Context length before scaling.
    pub original_context: usize,
}

impl RopeScaling {
    /// Factor of the frequency `frequency`, in radians per token.
    pub fn scale(&self, frequency: f64) -> f64 {
        let periods = self.original_context as f64 * frequency / std::f64::consts::TAU;
        let high = (periods - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
        let high = high.clamp(0.0, 1.0);
        (1.0 - high) / self.factor + high
    }

    /// Validates the values.
    fn check(&self) -> Result<()> {
        let RopeScaling { factor, low_freq_factor: low, high_freq_factor: high, original_context } = *self;
        let valid = factor >= 1.0 && low > 0.0 && high > low && [factor, high].iter().all(|n| n.is_finite());
        if valid && (1..=i32::MAX as usize).contains(&original_context) {
            return Ok(());
        }
        Err(Error::config(format!(
            "RoPE scaling has factor {factor}, low_freq_factor {low}, high_freq_factor {high} and original context \
             {original_context}; expected factor >= 1, 0 < low_freq_factor < high_freq_factor and a context of 1 or more"
        )))
    }
}

/// Largest number of layers. Every layer takes some kilobytes before its weights do.
const MAX_LAYERS: usize = 10_000;

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
    /// Width of a head; `None` for `width / heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// Whether the projections of attention have biases; `None` for `bias`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_bias: Option<bool>,
    /// Whether attention scores are divided by the square root of the head width.
    #[serde(default = "yes")]
    pub scale_by_head: bool,
    /// Whether attention scores of layer n, counted from 1, are divided by n.
    #[serde(default)]
    pub scale_by_layer: bool,
    /// Frequency scaling of rotary embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Token that begins a text in other libraries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<u32>,
    /// Tokens that end a text, beside the tokenizer's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eos: Vec<u32>,
}

fn yes() -> bool {
    true
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
            hidden: width.saturating_mul(4),
            norm: NormKind::Layer,
            position: PositionKind::Learned,
            mlp: MlpKind::Gelu,
            bias: true,
            tied: true,
            dropout: 0.0,
            eps: 1e-5,
            head_width: None,
            attention_bias: None,
            scale_by_head: true,
            scale_by_layer: false,
            rope_scaling: None,
            bos: None,
            eos: vec![],
        }
    }

    /// A Llama of these sizes, with half as many heads of keys as of queries where that divides.
    pub fn llama(vocabulary: usize, context: usize, layers: usize, heads: usize, width: usize) -> GptConfig {
        GptConfig {
            kv_heads: if heads.is_multiple_of(2) { heads / 2 } else { heads },
            hidden: (width.saturating_mul(8) / 3).next_multiple_of(32),
            norm: NormKind::Rms,
            position: PositionKind::Rope(10_000.0),
            mlp: MlpKind::Swiglu,
            bias: false,
            tied: false,
            ..GptConfig::gpt2(vocabulary, context, layers, heads, width)
        }
    }

    /// The model of a name: `tiny`, `small`, `medium`, `gpt2-124m` and so on, or with `llama-` in front of the first three.
    #[track_caller]
    pub fn named(name: &str, vocabulary: usize) -> Result<GptConfig> {
        located(|| {
            let (of, size) = match name.strip_prefix("llama-") {
                Some(size) => (GptConfig::llama as fn(usize, usize, usize, usize, usize) -> GptConfig, size),
                None => (GptConfig::gpt2 as fn(usize, usize, usize, usize, usize) -> GptConfig, name),
            };
            match SIZES.iter().find(|(known, _)| *known == size) {
                Some((_, [layers, heads, width, context])) => Ok(of(vocabulary, *context, *layers, *heads, *width)),
                None => {
                    let names: Vec<&str> = SIZES.iter().map(|(name, _)| *name).collect();
                    Err(Error::config(format!("there is no model '{name}'; there are {}", names.join(", "))))
                }
            }
        })
    }

    /// Width of a head.
    pub fn head_width(&self) -> usize {
        self.head_width.unwrap_or(self.width / self.heads.max(1))
    }

    /// Width of all heads of queries together.
    pub fn heads_width(&self) -> usize {
        self.heads.saturating_mul(self.head_width())
    }

    /// Whether the projections of attention have biases.
    pub fn attention_bias(&self) -> bool {
        self.attention_bias.unwrap_or(self.bias)
    }

    /// Refuses what cannot be.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        located(|| {
            let sizes = [
                ("vocabulary", self.vocabulary),
                ("context", self.context),
                ("layers", self.layers),
                ("heads", self.heads),
                ("kv_heads", self.kv_heads),
                ("width", self.width),
                ("hidden", self.hidden),
                ("head_width", self.head_width.unwrap_or(1)),
            ];
            let refuse = |what: String| Err(Error::config(what));
            for (name, size) in sizes {
                if size == 0 || size > i32::MAX as usize {
                    return refuse(format!("model.{name} is {size}; it must be from 1 to {}", i32::MAX));
                }
            }
            if self.layers > MAX_LAYERS {
                return refuse(format!("model.layers is {}; at most {MAX_LAYERS} are supported", self.layers));
            }
            if self.head_width.is_none() && !self.width.is_multiple_of(self.heads) {
                return refuse(format!("model.width {} is not a multiple of model.heads {}", self.width, self.heads));
            }
            if !self.heads.is_multiple_of(self.kv_heads) {
                return refuse(format!(
                    "model.heads {} is not a multiple of model.kv_heads {}",
                    self.heads, self.kv_heads
                ));
            }
            if let PositionKind::Rope(base) = self.position {
                if !(base > 1.0 && base.is_finite()) {
                    return refuse(format!("the base of the angles is {base}; it must be above 1"));
                }
                if !self.head_width().is_multiple_of(2) {
                    return refuse(format!(
                        "model.head_width is {}; rotary embeddings need an even width",
                        self.head_width()
                    ));
                }
            }
            if let Some(scaling) = &self.rope_scaling {
                if !matches!(self.position, PositionKind::Rope(_)) {
                    return refuse("RoPE scaling needs model.position=rope".into());
                }
                scaling.check()?;
            }
            if !(0.0..1.0).contains(&self.dropout) {
                return refuse(format!("model.dropout is {}; it must be from 0 to below 1", self.dropout));
            }
            if !(self.eps > 0.0 && self.eps.is_finite()) {
                return refuse(format!("model.eps is {}; it must be above 0", self.eps));
            }
            Ok(())
        })
    }
}
