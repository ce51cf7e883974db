//! CPU routines of softmax and log-softmax over rows, and their gradients.

use pulp::{Arch, Simd, WithSimd};

use crate::fused::simd::exp::exp;
use crate::fused::simd::{VECTORS_PER_RUN, fold, load_tail, parallel_for_each, row_max, rows_per_chunk, store_tail};

/// Softmax or log-softmax.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Softmax {
    /// exp(x) / Σ exp(x).
    Plain,
    /// x - log Σ exp(x).
    Log,
}

/// Computes each row; a row with a NaN or +∞, or with only -∞, becomes NaN.
pub(crate) fn softmax(kind: Softmax, x: &[f32], columns: usize, out: &mut [f32], threads: usize) {
    softmax_on(Arch::new(), kind, x, columns, out, threads);
}

/// The gradient of the input from the output `y` and its gradient `dy`.
pub(crate) fn softmax_backward(kind: Softmax, y: &[f32], dy: &[f32], columns: usize, dx: &mut [f32], threads: usize) {
    softmax_backward_on(Arch::new(), kind, y, dy, columns, dx, threads);
}

fn softmax_on(arch: Arch, kind: Softmax, x: &[f32], columns: usize, out: &mut [f32], threads: usize) {
    let columns = columns.max(1);
    let part = columns * rows_per_chunk(columns);
    parallel_for_each(x.chunks(part).zip(out.chunks_mut(part)), threads, |(x, out)| {
        arch.dispatch(Forward { kind, x, columns, out });
    });
}

fn softmax_backward_on(
    arch: Arch,
    kind: Softmax,
    y: &[f32],
    dy: &[f32],
    columns: usize,
    dx: &mut [f32],
    threads: usize,
) {
    let columns = columns.max(1);
    let part = columns * rows_per_chunk(columns);
    parallel_for_each(y.chunks(part).zip(dy.chunks(part)).zip(dx.chunks_mut(part)), threads, |((y, dy), dx)| {
        arch.dispatch(Backward { kind, y, dy, columns, dx });
    });
}

struct Forward<'a> {
    kind: Softmax,
    x: &'a [f32],
    columns: usize,
    out: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (x, out) in self.x.chunks(self.columns).zip(self.out.chunks_mut(self.columns)) {
            match self.kind {
                Softmax::Plain => {
                    let (_, sum) = exp_and_sum(simd, x, out);
                    scale(simd, out, sum);
                }
                Softmax::Log => {
                    let max = row_max(simd, x);
                    let sum = exp_sum(simd, x, max);
                    shift(simd, x, max, sum.ln(), out);
                }
            }
        }
    }
}

/// Writes exp(x - max(x)); returns the maximum and the sum.
#[inline(always)]
pub(in crate::fused) fn exp_and_sum<S: Simd>(simd: S, x: &[f32], out: &mut [f32]) -> (f32, f32) {
    let max = row_max(simd, x);
    let shift = simd.splat_f32s(max);
    let (body, tail) = S::as_simd_f32s(x);
    let (out, out_tail) = S::as_mut_simd_f32s(out);
    let mut sum = simd.splat_f32s(0.0);
    for (out, x) in out.chunks_mut(VECTORS_PER_RUN).zip(body.chunks(VECTORS_PER_RUN)) {
        let mut run = simd.splat_f32s(0.0);
        for (out, &x) in out.iter_mut().zip(x) {
            let e = exp(simd, simd.sub_f32s(x, shift));
            *out = e;
            run = simd.add_f32s(run, e);
        }
        sum = simd.add_f32s(sum, run);
    }
    if !tail.is_empty() {
        let e = exp(simd, simd.sub_f32s(load_tail(simd, tail, f32::NEG_INFINITY), shift));
        store_tail(simd, out_tail, e);
        sum = simd.add_f32s(sum, e);
    }
    (max, simd.reduce_sum_f32s(sum))
}

/// Σ exp(x - max).
#[inline(always)]
pub(in crate::fused) fn exp_sum<S: Simd>(simd: S, x: &[f32], max: f32) -> f32 {
    let shift = simd.splat_f32s(max);
    let (body, tail) = S::as_simd_f32s(x);
    // Lanes filled with -∞ add 0.
    let mut total = exp(simd, simd.sub_f32s(load_tail(simd, tail, f32::NEG_INFINITY), shift));
    for run in body.chunks(VECTORS_PER_RUN) {
        let mut sum = simd.splat_f32s(0.0);
        for &x in run {
            sum = simd.add_f32s(sum, exp(simd, simd.sub_f32s(x, shift)));
        }
        total = simd.add_f32s(total, sum);
    }
    simd.reduce_sum_f32s(total)
}

