//! Operators and functions of the Warp dialect on values with error bounds, each computed from its
//! definition.

use super::interval::{erf, erfc};
use super::{EvalError, EvalResult, EvalValue, Interval, wrap_int};
use crate::program::{BinaryOp, BuiltinFn, ScalarType, Ty};

/// One step of the dialect's random number generator (PCG).
pub fn pcg(state: u32) -> u32 {
    let b = state.wrapping_mul(747796405).wrapping_add(2891336453);
    let c = (b >> ((b >> 28) + 4) ^ b).wrapping_mul(277803737);
    c >> 22 ^ c
}

fn components(value: &EvalValue) -> Vec<Interval> {
    match value {
        EvalValue::Composite(components) => components.iter().map(EvalValue::float).collect(),
        value => vec![value.float()],
    }
}

fn composite(intervals: impl IntoIterator<Item = Interval>) -> EvalValue {
    EvalValue::Composite(intervals.into_iter().map(EvalValue::Float).collect())
}

/// Binary operator.
pub fn binary(op: BinaryOp, a: EvalValue, b: EvalValue, ta: Ty, tb: Ty) -> EvalResult<EvalValue> {
    match (&a, &b) {
        (EvalValue::Float(x), EvalValue::Float(y)) => Ok(floats(op, *x, *y, ta.element().unwrap_or(ScalarType::F32))),
        (EvalValue::Int(x), EvalValue::Int(y)) => integers(op, *x, *y, ta.element().unwrap_or(ScalarType::I32)),
        (EvalValue::Bool(x), EvalValue::Bool(y)) => Ok(EvalValue::Bool(match (x, y) {
            (Some(x), Some(y)) if op == BinaryOp::Ne => Some(x != y),
            (Some(x), Some(y)) => Some(x == y),
            _ => None,
        })),
        _ => composite_binary(op, &a, &b, ta, tb),
    }
}

fn floats(op: BinaryOp, x: Interval, y: Interval, scalar: ScalarType) -> EvalValue {
    EvalValue::Float(match op {
        BinaryOp::Add => x.add(y, scalar),
        BinaryOp::Sub => x.sub(y, scalar),
        BinaryOp::Mul => x.mul(y, scalar),
        BinaryOp::Div => x.div(y, scalar),
        BinaryOp::Lt => return EvalValue::Bool(x.less_than(y)),
        BinaryOp::Gt => return EvalValue::Bool(y.less_than(x)),
        BinaryOp::Le => return EvalValue::Bool(y.less_than(x).map(|b| !b)),
        BinaryOp::Ge => return EvalValue::Bool(x.less_than(y).map(|b| !b)),
        BinaryOp::Eq => return EvalValue::Bool(x.equals(y)),
        _ => return EvalValue::Bool(x.equals(y).map(|b| !b)),
    })
}

/// Checks that a number is positive within its error bound.
fn require_positive(x: Interval, function: &str) -> EvalResult<()> {
    if x.mid + x.err <= 0.0 {
        return Err(EvalError::Invalid(format!("{function} of a number that is not positive")));
    }
    if x.mid - x.err <= 0.0 { Err(EvalError::Undecided) } else { Ok(()) }
}

