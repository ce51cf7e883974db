//! Op-table bodies: functions over primitives, so that every backend gives identical bits.
//!
//! All follow the same scheme: reduce the argument exactly (fused multiply-adds with a split
//! constant), evaluate a polynomial whose error is far below the rounding of its last step, undo
//! the reduction, select special values. f32 is computed in f64 where that is the simplest way to
//! meet its bound. `tests/accuracy.rs` checks each error bound.

mod erf;
mod exponential;
mod hyperbolic;
mod logarithm;
mod plain;
mod power;
mod reduction;
mod trigonometric;

pub(crate) use erf::{erf, erfc};
pub(crate) use exponential::{exp, exp2, expm1};
pub(crate) use hyperbolic::{acosh, asinh, atanh, cosh, sinh, tanh};
pub(crate) use logarithm::{log, log1p, log2, log10};
pub(crate) use plain::{clamp, copysign, fmax, fmin, round, sign};
pub(crate) use power::{cbrt, hypot, pow, rsqrt};
pub(crate) use trigonometric::{acos, asin, atan, atan2, cos, sin, tan};

use crate::{EmitBits, Op, Scalar, Value};

/// Float constant of `x`'s type.
fn float<E: EmitBits>(e: &mut E, x: &E::V, value: f64) -> E::V {
    e.constant_like(x, value)
}

/// Integer constant of the same width as `x`.
fn int<E: EmitBits>(e: &mut E, x: &E::V, value: i64) -> E::V {
    let scalar = e.scalar(x);
    e.constant(Value::int(scalar.same_width_int(), value))
}

/// `a == b`.
fn equal<E: EmitBits>(e: &mut E, a: &E::V, b: &E::V) -> E::V {
    e.op(Op::Eq, &[a, b])
}

/// |x|.
fn abs<E: EmitBits>(e: &mut E, x: &E::V) -> E::V {
    e.op(Op::Abs, &[x])
}

/// `value` where `x` equals `special`, else `other`.
fn select_special<E: EmitBits>(e: &mut E, x: &E::V, special: f64, value: f64, other: &E::V) -> E::V {
    let (special, value) = (float(e, x, special), float(e, x, value));
    let found = equal(e, x, &special);
    e.select(&found, &value, other)
}

/// Polynomial c[0] + c[1] x + c[2] x² + … by Horner's rule with fma.
fn polynomial<E: EmitBits>(e: &mut E, x: &E::V, coefficients: &[f64]) -> E::V {
    let Some((last, rest)) = coefficients.split_last() else { return float(e, x, 0.0) };
    let mut sum = float(e, x, *last);
    for &c in rest.iter().rev() {
        let c = float(e, x, c);
        sum = e.fma(&sum, x, &c);
    }
    sum
}

/// Computes `op` on f32 arguments in f64 and rounds the result to f32; returns `None` if the
/// arguments are f64 already.
fn via_f64<E: EmitBits>(e: &mut E, op: Op, args: &[&E::V]) -> Option<E::V> {
    if e.scalar(args[0]) == Scalar::F64 {
        return None;
    }
    let wide: Vec<E::V> = args.iter().map(|a| e.cast(Scalar::F64, a)).collect();
    let result = e.op(op, &wide.iter().collect::<Vec<_>>());
    Some(e.cast(Scalar::F32, &result))
}

/// Integer nearest to a product.
struct Nearest<V> {
    /// The integer as a float.
    float: V,
    /// Integer of the same width that holds the result in its low bits, with an offset that
    /// [`integer`] subtracts.
    bits: V,
}

impl<V> Nearest<V> {
    /// Magic constant of round-to-nearest by addition, which makes a float's last bit worth 1: 1.5
    /// · 2²³, or 1.5 · 2⁵² in f64.
    const fn magic(scalar: Scalar) -> f64 {
        if let Scalar::F64 = scalar { 6_755_399_441_055_744.0 } else { 12_582_912.0 }
    }
}

/// Integer nearest to x · factor, whose magnitude must be below 2²² (2⁵¹ in f64). Adding the magic
/// constant rounds and leaves the integer in the low bits, which is cheaper than rounding and
/// converting on every backend.
fn nearest<E: EmitBits>(e: &mut E, x: &E::V, factor: f64) -> Nearest<E::V> {
    let scalar = e.scalar(x);
    let (magic, factor) = (float(e, x, Nearest::<E::V>::magic(scalar)), float(e, x, factor));
    let sum = e.fma(x, &factor, &magic);
    Nearest { float: e.sub(&sum, &magic), bits: e.bitcast(scalar.same_width_int(), &sum) }
}

/// [`Nearest::bits`] as an integer.
fn integer<E: EmitBits>(e: &mut E, nearest: &Nearest<E::V>) -> E::V {
    let magic = Nearest::<E::V>::magic(e.scalar(&nearest.float));
    let zero = match e.scalar(&nearest.float) {
        Scalar::F64 => magic.to_bits() as i64,
        _ => (magic as f32).to_bits() as i64,
    };
    let zero = int(e, &nearest.float, zero);
    e.sub(&nearest.bits, &zero)
}

/// ln 2 = high + low, with `high` short enough that its product with an exponent is exact.
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

/// 2ⁿ as a float of `like`'s type, for n in the range of normal numbers.
fn power_of_two<E: EmitBits>(e: &mut E, like: &E::V, n: &E::V) -> E::V {
    let scalar = e.scalar(like);
    let (bias, width) = if scalar == Scalar::F64 { (1023, 52) } else { (127, 23) };
    let (bias, width) = (int(e, like, bias), int(e, like, width));
    let exponent = e.add(n, &bias);
    let bits = e.op(Op::Shl, &[&exponent, &width]);
    e.bitcast(scalar, &bits)
}
