//! Powers and roots.

use super::logarithm::{ATANH, split};
use super::{abs, equal, float, select_special, via_f64};
use crate::{EmitBits, Op};

/// 1 / √x.
pub(crate) fn rsqrt<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let one = float(e, args[0], 1.0);
    let root = e.op(Op::Sqrt, &[args[0]]);
    e.div(&one, &root)
}

/// exp(log |x| / 3), refined by one step of Newton's method, with the sign of x.
pub(crate) fn cbrt<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Cbrt, args) {
        return result;
    }
    let magnitude = abs(e, args[0]);
    // Small numbers are scaled by 2¹⁰⁸, so that the cube of the root is not denormal.
    let tiny = float(e, &magnitude, 1e-200);
    let small = e.lt(&magnitude, &tiny);
    let up = e.scale(&magnitude, f64::exp2(108.0));
    let x = e.select(&small, &up, &magnitude);
    let log = e.op(Op::Log, &[&x]);
    let third = e.scale(&log, 1.0 / 3.0);
    let root = e.op(Op::Exp, &[&third]);
    // root - (root³ - x) / (3 root²), with root² split into two parts for an accurate residual.
    let square = e.mul(&root, &root);
    let minus = e.neg(&square);
    let square_lost = e.fma(&root, &root, &minus);
    let minus_x = e.neg(&x);
    let residue = e.fma(&square, &root, &minus_x);
    let residue = e.fma(&square_lost, &root, &residue);
    let triple = e.scale(&square, 3.0);
    let step = e.div(&residue, &triple);
    let root = e.sub(&root, &step);
    let down = e.scale(&root, f64::exp2(-36.0));
    let root = e.select(&small, &down, &root);
    let root = e.op(Op::Copysign, &[&root, args[0]]);
    // The cube roots of 0, infinity and NaN are the arguments themselves.
    let zero = float(e, &magnitude, 0.0);
    let is_zero = equal(e, &magnitude, &zero);
    let root = e.select(&is_zero, args[0], &root);
    let infinity = float(e, &magnitude, f64::INFINITY);
    let finite = e.lt(&magnitude, &infinity);
    e.select(&finite, &root, args[0])
}

/// a √(1 + (b/a)²), a the larger: no intermediate overflow.
pub(crate) fn hypot<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Hypot, args) {
        return result;
    }
    let (a, b) = (abs(e, args[0]), abs(e, args[1]));
    let (large, small) = (e.op(Op::Max, &[&a, &b]), e.op(Op::Min, &[&a, &b]));
    let ratio = e.div(&small, &large);
    let one = float(e, &a, 1.0);
    let sum = e.fma(&ratio, &ratio, &one);
    let root = e.op(Op::Sqrt, &[&sum]);
    let result = e.mul(&large, &root);
    let zero = float(e, &a, 0.0);
    let flat = equal(e, &large, &zero);
    let result = e.select(&flat, &zero, &result);
    // Infinite if either argument is.
    let result = select_special(e, &a, f64::INFINITY, f64::INFINITY, &result);
    select_special(e, &b, f64::INFINITY, f64::INFINITY, &result)
}

/// Double-double number: an unevaluated sum, with `low` below half an ULP of `high`.
struct DoubleDouble<V> {
    high: V,
    low: V,
}

fn two_sum<E: EmitBits>(e: &mut E, a: &E::V, b: &E::V) -> DoubleDouble<E::V> {
    let high = e.add(a, b);
    let b_part = e.sub(&high, a);
    let a_part = e.sub(&high, &b_part);
    let (lost_a, lost_b) = (e.sub(a, &a_part), e.sub(b, &b_part));
    let low = e.add(&lost_a, &lost_b);
    DoubleDouble { high, low }
}

fn two_product<E: EmitBits>(e: &mut E, a: &E::V, b: &E::V) -> DoubleDouble<E::V> {
    let high = e.mul(a, b);
    let minus = e.neg(&high);
    let low = e.fma(a, b, &minus);
    DoubleDouble { high, low }
}

