//! CPU routines of batch norm and its gradient: one pass over the planes of `[n, channels, plane]`
//! for sums, one for the result.

use pulp::{Arch, Simd, WithSimd};

use crate::fused::simd::{CHUNK, VECTORS_PER_RUN, fold, load_tail, parallel_for_each, store_tail};

/// Number of channels, and elements of a channel of one image.
#[derive(Clone, Copy)]
pub(super) struct Channels {
    pub count: usize,
    pub plane: usize,
}

impl Channels {
    /// Elements per unit of parallel work: whole planes.
    fn chunk(self) -> usize {
        (CHUNK / self.plane).max(1) * self.plane
    }

    /// Adds the pairs of numbers of all planes by channel, in order.
    fn sums(self, planes: &[[f64; 2]], mut add: impl FnMut(usize, [f64; 2])) {
        planes.iter().enumerate().for_each(|(n, sums)| add(n % self.count, *sums));
    }
}

/// Computes output, mean and variance.
#[allow(clippy::too_many_arguments)] // inputs and outputs of the op
pub(super) fn batch_norm(
    channels: Channels,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f64,
    y: &mut [f32],
    mean: &mut [f32],
    variance: &mut [f32],
    threads: usize,
) {
    batch_norm_on(Arch::new(), channels, x, weight, bias, eps, y, mean, variance, threads);
}

/// Computes the gradients of x, weight and bias.
#[allow(clippy::too_many_arguments)]
pub(super) fn batch_norm_backward(
    channels: Channels,
    x: &[f32],
    weight: &[f32],
    mean: &[f32],
    variance: &[f32],
    eps: f64,
    dy: &[f32],
    dx: &mut [f32],
    dweight: &mut [f32],
    dbias: &mut [f32],
    threads: usize,
) {
    let arch = Arch::new();
    batch_norm_backward_on(arch, channels, x, weight, mean, variance, eps, dy, dx, dweight, dbias, threads);
}

#[allow(clippy::too_many_arguments)]
pub(super) fn batch_norm_on(
    arch: Arch,
    channels: Channels,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f64,
    y: &mut [f32],
    mean: &mut [f32],
    variance: &mut [f32],
    threads: usize,
) {
    let Channels { count, plane } = channels;
    let (chunk, planes) = (channels.chunk(), x.len() / plane);
    let mut moments = vec![[0.0; 2]; planes];
    let parts = x.chunks(chunk).zip(moments.chunks_mut(chunk / plane));
    parallel_for_each(parts, threads, |(x, moments)| arch.dispatch(Moments { plane, x, moments }));
    let (per_channel, elements) = ((planes / count) as f64, (x.len() / count) as f64);
    let (mut means, mut squares) = (vec![0.0; count], vec![0.0; count]);
    channels.sums(&moments, |channel, [mean, _]| means[channel] += mean / per_channel);
    channels.sums(&moments, |channel, [mean, square]| {
        squares[channel] += square + (mean - means[channel]).powi(2) * plane as f64;
    });
    for channel in 0..count {
        (mean[channel], variance[channel]) = (means[channel] as f32, (squares[channel] / elements) as f32);
    }
    let coefficients: Vec<[f32; 3]> = (0..count)
        .map(|n| [(f64::from(weight[n]) / (f64::from(variance[n]) + eps).sqrt()) as f32, mean[n], bias[n]])
        .collect();
    let parts = x.chunks(chunk).zip(y.chunks_mut(chunk)).enumerate();
    parallel_for_each(parts, threads, |(n, (x, y))| {
        let first = n * (chunk / plane) % count;
        arch.dispatch(Normalize { plane, first, coefficients: &coefficients, x, y });
    });
}

