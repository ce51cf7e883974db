//! Self-attention of a block: over all tokens of a batch, or over a cache of those before.

use bornite::{DType, Tensor, Var, var::Update};

use super::config::{GptConfig, PositionKind, RopeScaling};
use crate::layers::Linear;
use crate::parameters::{Context, Init, Scope};

/// Attention of some heads, each over the tokens up to its own.
#[derive(Clone, Debug)]
pub struct Attention {
    qkv: Linear,
    out: Linear,
    heads: usize,
    kv_heads: usize,
    width: usize,
    /// Factor of the scores before the softmax.
    scale: f64,
    position: PositionKind,
    rope_scaling: Option<RopeScaling>,
    dropout: f64,
}

/// Keys and values of the tokens so far, of one block: `[batch, heads of keys, context, width of a head]`.
#[derive(Clone)]
pub struct Cache {
    /// Keys.
    pub keys: Var,
    /// Values.
    pub values: Var,
}

impl Attention {
    /// Declares the projection to queries, keys and values, and the output projection, of layer `layer`, counted from 0.
    pub fn new(scope: &mut Scope<'_>, config: &GptConfig, layer: usize, out: Init) -> Attention {
        let (head, width, bias) = (config.head_width(), config.width, config.attention_bias());
        let columns = (config.heads + 2 * config.kv_heads) * head;
        let by_head = if config.scale_by_head { 1.0 / (head as f64).sqrt() } else { 1.0 };
        Attention {
            qkv: Linear::new(&mut scope.scope("qkv"), width, columns, Init::Normal(0.02), bias),
            out: Linear::new(&mut scope.scope("out"), config.heads_width(), width, out, bias),
            heads: config.heads,
            kv_heads: config.kv_heads,
            width: head,
            scale: if config.scale_by_layer { by_head / (layer + 1) as f64 } else { by_head },
            position: config.position,
            rope_scaling: config.rope_scaling,
            dropout: config.dropout,
        }
    }

    /// Queries, keys and values of `[batch, tokens, …]`, each `[batch, heads, tokens, width]`; `places` are the tokens'.
    fn split(&self, context: &Context, x: &Tensor, places: &Tensor) -> [Tensor; 3] {
        let [batch, tokens] = match x.shape() {
            Ok(&[batch, tokens, _]) => [batch, tokens],
            _ => return [(); 3].map(|()| x.clone()),
        };
        let all = self.qkv.forward(context, x).reshape(&[batch, tokens, self.heads + 2 * self.kv_heads, self.width]);
        let mut parts = all.split_sizes(&[self.heads, self.kv_heads, self.kv_heads], 2).into_iter();
        let [q, k, v] = [(); 3].map(|()| parts.next().unwrap_or_else(|| x.clone()).permute(&[0, 2, 1, 3]));
        match self.position {
            PositionKind::Learned => [q, k, v],
            PositionKind::Rope(base) => {
                let turn = |x: &Tensor| turned(x, places, base, self.rope_scaling.as_ref());
                [turn(&q), turn(&k), v]
            }
        }
    }

    /// Each head of keys or values as often as heads of queries share it.
    fn shared(&self, x: &Tensor) -> Tensor {
        let group = self.heads / self.kv_heads;
        match x.shape() {
            Ok(&[batch, heads, tokens, width]) if group > 1 => {
                let each = x.reshape(&[batch, heads, 1, tokens, width]);
                each.expand(&[batch, heads, group, tokens, width]).reshape(&[batch, heads * group, tokens, width])
            }
            _ => x.clone(),
        }
    }

    /// What comes of heads, as rows again.
    fn merged(&self, context: &Context, heads: &Tensor) -> Tensor {
        let Ok(&[batch, _, tokens, _]) = heads.shape() else { return heads.clone() };
        let rows = heads.permute(&[0, 2, 1, 3]).reshape(&[batch, tokens, self.heads * self.width]);
        context.dropout(&self.out.forward(context, &rows), self.dropout)
    }

    /// Over all tokens of a batch.
    pub fn forward(&self, context: &Context, x: &Tensor, places: &Tensor) -> Tensor {
        let [q, k, v] = self.split(context, x, places);
        let seen = Tensor::attention(&q, &self.shared(&k), &self.shared(&v), Some(self.scale), true, None);
        self.merged(context, &seen)
    }

    /// Over the tokens of a cache and these, which come at `position` (an i64 without axes) and after; also what the
    /// cache is then.
    pub fn forward_cached(
        &self,
        context: &Context,
        x: &Tensor,
        position: &Tensor,
        cache: &Cache,
    ) -> (Tensor, Vec<Update>) {
        let (Ok(&[_, tokens, _]), Ok(device)) = (x.shape(), x.device()) else { return (x.clone(), vec![]) };
        let within = Tensor::arange(tokens, DType::I64, device);
        let [q, k, v] = self.split(context, x, &(&within + position));
        let (keys, values) = (written(&cache.keys.get(), &k, position), written(&cache.values.get(), &v, position));
        // A token sees itself and what is before.
        let bound = keys.shape().map_or(0, |shape| shape[2]);
        let places = Tensor::arange(bound, DType::I64, device).reshape(&[1, bound]);
        let mask = places.le((&within + position).reshape(&[tokens, 1]));
        let (k, v) = (self.shared(&keys), self.shared(&values));
        let seen = Tensor::attention(&q, &k, &v, Some(self.scale), false, Some(&mask));
        (self.merged(context, &seen), vec![cache.keys.set(keys), cache.values.set(values)])
    }
}

/// A cache with new rows at a position and after; those that would be past its end are left out.
fn written(cache: &Tensor, new: &Tensor, position: &Tensor) -> Tensor {
    let (Ok(&[_, _, bound, _]), Ok(&[_, _, tokens, _]), Ok(device)) = (cache.shape(), new.shape(), cache.device())
    else {
        return cache.clone();
    };
    let places = Tensor::arange(bound, DType::I64, device) - position;
    let inside = places.ge(0).and(places.lt(tokens as i64)).reshape(&[1, 1, bound, 1]);
    let row = if tokens == 1 { new.clone() } else { new.index_select(2, &places.clamp(0i64, tokens as i64 - 1)) };
    inside.select(&row, cache)
}

/// Pairs of numbers (i, i + half) turned by angles place · base^(-2 i / width), with frequencies scaled if asked to.
fn turned(x: &Tensor, places: &Tensor, base: f64, scaling: Option<&RopeScaling>) -> Tensor {
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
    let angles = places.cast(DType::F32).reshape(&[tokens, 1]) * frequencies.reshape(&[1, half]);
    let (sin, cos) = (angles.sin(), angles.cos());
    let wide = x.cast(DType::F32);
    let (a, b) = (wide.slice(-1, 0..half as isize), wide.slice(-1, half as isize..));
    Tensor::concat(&[&(&a * &cos - &b * &sin), &(&b * &cos + &a * &sin)], -1).cast(dtype)
}
