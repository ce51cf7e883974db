//! Operators and functions of the Warp dialect on values with error bounds, each computed from its
//! definition.

use super::ball::{erf, erfc};
use super::{Ball, Done, Stop, Value, wrapped};
use crate::program::{Binary, Builtin, Scalar, Ty};

/// One step of the dialect's random number generator (PCG).
pub fn pcg(state: u32) -> u32 {
    let b = state.wrapping_mul(747796405).wrapping_add(2891336453);
    let c = (b >> ((b >> 28) + 4) ^ b).wrapping_mul(277803737);
    c >> 22 ^ c
}

fn parts(value: &Value) -> Vec<Ball> {
    match value {
        Value::Many(parts) => parts.iter().map(Value::float).collect(),
        value => vec![value.float()],
    }
}

fn many(balls: impl IntoIterator<Item = Ball>) -> Value {
    Value::Many(balls.into_iter().map(Value::Float).collect())
}

/// Binary operator.
pub fn binary(op: Binary, a: Value, b: Value, ta: Ty, tb: Ty) -> Done<Value> {
    match (&a, &b) {
        (Value::Float(x), Value::Float(y)) => Ok(floats(op, *x, *y, ta.element().unwrap_or(Scalar::F32))),
        (Value::Int(x), Value::Int(y)) => integers(op, *x, *y, ta.element().unwrap_or(Scalar::I32)),
        (Value::Bool(x), Value::Bool(y)) => Ok(Value::Bool(match (x, y) {
            (Some(x), Some(y)) if op == Binary::Ne => Some(x != y),
            (Some(x), Some(y)) => Some(x == y),
            _ => None,
        })),
        _ => composite(op, &a, &b, ta, tb),
    }
}

fn floats(op: Binary, x: Ball, y: Ball, scalar: Scalar) -> Value {
    Value::Float(match op {
        Binary::Add => x.add(y, scalar),
        Binary::Sub => x.sub(y, scalar),
        Binary::Mul => x.mul(y, scalar),
        Binary::Div => x.div(y, scalar),
        Binary::Lt => return Value::Bool(x.below(y)),
        Binary::Gt => return Value::Bool(y.below(x)),
        Binary::Le => return Value::Bool(y.below(x).map(|b| !b)),
        Binary::Ge => return Value::Bool(x.below(y).map(|b| !b)),
        Binary::Eq => return Value::Bool(x.equals(y)),
        _ => return Value::Bool(x.equals(y).map(|b| !b)),
    })
}

/// Checks that a number is positive within its error bound.
fn require_positive(x: Ball, function: &str) -> Done<()> {
    if x.mid + x.err <= 0.0 {
        return Err(Stop::Invalid(format!("{function} of a number that is not positive")));
    }
    if x.mid - x.err <= 0.0 { Err(Stop::Undecided) } else { Ok(()) }
}

fn integers(op: Binary, x: i64, y: i64, scalar: Scalar) -> Done<Value> {
    let wide = |v: i64| if scalar == Scalar::U64 { v as u64 as i128 } else { v as i128 };
    let (a, b) = (wide(x), wide(y));
    let count = (y as u32) % scalar.bits().max(32);
    let value = match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::Quotient | Binary::Div | Binary::Rem if b == 0 => {
            return Err(Stop::Invalid("integer division by 0".into()));
        }
        Binary::Quotient | Binary::Div => (a / b) as i64,
        Binary::Rem => (a % b) as i64,
        Binary::BitAnd => x & y,
        Binary::BitOr => x | y,
        Binary::BitXor => x ^ y,
        Binary::Shl => x.wrapping_shl(count),
        Binary::Shr if scalar == Scalar::U64 => ((x as u64) >> count) as i64,
        Binary::Shr => x >> count,
        Binary::Lt => return Ok(Value::Bool(Some(a < b))),
        Binary::Le => return Ok(Value::Bool(Some(a <= b))),
        Binary::Gt => return Ok(Value::Bool(Some(a > b))),
        Binary::Ge => return Ok(Value::Bool(Some(a >= b))),
        Binary::Eq => return Ok(Value::Bool(Some(a == b))),
        Binary::Ne => return Ok(Value::Bool(Some(a != b))),
        Binary::And | Binary::Or => return Err(Stop::Invalid("'and' or 'or' of integers".into())),
    };
    let result = wrapped(scalar, value);
    // Undefined behaviour of C++ is not allowed in a row.
    let exact = match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        _ => result as i128,
    };
    if scalar.is_signed() && exact != result as i128 {
        return Err(Stop::Invalid(format!("an operation on {x} and {y} overflows {}", scalar.name())));
    }
    Ok(Value::Int(result))
}

