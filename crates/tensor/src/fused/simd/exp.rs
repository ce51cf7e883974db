//! SIMD exp and normal distribution for f32.

use pulp::Simd;

/// Σ coefficients[n] xⁿ.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: S::f32s, coefficients: [f32; N]) -> S::f32s {
    let mut sum = simd.splat_f32s(coefficients[N - 1]);
    for n in (0..N - 1).rev() {
        sum = simd.mul_add_e_f32s(sum, x, simd.splat_f32s(coefficients[n]));
    }
    sum
}

/// Replacement of `Simd::select_f32s`, which is not always inlined: without cross-crate
/// optimization GELU was four times slower.
#[inline(always)]
fn select<S: Simd>(simd: S, mask: S::m32s, yes: S::f32s, no: S::f32s) -> S::f32s {
    simd.transmute_f32s_u32s(simd.select_u32s(mask, simd.transmute_u32s_f32s(yes), simd.transmute_u32s_f32s(no)))
}

/// eˣ within 1.5 ulp, with denormals, infinities and NaN.
#[inline(always)]
pub(in crate::fused) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |value| simd.splat_f32s(value);
    // Outside this range the result is 0 or infinite. NaN is restored at the end, since min and max
    // may lose it.
    let (power, n) = split(simd, simd.max_f32s(splat(-104.0), simd.min_f32s(splat(89.0), x)));
    // 2ⁿ in two factors: a single f32 can represent neither the smallest denormal scale nor 2¹²⁸.
    let biased = simd.add_u32s(n, simd.splat_u32s(254)); // >= 0
    let (one, mantissa_bits) = (simd.splat_u32s(1), simd.splat_u32s(23));
    let half = simd.wrapping_dyn_shr_u32s(biased, one);
    let other = simd.sub_u32s(biased, half);
    let factor = |exponent| simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(exponent, mantissa_bits));
    let result = simd.mul_f32s(simd.mul_f32s(power, factor(half)), factor(other));
    select(simd, simd.equal_f32s(x, x), result, x)
}

/// eˣ for -200 <= x <= 0, within 1.5 ulp; flushed to 0 below 2⁻¹²⁶.
#[inline(always)]
fn exp_below_zero<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (power, n) = split(simd, x);
    let biased = simd.transmute_i32s_u32s(simd.add_u32s(n, simd.splat_u32s(127)));
    let biased = simd.transmute_u32s_i32s(simd.max_i32s(biased, simd.splat_i32s(0)));
    let factor = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(biased, simd.splat_u32s(23)));
    simd.mul_f32s(power, factor)
}

/// Range reduction: eˣ = m · 2ⁿ with m from 0.7 to 1.5, for -200 <= x <= 200; returns m and n as
/// integer bits.
#[inline(always)]
fn split<S: Simd>(simd: S, x: S::f32s) -> (S::f32s, S::u32s) {
    let splat = |value| simd.splat_f32s(value);
    // n = round(x / ln 2), from the low bits of a number that is too large to have a fraction.
    let shift = splat(12_582_912.0); // 1.5 · 2²³
    let shifted = simd.mul_add_e_f32s(x, splat(std::f32::consts::LOG2_E), shift);
    let n = simd.sub_f32s(shifted, shift);
    // ln 2 in two parts; the first has few enough bits for an exact product with n.
    let r = simd.negate_mul_add_e_f32s(n, splat(0.693_359_4), x);
    let r = simd.negate_mul_add_e_f32s(n, splat(-2.121_944_4e-4), r);
    // (eʳ - 1 - r) / r² for |r| <= ln 2 / 2, fitted for minimum relative error of eʳ: 0.05 ulp.
    let q = polynomial(simd, r, [0.499_999_93, 0.166_665_2, 0.041_668_394, 0.008_368_78, 0.001_381_446_6]);
    let power = simd.mul_add_e_f32s(simd.mul_f32s(r, r), q, simd.add_f32s(r, splat(1.0)));
    (power, simd.sub_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(0x4b40_0000)))
}

/// Standard normal distribution: Φ(x), within 8 ulp, and the density φ(x).
#[inline(always)]
pub(in crate::fused) fn normal<S: Simd>(simd: S, x: S::f32s) -> (S::f32s, S::f32s) {
    let splat = |value| simd.splat_f32s(value);
    // Clamped at 15, beyond which both equal their limits and squares would overflow.
    let size = simd.min_f32s(splat(15.0), simd.max_f32s(simd.sub_f32s(splat(0.0), x), x));
    // e^(-x²/2), corrected for the rounding of x², which would cost 6 ulp at 5.
    let square = simd.mul_f32s(size, size);
    let excess = simd.negate_mul_add_f32s(size, size, square);
    let bell = exp_below_zero(simd, simd.mul_f32s(square, splat(-0.5)));
    let bell = simd.mul_add_e_f32s(simd.mul_f32s(excess, splat(0.5)), bell, bell);
    // Φ(-x) / e^(-x²/2) for 0 <= x <= 15 as a polynomial of t = 1 / (1 + 0.35 x), fitted to 0.5
    // ulp.
    let t = simd.div_f32s(splat(1.0), simd.mul_add_e_f32s(size, splat(0.35), splat(1.0)));
    let ratio = polynomial(
        simd,
        t,
        [
            0.139_621_26,
            0.139_864_33,
            0.119_815_58,
            0.105_574_46,
            -0.023_262_974,
            0.159_391_6,
            -0.255_900_67,
            0.144_060_21,
            -0.029_163_8,
        ],
    );
    let tail = simd.mul_f32s(simd.mul_f32s(ratio, t), bell);
    let cdf = select(simd, simd.less_than_f32s(x, splat(0.0)), tail, simd.sub_f32s(splat(1.0), tail));
    (cdf, simd.mul_f32s(bell, splat(0.398_942_3)))
}

