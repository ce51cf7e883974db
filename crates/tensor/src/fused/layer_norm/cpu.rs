//! CPU routines of layer norm over rows and its gradient.

use pulp::{Arch, Simd, WithSimd};

use crate::fused::simd::{fold, load_tail, parallel_for_each, rows_per_chunk, store_tail};

/// Normalizes each row of `x` to mean 0 and variance 1, multiplies by `gamma` and adds `beta`. A
/// row has the length of `gamma`; its mean and 1 / √(variance + eps) are written to `mean` and
/// `rstd`.
#[allow(clippy::too_many_arguments)] // inputs and outputs of the op
pub(crate) fn layer_norm(
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    eps: f32,
    out: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
    threads: usize,
) {
    layer_norm_on(Arch::new(), x, gamma, beta, eps, out, mean, rstd, threads);
}

/// The gradients of x, `gamma` and `beta`, from the statistics that [`layer_norm`] saved and the
/// output gradient `dy`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn layer_norm_backward(
    x: &[f32],
    gamma: &[f32],
    mean: &[f32],
    rstd: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
    threads: usize,
) {
    layer_norm_backward_on(Arch::new(), x, gamma, mean, rstd, dy, dx, dgamma, dbeta, threads);
}

#[allow(clippy::too_many_arguments)]
fn layer_norm_on(
    arch: Arch,
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    eps: f32,
    out: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
    threads: usize,
) {
    let columns = gamma.len();
    if columns == 0 {
        mean.fill(f32::NAN);
        rstd.fill(f32::NAN);
        return;
    }
    let rows = rows_per_chunk(columns);
    let moments = mean.chunks_mut(rows).zip(rstd.chunks_mut(rows));
    let parts = x.chunks(rows * columns).zip(out.chunks_mut(rows * columns)).zip(moments);
    parallel_for_each(parts, threads, |((x, out), (mean, rstd))| {
        arch.dispatch(Forward { x, gamma, beta, eps, out, mean, rstd });
    });
}

#[allow(clippy::too_many_arguments)]
fn layer_norm_backward_on(
    arch: Arch,
    x: &[f32],
    gamma: &[f32],
    mean: &[f32],
    rstd: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
    threads: usize,
) {
    let (rows, columns) = (mean.len(), gamma.len());
    dgamma.fill(0.0);
    dbeta.fill(0.0);
    if columns == 0 {
        return;
    }
    // Each block of rows has its own sums, which are added in order: at most 64 blocks, independent
    // of the number of threads.
    const BLOCKS: usize = 64;
    let block = rows.div_ceil(BLOCKS).max(rows_per_chunk(columns));
    let mut sums = vec![0.0; rows.div_ceil(block) * 2 * columns];
    let moments = mean.chunks(block).zip(rstd.chunks(block));
    let inputs = x.chunks(block * columns).zip(dy.chunks(block * columns)).zip(moments);
    let parts = inputs.zip(dx.chunks_mut(block * columns)).zip(sums.chunks_mut(2 * columns));
    parallel_for_each(parts, threads, |((((x, dy), (mean, rstd)), dx), sums)| {
        let (dgamma, dbeta) = sums.split_at_mut(columns);
        arch.dispatch(Backward { x, gamma, mean, rstd, dy, dx, dgamma, dbeta });
    });
    for sums in sums.chunks(2 * columns) {
        let (gamma_sums, beta_sums) = sums.split_at(columns);
        dgamma.iter_mut().zip(gamma_sums).for_each(|(total, sum)| *total += sum);
        dbeta.iter_mut().zip(beta_sums).for_each(|(total, sum)| *total += sum);
    }
}