/// Divides a row by `sum`, as a product with 1 / sum, which adds one rounding error.
#[inline(always)]
fn scale<S: Simd>(simd: S, row: &mut [f32], sum: f32) {
    let factor = simd.splat_f32s(1.0 / sum);
    let (body, tail) = S::as_mut_simd_f32s(row);
    for x in body {
        *x = simd.mul_f32s(*x, factor);
    }
    if !tail.is_empty() {
        let x = load_tail(simd, tail, 0.0);
        store_tail(simd, tail, simd.mul_f32s(x, factor));
    }
}

/// (x - max) - log. In this order, since max + log would lose the logarithm for a large maximum.
#[inline(always)]
fn shift<S: Simd>(simd: S, x: &[f32], max: f32, log: f32, out: &mut [f32]) {
    let (max, log) = (simd.splat_f32s(max), simd.splat_f32s(log));
    let (body, tail) = S::as_simd_f32s(x);
    let (out, out_tail) = S::as_mut_simd_f32s(out);
    for (out, &x) in out.iter_mut().zip(body) {
        *out = simd.sub_f32s(simd.sub_f32s(x, max), log);
    }
    if !tail.is_empty() {
        let x = load_tail(simd, tail, 0.0);
        store_tail(simd, out_tail, simd.sub_f32s(simd.sub_f32s(x, max), log));
    }
}

struct Backward<'a> {
    kind: Softmax,
    y: &'a [f32],
    dy: &'a [f32],
    columns: usize,
    dx: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.y.chunks(self.columns).zip(self.dy.chunks(self.columns));
        for ((y, dy), dx) in rows.zip(self.dx.chunks_mut(self.columns)) {
            match self.kind {
                Softmax::Plain => combine::<S, false>(simd, y, dy, dot(simd, y, dy), dx),
                Softmax::Log => {
                    let (body, tail) = S::as_simd_f32s(dy);
                    let add = |a, b| simd.add_f32s(a, b);
                    let sum = fold::<S>(body, load_tail(simd, tail, 0.0), simd.splat_f32s(0.0), add, add);
                    combine::<S, true>(simd, y, dy, simd.reduce_sum_f32s(sum), dx);
                }
            }
        }
    }
}

#[inline(always)]
pub(in crate::fused) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_tail), (b, b_tail)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let mut total = simd.mul_f32s(load_tail(simd, a_tail, 0.0), load_tail(simd, b_tail, 0.0));
    for (a, b) in a.chunks(VECTORS_PER_RUN).zip(b.chunks(VECTORS_PER_RUN)) {
        let mut sums = [simd.splat_f32s(0.0); 4];
        let ((fours, rest), (other_fours, other_rest)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
        for (a, b) in fours.iter().zip(other_fours) {
            for n in 0..4 {
                sums[n] = simd.mul_add_e_f32s(a[n], b[n], sums[n]);
            }
        }
        for (&a, &b) in rest.iter().zip(other_rest) {
            sums[0] = simd.mul_add_e_f32s(a, b, sums[0]);
        }
        total = sums.into_iter().fold(total, |total, sum| simd.add_f32s(total, sum));
    }
    simd.reduce_sum_f32s(total)
}

/// y (dy - Σ y dy), or for log-softmax dy - exp(y) Σ dy.
#[inline(always)]
fn combine<S: Simd, const LOG: bool>(simd: S, y: &[f32], dy: &[f32], sum: f32, dx: &mut [f32]) {
    let sum = simd.splat_f32s(sum);
    let ((ys, y_tail), (dys, dy_tail)) = (S::as_simd_f32s(y), S::as_simd_f32s(dy));
    let (dxs, dx_tail) = S::as_mut_simd_f32s(dx);
    for ((&y, &dy), dx) in ys.iter().zip(dys).zip(dxs) {
        *dx = gradient::<S, LOG>(simd, y, dy, sum);
    }
    if !y_tail.is_empty() {
        let (y, dy) = (load_tail(simd, y_tail, 0.0), load_tail(simd, dy_tail, 0.0));
        store_tail(simd, dx_tail, gradient::<S, LOG>(simd, y, dy, sum));
    }
}

