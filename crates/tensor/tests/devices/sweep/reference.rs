//! Reference of every scalar op on one element, in f64 or exact integers.

use std::cmp::Ordering;

use bornite::DType;
use bornite::ir::Op;

use super::array::{Num, rounded, wrapped};

/// The result of an op; floats are unrounded.
pub fn row(op: Op, dtype: DType, args: &[Num]) -> Num {
    if op == Op::Select {
        return if args[0].int() != 0 { args[1] } else { args[2] };
    }
    if matches!(op, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge) {
        let order = match (args[0], args[1]) {
            (Num::Int(a), Num::Int(b)) => Some(a.cmp(&b)),
            (a, b) => a.real().partial_cmp(&b.real()),
        };
        let holds = match op {
            Op::Eq => order == Some(Ordering::Equal),
            Op::Ne => order != Some(Ordering::Equal),
            Op::Lt => order == Some(Ordering::Less),
            Op::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Op::Gt => order == Some(Ordering::Greater),
            _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        };
        return Num::Int(holds as i64);
    }
    if dtype.is_float() {
        let reals: Vec<f64> = args.iter().map(|x| x.real()).collect();
        Num::Real(real(op, dtype, &reals))
    } else {
        let ints: Vec<i128> = args.iter().map(|x| x.int() as i128).collect();
        wrapped(dtype, int(op, dtype, &ints))
    }
}

fn int(op: Op, dtype: DType, args: &[i128]) -> i128 {
    let bits = dtype.bytes() as i128 * 8;
    let a = args[0];
    let b = args.get(1).copied().unwrap_or(0);
    let c = args.get(2).copied().unwrap_or(0);
    match op {
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Mul => a * b,
        Op::Div => a.checked_div(b).unwrap_or(0),
        Op::Rem => a.checked_rem(b).unwrap_or(0),
        Op::Neg => -a,
        Op::Abs => a.abs(),
        Op::Sign => a.signum(),
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::Clamp => a.max(b).min(c),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Not if dtype == DType::Bool => (a == 0) as i128,
        Op::Not => !a,
        Op::Shl => a << b.rem_euclid(bits),
        Op::Shr => a >> b.rem_euclid(bits),
        Op::Popcount => (0..bits).filter(|n| a >> n & 1 == 1).count() as i128,
        Op::LeadingZeros => (0..bits).rev().take_while(|n| a >> n & 1 == 0).count() as i128,
        _ => unreachable!("{op:?} of integers"),
    }
}

/// Minimum and maximum; NaN if either is, and -0 below +0.
pub fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    if a < b || a == b && a.is_sign_negative() { a } else { b }
}

pub fn max(a: f64, b: f64) -> f64 {
    -min(-a, -b)
}

fn real(op: Op, dtype: DType, args: &[f64]) -> f64 {
    let a = args[0];
    let b = args.get(1).copied().unwrap_or(0.0);
    let c = args.get(2).copied().unwrap_or(0.0);
    match op {
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Mul => a * b,
        Op::Div => a / b,
        Op::Fmod => a % b,
        Op::Neg => -a,
        Op::Abs => a.abs(),
        Op::Sign => {
            if a == 0.0 || a.is_nan() {
                a
            } else {
                a.signum()
            }
        }
        Op::Min => min(a, b),
        Op::Max => max(a, b),
        Op::Fmin if a.is_nan() => b,
        Op::Fmin if b.is_nan() => a,
        Op::Fmin => min(a, b),
        Op::Fmax if a.is_nan() => b,
        Op::Fmax if b.is_nan() => a,
        Op::Fmax => max(a, b),
        Op::Clamp => min(max(a, b), c),
        Op::Fma if dtype == DType::F64 => a.mul_add(b, c),
        // 16-bit floats are computed in f32.
        Op::Fma => rounded(dtype, (a as f32).mul_add(b as f32, c as f32) as f64),
        Op::Copysign if b.is_nan() => a.abs(),
        Op::Copysign => a.copysign(b),
        Op::Floor => a.floor(),
        Op::Ceil => a.ceil(),
        Op::Trunc => a.trunc(),
        Op::Rint => a.round_ties_even(),
        Op::Round => a.round(),
        Op::Sqrt => a.sqrt(),
        Op::Rsqrt => 1.0 / a.sqrt(),
        Op::Cbrt => a.cbrt(),
        Op::Hypot => a.hypot(b),
        Op::Pow => a.powf(b),
        Op::Exp => a.exp(),
        Op::Exp2 => a.exp2(),
        Op::Expm1 => a.exp_m1(),
        Op::Log => a.ln(),
        Op::Log2 => a.log2(),
        Op::Log10 => a.log10(),
        Op::Log1p => a.ln_1p(),
        Op::Sin => a.sin(),
        Op::Cos => a.cos(),
        Op::Tan => a.tan(),
        Op::Asin => a.asin(),
        Op::Acos => a.acos(),
        Op::Atan => a.atan(),
        Op::Atan2 => a.atan2(b),
        Op::Sinh => a.sinh(),
        Op::Cosh => a.cosh(),
        Op::Tanh => a.tanh(),
        // Not std's, which overflow in intermediate steps.
        Op::Asinh if a.abs() > 1e100 => (a.abs().ln() + std::f64::consts::LN_2).copysign(a),
        Op::Asinh => (a.abs() + a * a / (1.0 + a.hypot(1.0))).ln_1p().copysign(a),
        Op::Acosh if a > 1e100 => a.ln() + std::f64::consts::LN_2,
        Op::Acosh => (a - 1.0 + ((a - 1.0) * (a + 1.0)).sqrt()).ln_1p(),
        Op::Atanh => (0.5 * ((a.abs() + a.abs()) / (1.0 - a.abs())).ln_1p()).copysign(a),
        Op::Erf => erf(a),
        Op::Erfc => erfc(a),
        _ => unreachable!("{op:?} of floats"),
    }
}

/// exp(-x²), corrected for the rounding of x².
fn bell(x: f64) -> f64 {
    let square = x * x;
    if square > 800.0 { 0.0 } else { (-square).exp() * (1.0 - x.mul_add(x, -square)) }
}

fn erf(x: f64) -> f64 {
    if x.is_nan() || x == 0.0 {
        return x;
    }
    if x.abs() > 3.0 {
        return (1.0 - erfc(x.abs())).copysign(x);
    }
    // 2/√π · exp(-x²) · Σ 2ⁿ x²ⁿ⁺¹ / (2n + 1)!!: all terms of one sign.
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / (2 * n + 1) as f64;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * bell(x) * sum
}

fn erfc(x: f64) -> f64 {
    if x.is_nan() || x < 1.0 {
        return 1.0 - erf(x);
    }
    if x > 30.0 {
        return 0.0;
    }
    // exp(-x²)/√π · 1/(x + 1/2/(x + 1/(x + 3/2/(x + …)))).
    let rest = (1..600).rev().fold(x, |rest, n| x + n as f64 / 2.0 / rest);
    std::f64::consts::FRAC_2_SQRT_PI / 2.0 * bell(x) / rest
}