struct Forward<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    beta: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
    mean: &'a mut [f32],
    rstd: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Forward { x, gamma, beta, eps, out, mean, rstd } = self;
        let columns = gamma.len();
        let inverse_columns = 1.0 / columns as f32;
        let ((gammas, gamma_tail), (betas, beta_tail)) = (S::as_simd_f32s(gamma), S::as_simd_f32s(beta));
        let rows = x.chunks_exact(columns).zip(out.chunks_exact_mut(columns));
        for ((x, out), (mean, rstd)) in rows.zip(mean.iter_mut().zip(rstd)) {
            let (body, tail) = S::as_simd_f32s(x);
            let zero = simd.splat_f32s(0.0);
            let add = |a, b| simd.add_f32s(a, b);
            *mean = simd.reduce_sum_f32s(fold::<S>(body, load_tail(simd, tail, 0.0), zero, add, add)) * inverse_columns;
            let center = simd.splat_f32s(*mean);
            let square = |sum, x| {
                let off = simd.sub_f32s(x, center);
                simd.mul_add_e_f32s(off, off, sum)
            };
            let squares = fold::<S>(body, load_tail(simd, tail, *mean), zero, square, add);
            *rstd = 1.0 / (simd.reduce_sum_f32s(squares) * inverse_columns + eps).sqrt();
            let scale = simd.splat_f32s(*rstd);
            let norm =
                |x, gamma, beta| simd.mul_add_e_f32s(simd.mul_f32s(simd.sub_f32s(x, center), scale), gamma, beta);
            let (out, out_tail) = S::as_mut_simd_f32s(out);
            for (((out, &x), &gamma), &beta) in out.iter_mut().zip(body).zip(gammas).zip(betas) {
                *out = norm(x, gamma, beta);
            }
            if !tail.is_empty() {
                let [x, gamma, beta] = [tail, gamma_tail, beta_tail].map(|tail| load_tail(simd, tail, 0.0));
                store_tail(simd, out_tail, norm(x, gamma, beta));
            }
        }
    }
}

