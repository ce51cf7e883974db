//! Bodies of the op table: transcendental functions over primitives, so that every reader gives the same bits.
//!
//! All follow the same plan: reduce the argument exactly (fused multiply-adds with a split constant), evaluate a
//! polynomial whose error is far below the rounding of its last step, undo the reduction, mend the special values.
//! `tests/accuracy.rs` holds each to its bound.

use crate::{EmitBits, Op, Scalar, Value};

/// A float constant of `x`'s type.
fn k<E: EmitBits>(e: &mut E, x: &E::V, value: f64) -> E::V {
    e.constant_like(x, value)
}

/// An integer constant of the width of `x`'s type.
fn int<E: EmitBits>(e: &mut E, x: &E::V, value: i64) -> E::V {
    let scalar = e.scalar(x);
    e.constant(Value::int(scalar.same_width(), value))
}

/// c[0] + x (c[1] + x (c[2] + …)) by Horner's rule with fused steps.
fn polynomial<E: EmitBits>(e: &mut E, x: &E::V, coefficients: &[f64]) -> E::V {
    let Some((last, rest)) = coefficients.split_last() else { return k(e, x, 0.0) };
    let mut sum = k(e, x, *last);
    for &c in rest.iter().rev() {
        let c = k(e, x, c);
        sum = e.fma(&sum, x, &c);
    }
    sum
}

/// 1/0!, 1/1!, …: enough of them that the remainder on |r| ≤ ln 2 / 2 is below a tenth of an ulp.
const EXP: [f64; 14] = [
    1.0,
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5_040.0,
    1.0 / 40_320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
    1.0 / 479_001_600.0,
    1.0 / 6_227_020_800.0,
];

/// ln 2 = HIGH + LOW, HIGH short enough that an exponent times it is exact.
struct Ln2 {
    high: f64,
    low: f64,
}

const fn ln2(scalar: Scalar) -> Ln2 {
    match scalar {
        Scalar::F64 => Ln2 { high: 0.693_147_180_559_663, low: 2.823_529_056_303_157_7e-13 },
        _ => Ln2 { high: 0.693_145_751_953_125, low: 1.428_606_820_309_417_2e-6 },
    }
}

/// exp(x) = 2ⁿ · exp(r), n = rint(x / ln 2), |r| ≤ ln 2 / 2.
pub(crate) fn exp<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let x = args[0];
    let scalar = e.scalar(x);
    // Beyond these the result is 0 or infinite whatever x; within, both halves of 2ⁿ below are normal numbers.
    let (low, high, terms) = if scalar == Scalar::F64 { (-746.0, 710.0, 14) } else { (-104.5, 89.0, 8) };
    let (low, high) = (k(e, x, low), k(e, x, high));
    let above = e.lt(&high, x);
    let x = e.select(&above, &high, x);
    let below = e.lt(&x, &low);
    let x = e.select(&below, &low, &x);

    let log2_e = k(e, &x, std::f64::consts::LOG2_E);
    let scaled = e.mul(&x, &log2_e);
    let n = e.op(Op::Rint, &[&scaled]);
    let Ln2 { high, low } = ln2(scalar);
    let (high, low) = (k(e, &x, -high), k(e, &x, -low));
    let r = e.fma(&n, &high, &x);
    let r = e.fma(&n, &low, &r);
    let p = polynomial(e, &r, &EXP[..terms]);

    // 2ⁿ in two factors: a single one could overflow or be denormal where the product is not.
    let n = e.cast(scalar.same_width(), &n);
    let one = int(e, &x, 1);
    let half = e.op(Op::Shr, &[&n, &one]);
    let rest = e.sub(&n, &half);
    let (half, rest) = (power_of_two(e, &x, &half), power_of_two(e, &x, &rest));
    let p = e.mul(&p, &half);
    e.mul(&p, &rest)
}

/// 2ⁿ as a float of `like`'s type, for n within the range of normal numbers.
fn power_of_two<E: EmitBits>(e: &mut E, like: &E::V, n: &E::V) -> E::V {
    let scalar = e.scalar(like);
    let (bias, width) = if scalar == Scalar::F64 { (1023, 52) } else { (127, 23) };
    let (bias, width) = (int(e, like, bias), int(e, like, width));
    let exponent = e.add(n, &bias);
    let bits = e.op(Op::Shl, &[&exponent, &width]);
    e.bitcast(scalar, &bits)
}

/// 2/3, 2/5, 2/7, …: the series of 2 atanh(s) / s - 2 in s².
const ATANH: [f64; 10] = [
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
];