fn integers(op: BinaryOp, x: i64, y: i64, scalar: ScalarType) -> EvalResult<EvalValue> {
    let wide = |v: i64| if scalar == ScalarType::U64 { v as u64 as i128 } else { v as i128 };
    let (a, b) = (wide(x), wide(y));
    let count = (y as u32) % scalar.bits().max(32);
    let value = match op {
        BinaryOp::Add => x.wrapping_add(y),
        BinaryOp::Sub => x.wrapping_sub(y),
        BinaryOp::Mul => x.wrapping_mul(y),
        BinaryOp::Quotient | BinaryOp::Div | BinaryOp::Rem if b == 0 => {
            return Err(EvalError::Invalid("integer division by 0".into()));
        }
        BinaryOp::Quotient | BinaryOp::Div => (a / b) as i64,
        BinaryOp::Rem => (a % b) as i64,
        BinaryOp::BitAnd => x & y,
        BinaryOp::BitOr => x | y,
        BinaryOp::BitXor => x ^ y,
        BinaryOp::Shl => x.wrapping_shl(count),
        BinaryOp::Shr if scalar == ScalarType::U64 => ((x as u64) >> count) as i64,
        BinaryOp::Shr => x >> count,
        BinaryOp::Lt => return Ok(EvalValue::Bool(Some(a < b))),
        BinaryOp::Le => return Ok(EvalValue::Bool(Some(a <= b))),
        BinaryOp::Gt => return Ok(EvalValue::Bool(Some(a > b))),
        BinaryOp::Ge => return Ok(EvalValue::Bool(Some(a >= b))),
        BinaryOp::Eq => return Ok(EvalValue::Bool(Some(a == b))),
        BinaryOp::Ne => return Ok(EvalValue::Bool(Some(a != b))),
        BinaryOp::And | BinaryOp::Or => return Err(EvalError::Invalid("'and' or 'or' of integers".into())),
    };
    let result = wrap_int(scalar, value);
    // Undefined behaviour of C++ is not allowed in a row.
    let exact = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        _ => result as i128,
    };
    if scalar.is_signed() && exact != result as i128 {
        return Err(EvalError::Invalid(format!("an operation on {x} and {y} overflows {}", scalar.name())));
    }
    Ok(EvalValue::Int(result))
}

fn composite_binary(op: BinaryOp, a: &EvalValue, b: &EvalValue, ta: Ty, tb: Ty) -> EvalResult<EvalValue> {
    let scalar = ta.element().unwrap_or(ScalarType::F32);
    let (x, y) = (components(a), components(b));
    Ok(match (op, ta, tb) {
        (BinaryOp::Mul, Ty::Scalar(_), _) => composite(y.iter().map(|y| x[0].mul(*y, scalar))),
        (BinaryOp::Mul, _, Ty::Scalar(_)) => composite(x.iter().map(|x| x.mul(y[0], scalar))),
        (BinaryOp::Div, _, Ty::Scalar(_)) => {
            // Computed as a quotient or as a product with the reciprocal.
            composite(x.iter().map(|x| {
                let interval = x.div(y[0], scalar);
                Interval { err: interval.err + interval.mid.abs() * super::half_ulp(scalar) * 2.0, ..interval }
            }))
        }
        (BinaryOp::Mul, Ty::Matrix(_, n), Ty::Vector(..)) => {
            let n = n as usize;
            composite((0..n).map(|r| sum((0..n).map(|k| x[r * n + k].mul(y[k], scalar)), scalar)))
        }
        (BinaryOp::Mul, Ty::Matrix(_, n), _) => {
            let n = n as usize;
            composite(
                (0..n * n).map(|at| sum((0..n).map(|k| x[at / n * n + k].mul(y[k * n + at % n], scalar)), scalar)),
            )
        }
        (BinaryOp::Add, ..) => composite(x.iter().zip(&y).map(|(x, y)| x.add(*y, scalar))),
        (BinaryOp::Sub, ..) => composite(x.iter().zip(&y).map(|(x, y)| x.sub(*y, scalar))),
        _ => return Err(EvalError::Invalid(format!("{op:?} is not defined for vectors"))),
    })
}

/// Sum of a few terms in any order.
fn sum(terms: impl Iterator<Item = Interval>, scalar: ScalarType) -> Interval {
    let (mut mid, mut err, mut size, mut count) = (0.0, 0.0, 0.0, 0.0);
    for term in terms {
        mid += term.mid;
        err += term.err;
        size += term.mid.abs();
        count += 1.0;
    }
    let factor = if scalar == ScalarType::F64 { 3.0 } else { 1.0 };
    Interval { mid, err: err + size * super::half_ulp(scalar) * count * factor }
}

fn dot(a: &[Interval], b: &[Interval], scalar: ScalarType) -> Interval {
    sum(a.iter().zip(b).map(|(a, b)| a.mul(*b, scalar)), scalar)
}