struct Backward<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    mean: &'a [f32],
    rstd: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
    dgamma: &'a mut [f32],
    dbeta: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Backward { x, gamma, mean, rstd, dy, dx, dgamma, dbeta } = self;
        let columns = gamma.len();
        let inverse_columns = 1.0 / columns as f32;
        let (gammas, gamma_tail) = S::as_simd_f32s(gamma);
        let (dgammas, dgamma_tail) = S::as_mut_simd_f32s(dgamma);
        let (dbetas, dbeta_tail) = S::as_mut_simd_f32s(dbeta);
        let tail = |tail: &[f32]| load_tail(simd, tail, 0.0);
        let rows = x.chunks_exact(columns).zip(dy.chunks_exact(columns)).zip(dx.chunks_exact_mut(columns));
        for (((x, dy), dx), (&mean, &rstd)) in rows.zip(mean.iter().zip(rstd)) {
            let ((xs, x_tail), (dys, dy_tail)) = (S::as_simd_f32s(x), S::as_simd_f32s(dy));
            let (center, scale) = (simd.splat_f32s(mean), simd.splat_f32s(rstd));
            let normalize = |x| simd.mul_f32s(simd.sub_f32s(x, center), scale);
            // Σ g and Σ g n, where n is the normalized x and g its gradient.
            let (mut sum_g, mut sum_gn) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
            let rows = xs.iter().zip(dys).zip(gammas).zip(dgammas.iter_mut().zip(dbetas.iter_mut()));
            for (((&x, &dy), &gamma), (dgamma, dbeta)) in rows {
                let (n, g) = (normalize(x), simd.mul_f32s(dy, gamma));
                sum_g = simd.add_f32s(sum_g, g);
                sum_gn = simd.mul_add_e_f32s(g, n, sum_gn);
                *dgamma = simd.mul_add_e_f32s(dy, n, *dgamma);
                *dbeta = simd.add_f32s(*dbeta, dy);
            }
            if !x_tail.is_empty() {
                let (dy, n) = (tail(dy_tail), normalize(tail(x_tail)));
                let g = simd.mul_f32s(dy, tail(gamma_tail));
                sum_g = simd.add_f32s(sum_g, g);
                sum_gn = simd.mul_add_e_f32s(g, n, sum_gn);
                let sums = (simd.mul_add_e_f32s(dy, n, tail(dgamma_tail)), simd.add_f32s(tail(dbeta_tail), dy));
                store_tail(simd, dgamma_tail, sums.0);
                store_tail(simd, dbeta_tail, sums.1);
            }
            let sum_g = simd.splat_f32s(simd.reduce_sum_f32s(sum_g) * inverse_columns);
            let sum_gn = simd.splat_f32s(simd.reduce_sum_f32s(sum_gn) * inverse_columns);
            // (g - mean of g - n · mean of g n) · rstd
            let gradient = |x, dy, gamma| {
                let rest = simd.mul_add_e_f32s(normalize(x), sum_gn, sum_g);
                simd.mul_f32s(simd.sub_f32s(simd.mul_f32s(dy, gamma), rest), scale)
            };
            let (dxs, dx_tail) = S::as_mut_simd_f32s(dx);
            for (((dx, &x), &dy), &gamma) in dxs.iter_mut().zip(xs).zip(dys).zip(gammas) {
                *dx = gradient(x, dy, gamma);
            }
            if !x_tail.is_empty() {
                store_tail(simd, dx_tail, gradient(tail(x_tail), tail(dy_tail), tail(gamma_tail)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::simd::{random_f32, results_on_every_arch};

    const SHAPES: [(usize, usize); 10] =
        [(0, 5), (3, 0), (4, 1), (7, 2), (5, 15), (5, 16), (5, 17), (300, 33), (90, 768), (3, 4097)];
    const EPS: f32 = 1e-5;

    fn wide(x: &[f32]) -> Vec<f64> {
        x.iter().map(|&x| f64::from(x)).collect()
    }

    fn moments(x: &[f64]) -> (f64, f64) {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        (mean, 1.0 / (variance + f64::from(EPS)).sqrt())
    }

    #[track_caller]
    fn near(message: &str, found: f32, expected: f64, bound: f64) {
        let off = (f64::from(found) - expected).abs();
        assert!(
            off <= bound || (found.is_nan() && expected.is_nan()),
            "{message}: {found}, not {expected} ± {bound:e}"
        );
    }

    #[test]
    fn rows_agree_with_f64() {
        for (rows, columns) in SHAPES {
            // An offset of 100 would break a variance computed as a difference of squares.
            let x: Vec<f32> = random_f32(rows * columns, 97.0, 103.0);
            let (gamma, beta) = (random_f32(columns, -2.0, 2.0), random_f32(columns, -1.0, 1.0));
            let run = |arch, threads| {
                let mut out = vec![7.0; rows * columns];
                let (mut mean, mut rstd) = (vec![7.0; rows], vec![7.0; rows]);
                layer_norm_on(arch, &x, &gamma, &beta, EPS, &mut out, &mut mean, &mut rstd, threads);
                [out, mean, rstd].concat()
            };
            for found in results_on_every_arch(run) {
                let (out, saved) = found.split_at(rows * columns);
                let (means, rstds) = saved.split_at(rows);
                for row in 0..rows {
                    let x = wide(&x[row * columns..][..columns]);
                    let (mean, rstd) = moments(&x);
                    let message = format!("{rows}x{columns}, row {row}");
                    near(&message, means[row], mean, 1e-4);
                    near(&message, rstds[row], rstd, 2e-5 * rstd);
                    for n in 0..columns {
                        let (gamma, beta) = (f64::from(gamma[n]), f64::from(beta[n]));
                        // The mean has rounding errors relative to 100, most visible with a single
                        // column.
                        let bound = 5e-5 * (1.0 + rstd) * gamma.abs() + 1e-6;
                        near(&message, out[row * columns + n], (x[n] - mean) * rstd * gamma + beta, bound);
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_agree_with_f64() {
        for (rows, columns) in SHAPES {
            let (x, dy) = (random_f32(rows * columns, -2.0, 3.0), random_f32(rows * columns, -1.0, 1.0));
            let gamma = random_f32(columns, -2.0, 2.0);
            let saved: Vec<(f64, f64)> = (0..rows).map(|row| moments(&wide(&x[row * columns..][..columns]))).collect();
            let mean: Vec<f32> = saved.iter().map(|(mean, _)| *mean as f32).collect();
            let rstd: Vec<f32> = saved.iter().map(|(_, rstd)| *rstd as f32).collect();
            let run = |arch, threads| {
                let mut dx = vec![7.0; rows * columns];
                let (mut dgamma, mut dbeta) = (vec![7.0; columns], vec![7.0; columns]);
                layer_norm_backward_on(arch, &x, &gamma, &mean, &rstd, &dy, &mut dx, &mut dgamma, &mut dbeta, threads);
                [dx, dgamma, dbeta].concat()
            };
            for found in results_on_every_arch(run) {
                let (mut dgamma, mut dbeta) = (vec![0.0; columns], vec![0.0; columns]);
                for row in 0..rows {
                    let span = row * columns..(row + 1) * columns;
                    let (x, dy) = (wide(&x[span.clone()]), wide(&dy[span.clone()]));
                    // From the saved f32 statistics: with one column, 1 / √eps amplifies their
                    // rounding.
                    let (mean, rstd) = (f64::from(mean[row]), f64::from(rstd[row]));
                    let n: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
                    let g: Vec<f64> = dy.iter().zip(&gamma).map(|(dy, &gamma)| dy * f64::from(gamma)).collect();
                    let sum_g = g.iter().sum::<f64>() / columns as f64;
                    let sum_gn = g.iter().zip(&n).map(|(g, n)| g * n).sum::<f64>() / columns as f64;
                    for j in 0..columns {
                        let expected = (g[j] - sum_g - n[j] * sum_gn) * rstd;
                        near(
                            &format!("dx of {rows}x{columns}, {row}, {j}"),
                            found[span.start + j],
                            expected,
                            1e-5 * rstd,
                        );
                        dgamma[j] += dy[j] * n[j];
                        dbeta[j] += dy[j];
                    }
                }
                let bound = 1e-6 * (1.0 + rows as f64);
                let sums = &found[rows * columns..];
                for j in 0..columns {
                    near(&format!("dgamma of {rows}x{columns}, {j}"), sums[j], dgamma[j], 3.0 * bound);
                    near(&format!("dbeta of {rows}x{columns}, {j}"), sums[columns + j], dbeta[j], bound);
                }
            }
        }
    }

    #[test]
    fn special_values_agree_with_plain_ops() {
        for columns in [3, 18] {
            let (gamma, beta) = (vec![1.0; columns], vec![0.5; columns]);
            let norm = |x: Vec<f32>| {
                results_on_every_arch(|arch, threads| {
                    let (mut out, mut mean, mut rstd) = (vec![7.0; columns], [7.0], [7.0]);
                    layer_norm_on(arch, &x, &gamma, &beta, EPS, &mut out, &mut mean, &mut rstd, threads);
                    out
                })
            };
            let with = |first: f32| (0..columns).map(|n| if n == 0 { first } else { n as f32 }).collect::<Vec<_>>();
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                assert!(norm(with(bad)).iter().flatten().all(|x| x.is_nan()), "{bad}");
            }
            assert!(norm(vec![3.0; columns]).iter().flatten().all(|&x| x == 0.5), "no variance");
            // Squares beyond f32: 1 / √∞ is 0.
            let huge = (0..columns).map(|n| if n % 2 == 0 { 1e30 } else { -1e30 }).collect();
            assert!(norm(huge).iter().flatten().all(|&x| x == 0.5), "huge");
        }
    }
}
