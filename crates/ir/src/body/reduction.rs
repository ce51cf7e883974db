//! Argument reduction modulo π/2, for angles of any magnitude.
//!
//! Small angles use Cody-Waite reduction: subtract n times π/2 in three parts. From
//! [`MAX_CODY_WAITE`] on, those parts have too few bits and Payne-Hanek reduction is used: only the
//! last two integer bits of x · 2/π matter, so the product needs just the 192 bits of 2/π around
//! the exponent of x.

use super::{Nearest, abs, float, nearest};
use crate::{EmitBits, LookupTable, Op, Scalar, Value};

/// π/2 in three parts.
pub(super) const HALF_PI: [f64; 3] =
    [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];

/// x = r + low + n π/2 with |r| at most π/4 (up to rounding) and `low` so small that its square is
/// negligible.
pub(super) struct Reduced<V> {
    pub r: V,
    pub low: V,
    /// n as an integer of the same width; only its last two bits are significant.
    pub quadrant: V,
}

pub(super) fn reduce<E: EmitBits>(e: &mut E, x: &E::V) -> Reduced<E::V> {
    let Reduced { r, low, quadrant } = cody_waite(e, x);
    let (magnitude, edge) = (abs(e, x), float(e, x, MAX_CODY_WAITE));
    let large = e.op(Op::Ge, &[&magnitude, &edge]);
    let [r, low, quadrant] = e.select_unlikely(&large, [r, low, quadrant], |e| payne_hanek(e, x));
    Reduced { r, low, quadrant }
}

/// π/2 in three f32 parts.
const HALF_PI_F32: [f64; 3] = [1.570_796_370_506_286_6, -4.371_138_828_673_793e-8, -1.715_124_510_005_881_9e-15];

/// Upper limit of Cody-Waite reduction in f32. Below it n has at most 15 bits, so x - n p1 is
/// exact: it is a multiple of 2⁻²⁴ below 1. The error of the three parts is below 2⁻⁶⁰, and no f32
/// is nearer to a multiple of π/2 than 2⁻³⁰.
pub(super) const MAX_CODY_WAITE_F32: f64 = 32768.0;

/// Cody-Waite reduction in f32, for magnitudes below [`MAX_CODY_WAITE_F32`].
pub(super) fn reduce_f32<E: EmitBits>(e: &mut E, x: &E::V) -> Reduced<E::V> {
    let n = nearest(e, x, std::f64::consts::FRAC_2_PI);
    subtract(e, x, n, HALF_PI_F32)
}

/// Upper limit of Cody-Waite reduction in f64. Below it n has 32 bits, and the error of n π/2 is
/// about 2⁻¹²⁸; no f64 is nearer than 2⁻⁶² to a multiple of π/2.
const MAX_CODY_WAITE: f64 = (1u64 << 32) as f64;

fn cody_waite<E: EmitBits>(e: &mut E, x: &E::V) -> Reduced<E::V> {
    let n = nearest(e, x, std::f64::consts::FRAC_2_PI);
    subtract(e, x, n, HALF_PI)
}

/// x - n π/2, with π/2 in three parts; the product of n and the first is exact.
fn subtract<E: EmitBits>(e: &mut E, x: &E::V, n: Nearest<E::V>, half_pi: [f64; 3]) -> Reduced<E::V> {
    let Nearest { float: n, bits: quadrant } = n;
    let [p1, p2, p3] = half_pi.map(|c| float(e, x, c));
    let minus = e.neg(&n);
    let first = e.fma(&minus, &p1, x);
    let second = e.mul(&n, &p2);
    let negated = e.neg(&second);
    let second_lost = e.fma(&n, &p2, &negated);
    let r = e.sub(&first, &second);
    let back = e.sub(&first, &r);
    let low = e.sub(&back, &second);
    let low = e.sub(&low, &second_lost);
    let low = e.fma(&minus, &p3, &low);
    Reduced { r, low, quadrant }
}