/// log x with a relative error of about 2⁻⁶⁵, for x positive and finite: 2s + (2/3) s³ + …, the
/// first two terms in double-double.
fn precise_log<E: EmitBits>(e: &mut E, x: &E::V) -> DoubleDouble<E::V> {
    let reduced = split(e, x);
    let (exponent, f) = (reduced.exponent, reduced.f);
    // s = f / (2 + f) in two parts. 2 + f is in [1.7, 2.42] and may round; the rounding error is
    // included.
    let two = float(e, x, 2.0);
    let sum = two_sum(e, &two, &f);
    let s = e.div(&f, &sum.high);
    let minus = e.neg(&s);
    let residue = e.fma(&minus, &sum.high, &f);
    let residue = e.fma(&minus, &sum.low, &residue);
    let s_low = e.div(&residue, &sum.high);
    // s² and s³ in two parts.
    let square = two_product(e, &s, &s);
    let twice_low = e.add(&s_low, &s_low);
    let square_low = e.fma(&s, &twice_low, &square.low);
    let cube = two_product(e, &square.high, &s);
    let cube_low = e.fma(&square_low, &s, &cube.low);
    let cube_low = e.fma(&square.high, &s_low, &cube_low);
    // (2/3) s³ in two parts.
    let [third, third_low] = [0.666_666_666_666_666_6, 3.700_743_415_417_188e-17].map(|c| float(e, x, c));
    let term = two_product(e, &cube.high, &third);
    let term_low = e.fma(&cube_low, &third, &term.low);
    let term_low = e.fma(&cube.high, &third_low, &term_low);
    let series = super::polynomial(e, &square.high, &ATANH[1..]);
    let fifth = e.mul(&cube.high, &square.high);
    let term_low = e.fma(&fifth, &series, &term_low);
    let first = e.add(&s, &s);
    let first_low = e.add(&s_low, &s_low);
    let log = two_sum(e, &first, &term.high);
    let low = e.add(&log.low, &term_low);
    let low = e.add(&low, &first_low);
    // k ln 2, the high part exact.
    let super::Ln2 { high: ln2_high, low: ln2_low } = super::ln2(crate::Scalar::F64);
    let (ln2_high, ln2_low) = (float(e, x, ln2_high), float(e, x, ln2_low));
    let exponent_term = e.mul(&exponent, &ln2_high);
    let exponent_term_low = two_product(e, &exponent, &ln2_low);
    let sum = two_sum(e, &exponent_term, &log.high);
    let low = e.add(&low, &exponent_term_low.high);
    let low = e.add(&sum.low, &low);
    two_sum(e, &sum.high, &low)
}

/// exp(y log |x|) with a double-double logarithm, then the special cases of IEEE 754.
pub(crate) fn pow<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Pow, args) {
        return result;
    }
    let (x, y) = (args[0], args[1]);
    let (zero, one, infinity) = (float(e, x, 0.0), float(e, x, 1.0), float(e, x, f64::INFINITY));
    let magnitude = abs(e, x);
    let log = precise_log(e, &magnitude);
    let product = two_product(e, y, &log.high);
    let low = e.fma(y, &log.low, &product.low);
    let power = e.op(Op::Exp, &[&product.high]);
    let corrected = e.fma(&power, &low, &power);
    // If the result is 0 or infinite, there is nothing to correct (and the correction may be
    // NaN).
    let finite = e.lt(&power, &infinity);
    let positive = e.lt(&zero, &power);
    let is_correctable = e.op(Op::And, &[&finite, &positive]);
    let result = e.select(&is_correctable, &corrected, &power);

    // |x| = 0 or infinite: the result is 0 or infinite, depending on the sign of y.
    let rising = e.lt(&zero, y);
    let (at_zero, at_infinity) = (e.select(&rising, &zero, &infinity), e.select(&rising, &infinity, &zero));
    let is_zero = equal(e, &magnitude, &zero);
    let result = e.select(&is_zero, &at_zero, &result);
    let is_infinite = equal(e, &magnitude, &infinity);
    let result = e.select(&is_infinite, &at_infinity, &result);
    // y infinite: the result depends on whether |x| is above or below 1.
    let large = e.lt(&one, &magnitude);
    let grows = e.op(Op::Eq, &[&large, &rising]);
    let limit = e.select(&grows, &infinity, &zero);
    let y_size = abs(e, y);
    let y_infinite = equal(e, &y_size, &infinity);
    let result = e.select(&y_infinite, &limit, &result);

    // x negative: y must be an integer; odd y gives the sign of x.
    let truncated = e.op(Op::Trunc, &[y]);
    let is_integer = equal(e, &truncated, y);
    let half = e.scale(y, 0.5);
    let half_truncated = e.op(Op::Trunc, &[&half]);
    let even = equal(e, &half_truncated, &half);
    let not_even = e.op(Op::Not, &[&even]);
    let odd = e.op(Op::And, &[&is_integer, &not_even]);
    let signed = e.op(Op::Copysign, &[&result, x]);
    let result = e.select(&odd, &signed, &result);
    let negative = e.lt(x, &zero);
    let not_integer = e.op(Op::Not, &[&is_integer]);
    let undefined = e.op(Op::And, &[&negative, &not_integer]);
    let finite_x = e.lt(&magnitude, &infinity);
    let undefined = e.op(Op::And, &[&undefined, &finite_x]);
    let nan = float(e, x, f64::NAN);
    let result = e.select(&undefined, &nan, &result);
    // (-1) to ±infinity is 1.
    let unit = equal(e, &magnitude, &one);
    let unit = e.op(Op::And, &[&unit, &y_infinite]);
    let result = e.select(&unit, &one, &result);
    // NaN propagates, except for 1 to any power and any base to the power 0.
    let sum = e.add(x, y);
    let (x_is_number, y_is_number) = (equal(e, x, x), equal(e, y, y));
    let numbers = e.op(Op::And, &[&x_is_number, &y_is_number]);
    let result = e.select(&numbers, &result, &sum);
    let result = select_special(e, x, 1.0, 1.0, &result);
    select_special(e, y, 0.0, 1.0, &result)
}
