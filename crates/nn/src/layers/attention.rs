//! Multi-head attention.

use bornite::{Tensor, error::SourceLocation};

use super::Linear;
use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters::{Params, dropout};

/// Multi-head self-attention.
///
/// Input and output `[batch, tokens, width]`. Parameters: `qkv`, a linear layer to queries, keys
/// and values, and `out`, the output projection. `width` is a multiple of the number of heads.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::MultiHeadAttention};
/// # fn main() -> bornite_nn::Result<()> {
/// let attention = MultiHeadAttention::new(&Params::new(Device::cpu(), 0), 8, 2).causal(true);
/// let x = Tensor::ones(&[1, 5, 8], DType::F32, Device::cpu());
/// assert_eq!(attention.forward(&x).shape()?, [1, 5, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    qkv: Linear,
    out: Linear,
    heads: usize,
    causal: bool,
    dropout: f64,
}

impl MultiHeadAttention {
    /// Declares the projections, for attention to all tokens.
    #[track_caller]
    pub fn new(params: &Params, width: usize, heads: usize) -> MultiHeadAttention {
        let qkv = Linear::new(&params.at("qkv"), width, 3 * width);
        MultiHeadAttention {
            qkv,
            out: Linear::new(&params.at("out"), width, width),
            heads,
            causal: false,
            dropout: 0.0,
        }
    }

    /// If set, a token attends to itself and the tokens before it only.
    pub fn causal(self, causal: bool) -> MultiHeadAttention {
        MultiHeadAttention { causal, ..self }
    }

    /// Sets the probability of dropout after the output projection.
    pub fn dropout(self, p: f64) -> MultiHeadAttention {
        MultiHeadAttention { dropout: p, ..self }
    }

    /// As `forward`, with a mask that broadcasts to `[batch, heads, tokens, tokens]`: bools that
    /// are true for tokens to attend to, or floats that are added to the scores.
    #[track_caller]
    pub fn forward_masked(&self, x: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let mut score_elements = 0;
        let y = SourceLocation::here().in_scope(|| {
            let Ok(shape) = x.shape() else { return x.clone() };
            let &[batch, tokens, width] = shape else {
                let what = format!("expected [batch, tokens, width], found {shape:?}");
                return Tensor::failed("attention", what);
            };
            if self.heads == 0 || width % self.heads != 0 {
                return Tensor::failed("attention", format!("width {width} is not a multiple of {} heads", self.heads));
            }
            score_elements = (batch * self.heads * tokens * tokens) as u64;
            let heads = split_heads(&self.qkv.forward(x), &[self.heads; 3], width / self.heads);
            let [q, k, v] = &heads[..] else { return x.clone() };
            let attended = Tensor::attention(q, k, v, None, self.causal, mask);
            dropout(&self.out.forward(&merge_heads(&attended)), self.dropout)
        });
        let head_width = x.shape().ok().and_then(<[usize]>::last).map_or(0, |width| width / self.heads.max(1));
        observed(self, "MultiHeadAttention", &y, |_| 4 * score_elements * head_width as u64)
    }
}

impl Module for MultiHeadAttention {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("qkv", &self.qkv);
        visitor.child("out", &self.out);
    }
}

impl Forward for MultiHeadAttention {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.forward_masked(x, None)
    }
}

/// Splits `[batch, tokens, all heads · head_width]` into tensors of `[batch, heads, tokens,
/// head_width]`, one per number of heads.
pub(crate) fn split_heads(x: &Tensor, heads: &[usize], head_width: usize) -> Vec<Tensor> {
    let Ok(&[batch, tokens, _]) = x.shape() else { return vec![x.clone(); heads.len()] };
    let all = x.reshape(&[batch, tokens, heads.iter().sum(), head_width]);
    all.split_sizes(heads, 2).iter().map(|part| part.permute(&[0, 2, 1, 3])).collect()
}

/// Concatenates heads: `[batch, tokens, heads · head_width]` from `[batch, heads, tokens,
/// head_width]`.
pub(crate) fn merge_heads(heads: &Tensor) -> Tensor {
    let Ok(&[batch, count, tokens, width]) = heads.shape() else { return heads.clone() };
    heads.permute(&[0, 2, 1, 3]).reshape(&[batch, tokens, count * width])
}