/// log(x) = k ln 2 + log(1 + f), x = 2ᵏ (1 + f), 1 + f in [√½, √2);
/// log(1 + f) = f - s (f - R), s = f / (2 + f), R = 2 s²/3 + 2 s⁴/5 + …
pub(crate) fn log<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let original = args[0];
    let scalar = e.scalar(original);
    let integer = scalar.same_width();
    // (bits of √½, mantissa width, smallest normal, terms)
    let (root, width, tiny, terms) = if scalar == Scalar::F64 {
        (0x3fe6_a09e_667f_3bcd_u64 as i64, 52, f64::MIN_POSITIVE, 10)
    } else {
        (0x3f35_04f3, 23, f32::MIN_POSITIVE as f64, 5)
    };

    // Denormals are scaled up by 2^width first.
    let tiny = k(e, original, tiny);
    let denormal = e.lt(original, &tiny);
    let up = k(e, original, f64::exp2(width as f64));
    let scaled = e.mul(original, &up);
    let x = e.select(&denormal, &scaled, original);

    let bits = e.bitcast(integer, &x);
    let root = e.constant(Value::int(integer, root));
    let offset = e.sub(&bits, &root);
    let shift = int(e, &x, width);
    let exponent = e.op(Op::Shr, &[&offset, &shift]);
    let mask = int(e, &x, (1 << width) - 1);
    let mantissa = e.op(Op::And, &[&offset, &mask]);
    let mantissa = e.add(&mantissa, &root);
    let m = e.bitcast(scalar, &mantissa);
    let correction = int(e, &x, width);
    let corrected = e.sub(&exponent, &correction);
    let exponent = e.select(&denormal, &corrected, &exponent);
    let exponent = e.cast(scalar, &exponent);

    let one = k(e, &x, 1.0);
    let f = e.sub(&m, &one);
    let two = k(e, &x, 2.0);
    let denominator = e.add(&f, &two);
    let s = e.div(&f, &denominator);
    let z = e.mul(&s, &s);
    let series = polynomial(e, &z, &ATANH[..terms]);
    let r = e.mul(&z, &series);
    let Ln2 { high, low } = ln2(scalar);
    let (high, low) = (k(e, &x, high), k(e, &x, low));
    let inner = e.sub(&f, &r);
    let small = e.mul(&exponent, &low);
    let small = e.neg(&small);
    let small = e.fma(&s, &inner, &small);
    let tail = e.sub(&f, &small);
    let result = e.fma(&exponent, &high, &tail);

    let zero = k(e, original, 0.0);
    let infinity = k(e, original, f64::INFINITY);
    let nan = k(e, original, f64::NAN);
    let is_infinite = e.op(Op::Eq, &[original, &infinity]);
    let result = e.select(&is_infinite, &infinity, &result);
    let is_zero = e.op(Op::Eq, &[original, &zero]);
    let minus_infinity = k(e, original, f64::NEG_INFINITY);
    let result = e.select(&is_zero, &minus_infinity, &result);
    let negative = e.lt(original, &zero);
    let result = e.select(&negative, &nan, &result);
    let is_number = e.op(Op::Eq, &[original, original]);
    e.select(&is_number, &result, &nan)
}

/// (tanh(x) / x - 1) / x² in x² on |x| ≤ 0.625, interpolated at Chebyshev nodes (relative error 5.4e-10, 1.3e-18).
const TANH_F32: [f64; 6] = [
    -0.333_333_331_721_403_6,
    0.133_333_035_569_157_4,
    -0.053_959_259_577_204_54,
    0.021_768_918_651_028_21,
    -0.008_343_945_515_839_152,
    0.002_292_744_816_178_142,
];
const TANH_F64: [f64; 12] = [
    -0.333_333_333_333_333_3,
    0.133_333_333_333_330_42,
    -0.053_968_253_967_896_99,
    0.021_869_488_519_008_306,
    -0.008_863_235_103_240_878,
    0.003_592_121_751_154_962,
    -0.001_455_775_412_047_805_5,
    0.000_589_660_657_775_704_3,
    -0.000_237_590_649_605_556_2,
    0.000_092_571_161_295_567_68,
    -0.000_031_201_101_425_797_4,
    6.485_163_482_793_113e-6,
];

/// Near 0 a polynomial; beyond, 1 - 2 / (exp(2|x|) + 1) with the sign of x.
pub(crate) fn tanh<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let x = args[0];
    let coefficients = if e.scalar(x) == Scalar::F64 { &TANH_F64[..] } else { &TANH_F32[..] };
    let one = k(e, x, 1.0);
    let square = e.mul(x, x);
    let p = polynomial(e, &square, coefficients);
    let factor = e.fma(&square, &p, &one);
    let near = e.mul(x, &factor);

    let minus = e.neg(x);
    let size = e.op(Op::Max, &[x, &minus]);
    let twice = e.add(&size, &size);
    let power = e.op(Op::Exp, &[&twice]);
    let denominator = e.add(&power, &one);
    let two = k(e, x, 2.0);
    let quotient = e.div(&two, &denominator);
    let far = e.sub(&one, &quotient);
    let zero = k(e, x, 0.0);
    let negative = e.lt(x, &zero);
    let minus_far = e.neg(&far);
    let far = e.select(&negative, &minus_far, &far);
    let edge = k(e, x, 0.625);
    let is_near = e.lt(&size, &edge);
    e.select(&is_near, &near, &far)
}
