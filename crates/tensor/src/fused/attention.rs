//! Attention: softmax(scale · q kᵀ) v.
//!
//! On a CPU some queries at a time, so that their scores stay in a cache: products by gemm, rows by `attention/scores.rs`. The
//! gradient computes the scores again, from the logarithm of each row's sum. On a GPU, for 16-bit floats, by kernels written
//! by hand (`attention/attention.cu`), in the same way.

mod cuda;
mod operands;
mod scores;

use std::cell::RefCell;

use bornite_codegen::cpu::pool;

use self::operands::{BackwardInputs, BackwardOutputs, ForwardInputs, ForwardOutputs};
use self::scores::{Rows, multiply, powers, slopes};
use crate::fused::simd::{each, supports_simd};
use crate::fused::{FusedOp, Implementation, InputInfo};
use crate::graph::node::Op;
use crate::matmul::gemm::{Flat, multiply_one};
use crate::{DType, Device, MatmulMode, Tensor};

/// Queries that are looked at together.
const TOGETHER: usize = 64;

/// softmax(scale · q kᵀ) v, perhaps with a mask; and for its gradient the logarithm of each row's Σ exp.
pub(crate) struct Attention {
    pub scale: f64,
    pub causal: bool,
    /// Whether the result is `[batch, queries, heads, width]`: as the product behind attention reads it, so that kernels write it
    /// so, where they can.
    pub turned: bool,
}

impl FusedOp for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [q, k, v, mask @ ..] = inputs else { return vec![] };
        let ([.., queries, _], [.., keys, _]) = (&q.0.shape[..], &k.0.shape[..]) else { return vec![] };
        let mut scores = (q * self.scale).matmul(&k.t()).widen().0;
        if self.causal {
            let [i, j] =
                [0, 1].map(|axis| Tensor::iota(&[*queries, *keys], axis, DType::I64, q.0.device, q.0.location));
            scores = j.le(i + (keys - queries) as i64).select(&scores, f64::NEG_INFINITY);
        }
        if let Some(mask) = mask.first() {
            scores = match mask.node() {
                Ok(node) if node.dtype == DType::Bool => mask.select(&scores, f64::NEG_INFINITY),
                _ => scores + mask,
            };
        }
        // Divided after the product, and by a sum that is a product too: rows of equal values come out as they are.
        let powers = scores.minus_max(-1).exp().cast(v.0.dtype);
        let ones = Tensor::ones(&[*keys, 1], v.0.dtype, v.0.device);
        let seen = powers.matmul(v) / powers.matmul(&ones);
        vec![if self.turned { heads_turned(&seen) } else { seen }, scores.logsumexp(-1)]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        if let Some(source) = cuda::forward(self, device, inputs) {
            return Some(Implementation::handwritten(source));
        }
        let heads = self.heads(device, inputs)?;
        Some(Implementation::infallible(move |inputs, outputs| {
            heads.forward(ForwardInputs::slices(inputs)?, ForwardOutputs::slices(outputs)?, pool::threads());
            Ok(())
        }))
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        if let Some(source) = cuda::backward(self, device, inputs) {
            return Some(Implementation::handwritten(source));
        }
        let BackwardInputs { query, key, value, output, output_gradient, .. } = BackwardInputs::from_list(inputs)?;
        if output.shape != output_gradient.shape || !supports_simd(device, inputs) {
            return None;
        }
        let heads = self.heads(device, &[*query, *key, *value])?;
        Some(Implementation::infallible(move |inputs, outputs| {
            heads.backward(BackwardInputs::slices(inputs)?, BackwardOutputs::slices(outputs)?, pool::threads());
            Ok(())
        }))
    }

    fn backward_name(&self) -> &'static str {
        "attention_backward"
    }
}

/// `[batch, heads, tokens, width]` to `[batch, tokens, heads, width]`, or back.
pub(crate) fn heads_turned(x: &Tensor) -> Tensor {
    Tensor::build(Op::Permute(vec![0, 2, 1, 3]), vec![x.clone()], x.0.location)
}

