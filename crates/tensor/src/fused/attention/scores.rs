//! Softmax over rows of attention scores, and its gradient.

use pulp::{Arch, Simd, WithSimd};

use super::mask::MaskRows;
use crate::fused::simd::exp::exp;
use crate::fused::simd::{VECTORS_PER_RUN, load_tail, row_max, store_tail};
use crate::fused::softmax::dot;

/// Rows of scores. The first `visible` columns of a row take part, with `causal` one more in each
/// following row. A mask applies to these after scaling.
pub(super) struct Rows<'a> {
    pub scores: &'a mut [f32],
    pub columns: usize,
    pub visible: usize,
    pub causal: bool,
    pub scale: f32,
    pub mask: Option<MaskRows<'a>>,
}

impl Rows<'_> {
    fn visible(&self, row: usize) -> usize {
        (self.visible + if self.causal { row } else { 0 }).min(self.columns)
    }
}

/// Replaces scores by exp(scale · score - max), or 0 if masked. For each row, writes the logarithm
/// of Σ exp(scale · score) and the factor that normalizes the row to sum 1.
pub(super) fn exp_rows(rows: Rows<'_>, logs: &mut [f32], factors: &mut [f32]) {
    exp_rows_on(Arch::new(), rows, logs, factors);
}

fn exp_rows_on(arch: Arch, rows: Rows<'_>, logs: &mut [f32], factors: &mut [f32]) {
    arch.dispatch(ExpRows { rows, logs, factors });
}

/// Replaces scores by probabilities, using the logarithms that [`exp_rows`] wrote, and the
/// gradients of the probabilities by those of the scores, from the outputs of all rows and their
/// gradients.
pub(super) fn softmax_backward_rows(
    rows: Rows<'_>,
    dprobabilities: &mut [f32],
    logs: &[f32],
    outputs: &[f32],
    doutputs: &[f32],
) {
    softmax_backward_rows_on(Arch::new(), rows, dprobabilities, logs, outputs, doutputs);
}

fn softmax_backward_rows_on(
    arch: Arch,
    rows: Rows<'_>,
    dprobabilities: &mut [f32],
    logs: &[f32],
    outputs: &[f32],
    doutputs: &[f32],
) {
    arch.dispatch(SoftmaxBackward { rows, dprobabilities, logs, outputs, doutputs });
}

/// Multiplies a row by a factor.
pub(super) fn scale_row(row: &mut [f32], factor: f32) {
    Arch::new().dispatch(ScaleRow(row, factor));
}

struct ScaleRow<'a>(&'a mut [f32], f32);

impl WithSimd for ScaleRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        scale(simd, self.0, self.1);
    }
}

struct ExpRows<'a> {
    rows: Rows<'a>,
    logs: &'a mut [f32],
    factors: &'a mut [f32],
}

#[inline(always)]
fn scale<S: Simd>(simd: S, row: &mut [f32], factor: f32) {
    let splat = simd.splat_f32s(factor);
    let (body, tail) = S::as_mut_simd_f32s(row);
    for x in body {
        *x = simd.mul_f32s(*x, splat);
    }
    tail.iter_mut().for_each(|x| *x *= factor);
}

/// Computes exp(x - shift) in place; returns the sum.
#[inline(always)]
fn exp_in_place<S: Simd>(simd: S, row: &mut [f32], shift: f32) -> f32 {
    let shift = simd.splat_f32s(shift);
    let (body, tail) = S::as_mut_simd_f32s(row);
    let mut sum = simd.splat_f32s(0.0);
    for run in body.chunks_mut(VECTORS_PER_RUN) {
        let mut part = simd.splat_f32s(0.0);
        for x in run {
            *x = exp(simd, simd.sub_f32s(*x, shift));
            part = simd.add_f32s(part, *x);
        }
        sum = simd.add_f32s(sum, part);
    }
    if !tail.is_empty() {
        // Lanes filled with -∞ add 0.
        let probability = exp(simd, simd.sub_f32s(load_tail(simd, tail, f32::NEG_INFINITY), shift));
        store_tail(simd, tail, probability);
        sum = simd.add_f32s(sum, probability);
    }
    simd.reduce_sum_f32s(sum)
}

impl WithSimd for ExpRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let ExpRows { rows, logs, factors } = self;
        for (n, (log, factor)) in logs.iter_mut().zip(factors).enumerate() {
            let visible = rows.visible(n);
            let (row, masked) = rows.scores[n * rows.columns..][..rows.columns].split_at_mut(visible);
            masked.fill(0.0);
            scale(simd, row, rows.scale);
            if let Some(mask) = rows.mask {
                mask.apply(n, row);
            }
            let max = row_max(simd, row);
            let sum = exp_in_place(simd, row, max);
            (*log, *factor) = (max + sum.ln(), 1.0 / sum);
        }
    }
}

/// Factors and shifts of a row of the backward pass.
#[derive(Clone, Copy)]
struct RowTerms<V> {
    /// Factor from the stored score to the masked one: 1 if the row is scaled already.
    score_scale: V,
    scale: V,
    minus_log: V,
    mean: V,
}

