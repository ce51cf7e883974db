//! Math functions on floats with error bounds: the error of each on any device, and that of its
//! arguments.

use bornite_ir::{Op, Scalar, Value, interp};

use crate::ball::{Ball, min_positive, unit_roundoff};

/// Applies a float op that is not arithmetic; `None` if bounds of it are not known.
pub fn function(op: Op, args: &[Ball], scalar: Scalar) -> Option<Ball> {
    let [a, ..] = *args else { return None };
    let (low, high) = a.bounds();
    let is_finite = args.iter().all(|arg| arg.radius().is_finite());
    if !is_finite {
        return Some(Ball::unknown());
    }
    if args.iter().any(|arg| arg.mid.is_nan()) {
        return Some(Ball::exact(f64::NAN));
    }
    let f = |x: f64| unary(op, x);
    let (mid, inherited) = match (op, args) {
        (Op::Sqrt, _) => {
            let root = a.mid.sqrt();
            if a.is_exact() && (root * root == a.mid || !root.is_finite()) && root.fract() == 0.0 || a.mid.is_nan() {
                return Some(Ball::exact(root));
            }
            (root, over(&[low, high], f, root))
        }
        (Op::Sin | Op::Cos, _) => (f(a.mid), a.radius()),
        (Op::Cosh, _) => (f(a.mid), a.radius() * low.abs().max(high.abs()).sinh()),
        (Op::Tan, _) => {
            let branch = |x: f64| (x / std::f64::consts::PI + 0.5).floor();
            let inherited = if branch(low) == branch(high) { over(&[low, high], f, f(a.mid)) } else { f64::INFINITY };
            (f(a.mid), inherited)
        }
        // One rounding of the argument more, for exp2(x · log2 e) and the like.
        (Op::Exp | Op::Exp2 | Op::Expm1 | Op::Sinh, _) => {
            let slack = 2.0 * unit_roundoff(scalar) * a.mid.abs();
            (f(a.mid), over(&[low - slack, high + slack], f, f(a.mid)))
        }
        (Op::Hypot, [a, b]) => (a.mid.hypot(b.mid), a.radius() + b.radius()),
        (Op::Atan2, [a, b]) => (a.mid.atan2(b.mid), atan2_error(*a, *b)),
        (Op::Pow, [a, b]) => (a.mid.powf(b.mid), pow_error(*a, *b, scalar)),
        (Op::Fmod, [a, b]) => {
            if a.is_exact() && b.is_exact() {
                return Some(Ball::exact(a.mid % b.mid));
            }
            let quotient = a.div(*b, scalar).step(f64::trunc);
            let error = a.radius() + quotient.mid.abs() * b.radius();
            (a.mid % b.mid, if quotient.is_exact() { error } else { f64::INFINITY })
        }
        (_, [_]) => (f(a.mid), over(&[low, high], f, f(a.mid))),
        _ => return None,
    };
    if mid.is_nan() && !args.iter().all(|arg| arg.is_exact()) {
        return Some(Ball::unknown());
    }
    if !mid.is_finite() && inherited.is_finite() {
        return Some(Ball::exact(mid));
    }
    let own = mid.abs() * 2.0 * unit_roundoff(scalar) * ulps(op, scalar) + 8.0 * min_positive(scalar);
    // Formulas with exp, which implementations use, lose relative accuracy near 0.
    let absolute = if matches!(op, Op::Tanh | Op::Erf) { 4.0 * unit_roundoff(scalar) } else { 0.0 };
    Some(Ball::within(mid, inherited * 1.000_001 + own + absolute).in_range(scalar, inherited.is_finite()))
}

/// Maximum error of a function in ulps: that of Bornite's and of CUDA's, and one more.
fn ulps(op: Op, scalar: Scalar) -> f64 {
    let row = op.row();
    let of = |ulp: bornite_ir::Ulp| if scalar == Scalar::F64 { ulp.f64 } else { ulp.f32 };
    match scalar {
        Scalar::F16 | Scalar::BF16 => 1.0,
        _ => 1.0 + of(row.ulp).max(row.native.map_or(0.0, |native| of(native.ulp))),
    }
}

/// Largest distance from `mid` of a function that is monotone between the points.
fn over(points: &[f64], f: impl Fn(f64) -> f64, mid: f64) -> f64 {
    let distance = |&x: &f64| match f(x) {
        y if y == mid => 0.0,
        y if y.is_nan() => f64::INFINITY,
        y => (y - mid).abs(),
    };
    points.iter().map(distance).fold(0.0, f64::max)
}

fn atan2_error(a: Ball, b: Ball) -> f64 {
    let distance = a.radius().hypot(b.radius());
    let min_radius = a.mid.hypot(b.mid) - distance;
    let crosses = b.mid < distance && a.mid.abs() <= a.radius();
    match distance {
        0.0 => 0.0,
        _ if min_radius <= 0.0 || crosses => f64::INFINITY,
        _ => distance / min_radius * 1.6,
    }
}

fn pow_error(a: Ball, b: Ball, scalar: Scalar) -> f64 {
    let mid = a.mid.powf(b.mid);
    let (low, high) = a.bounds();
    let slack = 2.0 * unit_roundoff(scalar) * a.mid.abs();
    let exponents = [b.bounds().0, b.bounds().1];
    if low <= 0.0 && !(b.is_exact() && b.mid.fract() == 0.0 && (b.mid >= 0.0 || high < 0.0)) && !a.is_exact() {
        return f64::INFINITY;
    }
    let bases = if a.is_exact() && a.mid == 0.0 { [0.0; 2] } else { [low - slack, high + slack] };
    let mut error = exponents.iter().map(|y| over(&bases, |x| x.powf(*y), mid)).fold(0.0, f64::max);
    if low < 0.0 && high > 0.0 {
        error = error.max(over(&[0.0], |x| x.powf(b.mid), mid));
    }
    error
}

/// A function of one argument in f64.
fn unary(op: Op, x: f64) -> f64 {
    match op {
        Op::Sqrt => x.sqrt(),
        Op::Rsqrt => 1.0 / x.sqrt(),
        Op::Cbrt => x.cbrt(),
        Op::Exp => x.exp(),
        Op::Exp2 => x.exp2(),
        Op::Expm1 => x.exp_m1(),
        Op::Log => x.ln(),
        Op::Log2 => x.log2(),
        Op::Log10 => x.log10(),
        Op::Log1p => x.ln_1p(),
        Op::Sin => x.sin(),
        Op::Cos => x.cos(),
        Op::Tan => x.tan(),
        Op::Asin => x.asin(),
        Op::Acos => x.acos(),
        Op::Atan => x.atan(),
        Op::Sinh => x.sinh(),
        Op::Cosh => x.cosh(),
        Op::Tanh => x.tanh(),
        Op::Asinh => x.asinh(),
        Op::Acosh => x.acosh(),
        Op::Atanh => x.atanh(),
        op => interp::evaluate(op, &[Value::from_f64(Scalar::F64, x)]).map_or(f64::NAN, |value| value.as_f64()),
    }
}
