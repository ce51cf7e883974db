//! Architecture of a GPT.

use serde::{Deserialize, Serialize};

use crate::error::located;
use crate::{Error, Result};

/// Kind of normalization.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// LayerNorm, as in GPT-2.
    Layer,
    /// RMSNorm, as in Llama.
    Rms,
}

/// Position encoding.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PositionKind {
    /// Learned position embeddings, as in GPT-2.
    Learned,
    /// Rotary embeddings (RoPE) with this base, as in Llama.
    Rope(f64),
}

/// Kind of MLP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MlpKind {
    /// Two layers with GELU (tanh approximation), as in GPT-2.
    Gelu,
    /// Two layers with exact GELU.
    GeluErf,
    /// SwiGLU, as in Llama.
    Swiglu,
}

/// Frequency scaling of rotary embeddings, as in Llama 3: high frequencies are unchanged, low ones
/// are divided by `factor`, and those between are interpolated.
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
    /// Returns the factor of `frequency`, in radians per token.
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

/// Maximum number of layers: each takes a few kilobytes even before its weights are allocated.
const MAX_LAYERS: usize = 10_000;

/// Architecture of a GPT. Aliases are the names of earlier releases.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GptConfig {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Context length in tokens.
    pub context: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Number of key/value heads; fewer than `heads` is grouped-query attention.
    pub kv_heads: usize,
    /// Embedding size.
    pub width: usize,
    /// Hidden size of the MLP.
    #[serde(alias = "hidden")]
    pub mlp_hidden: usize,
    /// Normalization.
    pub norm: NormKind,
    /// Position encoding.
    pub position: PositionKind,
    /// MLP.
    pub mlp: MlpKind,
    /// Adds biases to linear layers.
    pub bias: bool,
    /// Shares the token embedding with the output head.
    #[serde(alias = "tied")]
    pub tied_embeddings: bool,
    /// Dropout probability.
    pub dropout: f64,
    /// Epsilon of the norms.
    pub eps: f64,
    /// Size of an attention head; `None` for `width / heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// Adds biases to the projections of attention; `None` for `bias`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_bias: Option<bool>,
    /// Divides attention scores by the square root of the head size.
    #[serde(default = "default_true", alias = "scale_by_head")]
    pub scale_attention: bool,
    /// Divides the attention scores of layer n, counted from 1, by n.
    #[serde(default, alias = "scale_by_layer")]
    pub scale_attention_by_layer: bool,
    /// Frequency scaling of rotary embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Begin-of-text token of an imported model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<u32>,
    /// End-of-text tokens, in addition to the tokenizer's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eos: Vec<u32>,
}

