//! CPU routines of GELU and its gradient.

use pulp::{Arch, Simd, WithSimd};

use crate::fused::simd::exp::{exp, normal};
use crate::fused::simd::{CHUNK, load_tail, parallel_for_each, store_tail};

/// Approximate or exact GELU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gelu {
    /// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))), as in GPT-2.
    Tanh,
    /// x Φ(x).
    Erf,
}

/// Computes GELU elementwise.
pub(crate) fn gelu(kind: Gelu, x: &[f32], out: &mut [f32], threads: usize) {
    gelu_on(Arch::new(), kind, x, out, threads);
}

/// The gradient of the input from the input and the gradient `dy` of the output.
pub(crate) fn gelu_backward(kind: Gelu, x: &[f32], dy: &[f32], dx: &mut [f32], threads: usize) {
    gelu_backward_on(Arch::new(), kind, x, dy, dx, threads);
}

fn gelu_on(arch: Arch, kind: Gelu, x: &[f32], out: &mut [f32], threads: usize) {
    parallel_for_each(x.chunks(CHUNK).zip(out.chunks_mut(CHUNK)), threads, |(x, out)| match kind {
        Gelu::Tanh => arch.dispatch(Forward::<TANH> { x, out }),
        Gelu::Erf => arch.dispatch(Forward::<ERF> { x, out }),
    });
}

fn gelu_backward_on(arch: Arch, kind: Gelu, x: &[f32], dy: &[f32], dx: &mut [f32], threads: usize) {
    parallel_for_each(x.chunks(CHUNK).zip(dy.chunks(CHUNK)).zip(dx.chunks_mut(CHUNK)), threads, |((x, dy), dx)| {
        match kind {
            Gelu::Tanh => arch.dispatch(Backward::<TANH> { x, dy, dx }),
            Gelu::Erf => arch.dispatch(Backward::<ERF> { x, dy, dx }),
        }
    });
}

const TANH: bool = true;
const ERF: bool = false;

struct Forward<'a, const KIND: bool> {
    x: &'a [f32],
    out: &'a mut [f32],
}

impl<const KIND: bool> WithSimd for Forward<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let ((body, tail), (out, out_tail)) = (S::as_simd_f32s(self.x), S::as_mut_simd_f32s(self.out));
        for (&x, out) in body.iter().zip(out) {
            *out = value::<S, KIND>(simd, x);
        }
        if !tail.is_empty() {
            store_tail(simd, out_tail, value::<S, KIND>(simd, load_tail(simd, tail, 0.0)));
        }
    }
}

#[inline(always)]
fn value<S: Simd, const KIND: bool>(simd: S, x: S::f32s) -> S::f32s {
    let factor = if KIND == TANH { logistic(simd, x).0 } else { normal(simd, x).0 };
    simd.mul_f32s(x, factor)
}

struct Backward<'a, const KIND: bool> {
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl<const KIND: bool> WithSimd for Backward<'_, KIND> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let ((xs, x_tail), (dys, dy_tail)) = (S::as_simd_f32s(self.x), S::as_simd_f32s(self.dy));
        let (dxs, dx_tail) = S::as_mut_simd_f32s(self.dx);
        for ((&x, &dy), dx) in xs.iter().zip(dys).zip(dxs) {
            *dx = gradient::<S, KIND>(simd, x, dy);
        }
        if !x_tail.is_empty() {
            let (x, dy) = (load_tail(simd, x_tail, 0.0), load_tail(simd, dy_tail, 0.0));
            store_tail(simd, dx_tail, gradient::<S, KIND>(simd, x, dy));
        }
    }
}

/// dy (f + x f'), where x f is the value.
#[inline(always)]
fn gradient<S: Simd, const KIND: bool>(simd: S, x: S::f32s, dy: S::f32s) -> S::f32s {
    let (factor, derivative) = if KIND == TANH { logistic(simd, x) } else { normal(simd, x) };
    simd.mul_f32s(dy, simd.mul_add_e_f32s(x, derivative, factor))
}

