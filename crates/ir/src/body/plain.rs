//! Sign, clamp, NaN-ignoring minimum and maximum, rounding and copysign.

use super::{abs, equal, float};
use crate::{EmitBits, Op, Scalar, Value};

/// 1 or -1; the argument itself if it is 0, -0 or NaN.
pub(crate) fn sign<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let x = args[0];
    let (zero, one) = (float(e, x, 0.0), float(e, x, 1.0));
    let positive = e.lt(&zero, x);
    let rest = if e.scalar(x).is_float() || e.scalar(x).is_signed() {
        let minus = float(e, x, -1.0);
        let negative = e.lt(x, &zero);
        e.select(&negative, &minus, x)
    } else {
        x.clone()
    };
    e.select(&positive, &one, &rest)
}

/// min(max(x, low), high).
pub(crate) fn clamp<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let raised = e.op(Op::Max, &[args[0], args[1]]);
    e.op(Op::Min, &[&raised, args[2]])
}

/// The other argument where one is NaN, else `op` of both.
fn without_nan<E: EmitBits>(e: &mut E, op: Op, a: &E::V, b: &E::V) -> E::V {
    let chosen = e.op(op, &[a, b]);
    let b_is_number = equal(e, b, b);
    let chosen = e.select(&b_is_number, &chosen, a);
    let a_is_number = equal(e, a, a);
    e.select(&a_is_number, &chosen, b)
}

pub(crate) fn fmax<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    without_nan(e, Op::Max, args[0], args[1])
}

pub(crate) fn fmin<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    without_nan(e, Op::Min, args[0], args[1])
}

/// Nearest integer, ties away from 0.
pub(crate) fn round<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let x = args[0];
    let truncated = e.op(Op::Trunc, &[x]);
    let rest = e.sub(x, &truncated);
    let magnitude = abs(e, &rest);
    let (half, one) = (float(e, x, 0.5), float(e, x, 1.0));
    let below = e.lt(&magnitude, &half);
    let unit = e.op(Op::Copysign, &[&one, x]);
    let next = e.add(&truncated, &unit);
    let rounded = e.select(&below, &truncated, &next);
    // Above this magnitude every number is an integer; infinity too.
    let large = float(e, x, if e.scalar(x) == Scalar::F64 { 4_503_599_627_370_496.0 } else { 8_388_608.0 });
    let magnitude = abs(e, x);
    let has_fraction = e.lt(&magnitude, &large);
    e.select(&has_fraction, &rounded, x)
}

/// The magnitude of a with the sign of b. Backends do not preserve the sign of NaN, so NaN counts
/// as positive.
pub(crate) fn copysign<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let scalar = e.scalar(args[0]);
    let integer = scalar.same_width_int();
    let sign = e.constant(Value::int(integer, if scalar == Scalar::F64 { i64::MIN } else { i32::MIN as i64 }));
    let magnitude = e.constant(Value::int(integer, if scalar == Scalar::F64 { i64::MAX } else { i32::MAX as i64 }));
    let (a, b) = (e.bitcast(integer, args[0]), e.bitcast(integer, args[1]));
    let (magnitude, sign) = (e.op(Op::And, &[&a, &magnitude]), e.op(Op::And, &[&b, &sign]));
    let bits = e.op(Op::Or, &[&magnitude, &sign]);
    let signed = e.bitcast(scalar, &bits);
    let plain = e.bitcast(scalar, &magnitude);
    let is_number = equal(e, args[1], args[1]);
    e.select(&is_number, &signed, &plain)
}