fn default_true() -> bool {
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
    /// Returns a GPT-2 of these sizes.
    pub fn gpt2(vocabulary: usize, context: usize, layers: usize, heads: usize, width: usize) -> GptConfig {
        GptConfig {
            vocabulary,
            context,
            layers,
            heads,
            kv_heads: heads,
            width,
            mlp_hidden: width.saturating_mul(4),
            norm: NormKind::Layer,
            position: PositionKind::Learned,
            mlp: MlpKind::Gelu,
            bias: true,
            tied_embeddings: true,
            dropout: 0.0,
            eps: 1e-5,
            head_width: None,
            attention_bias: None,
            scale_attention: true,
            scale_attention_by_layer: false,
            rope_scaling: None,
            bos: None,
            eos: vec![],
        }
    }

    /// Returns a Llama of these sizes, with half as many key/value heads as heads if the number of
    /// heads is even.
    pub fn llama(vocabulary: usize, context: usize, layers: usize, heads: usize, width: usize) -> GptConfig {
        GptConfig {
            kv_heads: if heads.is_multiple_of(2) { heads / 2 } else { heads },
            mlp_hidden: (width.saturating_mul(8) / 3).next_multiple_of(32),
            norm: NormKind::Rms,
            position: PositionKind::Rope(10_000.0),
            mlp: MlpKind::Swiglu,
            bias: false,
            tied_embeddings: false,
            ..GptConfig::gpt2(vocabulary, context, layers, heads, width)
        }
    }

    /// Returns a named model: `tiny`, `small`, `medium`, `gpt2-124m` and so on; the first three
    /// also with the prefix `llama-`; and `llama-1b`, the sizes of Llama 3.2 1B.
    #[track_caller]
    pub fn named(name: &str, vocabulary: usize) -> Result<GptConfig> {
        located(|| {
            if name == "llama-1b" {
                return Ok(GptConfig {
                    kv_heads: 8,
                    mlp_hidden: 8192,
                    position: PositionKind::Rope(500_000.0),
                    tied_embeddings: true,
                    ..GptConfig::llama(vocabulary, 2048, 16, 32, 2048)
                });
            }
            let (build, size) = match name.strip_prefix("llama-") {
                Some(size) => (GptConfig::llama as fn(usize, usize, usize, usize, usize) -> GptConfig, size),
                None => (GptConfig::gpt2 as fn(usize, usize, usize, usize, usize) -> GptConfig, name),
            };
            match SIZES.iter().find(|(known, _)| *known == size) {
                Some((_, [layers, heads, width, context])) => Ok(build(vocabulary, *context, *layers, *heads, *width)),
                None => {
                    let names: Vec<&str> = SIZES.iter().map(|(name, _)| *name).chain(["llama-1b"]).collect();
                    Err(Error::config(format!("there is no model '{name}'; available are {}", names.join(", "))))
                }
            }
        })
    }

    /// Returns the size of an attention head.
    pub fn head_width(&self) -> usize {
        self.head_width.unwrap_or(self.width / self.heads.max(1))
    }

    /// Returns the total size of all query heads.
    pub fn heads_width(&self) -> usize {
        self.heads.saturating_mul(self.head_width())
    }

    /// Returns true if the projections of attention have biases.
    pub fn attention_bias(&self) -> bool {
        self.attention_bias.unwrap_or(self.bias)
    }

    /// Validates the sizes.
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
                ("mlp_hidden", self.mlp_hidden),
                ("head_width", self.head_width.unwrap_or(1)),
            ];
            let invalid = |message: String| Err(Error::config(message));
            for (name, size) in sizes {
                if size == 0 || size > i32::MAX as usize {
                    return invalid(format!("model.{name} is {size}; it must be from 1 to {}", i32::MAX));
                }
            }
            if self.layers > MAX_LAYERS {
                return invalid(format!("model.layers is {}; at most {MAX_LAYERS} are supported", self.layers));
            }
            if self.head_width.is_none() && !self.width.is_multiple_of(self.heads) {
                return invalid(format!("model.width {} is not a multiple of model.heads {}", self.width, self.heads));
            }
            if !self.heads.is_multiple_of(self.kv_heads) {
                return invalid(format!(
                    "model.heads {} is not a multiple of model.kv_heads {}",
                    self.heads, self.kv_heads
                ));
            }
            if let PositionKind::Rope(base) = self.position {
                if !(base > 1.0 && base.is_finite()) {
                    return invalid(format!("model.rope_base is {base}; it must be above 1"));
                }
                if !self.head_width().is_multiple_of(2) {
                    return invalid(format!(
                        "model.head_width is {}; rotary embeddings need an even width",
                        self.head_width()
                    ));
                }
            }
            if let Some(scaling) = &self.rope_scaling {
                if !matches!(self.position, PositionKind::Rope(_)) {
                    return invalid("RoPE scaling needs model.position=rope".into());
                }
                scaling.check()?;
            }
            if !(0.0..1.0).contains(&self.dropout) {
                return invalid(format!("model.dropout is {}; it must be from 0 to below 1", self.dropout));
            }
            if !(self.eps > 0.0 && self.eps.is_finite()) {
                return invalid(format!("model.eps is {}; it must be above 0", self.eps));
            }
            Ok(())
        })
    }
}