#[inline(always)]
fn gradient<S: Simd, const LOG: bool>(simd: S, y: S::f32s, dy: S::f32s, sum: S::f32s) -> S::f32s {
    match LOG {
        true => simd.negate_mul_add_e_f32s(exp(simd, y), sum, dy),
        false => simd.mul_f32s(y, simd.sub_f32s(dy, sum)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::simd::{random_f32, results_on_every_arch};

    const SHAPES: [(usize, usize); 11] =
        [(0, 5), (3, 0), (4, 1), (7, 2), (5, 15), (5, 16), (5, 17), (3, 33), (90, 768), (2, 4097), (1, 40_000)];

    fn reference(kind: Softmax, x: &[f32]) -> Vec<f64> {
        let max = x.iter().map(|&x| f64::from(x)).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|&x| (f64::from(x) - max).exp()).sum();
        let of = |&x: &f32| match kind {
            Softmax::Plain => (f64::from(x) - max).exp() / sum,
            Softmax::Log => f64::from(x) - max - sum.ln(),
        };
        x.iter().map(of).collect()
    }

    #[test]
    fn rows_agree_with_f64() {
        for kind in [Softmax::Plain, Softmax::Log] {
            for (rows, columns) in SHAPES {
                let x = random_f32(rows * columns, -30.0, 30.0);
                let expected: Vec<f64> = x.chunks(columns.max(1)).flat_map(|row| reference(kind, row)).collect();
                let run = |arch, threads| {
                    let mut out = vec![f32::NAN; rows * columns];
                    softmax_on(arch, kind, &x, columns, &mut out, threads);
                    out
                };
                for found in results_on_every_arch(run) {
                    for (n, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
                        // The rounding of x - max, up to 60, is carried into exp; the sum of many
                        // adds its own.
                        let bound = match kind {
                            Softmax::Plain => 5e-6 * expected + 1e-44,
                            Softmax::Log => 1e-6 * expected.abs() + 2e-6,
                        };
                        let off = (f64::from(found) - expected).abs();
                        assert!(off <= bound, "{kind:?} {rows}x{columns}, {n}: {found:e}, not {expected:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_agree_with_f64() {
        for kind in [Softmax::Plain, Softmax::Log] {
            for (rows, columns) in SHAPES {
                let (x, dy) = (random_f32(rows * columns, -8.0, 8.0), random_f32(rows * columns, -1.0, 1.0));
                let y: Vec<f32> =
                    x.chunks(columns.max(1)).flat_map(|row| reference(kind, row)).map(|y| y as f32).collect();
                let run = |arch, threads| {
                    let mut dx = vec![f32::NAN; rows * columns];
                    softmax_backward_on(arch, kind, &y, &dy, columns, &mut dx, threads);
                    dx
                };
                for found in results_on_every_arch(run) {
                    for row in 0..rows {
                        let span = row * columns..(row + 1) * columns;
                        let (y, dy, found) = (&y[span.clone()], &dy[span.clone()], &found[span]);
                        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
                        let (y, dy) = (wide(y), wide(dy));
                        let sum: f64 = match kind {
                            Softmax::Plain => y.iter().zip(&dy).map(|(y, dy)| y * dy).sum(),
                            Softmax::Log => dy.iter().sum(),
                        };
                        let size: f64 = dy.iter().map(|dy| dy.abs()).sum();
                        for n in 0..columns {
                            let (expected, bound) = match kind {
                                Softmax::Plain => (y[n] * (dy[n] - sum), y[n] * 2e-6 + 1e-44),
                                Softmax::Log => {
                                    let y = y[n].exp();
                                    (dy[n] - y * sum, 1e-6 * (y * size + 1.0))
                                }
                            };
                            let off = (f64::from(found[n]) - expected).abs();
                            assert!(off <= bound, "{kind:?} {rows}x{columns}, {n}: {}, not {expected}", found[n]);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn special_values_agree_with_plain_ops() {
        const INF: f32 = f32::INFINITY;
        let nan = f32::NAN;
        for columns in [3, 16, 19] {
            let row = |values: [f32; 3]| {
                // -∞ elements do not change the result.
                let rest = vec![-INF; columns - 3];
                [&values[..], &rest].concat()
            };
            let cases: [([f32; 3], [f32; 3]); 8] = [
                ([-INF, -INF, -INF], [nan, nan, nan]),
                ([INF, 0.0, 1.0], [nan, nan, nan]),
                ([nan, 0.0, 1.0], [nan, nan, nan]),
                ([1.0, 0.0, nan], [nan, nan, nan]),
                ([-INF, 5.0, -INF], [0.0, 1.0, 0.0]),
                ([1e30, 1e30, -1e30], [0.5, 0.5, 0.0]),
                ([f32::MAX, f32::MIN, 0.0], [1.0, 0.0, 0.0]),
                ([-200.0, -200.0, -1e30], [0.5, 0.5, 0.0]),
            ];
            for (values, expected) in cases {
                let x = row(values);
                for kind in [Softmax::Plain, Softmax::Log] {
                    let run = |arch, threads| {
                        let mut out = vec![7.0; columns];
                        softmax_on(arch, kind, &x, columns, &mut out, threads);
                        out
                    };
                    for found in results_on_every_arch(run) {
                        for (n, expected) in expected.iter().enumerate() {
                            let expected = if kind == Softmax::Log { expected.ln() } else { *expected };
                            // Log-softmax is finite (-1e30) where the logarithm of softmax is -∞.
                            let far = expected == -INF && found[n] <= -190.0;
                            let same = far || (found[n] - expected).abs() <= 1e-6 || found[n] == expected;
                            let same = same || (found[n].is_nan() && expected.is_nan());
                            assert!(same, "{kind:?} of {x:?} is {found:?}");
                        }
                    }
                }
            }
        }
    }
}
