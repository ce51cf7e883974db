//! Rows of attention's scores: to powers and their sums, and back to slopes.

use pulp::{Arch, Simd, WithSimd};

use crate::fused::simd::exp::exp;
use crate::fused::simd::{RUN, largest, load_tail, store_tail};
use crate::fused::softmax::dot;

/// Some rows of scores, of which each sees its first `seen` columns, and with `causal` each one more than the row before.
pub(crate) struct Rows<'a> {
    pub scores: &'a mut [f32],
    pub columns: usize,
    pub seen: usize,
    pub causal: bool,
    pub scale: f32,
}

impl Rows<'_> {
    fn seen(&self, row: usize) -> usize {
        (self.seen + if self.causal { row } else { 0 }).min(self.columns)
    }
}

/// Scores to exp(scale · score - largest), 0 where a row does not see. For each row, the logarithm of Σ exp(scale · score)
/// and the factor that makes its powers sum to 1.
pub(crate) fn powers(rows: Rows<'_>, logs: &mut [f32], factors: &mut [f32]) {
    powers_on(Arch::new(), rows, logs, factors);
}

fn powers_on(arch: Arch, rows: Rows<'_>, logs: &mut [f32], factors: &mut [f32]) {
    arch.dispatch(Powers { rows, logs, factors });
}

/// Scores to probabilities, by the logarithms that [`powers`] gave; and the slopes by probabilities to slopes by scores,
/// given the results of all rows and the slopes by them.
pub(crate) fn slopes(rows: Rows<'_>, by: &mut [f32], logs: &[f32], results: &[f32], by_results: &[f32]) {
    slopes_on(Arch::new(), rows, by, logs, results, by_results);
}

fn slopes_on(arch: Arch, rows: Rows<'_>, by: &mut [f32], logs: &[f32], results: &[f32], by_results: &[f32]) {
    arch.dispatch(Slopes { rows, by, logs, results, by_results });
}

/// Multiplies a row of scores.
pub(crate) fn multiply(row: &mut [f32], factor: f32) {
    Arch::new().dispatch(Multiply(row, factor));
}

struct Multiply<'a>(&'a mut [f32], f32);

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        scale(simd, self.0, self.1);
    }
}

struct Powers<'a> {
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

/// exp(x - shift) in place, and the sum.
#[inline(always)]
fn exp_in_place<S: Simd>(simd: S, row: &mut [f32], shift: f32) -> f32 {
    let shift = simd.splat_f32s(shift);
    let (body, tail) = S::as_mut_simd_f32s(row);
    let mut sum = simd.splat_f32s(0.0);
    for run in body.chunks_mut(RUN) {
        let mut part = simd.splat_f32s(0.0);
        for x in run {
            *x = exp(simd, simd.sub_f32s(*x, shift));
            part = simd.add_f32s(part, *x);
        }
        sum = simd.add_f32s(sum, part);
    }
    if !tail.is_empty() {
        // -∞ adds nothing.
        let power = exp(simd, simd.sub_f32s(load_tail(simd, tail, f32::NEG_INFINITY), shift));
        store_tail(simd, tail, power);
        sum = simd.add_f32s(sum, power);
    }
    simd.reduce_sum_f32s(sum)
}

impl WithSimd for Powers<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Powers { rows, logs, factors } = self;
        for (n, (log, factor)) in logs.iter_mut().zip(factors).enumerate() {
            let seen = rows.seen(n);
            let (row, unseen) = rows.scores[n * rows.columns..][..rows.columns].split_at_mut(seen);
            unseen.fill(0.0);
            scale(simd, row, rows.scale);
            let max = largest(simd, row);
            let sum = exp_in_place(simd, row, max);
            (*log, *factor) = (max + sum.ln(), 1.0 / sum);
        }
    }
}

/// The probability of a score, and the slope by the score.
#[inline(always)]
fn share<S: Simd>(
    simd: S,
    score: S::f32s,
    slope: S::f32s,
    scale: S::f32s,
    less: S::f32s,
    mean: S::f32s,
) -> (S::f32s, S::f32s) {
    let power = exp(simd, simd.mul_add_e_f32s(score, scale, less));
    (power, simd.mul_f32s(simd.mul_f32s(power, simd.sub_f32s(slope, mean)), scale))
}

