//! Attention: softmax(scale · q kᵀ) v.
//!
//! The CPU routine processes blocks of queries whose scores fit in the cache: products by gemm,
//! rows by `attention/scores.rs`, masks by `attention/mask.rs`. The backward pass recomputes the
//! scores from each row's log-sum-exp. On a GPU, handwritten kernels (`attention/cuda.rs`) do the
//! same for 16-bit floats without a mask.

pub(crate) mod cuda;
mod mask;
mod operands;
mod scores;

use std::cell::RefCell;

use bornite_codegen::cpu::pool;

use self::mask::{MaskElements, MaskLayout};
use self::operands::{BackwardInputs, BackwardOutputs, ForwardInputs, ForwardOutputs};
use self::scores::{Rows, exp_rows, scale_row, softmax_backward_rows};
use crate::fused::simd::{parallel_for_each, supports_simd};
use crate::fused::{FusedOp, Implementation, InputInfo, enabled};
use crate::graph::node::Op;
use crate::matmul::gemm::{FlatMatrix, multiply_single_threaded};
use crate::{DType, Device, MatmulMode, Tensor};

/// Queries per block.
const QUERY_BLOCK: usize = 64;

/// softmax(scale · q kᵀ) v with an optional mask; each row's log-sum-exp is saved for the backward
/// pass.
pub(crate) struct Attention {
    pub scale: f64,
    pub causal: bool,
    /// If set, the output is `[batch, queries, heads, width]`, the layout that the next matrix
    /// product reads, so that GPU kernels write it directly.
    pub tokens_first: bool,
}

impl FusedOp for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let [q, k, v, mask @ ..] = inputs else { return vec![] };
        let ([.., queries, _], [.., keys, _]) = (&q.0.shape[..], &k.0.shape[..]) else { return vec![] };
        let [k, v] = &[k, v].map(|x| repeat_shared_heads(x, q));
        let mut scores = (q * self.scale).matmul(&k.t()).widen().0;
        if let Some(mask) = mask.first() {
            scores = match mask.node() {
                Ok(node) if node.dtype == DType::Bool => mask.select(&scores, f64::NEG_INFINITY),
                _ => scores + mask,
            };
        }
        // After the mask, whose elements for later keys do not count, whatever they are.
        if self.causal {
            let [i, j] =
                [0, 1].map(|axis| Tensor::iota(&[*queries, *keys], axis, DType::I64, q.0.device, q.0.location));
            scores = j.le(i + (keys - queries) as i64).select(&scores, f64::NEG_INFINITY);
        }
        // Normalized after the product, by a sum that is a product too, so that rows of equal
        // values are exact.
        let weights = scores.minus_max(-1).exp().cast(v.0.dtype);
        let ones = Tensor::ones(&[*keys, 1], v.0.dtype, v.0.device);
        let output = weights.matmul(v) / weights.matmul(&ones);
        vec![if self.tokens_first { swap_heads_and_tokens(&output) } else { output }, scores.logsumexp(-1)]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        if let Some(source) = cuda::forward(self, device, inputs) {
            return Some(Implementation::handwritten(source));
        }
        let heads = self.head_shape(device, inputs)?;
        Some(Implementation::infallible(move |inputs, outputs| {
            let (inputs, mask) = ForwardInputs::slices(inputs)?;
            heads.forward(inputs, mask, ForwardOutputs::slices(outputs)?, pool::num_threads());
            Ok(())
        }))
    }

    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        if let Some(source) = cuda::backward(self, device, inputs) {
            return Some(Implementation::handwritten(source));
        }
        let (BackwardInputs { query, key, value, output, output_gradient, .. }, mask) =
            BackwardInputs::with_mask(inputs)?;
        if output.shape != output_gradient.shape || !supports_simd(device, &[*output, *output_gradient]) {
            return None;
        }
        let inputs: Vec<InputInfo<'_>> = [query, key, value].into_iter().chain(mask).copied().collect();
        let heads = self.head_shape(device, &inputs)?;
        Some(Implementation::infallible(move |inputs, outputs| {
            let (inputs, mask) = BackwardInputs::slices(inputs)?;
            heads.backward(inputs, mask, BackwardOutputs::slices(outputs)?, pool::num_threads());
            Ok(())
        }))
    }

    /// The gradient of an added mask is as large as the scores; it comes from the decomposition,
    /// and only if it is read.
    fn has_backward(&self, input: usize) -> bool {
        input < 3
    }

    fn backward_name(&self) -> &'static str {
        "attention_backward"
    }
}