fn composite(op: Binary, a: &Value, b: &Value, ta: Ty, tb: Ty) -> Done<Value> {
    let scalar = ta.element().unwrap_or(Scalar::F32);
    let (x, y) = (parts(a), parts(b));
    Ok(match (op, ta, tb) {
        (Binary::Mul, Ty::Scalar(_), _) => many(y.iter().map(|y| x[0].mul(*y, scalar))),
        (Binary::Mul, _, Ty::Scalar(_)) => many(x.iter().map(|x| x.mul(y[0], scalar))),
        (Binary::Div, _, Ty::Scalar(_)) => {
            // Computed as a quotient or as a product with the reciprocal.
            many(x.iter().map(|x| {
                let ball = x.div(y[0], scalar);
                Ball { err: ball.err + ball.mid.abs() * super::unit(scalar) * 2.0, ..ball }
            }))
        }
        (Binary::Mul, Ty::Matrix(_, n), Ty::Vector(..)) => {
            let n = n as usize;
            many((0..n).map(|r| sum((0..n).map(|k| x[r * n + k].mul(y[k], scalar)), scalar)))
        }
        (Binary::Mul, Ty::Matrix(_, n), _) => {
            let n = n as usize;
            many((0..n * n).map(|at| sum((0..n).map(|k| x[at / n * n + k].mul(y[k * n + at % n], scalar)), scalar)))
        }
        (Binary::Add, ..) => many(x.iter().zip(&y).map(|(x, y)| x.add(*y, scalar))),
        (Binary::Sub, ..) => many(x.iter().zip(&y).map(|(x, y)| x.sub(*y, scalar))),
        _ => return Err(Stop::Invalid(format!("{op:?} is not defined for vectors"))),
    })
}

/// Sum of a few terms in any order.
fn sum(terms: impl Iterator<Item = Ball>, scalar: Scalar) -> Ball {
    let (mut mid, mut err, mut size, mut count) = (0.0, 0.0, 0.0, 0.0);
    for term in terms {
        mid += term.mid;
        err += term.err;
        size += term.mid.abs();
        count += 1.0;
    }
    let factor = if scalar == Scalar::F64 { 3.0 } else { 1.0 };
    Ball { mid, err: err + size * super::unit(scalar) * count * factor }
}

fn dot(a: &[Ball], b: &[Ball], scalar: Scalar) -> Ball {
    sum(a.iter().zip(b).map(|(a, b)| a.mul(*b, scalar)), scalar)
}

/// Builtin function of the dialect.
pub fn call(builtin: Builtin, args: &[Value], ty: Ty) -> Done<Value> {
    use Builtin::*;
    let scalar = ty.element().unwrap_or(Scalar::F32);
    if !matches!(ty, Ty::Scalar(_)) {
        return on_vectors(builtin, args, ty, scalar);
    }
    if scalar.is_int() {
        return on_integers(builtin, args, scalar);
    }
    let x = args[0].float();
    let arg = |n: usize| args[n].float();
    let decided = |ball: Option<Ball>| ball.ok_or(Stop::Undecided);
    Ok(Value::Float(match builtin {
        Abs => Ball { mid: x.mid.abs(), err: x.err },
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
                return Err(Stop::Invalid("square root of a negative number".into()));
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
                return Err(Stop::Undecided);
            }
            x.monotone(scalar, f64::tan)
        }
        Asin | Acos => {
            if x.mid.abs() - x.err > 1.0 {
                return Err(Stop::Invalid("arcsine or arccosine of a number above 1".into()));
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
            let ball = x.monotone(scalar, if builtin == Erf { erf } else { erfc });
            // Our implementations are less accurate than libm in the last digits of doubles.
            Ball { err: ball.err + ball.mid.abs() * 1e-14, ..ball }
        }
        Copysign => {
            // The sign of a zero is unknown here.
            let sign_source = arg(1);
            let sign = decided((sign_source.mid.abs() > sign_source.err).then(|| Ball::exact(sign_source.mid.signum())))?;
            Ball { mid: x.mid.abs() * sign.mid, err: x.err }
        }
        Lerp => {
            let (b, t) = (arg(1), arg(2));
            let rest = Ball::exact(1.0).sub(t, scalar);
            x.mul(rest, scalar).add(b.mul(t, scalar), scalar)
        }
        Smoothstep => {
            let (high, at) = (arg(1), arg(2));
            let t = at.sub(x, scalar).div(high.sub(x, scalar), scalar);
            let t = t.max(Ball::exact(0.0)).min(Ball::exact(1.0));
            let factor = Ball::exact(3.0).sub(Ball::exact(2.0).mul(t, scalar), scalar);
            t.mul(t, scalar).mul(factor, scalar)
        }
        Degrees | Radians => {
            let factor = if builtin == Degrees { 180.0 / std::f64::consts::PI } else { std::f64::consts::PI / 180.0 };
            x.mul(Ball { mid: factor, err: factor * super::unit(scalar) }, scalar)
        }
        _ => return Err(Stop::Invalid(format!("{} is not defined for floats", builtin.name()))),
    }))
}