impl Attention {
    /// What the routines take, if the inputs are that: three of f32 with the same leading axes, none empty.
    fn heads(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Heads> {
        let [q, k, v] = inputs else { return None };
        let ([lead @ .., queries, width], [other @ .., keys, _], [third @ .., _, values]) = (q.shape, k.shape, v.shape)
        else {
            return None;
        };
        // Asked for exact products, nobody gets the library's.
        let library = MatmulMode::current().is_ok_and(|mode| mode != MatmulMode::Exact);
        let fits = library && !self.turned && lead == other && lead == third && supports_simd(device, inputs);
        let full = inputs.iter().all(|given| !given.shape.contains(&0));
        let (causal, scale) = (self.causal, self.scale as f32);
        (fits && full).then_some(Heads {
            queries: *queries,
            keys: *keys,
            width: *width,
            values: *values,
            causal,
            scale,
        })
    }
}

/// The sizes of one head. There are as many heads as inputs have room for.
#[derive(Clone, Copy)]
struct Heads {
    queries: usize,
    keys: usize,
    width: usize,
    values: usize,
    causal: bool,
    scale: f32,
}

thread_local! {
    static SCORES: RefCell<Vec<f32>> = const { RefCell::new(vec![]) };
}

/// Lends memory for so many numbers, whatever they are.
fn scratch<R>(count: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    SCORES.with_borrow_mut(|scores| {
        if scores.len() < count {
            scores.resize(count, 0.0);
        }
        work(&mut scores[..count])
    })
}

impl Heads {
    /// How many keys the queries from `first` on see: the first of them, and the last of `count`.
    fn seen(&self, first: usize, count: usize) -> (usize, usize) {
        match self.causal {
            true => (first + 1 + self.keys - self.queries, first + count + self.keys - self.queries),
            false => (self.keys, self.keys),
        }
    }

    fn rows<'a>(&self, scores: &'a mut [f32], first: usize, columns: usize) -> Rows<'a> {
        Rows { scores, columns, seen: self.seen(first, 1).0, causal: self.causal, scale: self.scale }
    }

    fn forward(&self, inputs: ForwardInputs<&[f32]>, outputs: ForwardOutputs<&mut [f32]>, threads: usize) {
        let Heads { queries, keys, width, values, .. } = *self;
        let ForwardInputs { query: q, key: k, value: v } = inputs;
        let ForwardOutputs { output: out, log_sum_exp: logs } = outputs;
        let parts = out.chunks_mut(queries * values).zip(logs.chunks_mut(queries)).enumerate();
        let parts = parts.flat_map(|(head, (out, logs))| {
            let parts = out.chunks_mut(TOGETHER * values).zip(logs.chunks_mut(TOGETHER)).enumerate();
            parts.map(move |(n, (out, logs))| (head, n * TOGETHER, out, logs))
        });
        each(parts, threads, |(head, first, out, logs)| {
            let (count, (_, seen)) = (logs.len(), self.seen(first, logs.len()));
            let q = Flat::rows(&q[(head * queries + first) * width..], width);
            let k = Flat::rows(&k[head * keys * width..], width);
            let v = Flat::rows(&v[head * keys * values..], values);
            scratch(count * seen + count, |scratch| {
                let (scores, factors) = scratch.split_at_mut(count * seen);
                multiply_one(scores, [count, seen, width], q, k.turned(), false);
                powers(self.rows(scores, first, seen), logs, factors);
                multiply_one(out, [count, values, seen], Flat::rows(scores, seen), v, false);
                out.chunks_mut(values).zip(factors).for_each(|(row, factor)| multiply(row, *factor));
            });
        });
    }

    fn backward(&self, inputs: BackwardInputs<&[f32]>, outputs: BackwardOutputs<&mut [f32]>, threads: usize) {
        let Heads { queries, keys, width, values, .. } = *self;
        let BackwardInputs { query: q, key: k, value: v, output: out, log_sum_exp: logs, output_gradient: by_out } =
            inputs;
        let BackwardOutputs { query: dq, key: dk, value: dv } = outputs;
        let heads = dq.chunks_mut(queries * width).zip(dk.chunks_mut(keys * width)).zip(dv.chunks_mut(keys * values));
        each(heads.enumerate(), threads, |(head, ((dq, dk), dv))| {
            dk.fill(0.0);
            dv.fill(0.0);
            let (k, v) = (&k[head * keys * width..], &v[head * keys * values..]);
            let (k, v) = (Flat::rows(k, width), Flat::rows(v, values));
            // One after the other: all of them add to the slopes of keys and values.
            for first in (0..queries).step_by(TOGETHER) {
                let count = TOGETHER.min(queries - first);
                let ((_, seen), row) = (self.seen(first, count), head * queries + first);
                let q = Flat::rows(&q[row * width..], width);
                let (out, by_out) = (&out[row * values..][..count * values], &by_out[row * values..][..count * values]);
                let above = Flat::rows(by_out, values);
                scratch(2 * count * seen, |scratch| {
                    let (scores, by) = scratch.split_at_mut(count * seen);
                    multiply_one(scores, [count, seen, width], q, k.turned(), false);
                    multiply_one(by, [count, seen, values], above, v.turned(), false);
                    slopes(self.rows(scores, first, seen), by, &logs[row..][..count], out, by_out);
                    let (scores, by) = (Flat::rows(scores, seen), Flat::rows(by, seen));
                    multiply_one(dv, [seen, values, count], scores.turned(), above, true);
                    multiply_one(dk, [seen, width, count], by.turned(), q, true);
                    multiply_one(&mut dq[first * width..], [count, width, seen], by, k, false);
                });
            }
        });
    }
}
