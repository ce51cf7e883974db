//! sin, cos, tan and their inverses.

use super::reduction::{HALF_PI, MAX_CODY_WAITE_F32, Reduced, reduce, reduce_f32};
use super::{abs, float, polynomial, select_special, via_f64};
use crate::{EmitBits, Op, Scalar, Value};

/// (sin(x) / x - 1) / x²: -1/3!, 1/5!, …
const SIN: [f64; 9] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
    1.0 / 355_687_428_096_000.0,
    -1.0 / 121_645_100_408_832_000.0,
];

/// (cos(x) - 1 + x²/2) / x⁴: 1/4!, -1/6!, …
const COS: [f64; 8] = [
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 20_922_789_888_000.0,
    -1.0 / 6_402_373_705_728_000.0,
];

/// Sine and cosine of x - n π/2, and n, of which only the last two bits are significant.
struct ReducedSinCos<V> {
    sin: V,
    cos: V,
    quadrant: V,
}

fn reduced_sin_cos<E: EmitBits>(e: &mut E, x: &E::V) -> ReducedSinCos<E::V> {
    let Reduced { r, low, quadrant } = reduce(e, x);

    let z = e.mul(&r, &r);
    let cube = e.mul(&z, &r);
    let series = polynomial(e, &z, &SIN);
    let one = float(e, x, 1.0);
    let half_square = e.scale(&z, 0.5);
    let cos_head = e.sub(&one, &half_square);
    let tail = e.mul(&low, &cos_head);
    let tail = e.fma(&cube, &series, &tail);
    let sin = e.add(&r, &tail);

    let series = polynomial(e, &z, &COS);
    let fourth = e.mul(&z, &z);
    let lost = e.sub(&one, &cos_head);
    let lost = e.sub(&lost, &half_square);
    let cross = e.mul(&r, &low);
    let lost = e.sub(&lost, &cross);
    let tail = e.fma(&fourth, &series, &lost);
    let cos = e.add(&cos_head, &tail);

    ReducedSinCos { sin, cos, quadrant }
}

/// True where `quadrant` has the bit `bit`.
fn has_bit<E: EmitBits>(e: &mut E, quadrant: &E::V, bit: i64) -> E::V {
    let [bit, zero] = [bit, 0].map(|v| e.constant(Value::int(Scalar::I64, v)));
    let masked = e.op(Op::And, &[quadrant, &bit]);
    e.op(Op::Ne, &[&masked, &zero])
}

/// NaN where x is infinite. (For NaN the arithmetic already gives NaN.)
fn nan_unless_finite<E: EmitBits>(e: &mut E, x: &E::V, result: &E::V) -> E::V {
    let magnitude = abs(e, x);
    select_special(e, &magnitude, f64::INFINITY, f64::NAN, result)
}

/// sin, or cos as sin in the next quadrant, entirely in f32; from [`MAX_CODY_WAITE_F32`] on, via
/// f64.
fn sin_cos_f32<E: EmitBits>(e: &mut E, op: Op, x: &E::V) -> E::V {
    let Reduced { r, low, quadrant } = reduce_f32(e, x);
    let z = e.mul(&r, &r);
    let cube = e.mul(&z, &r);
    let series = polynomial(e, &z, &SIN[..4]);
    let tail = e.fma(&cube, &series, &low);
    let sin = e.add(&r, &tail);

    // 1 - z/2 and its rounding error.
    let (one, half) = (float(e, x, 1.0), float(e, x, -0.5));
    let cos_head = e.fma(&z, &half, &one);
    let lost = e.sub(&one, &cos_head);
    let lost = e.fma(&z, &half, &lost);
    let minus = e.neg(&r);
    let lost = e.fma(&minus, &low, &lost);
    let series = polynomial(e, &z, &COS[..4]);
    let fourth = e.mul(&z, &z);
    let tail = e.fma(&fourth, &series, &lost);
    let cos = e.add(&cos_head, &tail);

    let [one, two, up] = [1, 2, 30].map(|v| e.constant(Value::int(Scalar::I32, v)));
    let quadrant = if op == Op::Cos { e.add(&quadrant, &one) } else { quadrant };
    let odd = e.op(Op::And, &[&quadrant, &one]);
    let zero = e.constant(Value::int(Scalar::I32, 0));
    let odd = e.op(Op::Ne, &[&odd, &zero]);
    let value = e.select(&odd, &cos, &sin);
    // The quadrant's second bit is the sign.
    let sign = e.op(Op::And, &[&quadrant, &two]);
    let sign = e.op(Op::Shl, &[&sign, &up]);
    let bits = e.bitcast(Scalar::I32, &value);
    let bits = e.op(Op::Xor, &[&bits, &sign]);
    let mut value = e.bitcast(Scalar::F32, &bits);
    if op == Op::Sin {
        // sin(-0) is -0.
        value = preserve_zero(e, x, &value);
    }
    let (magnitude, edge) = (abs(e, x), float(e, x, MAX_CODY_WAITE_F32));
    let large = e.op(Op::Ge, &[&magnitude, &edge]);
    let [value] = e.select_unlikely(&large, [value.clone()], |e| [via_f64(e, op, &[x]).unwrap_or(value)]);
    value
}

