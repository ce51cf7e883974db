//! Conversions between f32 and 16-bit floats, held as bits in an i32. Written once over primitives,
//! for scalars and vectors.

use bornite_ir::{EmitBits, Op, Scalar, Value};

/// Applies an op to `a` and a constant of its type.
fn with<E: EmitBits>(e: &mut E, op: Op, a: &E::V, constant: i64) -> E::V {
    let scalar = e.scalar(a);
    let constant = e.constant(Value::int(scalar, constant));
    e.op(op, &[a, &constant])
}

/// f16 bits to f32: shifts exponent and fraction into place and rescales, which is exact for
/// denormals too.
pub(super) fn f32_of_f16<E: EmitBits>(e: &mut E, bits: &E::V) -> E::V {
    let size = with(e, Op::And, bits, 0x7fff);
    let moved = with(e, Op::Shl, &size, 13);
    let moved = e.bitcast(Scalar::F32, &moved);
    let finite = e.scale(&moved, f64::exp2(112.0));
    let finite = e.bitcast(Scalar::I32, &finite);
    let special = with(e, Op::Or, &finite, 0x7f80_0000);
    let is_special = with(e, Op::Ge, &size, 0x7c00);
    let size = e.select(&is_special, &special, &finite);
    let sign = with(e, Op::And, bits, 0x8000);
    let sign = with(e, Op::Shl, &sign, 16);
    let bits = e.op(Op::Or, &[&size, &sign]);
    e.bitcast(Scalar::F32, &bits)
}

/// bf16 bits to f32.
pub(super) fn f32_of_bf16<E: EmitBits>(e: &mut E, bits: &E::V) -> E::V {
    let moved = with(e, Op::Shl, bits, 16);
    e.bitcast(Scalar::F32, &moved)
}

/// f32 to f16 bits, rounded to nearest even.
pub(super) fn f16_of_f32<E: EmitBits>(e: &mut E, x: &E::V) -> E::V {
    let bits = e.bitcast(Scalar::I32, x);
    let size = with(e, Op::And, &bits, 0x7fff_ffff);
    // Denormal results: adding 1/2 rounds at the last bit of f16, 2⁻²⁴.
    let float = e.bitcast(Scalar::F32, &size);
    let half = e.constant_like(&float, 0.5);
    let shifted = e.add(&float, &half);
    let shifted = e.bitcast(Scalar::I32, &shifted);
    let denormal = with(e, Op::Sub, &shifted, 0x3f00_0000);
    // Normal results: rebias the exponent; round by adding just under half, plus one if odd.
    let odd = with(e, Op::Shr, &size, 13);
    let odd = with(e, Op::And, &odd, 1);
    let rebased = with(e, Op::Add, &size, 0xfff - (112 << 23));
    let rounded = e.add(&rebased, &odd);
    let normal = with(e, Op::Shr, &rounded, 13);
    let is_denormal = with(e, Op::Lt, &size, 0x3880_0000);
    let finite = e.select(&is_denormal, &denormal, &normal);
    let is_nan = with(e, Op::Gt, &size, 0x7f80_0000);
    let [infinity, nan] = [0x7c00, 0x7e00].map(|bits| e.constant(Value::int(Scalar::I32, bits)));
    let special = e.select(&is_nan, &nan, &infinity);
    let is_large = with(e, Op::Ge, &size, 0x4780_0000);
    let size = e.select(&is_large, &special, &finite);
    let sign = with(e, Op::Shr, &bits, 16);
    let sign = with(e, Op::And, &sign, 0x8000);
    e.op(Op::Or, &[&size, &sign])
}

/// f32 to bf16 bits, rounded to nearest even.
pub(super) fn bf16_of_f32<E: EmitBits>(e: &mut E, x: &E::V) -> E::V {
    let bits = e.bitcast(Scalar::I32, x);
    let odd = with(e, Op::Shr, &bits, 16);
    let odd = with(e, Op::And, &odd, 1);
    let raised = with(e, Op::Add, &bits, 0x7fff);
    let rounded = e.add(&raised, &odd);
    let nan = e.constant(Value::int(Scalar::I32, 0x7fc0_0000));
    let is_number = e.op(Op::Eq, &[x, x]);
    let bits = e.select(&is_number, &rounded, &nan);
    let bits = with(e, Op::Shr, &bits, 16);
    with(e, Op::And, &bits, 0xffff)
}
