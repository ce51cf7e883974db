//! sinh, cosh, tanh and their inverses.

use super::{abs, equal, float, polynomial, select_special, via_f64};
use crate::{EmitBits, Op, Scalar};

/// (tanh(x) / x - 1) / x² in x² on |x| ≤ 0.625, interpolated at Chebyshev nodes (relative error
/// 5.4e-10, 1.3e-18).
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

/// Polynomial near 0; otherwise 1 - 2 / (exp(2|x|) + 1) with the sign of x.
pub(crate) fn tanh<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let x = args[0];
    let coefficients = if e.scalar(x) == Scalar::F64 { &TANH_F64[..] } else { &TANH_F32[..] };
    let one = float(e, x, 1.0);
    let square = e.mul(x, x);
    let p = polynomial(e, &square, coefficients);
    let factor = e.fma(&square, &p, &one);
    let near = e.mul(x, &factor);

    let magnitude = abs(e, x);
    let twice = e.add(&magnitude, &magnitude);
    let exp = e.op(Op::Exp, &[&twice]);
    let denominator = e.add(&exp, &one);
    let two = float(e, x, 2.0);
    let quotient = e.div(&two, &denominator);
    let far = e.sub(&one, &quotient);
    let zero = float(e, x, 0.0);
    let negative = e.lt(x, &zero);
    let minus_far = e.neg(&far);
    let far = e.select(&negative, &minus_far, &far);
    let edge = float(e, x, 0.625);
    let is_near = e.lt(&magnitude, &edge);
    e.select(&is_near, &near, &far)
}

/// exp(|x|) / 2, for |x| so large that exp(-|x|) is negligible. Computed as (exp(|x|/2) / 2) ·
/// exp(|x|/2), since exp(|x|) would overflow too early.
fn half_exp<E: EmitBits>(e: &mut E, magnitude: &E::V) -> E::V {
    let half = e.scale(magnitude, 0.5);
    let root = e.op(Op::Exp, &[&half]);
    let scaled = e.scale(&root, 0.5);
    e.mul(&scaled, &root)
}

/// True where |x| is above 22: there exp(-|x|) is below half an ULP of exp(|x|).
fn is_large<E: EmitBits>(e: &mut E, magnitude: &E::V) -> E::V {
    let limit = float(e, magnitude, 22.0);
    e.lt(&limit, magnitude)
}

/// (m + m / (m + 1)) / 2, m = expm1(|x|), with the sign of x.
pub(crate) fn sinh<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Sinh, args) {
        return result;
    }
    let magnitude = abs(e, args[0]);
    let m = e.op(Op::Expm1, &[&magnitude]);
    let one = float(e, &m, 1.0);
    let denominator = e.add(&m, &one);
    let quotient = e.div(&m, &denominator);
    let near = e.add(&m, &quotient);
    let near = e.scale(&near, 0.5);
    let far = half_exp(e, &magnitude);
    let large = is_large(e, &magnitude);
    let result = e.select(&large, &far, &near);
    e.op(Op::Copysign, &[&result, args[0]])
}

/// (p + 1 / p) / 2, p = exp(|x|).
pub(crate) fn cosh<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Cosh, args) {
        return result;
    }
    let magnitude = abs(e, args[0]);
    let p = e.op(Op::Exp, &[&magnitude]);
    let half = float(e, &p, 0.5);
    let inverse = e.div(&half, &p);
    let near = e.fma(&p, &half, &inverse);
    let far = half_exp(e, &magnitude);
    let large = is_large(e, &magnitude);
    e.select(&large, &far, &near)
}

/// log1p(|x| + x² / (1 + √(1 + x²))), or log |x| + ln 2 where the squares would overflow, with the
/// sign of x.
pub(crate) fn asinh<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Asinh, args) {
        return result;
    }
    let magnitude = abs(e, args[0]);
    let one = float(e, &magnitude, 1.0);
    let square = e.mul(&magnitude, &magnitude);
    let sum = e.add(&square, &one);
    let root = e.op(Op::Sqrt, &[&sum]);
    let denominator = e.add(&root, &one);
    let quotient = e.div(&square, &denominator);
    let argument = e.add(&magnitude, &quotient);
    let near = e.op(Op::Log1p, &[&argument]);
    let result = or_log_of_twice(e, &magnitude, &near);
    e.op(Op::Copysign, &[&result, args[0]])
}

/// log(2x) where x is above 2²⁸, else `near`.
fn or_log_of_twice<E: EmitBits>(e: &mut E, x: &E::V, near: &E::V) -> E::V {
    let log = e.op(Op::Log, &[x]);
    let ln_2 = float(e, x, std::f64::consts::LN_2);
    let far = e.add(&log, &ln_2);
    let limit = float(e, x, 268_435_456.0);
    let is_far = e.lt(&limit, x);
    e.select(&is_far, &far, near)
}

/// log1p(t + √(2t + t²)), t = x - 1.
pub(crate) fn acosh<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Acosh, args) {
        return result;
    }
    let one = float(e, args[0], 1.0);
    let t = e.sub(args[0], &one);
    let twice = e.add(&t, &t);
    let sum = e.fma(&t, &t, &twice);
    let root = e.op(Op::Sqrt, &[&sum]);
    let argument = e.add(&t, &root);
    let near = e.op(Op::Log1p, &[&argument]);
    let result = or_log_of_twice(e, args[0], &near);
    let below = e.lt(args[0], &one);
    let nan = float(e, args[0], f64::NAN);
    e.select(&below, &nan, &result)
}

/// log1p(2 |x| / (1 - |x|)) / 2 with the sign of x.
pub(crate) fn atanh<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Atanh, args) {
        return result;
    }
    let magnitude = abs(e, args[0]);
    let one = float(e, &magnitude, 1.0);
    let twice = e.add(&magnitude, &magnitude);
    let rest = e.sub(&one, &magnitude);
    let argument = e.div(&twice, &rest);
    let log = e.op(Op::Log1p, &[&argument]);
    let half = e.scale(&log, 0.5);
    let result = select_special(e, &magnitude, 1.0, f64::INFINITY, &half);
    let outside = e.lt(&one, &magnitude);
    let nan = float(e, &magnitude, f64::NAN);
    let result = e.select(&outside, &nan, &result);
    let result = e.op(Op::Copysign, &[&result, args[0]]);
    let zero = float(e, &magnitude, 0.0);
    let is_zero = equal(e, args[0], &zero);
    e.select(&is_zero, args[0], &result)
}