#[cfg(test)]
mod tests {
    use pulp::{Simd, WithSimd};

    use super::super::{MAX_LANES, load_tail, on_every_arch, random_f32};
    use super::*;

    struct Each<'a>(&'a [f32], &'a mut [[f32; 3]]);

    impl WithSimd for Each<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for (x, out) in self.0.iter().zip(self.1) {
                let x = load_tail(simd, &[*x][..(S::F32_LANES > 1) as usize], *x);
                let mut first = |value: S::f32s, column: usize| {
                    let mut lanes = [0.0; MAX_LANES];
                    S::as_mut_simd_f32s(&mut lanes).0[0] = value;
                    out[column] = lanes[0];
                };
                let (cdf, density) = normal(simd, x);
                first(exp(simd, x), 0);
                first(cdf, 1);
                first(density, 2);
            }
        }
    }

    /// Distance in units of the last place of the expected value.
    fn ulps(found: f32, expected: f64) -> f64 {
        if f64::from(found) == expected || (found.is_nan() && expected.is_nan()) {
            return 0.0;
        }
        let exponent = expected.abs().log2().floor().clamp(-126.0, 127.0) as i32;
        (f64::from(found) - expected).abs() / 2f64.powi(exponent - 23)
    }

    #[test]
    fn exp_is_within_its_error_bound() {
        let mut inputs = random_f32(20_000, -105.0, 90.0);
        inputs.extend(random_f32(20_000, -1.0, 1.0));
        inputs.extend([0.0, -0.0, 88.72283, 88.72284, -87.4, -103.9, -104.1, f32::MIN_POSITIVE, 1e-45]);
        on_every_arch(|arch| {
            let mut found = vec![[0.0; 3]; inputs.len()];
            arch.dispatch(Each(&inputs, &mut found));
            let mut worst: f64 = 0.0;
            for (&x, &[found, ..]) in inputs.iter().zip(&found) {
                let expected = f64::from(x).exp();
                let expected = if expected > f64::from(f32::MAX) * (1.0 + 1e-8) { f64::INFINITY } else { expected };
                let off = ulps(found, expected);
                assert!(off <= 1.5, "{arch:?}: exp({x:e}) is {found:e}, not {expected:e}: {off} ulp");
                worst = worst.max(off);
            }
            println!("exp on {arch:?}: at most {worst:.2} ulp");
        });
    }

    #[test]
    fn special_values_have_their_limits() {
        let inputs = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e30, -1e30, f32::MAX, f32::MIN];
        let expected = [f32::INFINITY, 0.0, f32::NAN, f32::INFINITY, 0.0, f32::INFINITY, 0.0];
        on_every_arch(|arch| {
            let mut found = [[0.0; 3]; 7];
            arch.dispatch(Each(&inputs, &mut found));
            for (n, (&[found, cdf, density], &expected)) in found.iter().zip(&expected).enumerate() {
                let same = found == expected || (found.is_nan() && expected.is_nan());
                assert!(same, "{arch:?}: exp({}) is {found}", inputs[n]);
                if !inputs[n].is_nan() {
                    assert!(cdf == if inputs[n] > 0.0 { 1.0 } else { cdf.min(1e-40) } && density < 1e-40);
                }
            }
        });
    }

    #[test]
    fn normal_distribution_is_within_its_error_bound() {
        let mut inputs = random_f32(4000, -9.0, 9.0);
        inputs.extend(random_f32(1000, -0.1, 0.1));
        inputs.extend([0.0, -0.0, 1e-30, -1e-30]);
        on_every_arch(|arch| {
            let mut found = vec![[0.0; 3]; inputs.len()];
            arch.dispatch(Each(&inputs, &mut found));
            let mut worst: [f64; 2] = [0.0; 2];
            for (&x, &[_, cdf, density]) in inputs.iter().zip(&found) {
                let x64 = f64::from(x);
                let phi = (-0.5 * x64 * x64).exp() / (2.0 * std::f64::consts::PI).sqrt();
                let off = [ulps(cdf, probability(x64)), ulps(density, phi)];
                assert!(off[0] <= 8.0 && off[1] <= 4.0, "{arch:?}: at {x}: {cdf}, {density}: {off:?} ulp");
                worst = [worst[0].max(off[0]), worst[1].max(off[1])];
            }
            println!("normal distribution on {arch:?}: at most {worst:.2?} ulp");
        });
    }

    /// Φ(x) in f64: by its series around 0 up to 3, by its continued fraction beyond.
    fn probability(x: f64) -> f64 {
        let size = x.abs();
        let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let tail = if size < 3.0 {
            let (mut term, mut sum) = (size, size);
            for n in 1..200 {
                term *= size * size / f64::from(2 * n + 1);
                sum += term;
            }
            0.5 - density * sum
        } else {
            density / (1..=400).rev().fold(size, |rest, n| size + f64::from(n) / rest)
        };
        if x < 0.0 { tail } else { 1.0 - tail }
    }
}