struct Slopes<'a> {
    rows: Rows<'a>,
    by: &'a mut [f32],
    logs: &'a [f32],
    results: &'a [f32],
    by_results: &'a [f32],
}

impl WithSimd for Slopes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Slopes { rows, by, logs, results, by_results } = self;
        let width = results.len() / logs.len().max(1);
        let factor = simd.splat_f32s(rows.scale);
        for (n, &log) in logs.iter().enumerate() {
            let (from, seen) = (n * rows.columns, rows.seen(n));
            let (row, unseen) = rows.scores[from..][..rows.columns].split_at_mut(seen);
            let (slope, beyond) = by[from..][..rows.columns].split_at_mut(seen);
            unseen.fill(0.0);
            beyond.fill(0.0);
            let mean = dot(simd, &results[n * width..][..width], &by_results[n * width..][..width]);
            let (less, mean) = (simd.splat_f32s(-log), simd.splat_f32s(mean));
            let (body, tail) = S::as_mut_simd_f32s(row);
            let (slopes, slope_tail) = S::as_mut_simd_f32s(slope);
            for (x, slope) in body.iter_mut().zip(slopes) {
                (*x, *slope) = share(simd, *x, *slope, factor, less, mean);
            }
            if !tail.is_empty() {
                let (x, slope) = (load_tail(simd, tail, 0.0), load_tail(simd, slope_tail, 0.0));
                let (x, slope) = share(simd, x, slope, factor, less, mean);
                store_tail(simd, tail, x);
                store_tail(simd, slope_tail, slope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::simd::{random, results};

    #[test]
    fn rows_agree_with_f64() {
        for (count, columns, seen, causal) in
            [(1, 1, 1, true), (3, 17, 15, true), (5, 40, 40, false), (20, 33, 14, true)]
        {
            let (scores, by, width) = (random(count * columns, -8.0, 8.0), random(count * columns, -1.0, 1.0), 7);
            let (outs, by_outs) = (random(count * width, -1.0, 1.0), random(count * width, -1.0, 1.0));
            let scale = -0.4f32;
            let run = |arch, _| {
                let (mut powers, mut logs, mut factors) = (scores.clone(), vec![0.0; count], vec![0.0; count]);
                let rows = |scores| Rows { scores, columns, seen, causal, scale };
                powers_on(arch, rows(&mut powers), &mut logs, &mut factors);
                let (mut again, mut slopes) = (scores.clone(), by.clone());
                slopes_on(arch, rows(&mut again), &mut slopes, &logs, &outs, &by_outs);
                [powers, logs, factors, again, slopes].concat()
            };
            for found in results(run) {
                let size = count * columns;
                let (powers, rest) = found.split_at(size);
                let (logs, factors, again, slopes) =
                    (&rest[..count], &rest[count..2 * count], &rest[2 * count..][..size], &rest[2 * count + size..]);
                for row in 0..count {
                    let seen = if causal { (seen + row).min(columns) } else { seen };
                    let at = |n: usize| row * columns + n;
                    let sum: f64 = (0..seen).map(|n| (f64::from(scale) * f64::from(scores[at(n)])).exp()).sum();
                    let places = row * width..(row + 1) * width;
                    let mean: f64 = places.map(|n| f64::from(outs[n]) * f64::from(by_outs[n])).sum();
                    assert!((f64::from(logs[row]) - sum.ln()).abs() < 1e-5);
                    for n in 0..columns {
                        let score = f64::from(scale) * f64::from(scores[at(n)]);
                        let share = if n < seen { score.exp() / sum } else { 0.0 };
                        let slope = share * (f64::from(by[at(n)]) - mean) * f64::from(scale);
                        let near = |found: f32, wanted: f64| (f64::from(found) - wanted).abs() < 1e-5;
                        assert!(near(powers[at(n)] * factors[row], share), "{row}, {n}");
                        assert!(near(again[at(n)], share) && near(slopes[at(n)], slope), "{row}, {n}");
                    }
                }
            }
        }
    }
}
