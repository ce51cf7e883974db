//! log, log2, log10, log1p.

use super::{Ln2, equal, float, int, ln2, polynomial, select_special, via_f64};
use crate::{EmitBits, Op, Scalar, Value};

/// 2/3, 2/5, 2/7, …: the series of 2 atanh(s) / s - 2 in s².
pub(super) const ATANH: [f64; 12] = [
    2.0 / 3.0,
    2.0 / 5.0,
    2.0 / 7.0,
    2.0 / 9.0,
    2.0 / 11.0,
    2.0 / 13.0,
    2.0 / 15.0,
    2.0 / 17.0,
    2.0 / 19.0,
    2.0 / 21.0,
    2.0 / 23.0,
    2.0 / 25.0,
];

/// x = 2ᵏ (1 + f) with 1 + f in [√½, √2), and log(1 + f) = f - s (f - R), s = f / (2 + f), R = 2
/// s²/3 + 2 s⁴/5 + …
pub(super) struct Split<V> {
    /// k, as a float.
    pub exponent: V,
    pub f: V,
    /// s (f - R): f - log(1 + f).
    pub excess: V,
}

/// Splits a positive finite number; denormals are supported.
pub(super) fn split<E: EmitBits>(e: &mut E, x: &E::V) -> Split<E::V> {
    let scalar = e.scalar(x);
    let integer = scalar.same_width_int();
    // (bits of √½, mantissa width, smallest normal, terms)
    let (root, width, tiny, terms) = if scalar == Scalar::F64 {
        (0x3fe6_a09e_667f_3bcd_u64 as i64, 52, f64::MIN_POSITIVE, 10)
    } else {
        (0x3f35_04f3, 23, f32::MIN_POSITIVE as f64, 5)
    };
    // Denormals are first scaled up by 2^width.
    let tiny = float(e, x, tiny);
    let denormal = e.lt(x, &tiny);
    let scaled = e.scale(x, f64::exp2(width as f64));
    let x = e.select(&denormal, &scaled, x);

    let bits = e.bitcast(integer, &x);
    let root = e.constant(Value::int(integer, root));
    let offset = e.sub(&bits, &root);
    let shift = int(e, &x, width);
    let exponent = e.op(Op::Shr, &[&offset, &shift]);
    let mask = int(e, &x, (1 << width) - 1);
    let mantissa = e.op(Op::And, &[&offset, &mask]);
    let mantissa = e.add(&mantissa, &root);
    let m = e.bitcast(scalar, &mantissa);
    let corrected = e.sub(&exponent, &shift);
    let exponent = e.select(&denormal, &corrected, &exponent);
    let exponent = e.cast(scalar, &exponent);

    let one = float(e, &x, 1.0);
    let f = e.sub(&m, &one);
    let two = float(e, &x, 2.0);
    let denominator = e.add(&f, &two);
    let s = e.div(&f, &denominator);
    let z = e.mul(&s, &s);
    let series = polynomial(e, &z, &ATANH[..terms]);
    let r = e.mul(&z, &series);
    let inner = e.sub(&f, &r);
    let excess = e.mul(&s, &inner);
    Split { exponent, f, excess }
}

/// Special values shared by all logarithms: at 0, below 0, at infinity and for NaN.
fn select_log_special_values<E: EmitBits>(e: &mut E, x: &E::V, result: &E::V) -> E::V {
    let result = select_special(e, x, f64::INFINITY, f64::INFINITY, result);
    let result = select_special(e, x, 0.0, f64::NEG_INFINITY, &result);
    let (zero, nan) = (float(e, x, 0.0), float(e, x, f64::NAN));
    let negative = e.lt(x, &zero);
    let result = e.select(&negative, &nan, &result);
    let is_number = equal(e, x, x);
    e.select(&is_number, &result, &nan)
}

/// k ln 2 + log(1 + f).
pub(crate) fn log<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let x = args[0];
    let Split { exponent, f, excess } = split(e, x);
    let Ln2 { high, low } = ln2(e.scalar(x));
    let (high, low) = (float(e, x, high), float(e, x, -low));
    let small = e.fma(&exponent, &low, &excess);
    let tail = e.sub(&f, &small);
    let result = e.fma(&exponent, &high, &tail);
    select_log_special_values(e, x, &result)
}

/// k log_b 2 + log(1 + f) log_b e, with each constant split into a high and a low part.
fn log_base<E: EmitBits>(e: &mut E, x: &E::V, two: [f64; 2], euler: [f64; 2]) -> E::V {
    let Split { exponent, f, excess } = split(e, x);
    let natural = e.sub(&f, &excess);
    let [two_high, two_low] = two.map(|c| float(e, x, c));
    let [euler_high, euler_low] = euler.map(|c| float(e, x, c));
    let low = e.mul(&exponent, &two_low);
    let low = e.fma(&natural, &euler_low, &low);
    let partial = e.fma(&natural, &euler_high, &low);
    let result = e.fma(&exponent, &two_high, &partial);
    select_log_special_values(e, x, &result)
}

/// k + log(1 + f) / ln 2: exact at powers of two.
pub(crate) fn log2<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Log2, args) {
        return result;
    }
    log_base(e, args[0], [1.0, 0.0], [std::f64::consts::LOG2_E, 2.035_527_374_093_103_3e-17])
}

/// k log₁₀ 2 + log(1 + f) / ln 10.
pub(crate) fn log10<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Log10, args) {
        return result;
    }
    let two = [0.301_029_995_663_839_14, 1.420_502_322_726_61e-13];
    log_base(e, args[0], two, [std::f64::consts::LOG10_E, 1.098_319_650_216_765e-17])
}

/// log(u) + c / u, with u = 1 + x rounded and c the rounding error.
pub(crate) fn log1p<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Log1p, args) {
        return result;
    }
    let x = args[0];
    let one = float(e, x, 1.0);
    let u = e.add(x, &one);
    let large = e.lt(&one, x);
    let (back_x, back_one) = (e.sub(&u, x), e.sub(&u, &one));
    let (lost_large, lost_small) = (e.sub(&one, &back_x), e.sub(x, &back_one));
    let lost = e.select(&large, &lost_large, &lost_small);
    let lost = e.div(&lost, &u);
    let Split { exponent, f, excess } = split(e, &u);
    let Ln2 { high, low } = ln2(Scalar::F64);
    let (high, low) = (float(e, x, high), float(e, x, -low));
    let small = e.fma(&exponent, &low, &excess);
    let small = e.sub(&small, &lost);
    let tail = e.sub(&f, &small);
    let result = e.fma(&exponent, &high, &tail);
    let result = select_log_special_values(e, &u, &result);
    // log1p(-0) is -0.
    let zero = float(e, x, 0.0);
    let is_zero = equal(e, x, &zero);
    e.select(&is_zero, x, &result)
}
