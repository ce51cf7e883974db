//! Transformer blocks.

use bornite::{Tensor, error::SourceLocation, ops::Activation};

use super::{LayerNorm, Linear, MultiHeadAttention};
use crate::module::{Forward, Module, Visitor};
use crate::parameters::{Params, dropout};

/// Pre-norm transformer block: self-attention and a two-layer MLP, each with a norm before it and a
/// residual connection.
///
/// Input and output `[batch, tokens, width]`. The MLP has a hidden width of 4 · `width` and GELU.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::TransformerBlock};
/// # fn main() -> bornite_nn::Result<()> {
/// let block = TransformerBlock::new(&Params::new(Device::cpu(), 0), 8, 2).causal(true).dropout(0.1);
/// let x = Tensor::ones(&[1, 5, 8], DType::F32, Device::cpu());
/// assert_eq!(block.forward(&x).shape()?, [1, 5, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TransformerBlock {
    norm1: LayerNorm,
    attention: MultiHeadAttention,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    activation: Activation,
    dropout: f64,
}

impl TransformerBlock {
    /// Declares the layers.
    #[track_caller]
    pub fn new(params: &Params, width: usize, heads: usize) -> TransformerBlock {
        TransformerBlock::with_hidden(params, width, heads, 4 * width)
    }

    /// As [`TransformerBlock::new`], with another hidden width of the MLP.
    #[track_caller]
    pub fn with_hidden(params: &Params, width: usize, heads: usize, hidden: usize) -> TransformerBlock {
        TransformerBlock {
            norm1: LayerNorm::new(&params.at("norm1"), width),
            attention: MultiHeadAttention::new(&params.at("attention"), width, heads),
            norm2: LayerNorm::new(&params.at("norm2"), width),
            up: Linear::new(&params.at("up"), width, hidden),
            down: Linear::new(&params.at("down"), hidden, width),
            activation: Activation::Gelu,
            dropout: 0.0,
        }
    }

    /// If set, a token attends to itself and the tokens before it only.
    pub fn causal(mut self, causal: bool) -> TransformerBlock {
        self.attention = self.attention.causal(causal);
        self
    }

    /// Sets the probability of dropout after the attention and after the MLP.
    pub fn dropout(mut self, p: f64) -> TransformerBlock {
        self.attention = self.attention.dropout(p);
        TransformerBlock { dropout: p, ..self }
    }

    /// Sets the activation of the MLP.
    pub fn activation(self, activation: Activation) -> TransformerBlock {
        TransformerBlock { activation, ..self }
    }
}

impl Module for TransformerBlock {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("norm1", &self.norm1);
        visitor.child("attention", &self.attention);
        visitor.child("norm2", &self.norm2);
        visitor.child("up", &self.up);
        visitor.child("down", &self.down);
    }
}

impl Forward for TransformerBlock {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        SourceLocation::here().in_scope(|| {
            let x = x + self.attention.forward(&self.norm1.forward(x));
            let hidden = self.up.forward(&self.norm2.forward(&x)).activation(self.activation);
            &x + dropout(&self.down.forward(&hidden), self.dropout)
        })
    }
}