/// s = ½ (1 + tanh(u / 2)) = 1 / (1 + e⁻ᵘ) for u = 2 √(2/π) (x + 0.044715 x³), a form without
/// cancellation; and ds/dx.
#[inline(always)]
fn logistic<S: Simd>(simd: S, x: S::f32s) -> (S::f32s, S::f32s) {
    const TWICE_ROOT: f32 = 1.595_769;
    let splat = |value| simd.splat_f32s(value);
    // Clamped at 16, beyond which the function is 0 or 1 and cubes would overflow.
    let clamped = simd.max_f32s(splat(-16.0), simd.min_f32s(splat(16.0), x));
    let square = simd.mul_f32s(clamped, clamped);
    let minus_u =
        simd.mul_f32s(clamped, simd.mul_add_e_f32s(square, splat(-TWICE_ROOT * 0.044715), splat(-TWICE_ROOT)));
    let exp_minus_u = exp(simd, minus_u);
    let s = simd.div_f32s(splat(1.0), simd.add_f32s(splat(1.0), exp_minus_u));
    // s (1 - s) du/dx, with 1 - s = e⁻ᵘ s to avoid cancellation. An infinite exponential is made
    // finite, since s is 0 there.
    let other = simd.mul_f32s(simd.min_f32s(exp_minus_u, splat(1e38)), s);
    let derivative = simd.mul_add_e_f32s(square, splat(TWICE_ROOT * 3.0 * 0.044715), splat(TWICE_ROOT));
    (s, simd.mul_f32s(simd.mul_f32s(s, other), derivative))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::simd::{random_f32, results_on_every_arch};

    /// GELU and its derivative in f64.
    fn reference(kind: Gelu, x: f64) -> (f64, f64) {
        match kind {
            Gelu::Tanh => {
                let root = (2.0 / std::f64::consts::PI).sqrt();
                let u = 2.0 * root * (x + 0.044715 * x * x * x);
                let (s, t) = (1.0 / (1.0 + (-u).exp()), 1.0 / (1.0 + u.exp()));
                (x * s, s + x * s * t * 2.0 * root * (1.0 + 3.0 * 0.044715 * x * x))
            }
            Gelu::Erf => {
                // Φ by Simpson's rule over the density from 0.
                let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
                let step = x / 2000.0;
                let inner: f64 =
                    (1..2000).map(|n| density(f64::from(n) * step) * if n % 2 == 1 { 4.0 } else { 2.0 }).sum();
                let below = 0.5 + (density(0.0) + inner + density(x)) * step / 3.0;
                (x * below, below + x * density(x))
            }
        }
    }

    #[test]
    fn values_and_gradients_agree_with_f64() {
        for kind in [Gelu::Tanh, Gelu::Erf] {
            for count in [0, 1, 15, 16, 17, 768, 4097] {
                let (x, dy) = (random_f32(count, -7.0, 7.0), random_f32(count, -2.0, 2.0));
                let run = |arch, threads| {
                    let (mut out, mut dx) = (vec![7.0; count], vec![7.0; count]);
                    gelu_on(arch, kind, &x, &mut out, threads);
                    gelu_backward_on(arch, kind, &x, &dy, &mut dx, threads);
                    [out, dx].concat()
                };
                for found in results_on_every_arch(run) {
                    for n in 0..count {
                        let (x, dy) = (f64::from(x[n]), f64::from(dy[n]));
                        let (value, derivative) = reference(kind, x);
                        // The exponent is rounded; where the value is tiny that is more than the
                        // value's own rounding.
                        let bound = (6e-7 + 1e-7 * x * x) * value.abs() + 1e-12;
                        let off = (f64::from(found[n]) - value).abs();
                        assert!(off <= bound, "{kind:?}({x}) is {}, not {value}", found[n]);
                        let off = (f64::from(found[count + n]) - dy * derivative).abs();
                        assert!(off <= 6e-7 * (dy * derivative).abs() + 4e-7, "{kind:?}'({x}) is {}", found[count + n]);
                    }
                }
            }
        }
    }

    #[test]
    fn chunks_cover_all_elements() {
        let x = random_f32(3 * CHUNK + 5, -3.0, 3.0);
        for found in results_on_every_arch(|arch, threads| {
            let mut out = vec![7.0; x.len()];
            gelu_on(arch, Gelu::Tanh, &x, &mut out, threads);
            out
        }) {
            let off = |(&x, &y): (&f32, &f32)| (f64::from(y) - reference(Gelu::Tanh, f64::from(x)).0).abs();
            assert!(x.iter().zip(&found).map(off).fold(0.0, f64::max) < 1e-6);
        }
    }

    #[test]
    fn special_values_agree_with_plain_ops() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        // (x, value, derivative): -∞ times 0 is NaN, as in the plain ops.
        let cases = [
            (0.0, 0.0, 0.5),
            (inf, inf, nan),
            (-inf, nan, nan),
            (nan, nan, nan),
            (1e30, 1e30, 1.0),
            (-1e30, -0.0, 0.0),
            (f32::MAX, f32::MAX, 1.0),
            (40.0, 40.0, 1.0),
            (-40.0, -0.0, 0.0),
        ];
        for kind in [Gelu::Tanh, Gelu::Erf] {
            for (x, value, derivative) in cases {
                for found in results_on_every_arch(|arch, threads| {
                    let (mut out, mut dx) = ([7.0], [7.0]);
                    gelu_on(arch, kind, &[x], &mut out, threads);
                    gelu_backward_on(arch, kind, &[x], &[1.0], &mut dx, threads);
                    vec![out[0], dx[0]]
                }) {
                    let same = |found: f32, expected: f32| {
                        (found - expected).abs() < 1e-15 || found == expected || (found.is_nan() && expected.is_nan())
                    };
                    let derivative_matches =
                        same(found[1], derivative) || (x == inf && kind == Gelu::Erf && found[1].is_infinite());
                    assert!(same(found[0], value) && derivative_matches, "{kind:?} at {x}: {found:?}");
                }
            }
        }
    }
}