#[allow(clippy::too_many_arguments)]
pub(super) fn batch_norm_backward_on(
    arch: Arch,
    channels: Channels,
    x: &[f32],
    weight: &[f32],
    mean: &[f32],
    variance: &[f32],
    eps: f64,
    dy: &[f32],
    dx: &mut [f32],
    dweight: &mut [f32],
    dbias: &mut [f32],
    threads: usize,
) {
    let Channels { count, plane } = channels;
    let (chunk, planes) = (channels.chunk(), x.len() / plane);
    let mut products = vec![[0.0; 2]; planes];
    let parts = x.chunks(chunk).zip(dy.chunks(chunk)).zip(products.chunks_mut(chunk / plane)).enumerate();
    parallel_for_each(parts, threads, |(n, ((x, dy), sums))| {
        let first = n * (chunk / plane) % count;
        arch.dispatch(Products { plane, first, mean, x, dy, sums });
    });
    // Sums of the gradient, and of its products with the deviations from the mean.
    let mut sums = vec![[0.0; 2]; count];
    channels.sums(&products, |channel, [gradient, product]| {
        sums[channel][0] += gradient;
        sums[channel][1] += product;
    });
    let elements = (x.len() / count) as f64;
    let mut coefficients = vec![[0.0; 4]; count];
    for (n, [gradient, product]) in sums.into_iter().enumerate() {
        let rstd = 1.0 / (f64::from(variance[n]) + eps).sqrt();
        (dweight[n], dbias[n]) = ((product * rstd) as f32, gradient as f32);
        let scale = f64::from(weight[n]) * rstd;
        let of_deviation = -scale * rstd * rstd * product / elements;
        coefficients[n] = [scale as f32, of_deviation as f32, (-scale * gradient / elements) as f32, mean[n]];
    }
    let parts = x.chunks(chunk).zip(dy.chunks(chunk)).zip(dx.chunks_mut(chunk)).enumerate();
    parallel_for_each(parts, threads, |(n, ((x, dy), dx))| {
        let first = n * (chunk / plane) % count;
        arch.dispatch(InputGradient { plane, first, coefficients: &coefficients, x, dy, dx });
    });
}

/// Mean and sum of squared deviations of each plane.
struct Moments<'a> {
    plane: usize,
    x: &'a [f32],
    moments: &'a mut [[f64; 2]],
}

impl WithSimd for Moments<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (zero, add) = (simd.splat_f32s(0.0), |a, b| simd.add_f32s(a, b));
        for (x, moments) in self.x.chunks_exact(self.plane).zip(self.moments) {
            let (body, tail) = S::as_simd_f32s(x);
            let sum = simd.reduce_sum_f32s(fold::<S>(body, load_tail(simd, tail, 0.0), zero, add, add));
            let mean = sum / self.plane as f32;
            let center = simd.splat_f32s(mean);
            let square = |sum, x| {
                let off = simd.sub_f32s(x, center);
                simd.mul_add_e_f32s(off, off, sum)
            };
            let squares = fold::<S>(body, load_tail(simd, tail, mean), zero, square, add);
            *moments = [f64::from(mean), f64::from(simd.reduce_sum_f32s(squares))];
        }
    }
}

/// (x - mean) · scale + bias, by channel.
struct Normalize<'a> {
    plane: usize,
    /// Channel of the first plane.
    first: usize,
    /// Scale, mean and bias.
    coefficients: &'a [[f32; 3]],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Normalize<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let planes = self.x.chunks_exact(self.plane).zip(self.y.chunks_exact_mut(self.plane));
        let channels = self.coefficients.iter().cycle().skip(self.first);
        for ((x, y), coefficients) in planes.zip(channels) {
            let [scale, mean, bias] = coefficients.map(|value| simd.splat_f32s(value));
            let norm = |x| simd.mul_add_e_f32s(simd.sub_f32s(x, mean), scale, bias);
            let ((xs, x_tail), (ys, y_tail)) = (S::as_simd_f32s(x), S::as_mut_simd_f32s(y));
            ys.iter_mut().zip(xs).for_each(|(y, &x)| *y = norm(x));
            if !x_tail.is_empty() {
                store_tail(simd, y_tail, norm(load_tail(simd, x_tail, 0.0)));
            }
        }
    }
}