/// Bits of 2/π. The 192 bits from bit `exponent - MAX_CODY_WAITE_EXPONENT` on are the factor for a
/// mantissa with that exponent. Printed by `scripts/goldens.py --table`.
static TWO_OVER_PI: LookupTable = LookupTable {
    name: "two_over_pi",
    words: &[
        0x0000_028b_e60d_b939,
        0x1054_a7f0_9d5f_47d4,
        0xd377_036d_8a56_64f1,
        0x0e41_07f9_458e_af7a,
        0xef15_86dc_91b8_e909,
        0x374b_8019_24bb_a827,
        0x4648_73f8_77ac_72c4,
        0xa69c_fba2_08d7_d4ba,
        0xed12_13a6_71c0_9ad1,
        0x7df9_04e6_4758_e60d,
        0x4ce7_d272_117e_2ef7,
        0xe4a0_ec7f_e25f_ff78,
        0x1660_3fbc_bc46_2d68,
        0x29b4_7db4_d9fb_3c9f,
        0x2c26_dd3d_18fd_9a79,
        0x7fa8_b5d4_9eeb_1faf,
        0x97c5_ecf4_1ce7_de29,
        0x4a4b_a9af_ed7e_c47e,
        0x3574_2158_0cc1_1bf1,
    ],
};

/// The exponent field of [`MAX_CODY_WAITE`].
const MAX_CODY_WAITE_EXPONENT: i64 = 1055;

/// Payne-Hanek reduction of a finite x of at least [`MAX_CODY_WAITE`]; unspecified for others.
///
/// With x = m 2ᵉ and w the window of 2/π, m · w mod 2¹⁹² is x · 2/π mod 4 in units of 2⁻¹⁹⁰. The
/// upper 128 bits are used: two for the quadrant, 126 for the fraction. No f64 is nearer to a
/// multiple of π/2 than 2⁻⁶², so at least 64 bits of the fraction are significant.
fn payne_hanek<E: EmitBits>(e: &mut E, x: &E::V) -> [E::V; 3] {
    let bits = e.bitcast(Scalar::U64, x);
    let exponent = op_with_constant(e, Op::Shr, &bits, 52);
    let exponent = op_with_constant(e, Op::And, &exponent, 0x7ff);
    // An exponent field is at most 2047, so the last index is (2047 - 1055) / 64 + 3, the table's
    // last word.
    let bit_offset = op_with_constant(e, Op::Max, &exponent, MAX_CODY_WAITE_EXPONENT);
    let bit_offset = op_with_constant(e, Op::Sub, &bit_offset, MAX_CODY_WAITE_EXPONENT);
    let mantissa = op_with_constant(e, Op::And, &bits, (1 << 52) - 1);
    let mantissa = op_with_constant(e, Op::Or, &mantissa, 1 << 52);

    let index = op_with_constant(e, Op::Shr, &bit_offset, 6);
    let words: [E::V; 4] = std::array::from_fn(|n| {
        let index = op_with_constant(e, Op::Add, &index, n as i64);
        e.lookup(&TWO_OVER_PI, &index)
    });
    // Shift counts are masked to 63: `bit_offset` shifts by its value mod 64, its complement by 63
    // minus that.
    let rest = e.op(Op::Not, &[&bit_offset]);
    let [upper, middle, lower] = std::array::from_fn(|n| {
        let left = e.op(Op::Shl, &[&words[n], &bit_offset]);
        let right = op_with_constant(e, Op::Shr, &words[n + 1], 1);
        let right = e.op(Op::Shr, &[&right, &rest]);
        e.op(Op::Or, &[&left, &right])
    });

    let upper = e.mul(&mantissa, &upper);
    let middle_low = e.mul(&mantissa, &middle);
    let [middle_high, lower_high] = [middle, lower].map(|w| mul_high(e, &mantissa, &w));
    let low = e.add(&middle_low, &lower_high);
    let carried = e.lt(&low, &lower_high);
    let carry = e.cast(Scalar::U64, &carried);
    let high = e.add(&upper, &middle_high);
    let high = e.add(&high, &carry);

    // Nearest quadrant, and the remainder as a signed 128-bit number: high + low 2⁻⁶⁴, in units of
    // 2⁻⁶⁴.
    let half = op_with_constant(e, Op::Add, &high, 1 << 61);
    let quadrant = op_with_constant(e, Op::Shr, &half, 62);
    let quadrant = e.bitcast(Scalar::I64, &quadrant);
    let high = op_with_constant(e, Op::Shl, &high, 2);
    let passed = op_with_constant(e, Op::Shr, &low, 62);
    let high = e.op(Op::Or, &[&high, &passed]);
    let high = e.bitcast(Scalar::I64, &high);
    let low = op_with_constant(e, Op::Shl, &low, 2);

    // Convert both to floats. (If `first` rounds to 2⁶³, the cast back saturates: a relative error
    // of 2⁻⁶³.)
    let first = e.cast(Scalar::F64, &high);
    let rounded = e.cast(Scalar::I64, &first);
    let lost = e.sub(&high, &rounded);
    let lost = e.cast(Scalar::F64, &lost);
    let second = e.cast(Scalar::F64, &low);
    let unit = float(e, x, TWO_TO_MINUS_64);
    let second = e.fma(&second, &unit, &lost);

    // Multiply by π/2 in those units, with the sign of x.
    let zero = float(e, x, 0.0);
    let negative = e.lt(x, &zero);
    let [half_pi, half_pi_low] = [HALF_PI[0], HALF_PI[1]].map(|half_pi| {
        let [plus, minus] = [half_pi, -half_pi].map(|c| float(e, x, c * TWO_TO_MINUS_64));
        e.select(&negative, &minus, &plus)
    });
    let r = e.mul(&first, &half_pi);
    let minus = e.neg(&r);
    let tail = e.fma(&first, &half_pi, &minus);
    let tail = e.fma(&first, &half_pi_low, &tail);
    let tail = e.fma(&second, &half_pi, &tail);
    let mirrored = e.neg(&quadrant);
    let quadrant = e.select(&negative, &mirrored, &quadrant);
    [r, tail, quadrant]
}