fn on_integers(builtin: Builtin, args: &[Value], scalar: Scalar) -> Done<Value> {
    use Builtin::*;
    let x = args[0].int();
    let wide = |v: i64| if scalar == Scalar::U64 { v as u64 as i128 } else { v as i128 };
    let smaller = |a: i64, b: i64| if wide(b) < wide(a) { b } else { a };
    let larger = |a: i64, b: i64| if wide(b) > wide(a) { b } else { a };
    Ok(Value::Int(match builtin {
        Abs => wrapped(scalar, x.wrapping_abs()),
        Min => smaller(x, args[1].int()),
        Max => larger(x, args[1].int()),
        Clamp => smaller(larger(x, args[1].int()), args[2].int()),
        BitCount => (x as u64 & (u64::MAX >> (64 - scalar.bits()))).count_ones() as i64,
        _ => return Err(Stop::Invalid(format!("{} is not defined for integers", builtin.name()))),
    }))
}

fn on_vectors(builtin: Builtin, args: &[Value], ty: Ty, scalar: Scalar) -> Done<Value> {
    use Builtin::*;
    let x = parts(&args[0]);
    let y = args.get(1).map(parts).unwrap_or_default();
    let each = |of: &dyn Fn(Ball, Ball) -> Ball| many(x.iter().zip(&y).map(|(x, y)| of(*x, *y)));
    let n = if let Ty::Matrix(_, n) = ty { n as usize } else { x.len() };
    Ok(match builtin {
        Dot => Value::Float(dot(&x, &y, scalar)),
        LengthSq => Value::Float(dot(&x, &x, scalar)),
        Length => Value::Float(dot(&x, &x, scalar).sqrt(scalar)),
        Normalize => {
            let length = dot(&x, &x, scalar).sqrt(scalar);
            if length.mid == 0.0 && length.err == 0.0 {
                return Ok(many(x.iter().map(|_| Ball::exact(0.0))));
            }
            if length.mid - length.err <= 0.0 {
                return Err(Stop::Undecided);
            }
            // Computed as a quotient or as a product with the reciprocal, which rounds once more.
            many(x.iter().map(|x| {
                let ball = x.div(length, scalar);
                Ball { err: ball.err + ball.mid.abs() * super::unit(scalar) * 2.0, ..ball }
            }))
        }
        Cross => {
            let minor = |a: usize, b: usize| x[a].mul(y[b], scalar).sub(x[b].mul(y[a], scalar), scalar);
            many([minor(1, 2), minor(2, 0), minor(0, 1)])
        }
        CwMul => each(&|x, y| x.mul(y, scalar)),
        CwDiv => each(&|x, y| x.div(y, scalar)),
        Min => each(&|x, y| x.min(y)),
        Max => each(&|x, y| x.max(y)),
        Abs => many(x.iter().map(|x| Ball { mid: x.mid.abs(), err: x.err })),
        Transpose => many((0..n * n).map(|at| x[at % n * n + at / n])),
        Trace => Value::Float(sum((0..n).map(|k| x[k * n + k]), scalar)),
        Outer => many((0..n * n).map(|at| x[at / n].mul(y[at % n], scalar))),
        Determinant if n == 2 => Value::Float(x[0].mul(x[3], scalar).sub(x[1].mul(x[2], scalar), scalar)),
        Determinant => {
            let minor =
                |a: usize, b: usize, c: usize, d: usize| x[a].mul(x[b], scalar).sub(x[c].mul(x[d], scalar), scalar);
            let terms = [
                x[0].mul(minor(4, 8, 5, 7), scalar),
                x[1].mul(minor(3, 8, 5, 6), scalar).negated(),
                x[2].mul(minor(3, 7, 4, 6), scalar),
            ];
            Value::Float(sum(terms.into_iter(), scalar))
        }
        _ => return Err(Stop::Invalid(format!("{} is not defined for vectors", builtin.name()))),
    })
}
