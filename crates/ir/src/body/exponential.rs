//! exp, exp2, expm1.

use super::{Ln2, Nearest, equal, float, int, integer, ln2, nearest, polynomial, power_of_two, via_f64};
use crate::{EmitBits, Op, Scalar};

/// 1/0!, 1/1!, …: enough terms that the remainder on |r| ≤ ln 2 / 2 is below a tenth of an ULP.
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

/// exp(x) = 2ⁿ · exp(r), n = x / ln 2 rounded, |r| ≤ ln 2 / 2.
pub(crate) fn exp<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let x = args[0];
    let scalar = e.scalar(x);
    // Outside this range the result is 0 or infinite; inside, both halves of 2ⁿ below are normal
    // numbers.
    let (low, high, terms) = if scalar == Scalar::F64 { (-746.0, 710.0, 14) } else { (-104.5, 89.0, 8) };
    let x = clamp_range(e, x, low, high);

    let n = nearest(e, &x, std::f64::consts::LOG2_E);
    let Ln2 { high, low } = ln2(scalar);
    let (high, low) = (float(e, &x, -high), float(e, &x, -low));
    let r = e.fma(&n.float, &high, &x);
    let r = e.fma(&n.float, &low, &r);
    let p = polynomial(e, &r, &EXP[..terms]);

    scaled(e, &p, &n)
}

/// p · 2ⁿ as two multiplications: 2ⁿ could overflow or be denormal where the product is not.
fn scaled<E: EmitBits>(e: &mut E, p: &E::V, n: &Nearest<E::V>) -> E::V {
    let n = integer(e, n);
    let one = int(e, p, 1);
    let half = e.op(Op::Shr, &[&n, &one]);
    let rest = e.sub(&n, &half);
    let (half, rest) = (power_of_two(e, p, &half), power_of_two(e, p, &rest));
    let p = e.mul(p, &half);
    e.mul(&p, &rest)
}

/// Clamps `x` to [low, high]; NaN propagates.
fn clamp_range<E: EmitBits>(e: &mut E, x: &E::V, low: f64, high: f64) -> E::V {
    let (low, high) = (float(e, x, low), float(e, x, high));
    let above = e.lt(&high, x);
    let x = e.select(&above, &high, x);
    let below = e.lt(&x, &low);
    e.select(&below, &low, &x)
}

/// 2ˣ = 2ⁿ · exp(r ln 2), n = x rounded.
pub(crate) fn exp2<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Exp2, args) {
        return result;
    }
    let x = clamp_range(e, args[0], -1076.0, 1025.0);
    let n = nearest(e, &x, 1.0);
    let r = e.sub(&x, &n.float);
    let r = e.scale(&r, std::f64::consts::LN_2);
    let p = polynomial(e, &r, &EXP);
    scaled(e, &p, &n)
}

/// expm1(x) = 2ⁿ · expm1(r) + (2ⁿ - 1), which avoids the cancellation of exp(x) - 1 near 0.
pub(crate) fn expm1<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Expm1, args) {
        return result;
    }
    // Above 60 the 1 is below a hundredth of an ULP, below -60 the result is -1.
    let x = clamp_range(e, args[0], -60.0, 60.0);
    let n = nearest(e, &x, std::f64::consts::LOG2_E);
    let Ln2 { high, low } = ln2(Scalar::F64);
    let (high, low) = (float(e, &x, -high), float(e, &x, -low));
    let r = e.fma(&n.float, &high, &x);
    let r = e.fma(&n.float, &low, &r);
    let tail = polynomial(e, &r, &EXP[2..]);
    let square = e.mul(&r, &r);
    let p = e.fma(&square, &tail, &r);
    let n = integer(e, &n);
    let power = power_of_two(e, &x, &n);
    let one = float(e, &x, 1.0);
    let less = e.sub(&power, &one);
    let near = e.fma(&power, &p, &less);
    let far = e.op(Op::Exp, &[args[0]]);
    let limit = float(e, &x, 60.0);
    let is_far = e.lt(&limit, args[0]);
    let result = e.select(&is_far, &far, &near);
    // expm1(-0) is -0.
    let zero = float(e, &x, 0.0);
    let is_zero = equal(e, args[0], &zero);
    e.select(&is_zero, args[0], &result)
}