/// Repeats each head of keys or values `[batch, heads, tokens, width]` for the adjacent heads of
/// queries that share it, if they have fewer heads.
pub(crate) fn repeat_shared_heads(x: &Tensor, q: &Tensor) -> Tensor {
    let (&[batch, heads, tokens, width], &[_, all, _, _]) = (&x.0.shape[..], &q.0.shape[..]) else { return x.clone() };
    if heads <= 1 || all <= heads || !all.is_multiple_of(heads) {
        return x.clone();
    }
    let location = x.0.location;
    let op = |op: Op, x: Tensor| Tensor::build(op, vec![x], location);
    let each = op(Op::Reshape(vec![batch, heads, 1, tokens, width]), x.clone());
    let repeated = op(Op::Expand(vec![batch, heads, all / heads, tokens, width]), each);
    op(Op::Reshape(vec![batch, all, tokens, width]), repeated)
}

/// Permutes `[batch, heads, tokens, width]` to `[batch, tokens, heads, width]` or back.
pub(crate) fn swap_heads_and_tokens(x: &Tensor) -> Tensor {
    Tensor::build(Op::Permute(vec![0, 2, 1, 3]), vec![x.clone()], x.0.location)
}

impl Attention {
    /// True if an implementation reads heads of keys and values that several heads of queries share
    /// without repeating them.
    pub fn reads_shared_heads(&self, inputs: &[Tensor]) -> bool {
        let infos: Vec<InputInfo<'_>> =
            inputs.iter().map(|x| InputInfo { dtype: x.0.dtype, shape: &x.0.shape }).collect();
        inputs.first().is_some_and(|q| cuda::supports(self, q.0.device, &infos)) && enabled().unwrap_or(false)
    }

    /// The sizes of one head, if the CPU routines support these inputs: three f32 tensors with
    /// equal leading axes, none empty, and a mask that [`MaskLayout`] supports.
    fn head_shape(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<HeadShape> {
        let [q, k, v, mask @ ..] = inputs else { return None };
        let ([lead @ .., queries, width], [other @ .., keys, _], [third @ .., _, values]) = (q.shape, k.shape, v.shape)
        else {
            return None;
        };
        // In exact mode, library products are not allowed.
        let library = MatmulMode::current().is_ok_and(|mode| mode != MatmulMode::Exact);
        let supported =
            library && !self.tokens_first && lead == other && lead == third && supports_simd(device, &inputs[..3]);
        let mask = match mask {
            [] => None,
            [mask, ..] => Some(MaskLayout::new(*mask, lead, *queries, *keys)?),
        };
        let non_empty = inputs.iter().all(|input| !input.shape.contains(&0));
        let (causal, scale) = (self.causal, self.scale as f32);
        (supported && non_empty).then_some(HeadShape {
            queries: *queries,
            keys: *keys,
            width: *width,
            values: *values,
            causal,
            scale,
            mask,
        })
    }
}

/// Sizes of one head; the number of heads follows from the length of the inputs.
struct HeadShape {
    queries: usize,
    keys: usize,
    width: usize,
    values: usize,
    causal: bool,
    scale: f32,
    mask: Option<MaskLayout>,
}

thread_local! {
    static SCORES: RefCell<Vec<f32>> = const { RefCell::new(vec![]) };
}

/// Runs `work` with scratch memory of `count` elements with unspecified contents.
fn scratch<R>(count: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    SCORES.with_borrow_mut(|scores| {
        if scores.len() < count {
            scores.resize(count, 0.0);
        }
        work(&mut scores[..count])
    })
}

impl HeadShape {
    /// Numbers of keys that are visible to query `first`, and to the last of `count` queries from
    /// it.
    fn visible(&self, first: usize, count: usize) -> (usize, usize) {
        match self.causal {
            true => (first + 1 + self.keys - self.queries, first + count + self.keys - self.queries),
            false => (self.keys, self.keys),
        }
    }