/// The probability of a score, and the gradient of the score.
#[inline(always)]
fn probability_and_gradient<S: Simd>(
    simd: S,
    score: S::f32s,
    gradient: S::f32s,
    terms: RowTerms<S::f32s>,
) -> (S::f32s, S::f32s) {
    let probability = exp(simd, simd.mul_add_e_f32s(score, terms.score_scale, terms.minus_log));
    (probability, simd.mul_f32s(simd.mul_f32s(probability, simd.sub_f32s(gradient, terms.mean)), terms.scale))
}

struct SoftmaxBackward<'a> {
    rows: Rows<'a>,
    dprobabilities: &'a mut [f32],
    logs: &'a [f32],
    outputs: &'a [f32],
    doutputs: &'a [f32],
}

impl WithSimd for SoftmaxBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let SoftmaxBackward { rows, dprobabilities, logs, outputs, doutputs } = self;
        let width = outputs.len() / logs.len().max(1);
        let factor = simd.splat_f32s(rows.scale);
        for (n, &log) in logs.iter().enumerate() {
            let (from, visible) = (n * rows.columns, rows.visible(n));
            let (row, masked) = rows.scores[from..][..rows.columns].split_at_mut(visible);
            let (gradient, beyond) = dprobabilities[from..][..rows.columns].split_at_mut(visible);
            masked.fill(0.0);
            beyond.fill(0.0);
            let mean = dot(simd, &outputs[n * width..][..width], &doutputs[n * width..][..width]);
            let score_scale = match rows.mask {
                Some(mask) => {
                    scale(simd, row, rows.scale);
                    mask.apply(n, row);
                    simd.splat_f32s(1.0)
                }
                None => factor,
            };
            let (minus_log, mean) = (simd.splat_f32s(-log), simd.splat_f32s(mean));
            let terms = RowTerms { score_scale, scale: factor, minus_log, mean };
            let (body, tail) = S::as_mut_simd_f32s(row);
            let (gradients, gradient_tail) = S::as_mut_simd_f32s(gradient);
            for (x, gradient) in body.iter_mut().zip(gradients) {
                (*x, *gradient) = probability_and_gradient(simd, *x, *gradient, terms);
            }
            if !tail.is_empty() {
                let (x, gradient) = (load_tail(simd, tail, 0.0), load_tail(simd, gradient_tail, 0.0));
                let (x, gradient) = probability_and_gradient(simd, x, gradient, terms);
                store_tail(simd, tail, x);
                store_tail(simd, gradient_tail, gradient);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::simd::{random_f32, results_on_every_arch};

    #[test]
    fn rows_agree_with_f64() {
        for (count, columns, visible, causal) in
            [(1, 1, 1, true), (3, 17, 15, true), (5, 40, 40, false), (20, 33, 14, true)]
        {
            let (scores, dprobabilities, width) =
                (random_f32(count * columns, -8.0, 8.0), random_f32(count * columns, -1.0, 1.0), 7);
            let (outs, douts) = (random_f32(count * width, -1.0, 1.0), random_f32(count * width, -1.0, 1.0));
            let scale = -0.4f32;
            let run = |arch, _| {
                let (mut exponentials, mut logs, mut factors) = (scores.clone(), vec![0.0; count], vec![0.0; count]);
                let rows = |scores| Rows { scores, columns, visible, causal, scale, mask: None };
                exp_rows_on(arch, rows(&mut exponentials), &mut logs, &mut factors);
                let (mut again, mut gradients) = (scores.clone(), dprobabilities.clone());
                softmax_backward_rows_on(arch, rows(&mut again), &mut gradients, &logs, &outs, &douts);
                [exponentials, logs, factors, again, gradients].concat()
            };
            for found in results_on_every_arch(run) {
                let size = count * columns;
                let (exponentials, rest) = found.split_at(size);
                let (logs, factors, again, gradients) =
                    (&rest[..count], &rest[count..2 * count], &rest[2 * count..][..size], &rest[2 * count + size..]);
                for row in 0..count {
                    let visible = if causal { (visible + row).min(columns) } else { visible };
                    let at = |n: usize| row * columns + n;
                    let sum: f64 = (0..visible).map(|n| (f64::from(scale) * f64::from(scores[at(n)])).exp()).sum();
                    let elements = row * width..(row + 1) * width;
                    let mean: f64 = elements.map(|n| f64::from(outs[n]) * f64::from(douts[n])).sum();
                    assert!((f64::from(logs[row]) - sum.ln()).abs() < 1e-5);
                    for n in 0..columns {
                        let score = f64::from(scale) * f64::from(scores[at(n)]);
                        let share = if n < visible { score.exp() / sum } else { 0.0 };
                        let gradient = share * (f64::from(dprobabilities[at(n)]) - mean) * f64::from(scale);
                        let near = |found: f32, wanted: f64| (f64::from(found) - wanted).abs() < 1e-5;
                        assert!(near(exponentials[at(n)] * factors[row], share), "{row}, {n}");
                        assert!(near(again[at(n)], share) && near(gradients[at(n)], gradient), "{row}, {n}");
                    }
                }
            }
        }
    }
}