/// x itself where it is 0, so that the sign of zero is preserved.
fn preserve_zero<E: EmitBits>(e: &mut E, x: &E::V, value: &E::V) -> E::V {
    let zero = float(e, x, 0.0);
    let is_zero = super::equal(e, x, &zero);
    e.select(&is_zero, x, value)
}

pub(crate) fn sin<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if e.scalar(args[0]) == Scalar::F32 {
        return sin_cos_f32(e, Op::Sin, args[0]);
    }
    let ReducedSinCos { sin, cos, quadrant } = reduced_sin_cos(e, args[0]);
    let odd = has_bit(e, &quadrant, 1);
    let value = e.select(&odd, &cos, &sin);
    let negative = has_bit(e, &quadrant, 2);
    let minus = e.neg(&value);
    let value = e.select(&negative, &minus, &value);
    // sin(-0) is -0.
    let value = preserve_zero(e, args[0], &value);
    nan_unless_finite(e, args[0], &value)
}

pub(crate) fn cos<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if e.scalar(args[0]) == Scalar::F32 {
        return sin_cos_f32(e, Op::Cos, args[0]);
    }
    let ReducedSinCos { sin, cos, quadrant } = reduced_sin_cos(e, args[0]);
    let one = e.constant(Value::int(Scalar::I64, 1));
    let shifted = e.add(&quadrant, &one);
    let odd = has_bit(e, &quadrant, 1);
    let value = e.select(&odd, &sin, &cos);
    let negative = has_bit(e, &shifted, 2);
    let minus = e.neg(&value);
    let value = e.select(&negative, &minus, &value);
    nan_unless_finite(e, args[0], &value)
}

pub(crate) fn tan<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Tan, args) {
        return result;
    }
    let ReducedSinCos { sin, cos, quadrant } = reduced_sin_cos(e, args[0]);
    let odd = has_bit(e, &quadrant, 1);
    let minus = e.neg(&cos);
    let (above, below) = (e.select(&odd, &minus, &sin), e.select(&odd, &sin, &cos));
    let value = e.div(&above, &below);
    let value = preserve_zero(e, args[0], &value);
    nan_unless_finite(e, args[0], &value)
}

/// (atan(t) / t - 1) / t² in t² on |t| ≤ tan(π/12), interpolated at Chebyshev nodes.
const ATAN: [f64; 10] = [
    -0.3333333333333333,
    0.19999999999999937,
    -0.142857142856853,
    0.11111111105948979,
    -0.09090908623189288,
    0.07692283289778906,
    -0.06665888583545501,
    0.058668960125569894,
    -0.05075161280334281,
    0.034548359238821325,
];

/// π/2 - atan(1/x) above 1; otherwise atan(c) + atan((x - c) / (1 + c x)) with c near tan(π/6).
pub(crate) fn atan<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Atan, args) {
        return result;
    }
    let magnitude = abs(e, args[0]);
    let one = float(e, &magnitude, 1.0);
    let inverted = e.lt(&one, &magnitude);
    let inverse = e.div(&one, &magnitude);
    let x = e.select(&inverted, &inverse, &magnitude);

    let c = float(e, &x, 0.577_350_269_189_625_7);
    let above = e.sub(&x, &c);
    let below = e.fma(&x, &c, &one);
    let moved = e.div(&above, &below);
    let edge = float(e, &x, 0.267_949_192_431_122_7);
    let is_moved = e.lt(&edge, &x);
    let t = e.select(&is_moved, &moved, &x);
    let zero = float(e, &x, 0.0);
    let [base, base_low] = [0.523_598_775_598_298_8, 3.233_050_358_544_384_5e-17].map(|c| float(e, &x, c));
    let base = e.select(&is_moved, &base, &zero);
    let base_low = e.select(&is_moved, &base_low, &zero);

    let square = e.mul(&t, &t);
    let series = polynomial(e, &square, &ATAN);
    let cube = e.mul(&square, &t);
    let tail = e.fma(&cube, &series, &base_low);
    // base + t + tail, the small parts first.
    let tail = e.add(&t, &tail);
    let direct = e.add(&base, &tail);

    let [right, right_low] = [HALF_PI[0], HALF_PI[1]].map(|c| float(e, &x, c));
    let rest = e.sub(&tail, &right_low);
    let reflected = e.sub(&right, &base);
    let reflected = e.sub(&reflected, &rest);
    let result = e.select(&inverted, &reflected, &direct);
    e.op(Op::Copysign, &[&result, args[0]])
}