const TWO_TO_MINUS_64: f64 = 1.0 / (1u128 << 64) as f64;

/// Applies an op to `a` and a constant of its type.
fn op_with_constant<E: EmitBits>(e: &mut E, op: Op, a: &E::V, constant: i64) -> E::V {
    let scalar = e.scalar(a);
    let constant = e.constant(Value::int(scalar, constant));
    e.op(op, &[a, &constant])
}

/// Upper 64 bits of the 128-bit product a · b, for a below 2⁵³.
fn mul_high<E: EmitBits>(e: &mut E, a: &E::V, b: &E::V) -> E::V {
    let [[a_high, a_low], [b_high, b_low]] =
        [a, b].map(|v| [op_with_constant(e, Op::Shr, v, 32), op_with_constant(e, Op::And, v, 0xffff_ffff)]);
    let lowest = e.mul(&a_low, &b_low);
    let outer = e.mul(&a_low, &b_high);
    // a_high is below 2²¹, so nothing overflows.
    let inner = e.mul(&a_high, &b_low);
    let passed = op_with_constant(e, Op::Shr, &lowest, 32);
    let sum = e.add(&inner, &passed);
    let low_word = op_with_constant(e, Op::And, &outer, 0xffff_ffff);
    let sum = e.add(&sum, &low_word);
    let high = e.mul(&a_high, &b_high);
    let passed = op_with_constant(e, Op::Shr, &outer, 32);
    let high = e.add(&high, &passed);
    let passed = op_with_constant(e, Op::Shr, &sum, 32);
    e.add(&high, &passed)
}