/// Builtin function of the dialect.
pub fn call(builtin: BuiltinFn, args: &[EvalValue], ty: Ty) -> EvalResult<EvalValue> {
    use BuiltinFn::*;
    let scalar = ty.element().unwrap_or(ScalarType::F32);
    if !matches!(ty, Ty::Scalar(_)) {
        return on_vectors(builtin, args, ty, scalar);
    }
    if scalar.is_int() {
        return on_integers(builtin, args, scalar);
    }
    let x = args[0].float();
    let arg = |n: usize| args[n].float();
    let decided = |interval: Option<Interval>| interval.ok_or(EvalError::Undecided);
    Ok(EvalValue::Float(match builtin {
        Abs => Interval { mid: x.mid.abs(), err: x.err },
        Sign => decided(x.step(|x| if x < 0.0 { -1.0 } else { 1.0 }))?,
        Min => x.min(arg(1)),
        Max => x.max(arg(1)),
        Clamp => x.max(arg(1)).min(arg(2)),
        Floor => decided(x.step(f64::floor))?,
        Ceil => decided(x.step(f64::ceil))?,
        Round => decided(x.step(f64::round))?,
        Rint => decided(x.step(f64::round_ties_even))?,
        Trunc => decided(x.step(f64::trunc))?,
        Frac => x.sub(decided(x.step(f64::trunc))?, scalar),
        Sqrt => {
            if x.mid + x.err < 0.0 {
                return Err(EvalError::Invalid("square root of a negative number".into()));
            }
            x.sqrt(scalar)
        }
        Cbrt => x.monotone(scalar, f64::cbrt),
        Pow => {
            require_positive(x, "power")?;
            x.pow(arg(1), scalar)
        }
        Exp => x.monotone(scalar, f64::exp),
        Log | Log2 | Log10 => {
            require_positive(x, "logarithm")?;
            match builtin {
                Log => x.monotone(scalar, f64::ln),
                Log2 => x.monotone(scalar, f64::log2),
                _ => x.monotone(scalar, f64::log10),
            }
        }
        Sin => x.bounded(scalar, 1.0, f64::sin),
        Cos => x.bounded(scalar, 1.0, f64::cos),
        Tan => {
            if (x.mid - x.err).cos() * (x.mid + x.err).cos() <= 0.0 {
                return Err(EvalError::Undecided);
            }
            x.monotone(scalar, f64::tan)
        }
        Asin | Acos => {
            if x.mid.abs() - x.err > 1.0 {
                return Err(EvalError::Invalid("arcsine or arccosine of a number above 1".into()));
            }
            let function = if builtin == Asin { f64::asin } else { f64::acos };
            x.monotone(scalar, |x| function(x.clamp(-1.0, 1.0)))
        }
        Atan => x.monotone(scalar, f64::atan),
        Atan2 => x.atan2(arg(1), scalar),
        Sinh => x.monotone(scalar, f64::sinh),
        Cosh => x.bounded(scalar, (x.mid.abs() + x.err).sinh(), f64::cosh),
        Tanh => x.monotone(scalar, f64::tanh),
        Erf | Erfc => {
            let interval = x.monotone(scalar, if builtin == Erf { erf } else { erfc });
            // Our implementations are less accurate than libm in the last digits of doubles.
            Interval { err: interval.err + interval.mid.abs() * 1e-14, ..interval }
        }
        Copysign => {
            // The sign of a zero is unknown here.
            let sign_source = arg(1);
            let sign =
                decided((sign_source.mid.abs() > sign_source.err).then(|| Interval::exact(sign_source.mid.signum())))?;
            Interval { mid: x.mid.abs() * sign.mid, err: x.err }
        }
        Lerp => {
            let (b, t) = (arg(1), arg(2));
            let rest = Interval::exact(1.0).sub(t, scalar);
            x.mul(rest, scalar).add(b.mul(t, scalar), scalar)
        }
        Smoothstep => {
            let (high, at) = (arg(1), arg(2));
            let t = at.sub(x, scalar).div(high.sub(x, scalar), scalar);
            let t = t.max(Interval::exact(0.0)).min(Interval::exact(1.0));
            let factor = Interval::exact(3.0).sub(Interval::exact(2.0).mul(t, scalar), scalar);
            t.mul(t, scalar).mul(factor, scalar)
        }
        Degrees | Radians => {
            let factor = if builtin == Degrees { 180.0 / std::f64::consts::PI } else { std::f64::consts::PI / 180.0 };
            x.mul(Interval { mid: factor, err: factor * super::half_ulp(scalar) }, scalar)
        }
        _ => return Err(EvalError::Invalid(format!("{} is not defined for floats", builtin.name()))),
    }))
}

