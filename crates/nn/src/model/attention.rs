//! Causal self-attention of a block, over all tokens of a batch or with a key/value cache.

use bornite::{DType, Tensor, Var, var::Update};

use super::config::{GptConfig, PositionKind, RopeScaling};
use crate::layers::{Linear, merge_heads, split_heads};
use crate::parameters::{Init, Params, dropout};
use crate::{Forward, Module};

/// Multi-head causal self-attention.
#[derive(Clone, Module, Debug)]
pub struct Attention {
    qkv: Linear,
    out: Linear,
    heads: usize,
    kv_heads: usize,
    head_width: usize,
    /// Factor of the scores before the softmax.
    scale: f64,
    #[module(skip)]
    position: PositionKind,
    #[module(skip)]
    rope_scaling: Option<RopeScaling>,
    dropout: f64,
}

/// Key/value cache of one block: `[batch, kv_heads, context, head_width]` each.
#[derive(Clone)]
pub struct KvCache {
    /// Keys.
    pub keys: Var,
    /// Values.
    pub values: Var,
}

impl Attention {
    /// Declares the projection to queries, keys and values, and the output projection, of layer
    /// `layer`, counted from 0.
    pub fn new(params: &Params, config: &GptConfig, layer: usize, out: Init) -> Attention {
        let (head, width, bias) = (config.head_width(), config.width, config.attention_bias());
        let columns = (config.heads + 2 * config.kv_heads) * head;
        let head_scale = if config.scale_attention { 1.0 / (head as f64).sqrt() } else { 1.0 };
        Attention {
            qkv: Linear::new(&params.at("qkv"), width, columns).init(Init::Normal(0.02)).bias(bias),
            out: Linear::new(&params.at("out"), config.heads_width(), width).init(out).bias(bias),
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_width: head,
            scale: if config.scale_attention_by_layer { head_scale / (layer + 1) as f64 } else { head_scale },
            position: config.position,
            rope_scaling: config.rope_scaling,
            dropout: config.dropout,
        }
    }

    /// The projection to queries, keys and values.
    pub(super) fn qkv(&self) -> &Linear {
        &self.qkv
    }

    /// Splits projected tokens into queries, keys and values of `[batch, heads, tokens,
    /// head_width]`, with rotary embeddings applied at `positions`.
    fn split(&self, qkv: &Tensor, positions: &Tensor) -> [Tensor; 3] {
        let heads = [self.heads, self.kv_heads, self.kv_heads];
        let parts = split_heads(qkv, &heads, self.head_width);
        let Ok([q, k, v]) = <[Tensor; 3]>::try_from(parts) else { return [(); 3].map(|()| qkv.clone()) };
        match self.position {
            PositionKind::Learned => [q, k, v],
            PositionKind::Rope(base) => {
                let rope = |x: &Tensor| apply_rope(x, positions, base, self.rope_scaling.as_ref());
                [rope(&q), rope(&k), v]
            }
        }
    }

    /// Concatenates the heads and applies the output projection.
    fn output(&self, heads: &Tensor) -> Tensor {
        dropout(&self.out.forward(&merge_heads(heads)), self.dropout)
    }

    /// Attends over all tokens of a batch; `positions` are those of the tokens.
    pub fn forward(&self, x: &Tensor, positions: &Tensor) -> Tensor {
        self.attend(&self.qkv.forward(x), positions)
    }

    /// Attends over all tokens of a batch, projected to queries, keys and values.
    pub(super) fn attend(&self, qkv: &Tensor, positions: &Tensor) -> Tensor {
        let [q, k, v] = self.split(qkv, positions);
        let attended = Tensor::attention(&q, &k, &v, Some(self.scale), true, None);
        self.output(&attended)
    }

    /// Attends over the cached tokens and the tokens of `x`, the first of which is at `position`,
    /// an i64 scalar. Also returns the updates of the cache.
    pub fn forward_cached(&self, x: &Tensor, position: &Tensor, cache: &KvCache) -> (Tensor, Vec<Update>) {
        let (Ok(&[_, tokens, _]), Ok(device)) = (x.shape(), x.device()) else { return (x.clone(), vec![]) };
        let offsets = Tensor::arange(tokens, DType::I64, device);
        let [q, k, v] = self.split(&self.qkv.forward(x), &(&offsets + position));
        let (keys, values) =
            (write_rows(&cache.keys.get(), &k, position), write_rows(&cache.values.get(), &v, position));
        // Causal mask.
        let bound = keys.shape().map_or(0, |shape| shape[2]);
        let cached = Tensor::arange(bound, DType::I64, device).reshape(&[1, bound]);
        let mask = cached.le((&offsets + position).reshape(&[tokens, 1]));
        let attended = Tensor::attention(&q, &keys, &values, Some(self.scale), false, Some(&mask));
        (self.output(&attended), vec![cache.keys.set(keys), cache.values.set(values)])
    }
}

/// Returns the cache with `new` rows written at `position`; rows past its end are dropped.
fn write_rows(cache: &Tensor, new: &Tensor, position: &Tensor) -> Tensor {
    let (Ok(&[_, _, bound, _]), Ok(&[_, _, tokens, _]), Ok(device)) = (cache.shape(), new.shape(), cache.device())
    else {
        return cache.clone();
    };
    let offsets = Tensor::arange(bound, DType::I64, device) - position;
    let inside = offsets.ge(0).and(offsets.lt(tokens as i64)).reshape(&[1, 1, bound, 1]);
    let row = if tokens == 1 { new.clone() } else { new.index_select(2, &offsets.clamp(0i64, tokens as i64 - 1)) };
    inside.select(&row, cache)
}

/// Rotary embedding: rotates the pairs (i, i + width / 2) by position · base^(-2 i / width), with
/// optional frequency scaling.
fn apply_rope(x: &Tensor, positions: &Tensor, base: f64, scaling: Option<&RopeScaling>) -> Tensor {
    let (Ok(&[.., tokens, width]), Ok(dtype), Ok(device)) = (x.shape(), x.dtype(), x.device()) else {
        return x.clone();
    };
    let half = width / 2;
    let step = -2.0 * base.ln() / width as f64;
    let mut frequencies = (Tensor::arange(half, DType::F32, device) * step).exp();
    if let Some(scaling) = scaling {
        let scales: Vec<f32> = (0..half).map(|n| scaling.scale((n as f64 * step).exp()) as f32).collect();
        frequencies *= Tensor::from_slice(&scales, &[half], device);
    }
    let angles = positions.cast(DType::F32).reshape(&[tokens, 1]) * frequencies.reshape(&[1, half]);
    let (sin, cos) = (angles.sin(), angles.cos());
    let x = x.cast(DType::F32);
    let (a, b) = (x.slice(-1, 0..half as isize), x.slice(-1, half as isize..));
    Tensor::concat(&[&(&a * &cos - &b * &sin), &(&b * &cos + &a * &sin)], -1).cast(dtype)
}