/// Sums of dy and of dy · (x - mean) for each plane.
struct Products<'a> {
    plane: usize,
    first: usize,
    mean: &'a [f32],
    x: &'a [f32],
    dy: &'a [f32],
    sums: &'a mut [[f64; 2]],
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let zero = simd.splat_f32s(0.0);
        let planes = self.x.chunks_exact(self.plane).zip(self.dy.chunks_exact(self.plane)).zip(self.sums);
        for (((x, dy), sums), &mean) in planes.zip(self.mean.iter().cycle().skip(self.first)) {
            let center = simd.splat_f32s(mean);
            let ((xs, x_tail), (dys, dy_tail)) = (S::as_simd_f32s(x), S::as_simd_f32s(dy));
            let add = |[sum, product]: [S::f32s; 2], x, dy| {
                [simd.add_f32s(sum, dy), simd.mul_add_e_f32s(dy, simd.sub_f32s(x, center), product)]
            };
            let tail = (load_tail(simd, x_tail, mean), load_tail(simd, dy_tail, 0.0));
            let mut totals = add([zero; 2], tail.0, tail.1);
            // Runs of four independent sums: less rounding and no wait for the previous addition.
            for (xs, dys) in xs.chunks(VECTORS_PER_RUN).zip(dys.chunks(VECTORS_PER_RUN)) {
                let ((xs, x_rest), (dys, dy_rest)) = (xs.as_chunks::<4>(), dys.as_chunks::<4>());
                let [mut a, mut b, mut c, mut d] = [[zero; 2]; 4];
                for (x, dy) in xs.iter().zip(dys) {
                    (a, b, c, d) = (add(a, x[0], dy[0]), add(b, x[1], dy[1]), add(c, x[2], dy[2]), add(d, x[3], dy[3]));
                }
                for (&x, &dy) in x_rest.iter().zip(dy_rest) {
                    a = add(a, x, dy);
                }
                for n in 0..2 {
                    let run = simd.add_f32s(simd.add_f32s(a[n], b[n]), simd.add_f32s(c[n], d[n]));
                    totals[n] = simd.add_f32s(totals[n], run);
                }
            }
            *sums = totals.map(|total| f64::from(simd.reduce_sum_f32s(total)));
        }
    }
}

/// scale · dy + deviation · (x - mean) + shift, by channel.
struct InputGradient<'a> {
    plane: usize,
    first: usize,
    /// Scale, factor of the deviation, shift and mean.
    coefficients: &'a [[f32; 4]],
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl WithSimd for InputGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let plane = self.plane;
        let planes = self.x.chunks_exact(plane).zip(self.dy.chunks_exact(plane)).zip(self.dx.chunks_exact_mut(plane));
        for (((x, dy), dx), coefficients) in planes.zip(self.coefficients.iter().cycle().skip(self.first)) {
            let [scale, deviation, shift, mean] = coefficients.map(|value| simd.splat_f32s(value));
            let gradient = |x, dy| {
                let rest = simd.mul_add_e_f32s(simd.sub_f32s(x, mean), deviation, shift);
                simd.mul_add_e_f32s(dy, scale, rest)
            };
            let ((xs, x_tail), (dys, dy_tail)) = (S::as_simd_f32s(x), S::as_simd_f32s(dy));
            let (dxs, dx_tail) = S::as_mut_simd_f32s(dx);
            dxs.iter_mut().zip(xs.iter().zip(dys)).for_each(|(dx, (&x, &dy))| *dx = gradient(x, dy));
            if !x_tail.is_empty() {
                store_tail(simd, dx_tail, gradient(load_tail(simd, x_tail, 0.0), load_tail(simd, dy_tail, 0.0)));
            }
        }
    }
}