fn on_integers(builtin: BuiltinFn, args: &[EvalValue], scalar: ScalarType) -> EvalResult<EvalValue> {
    use BuiltinFn::*;
    let x = args[0].int();
    let wide = |v: i64| if scalar == ScalarType::U64 { v as u64 as i128 } else { v as i128 };
    let smaller = |a: i64, b: i64| if wide(b) < wide(a) { b } else { a };
    let larger = |a: i64, b: i64| if wide(b) > wide(a) { b } else { a };
    Ok(EvalValue::Int(match builtin {
        Abs => wrap_int(scalar, x.wrapping_abs()),
        Min => smaller(x, args[1].int()),
        Max => larger(x, args[1].int()),
        Clamp => smaller(larger(x, args[1].int()), args[2].int()),
        BitCount => (x as u64 & (u64::MAX >> (64 - scalar.bits()))).count_ones() as i64,
        _ => return Err(EvalError::Invalid(format!("{} is not defined for integers", builtin.name()))),
    }))
}

fn on_vectors(builtin: BuiltinFn, args: &[EvalValue], ty: Ty, scalar: ScalarType) -> EvalResult<EvalValue> {
    use BuiltinFn::*;
    let x = components(&args[0]);
    let y = args.get(1).map(components).unwrap_or_default();
    let each = |f: &dyn Fn(Interval, Interval) -> Interval| composite(x.iter().zip(&y).map(|(x, y)| f(*x, *y)));
    let n = if let Ty::Matrix(_, n) = ty { n as usize } else { x.len() };
    Ok(match builtin {
        Dot => EvalValue::Float(dot(&x, &y, scalar)),
        LengthSq => EvalValue::Float(dot(&x, &x, scalar)),
        Length => EvalValue::Float(dot(&x, &x, scalar).sqrt(scalar)),
        Normalize => {
            let length = dot(&x, &x, scalar).sqrt(scalar);
            if length.mid == 0.0 && length.err == 0.0 {
                return Ok(composite(x.iter().map(|_| Interval::exact(0.0))));
            }
            if length.mid - length.err <= 0.0 {
                return Err(EvalError::Undecided);
            }
            // Computed as a quotient or as a product with the reciprocal, which rounds once more.
            composite(x.iter().map(|x| {
                let interval = x.div(length, scalar);
                Interval { err: interval.err + interval.mid.abs() * super::half_ulp(scalar) * 2.0, ..interval }
            }))
        }
        Cross => {
            let minor = |a: usize, b: usize| x[a].mul(y[b], scalar).sub(x[b].mul(y[a], scalar), scalar);
            composite([minor(1, 2), minor(2, 0), minor(0, 1)])
        }
        CwMul => each(&|x, y| x.mul(y, scalar)),
        CwDiv => each(&|x, y| x.div(y, scalar)),
        Min => each(&|x, y| x.min(y)),
        Max => each(&|x, y| x.max(y)),
        Abs => composite(x.iter().map(|x| Interval { mid: x.mid.abs(), err: x.err })),
        Transpose => composite((0..n * n).map(|at| x[at % n * n + at / n])),
        Trace => EvalValue::Float(sum((0..n).map(|k| x[k * n + k]), scalar)),
        Outer => composite((0..n * n).map(|at| x[at / n].mul(y[at % n], scalar))),
        Determinant if n == 2 => EvalValue::Float(x[0].mul(x[3], scalar).sub(x[1].mul(x[2], scalar), scalar)),
        Determinant => {
            let minor =
                |a: usize, b: usize, c: usize, d: usize| x[a].mul(x[b], scalar).sub(x[c].mul(x[d], scalar), scalar);
            let terms = [
                x[0].mul(minor(4, 8, 5, 7), scalar),
                x[1].mul(minor(3, 8, 5, 6), scalar).negated(),
                x[2].mul(minor(3, 7, 4, 6), scalar),
            ];
            EvalValue::Float(sum(terms.into_iter(), scalar))
        }
        _ => return Err(EvalError::Invalid(format!("{} is not defined for vectors", builtin.name()))),
    })
}
