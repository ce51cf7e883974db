//! Functions that only choose among their arguments or round them.

use super::{abs, equal, float};
use crate::{EmitBits, Op, Scalar, Value};

/// 1, -1, or the argument itself where it is neither above nor below 0 (0, -0, NaN).
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

/// The integer nearest to x, halves away from 0.
pub(crate) fn round<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let x = args[0];
    let whole = e.op(Op::Trunc, &[x]);
    let rest = e.sub(x, &whole);
    let size = abs(e, &rest);
    let (half, one) = (float(e, x, 0.5), float(e, x, 1.0));
    let below = e.lt(&size, &half);
    let unit = e.op(Op::Copysign, &[&one, x]);
    let next = e.add(&whole, &unit);
    let rounded = e.select(&below, &whole, &next);
    // Beyond the last fraction (infinity too) every number is whole.
    let large = float(e, x, if e.scalar(x) == Scalar::F64 { 4_503_599_627_370_496.0 } else { 8_388_608.0 });
    let size = abs(e, x);
    let has_fraction = e.lt(&size, &large);
    e.select(&has_fraction, &rounded, x)
}

/// The size of a with the sign of b. A NaN has no sign that all readers keep: it counts as positive.
pub(crate) fn copysign<E: EmitBits>(e: &mut E, args: &[&E::V]) -> E::V {
    let scalar = e.scalar(args[0]);
    let integer = scalar.same_width_int();
    let sign = e.constant(Value::int(integer, if scalar == Scalar::F64 { i64::MIN } else { i32::MIN as i64 }));
    let size = e.constant(Value::int(integer, if scalar == Scalar::F64 { i64::MAX } else { i32::MAX as i64 }));
    let (a, b) = (e.bitcast(integer, args[0]), e.bitcast(integer, args[1]));
    let (size, sign) = (e.op(Op::And, &[&a, &size]), e.op(Op::And, &[&b, &sign]));
    let bits = e.op(Op::Or, &[&size, &sign]);
    let signed = e.bitcast(scalar, &bits);
    let plain = e.bitcast(scalar, &size);
    let is_number = equal(e, args[1], args[1]);
    e.select(&is_number, &signed, &plain)
}