/// Angle of (x, y): atan(|y| / |x|), mirrored to the half-plane of x, with the sign of y.
pub(crate) fn atan2<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Atan2, args) {
        return result;
    }
    let (y, x) = (args[0], args[1]);
    let (height, width) = (abs(e, y), abs(e, x));
    let ratio = e.div(&height, &width);
    // 0 / 0 is angle 0 (or π), ∞ / ∞ is 45°.
    let (zero, one, infinity) = (float(e, x, 0.0), float(e, x, 1.0), float(e, x, f64::INFINITY));
    let flat = super::equal(e, &height, &zero);
    let ratio = e.select(&flat, &zero, &ratio);
    let high = super::equal(e, &height, &infinity);
    let wide = super::equal(e, &width, &infinity);
    let both = e.op(Op::And, &[&high, &wide]);
    let ratio = e.select(&both, &one, &ratio);
    let angle = e.op(Op::Atan, &[&ratio]);

    let [straight, straight_low] = [std::f64::consts::PI, 1.224_646_799_147_353_2e-16].map(|c| float(e, x, c));
    let less = e.sub(&angle, &straight_low);
    let mirrored = e.sub(&straight, &less);
    let direction = e.op(Op::Copysign, &[&one, x]);
    let left = e.lt(&direction, &zero);
    let angle = e.select(&left, &mirrored, &angle);
    let result = e.op(Op::Copysign, &[&angle, y]);
    // NaN propagates.
    let sum = e.add(x, y);
    let (x_is_number, y_is_number) = (super::equal(e, x, x), super::equal(e, y, y));
    let numbers = e.op(Op::And, &[&x_is_number, &y_is_number]);
    e.select(&numbers, &result, &sum)
}

/// (asin(x) / x - 1) / x² in x² on |x| ≤ 1/2, interpolated at Chebyshev nodes.
const ASIN: [f64; 15] = [
    0.16666666666666666,
    0.07499999999999991,
    0.04464285714288356,
    0.030381944441346388,
    0.02237215928067093,
    0.017352757444179825,
    0.013965010669331847,
    0.011549075679439491,
    0.009792863988301035,
    0.008135014193193648,
    0.008799140451914983,
    0.0003664940923274747,
    0.022586112401573495,
    -0.024063914377949604,
    0.030744526924322193,
];

/// asin on [0, 1], in the form shared by asin and acos.
struct AsinParts<V> {
    /// True where |x| > 1/2.
    above_half: V,
    /// asin |x| where |x| ≤ 1/2.
    direct: V,
    /// 2 asin √((1 - |x|) / 2) = π/2 - asin |x| where |x| > 1/2.
    rest: V,
}

fn asin_parts<E: EmitBits>(e: &mut E, x: &E::V) -> AsinParts<E::V> {
    let magnitude = abs(e, x);
    let (half, one) = (float(e, x, 0.5), float(e, x, 1.0));
    let square = e.mul(&magnitude, &magnitude);
    let series = polynomial(e, &square, &ASIN);
    let cube = e.mul(&square, &magnitude);
    let direct = e.fma(&cube, &series, &magnitude);

    let complement = e.sub(&one, &magnitude);
    let z = e.mul(&complement, &half);
    let root = e.op(Op::Sqrt, &[&z]);
    // Rounding error of the root: (z - root²) / (2 root), or 0 at 0.
    let minus = e.neg(&root);
    let residue = e.fma(&minus, &root, &z);
    let twice = e.add(&root, &root);
    let lost = e.div(&residue, &twice);
    let zero = float(e, x, 0.0);
    let flat = super::equal(e, &root, &zero);
    let lost = e.select(&flat, &zero, &lost);
    let series = polynomial(e, &z, &ASIN);
    let cube = e.mul(&z, &root);
    let tail = e.fma(&cube, &series, &lost);
    let sum = e.add(&root, &tail);
    let rest = e.add(&sum, &sum);
    let above_half = e.lt(&half, &magnitude);
    AsinParts { above_half, direct, rest }
}

pub(crate) fn asin<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Asin, args) {
        return result;
    }
    let AsinParts { above_half, direct, rest } = asin_parts(e, args[0]);
    let [right, right_low] = [HALF_PI[0], HALF_PI[1]].map(|c| float(e, args[0], c));
    let less = e.sub(&rest, &right_low);
    let reflected = e.sub(&right, &less);
    let result = e.select(&above_half, &reflected, &direct);
    e.op(Op::Copysign, &[&result, args[0]])
}

pub(crate) fn acos<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    if let Some(result) = via_f64(e, Op::Acos, args) {
        return result;
    }
    let x = args[0];
    let AsinParts { above_half, direct, rest } = asin_parts(e, x);
    let [right, right_low] = [HALF_PI[0], HALF_PI[1]].map(|c| float(e, x, c));
    let signed = e.op(Op::Copysign, &[&direct, x]);
    let less = e.sub(&signed, &right_low);
    let middle = e.sub(&right, &less);
    let [straight, straight_low] = [std::f64::consts::PI, 1.224_646_799_147_353_2e-16].map(|c| float(e, x, c));
    let less = e.sub(&rest, &straight_low);
    let obtuse = e.sub(&straight, &less);
    let zero = float(e, x, 0.0);
    let negative = e.lt(x, &zero);
    let outer = e.select(&negative, &obtuse, &rest);
    e.select(&above_half, &outer, &middle)
}