    /// Scores of the queries of a head from `first` on.
    fn rows<'a>(
        &self,
        scores: &'a mut [f32],
        mask: Option<MaskElements<'a>>,
        head: usize,
        first: usize,
        columns: usize,
    ) -> Rows<'a> {
        let mask = self.mask.as_ref().zip(mask).map(|(layout, elements)| layout.rows(elements, head, first));
        Rows { scores, columns, visible: self.visible(first, 1).0, causal: self.causal, scale: self.scale, mask }
    }

    fn forward(
        &self,
        inputs: ForwardInputs<&[f32]>,
        mask: Option<MaskElements<'_>>,
        outputs: ForwardOutputs<&mut [f32]>,
        threads: usize,
    ) {
        let HeadShape { queries, keys, width, values, .. } = *self;
        let ForwardInputs { query: q, key: k, value: v } = inputs;
        let ForwardOutputs { output: out, log_sum_exp: logs } = outputs;
        let parts = out.chunks_mut(queries * values).zip(logs.chunks_mut(queries)).enumerate();
        let parts = parts.flat_map(|(head, (out, logs))| {
            let parts = out.chunks_mut(QUERY_BLOCK * values).zip(logs.chunks_mut(QUERY_BLOCK)).enumerate();
            parts.map(move |(n, (out, logs))| (head, n * QUERY_BLOCK, out, logs))
        });
        parallel_for_each(parts, threads, |(head, first, out, logs)| {
            let (count, (_, visible)) = (logs.len(), self.visible(first, logs.len()));
            let q = FlatMatrix::row_major(&q[(head * queries + first) * width..], width);
            let k = FlatMatrix::row_major(&k[head * keys * width..], width);
            let v = FlatMatrix::row_major(&v[head * keys * values..], values);
            scratch(count * visible + count, |scratch| {
                let (scores, factors) = scratch.split_at_mut(count * visible);
                multiply_single_threaded(scores, [count, visible, width], q, k.transposed(), false);
                exp_rows(self.rows(scores, mask, head, first, visible), logs, factors);
                multiply_single_threaded(
                    out,
                    [count, values, visible],
                    FlatMatrix::row_major(scores, visible),
                    v,
                    false,
                );
                out.chunks_mut(values).zip(factors).for_each(|(row, factor)| scale_row(row, *factor));
            });
        });
    }

    fn backward(
        &self,
        inputs: BackwardInputs<&[f32]>,
        mask: Option<MaskElements<'_>>,
        outputs: BackwardOutputs<&mut [f32]>,
        threads: usize,
    ) {
        let HeadShape { queries, keys, width, values, .. } = *self;
        let BackwardInputs { query: q, key: k, value: v, output: out, log_sum_exp: logs, output_gradient: dout } =
            inputs;
        let BackwardOutputs { query: dq, key: dk, value: dv } = outputs;
        let heads = dq.chunks_mut(queries * width).zip(dk.chunks_mut(keys * width)).zip(dv.chunks_mut(keys * values));
        parallel_for_each(heads.enumerate(), threads, |(head, ((dq, dk), dv))| {
            dk.fill(0.0);
            dv.fill(0.0);
            let (k, v) = (&k[head * keys * width..], &v[head * keys * values..]);
            let (k, v) = (FlatMatrix::row_major(k, width), FlatMatrix::row_major(v, values));
            // Sequential: every block adds to the gradients of keys and values.
            for first in (0..queries).step_by(QUERY_BLOCK) {
                let count = QUERY_BLOCK.min(queries - first);
                let ((_, visible), row) = (self.visible(first, count), head * queries + first);
                let q = FlatMatrix::row_major(&q[row * width..], width);
                let (out, dout) = (&out[row * values..][..count * values], &dout[row * values..][..count * values]);
                let dout_rows = FlatMatrix::row_major(dout, values);
                scratch(2 * count * visible, |scratch| {
                    let (scores, dscores) = scratch.split_at_mut(count * visible);
                    multiply_single_threaded(scores, [count, visible, width], q, k.transposed(), false);
                    multiply_single_threaded(dscores, [count, visible, values], dout_rows, v.transposed(), false);
                    let rows = self.rows(scores, mask, head, first, visible);
                    softmax_backward_rows(rows, dscores, &logs[row..][..count], out, dout);
                    let (scores, dscores) =
                        (FlatMatrix::row_major(scores, visible), FlatMatrix::row_major(dscores, visible));
                    multiply_single_threaded(dv, [visible, values, count], scores.transposed(), dout_rows, true);
                    multiply_single_threaded(dk, [visible, width, count], dscores.transposed(), q, true);
                    multiply_single_threaded(&mut dq[first * width..], [count, width, visible], dscores, k, false);
                });
            }
        });
    }
}
