//! Implements [`Emit`] on registers of floats with error bounds, so that the op table's bodies over
//! integers and vectors run unchanged; float ops are computed from their definition.

use std::rc::Rc;

use bornite_ir::{Emit, EmitBits, Op, Scalar, Value, interp};

use crate::ball::Ball;
use crate::functions::function;

/// Value of one thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Lane {
    /// Integer or bool, as zero-extended bits.
    Bits(u64),
    /// Float.
    Float(Ball),
    /// Integer or bool that rounding decides.
    Undecided,
}

impl Lane {
    /// A value without error.
    pub fn exact(value: Value) -> Lane {
        if value.scalar().is_float() { Lane::Float(Ball::exact(value.as_f64())) } else { Lane::Bits(value.bits()) }
    }

    /// The float; unknown if rounding decides.
    pub fn ball(self) -> Ball {
        if let Lane::Float(ball) = self { ball } else { Ball::unknown() }
    }

    /// The bits, if they are the same in every correct implementation.
    pub fn bits(self, scalar: Scalar) -> Option<u64> {
        match self {
            Lane::Bits(bits) => Some(bits),
            Lane::Float(ball) => ball.is_exact().then(|| Value::from_f64(scalar, ball.mid).bits()),
            Lane::Undecided => None,
        }
    }
}

/// One value per thread.
#[derive(Clone, Debug)]
pub struct Register {
    pub scalar: Scalar,
    pub lanes: Vec<Lane>,
}

impl Register {
    pub fn splat(value: Value, lanes: usize) -> Register {
        Register { scalar: value.scalar(), lanes: vec![Lane::exact(value); lanes] }
    }

    /// The integer of a lane; `None` if rounding decides it.
    pub fn int(&self, lane: usize) -> Option<i64> {
        self.lanes[lane].bits(self.scalar).map(|bits| Value::from_bits(self.scalar, bits).as_i64())
    }
}

/// Computes on registers of `lanes` lanes.
pub struct Compute {
    pub lanes: usize,
    /// First float op without known bounds.
    pub unsupported: Option<Op>,
}

impl Compute {
    pub fn new(lanes: usize) -> Compute {
        Compute { lanes, unsupported: None }
    }

    fn float_op(&mut self, op: Op, args: &[&Rc<Register>], scalar: Scalar) -> Register {
        let is_comparison = matches!(op, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge);
        let mut balls = Vec::with_capacity(3);
        let lanes = (0..self.lanes).map(|lane| {
            balls.clear();
            balls.extend(args.iter().map(|arg| arg.lanes[lane].ball()));
            if is_comparison {
                let (a, b) = (balls[0], balls[1]);
                let outcome = match op {
                    Op::Eq => a.eq(b),
                    Op::Ne => a.eq(b).map(|equal| !equal),
                    Op::Lt => a.lt(b),
                    Op::Le => a.le(b),
                    Op::Gt => b.lt(a),
                    _ => b.le(a),
                };
                return outcome.map_or(Lane::Undecided, |holds| Lane::Bits(holds as u64));
            }
            Lane::Float(float(op, &balls, scalar).unwrap_or_else(|| {
                self.unsupported = Some(op);
                Ball::unknown()
            }))
        });
        let lanes = lanes.collect();
        Register { scalar: if is_comparison { Scalar::Bool } else { scalar }, lanes }
    }
}

fn float(op: Op, args: &[Ball], scalar: Scalar) -> Option<Ball> {
    let ignoring_nan = |a: Ball, b: Ball, chosen: Ball| match (a.mid.is_nan(), b.mid.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ => chosen,
    };
    Some(match (op, args) {
        (Op::Add, &[a, b]) => a.add(b, scalar),
        (Op::Sub, &[a, b]) => a.add(b.neg(), scalar),
        (Op::Mul, &[a, b]) => a.mul(b, scalar),
        (Op::Div, &[a, b]) => a.div(b, scalar),
        (Op::Fma, &[a, b, c]) => a.mul(b, scalar).add(c, scalar),
        (Op::Neg, &[a]) => a.neg(),
        (Op::Abs, &[a]) => a.abs(),
        (Op::Min, &[a, b]) => a.min(b),
        (Op::Max, &[a, b]) => a.max(b),
        (Op::Fmin, &[a, b]) => ignoring_nan(a, b, a.min(b)),
        (Op::Fmax, &[a, b]) => ignoring_nan(a, b, a.max(b)),
        (Op::Clamp, &[a, low, high]) => a.max(low).min(high),
        (Op::Sign, &[a]) => a.step(|x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
        (Op::Copysign, &[a, b]) => {
            let magnitude = a.abs();
            match b.lt(Ball::exact(0.0)) {
                Some(true) => magnitude.neg(),
                Some(false) if b.mid == 0.0 && b.mid.is_sign_negative() => magnitude.neg(),
                Some(false) => magnitude,
                None => magnitude.hull(magnitude.neg()),
            }
        }
        (Op::Floor, &[a]) => a.step(f64::floor),
        (Op::Ceil, &[a]) => a.step(f64::ceil),
        (Op::Trunc, &[a]) => a.step(f64::trunc),
        (Op::Rint, &[a]) => a.step(f64::round_ties_even),
        (Op::Round, &[a]) => a.step(f64::round),
        _ => return function(op, args, scalar),
    })
}

/// An integer or bool op on lanes that are known.
fn int_op(op: Op, scalar: Scalar, args: &[u64]) -> u64 {
    let value = |bits: u64| Value::from_bits(scalar, bits).as_i64();
    if let ([a, b], Scalar::I32 | Scalar::I64 | Scalar::U32) = (args, scalar) {
        let (a, b) = (value(*a), value(*b));
        let bits = |value: i64| Value::int(scalar, value).bits();
        match op {
            Op::Add => return bits(a.wrapping_add(b)),
            Op::Sub => return bits(a.wrapping_sub(b)),
            Op::Mul => return bits(a.wrapping_mul(b)),
            Op::Lt => return (a < b) as u64,
            Op::Le => return (a <= b) as u64,
            Op::Gt => return (a > b) as u64,
            Op::Ge => return (a >= b) as u64,
            Op::Eq => return (a == b) as u64,
            Op::Ne => return (a != b) as u64,
            _ => {}
        }
    }
    let values: Vec<Value> = args.iter().map(|&bits| Value::from_bits(scalar, bits)).collect();
    interp::evaluate(op, &values).map_or(0, |value| value.bits())
}

fn select(condition: Lane, a: Lane, b: Lane) -> Lane {
    match (condition, a, b) {
        (Lane::Bits(0), ..) => b,
        (Lane::Bits(_), ..) => a,
        (_, Lane::Float(a), Lane::Float(b)) => Lane::Float(a.hull(b)),
        _ if a == b => a,
        _ => Lane::Undecided,
    }
}

impl Emit for Compute {
    type V = Rc<Register>;

    fn op(&mut self, op: Op, args: &[&Rc<Register>]) -> Rc<Register> {
        let scalar = args.last().map_or(Scalar::Bool, |arg| arg.scalar);
        if op == Op::Select {
            let lanes = 0..self.lanes;
            let lanes = lanes.map(|n| select(args[0].lanes[n], args[1].lanes[n], args[2].lanes[n])).collect();
            return Rc::new(Register { scalar, lanes });
        }
        if scalar.is_float() {
            return Rc::new(self.float_op(op, args, scalar));
        }
        let mut bits = Vec::with_capacity(3);
        let lanes = (0..self.lanes).map(|n| {
            bits.clear();
            bits.extend(args.iter().filter_map(|arg| arg.lanes[n].bits(scalar)));
            match (op, &bits[..]) {
                (_, known) if known.len() == args.len() => Lane::Bits(int_op(op, scalar, known)),
                (Op::And, [0]) if args.len() == 2 => Lane::Bits(0),
                (Op::Or, [1]) if args.len() == 2 && scalar == Scalar::Bool => Lane::Bits(1),
                _ => Lane::Undecided,
            }
        });
        let lanes = lanes.collect();
        let result = op.row().rule.result(&args.iter().map(|arg| arg.scalar).collect::<Vec<_>>()).unwrap_or(scalar);
        Rc::new(Register { scalar: result, lanes })
    }

    fn constant_like(&mut self, like: &Rc<Register>, value: f64) -> Rc<Register> {
        self.constant(Value::from_f64(like.scalar, value))
    }
}

impl EmitBits for Compute {
    fn scalar(&self, v: &Rc<Register>) -> Scalar {
        v.scalar
    }

    fn constant(&mut self, value: Value) -> Rc<Register> {
        Rc::new(Register::splat(value, self.lanes))
    }

    fn bitcast(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        let cast = |lane: &Lane| match lane.bits(v.scalar) {
            Some(bits) => Lane::exact(Value::from_bits(to, bits)),
            None if to.is_float() => Lane::Float(Ball::unknown()),
            None => Lane::Undecided,
        };
        Rc::new(Register { scalar: to, lanes: v.lanes.iter().map(cast).collect() })
    }

    fn cast_step(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        self.cast(to, v)
    }

    fn cast(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        if to == v.scalar {
            return v.clone();
        }
        Rc::new(Register { scalar: to, lanes: v.lanes.iter().map(|&lane| cast(lane, v.scalar, to)).collect() })
    }
}

fn cast(lane: Lane, from: Scalar, to: Scalar) -> Lane {
    match lane {
        Lane::Float(ball) if to.is_float() => Lane::Float(ball.to(from, to)),
        Lane::Float(ball) if to == Scalar::Bool => {
            ball.eq(Ball::exact(0.0)).map_or(Lane::Undecided, |zero| Lane::Bits(!zero as u64))
        }
        Lane::Float(ball) => {
            let (low, high) = ball.bounds();
            let (low, high) = (Value::from_f64(to, low), Value::from_f64(to, high));
            if ball.radius().is_finite() && low == high { Lane::Bits(low.bits()) } else { Lane::Undecided }
        }
        Lane::Bits(bits) => {
            let value = Value::from_bits(from, bits);
            match to {
                Scalar::Bool => Lane::Bits((bits != 0) as u64),
                to if to.is_float() => Lane::exact(Value::from_f64(to, value.as_f64())),
                to => Lane::Bits(Value::int(to, value.as_i64()).bits()),
            }
        }
        Lane::Undecided if to.is_float() => Lane::Float(Ball::unknown()),
        Lane::Undecided => Lane::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use bornite_support::random::Random;

    use super::*;

    /// A float of a type near `x`.
    fn value(scalar: Scalar, x: f64) -> Value {
        Value::from_f64(scalar, x)
    }

    /// Every float op of the table, on exact arguments and on arguments with an error: what the
    /// interpreter computes anywhere within the arguments' balls lies within the result's.
    #[test]
    fn bounds_of_every_op_contain_the_interpreters_results() {
        let mut random = Random::new(7);
        let (mut checked, mut finite) = (0, 0);
        for &op in Op::ALL {
            for scalar in [Scalar::F32, Scalar::F64, Scalar::F16, Scalar::BF16] {
                let types = vec![scalar; op.arity()];
                if op == Op::Select || op.row().rule.result(&types) != Ok(scalar) {
                    continue;
                }
                for n in 0..200 {
                    let scale = [0.3, 1.0, 3.0, 20.0][n % 4];
                    let args: Vec<f64> = (0..op.arity())
                        .map(|_| value(scalar, scale * (2.0 * random.unit_f64() - 0.9)).as_f64())
                        .collect();
                    let error = if n % 2 == 0 { 0.0 } else { 1e-3 };
                    let balls: Vec<Ball> = args
                        .iter()
                        .map(|&x| if error == 0.0 { Ball::exact(x) } else { Ball::within(x, error) })
                        .collect();
                    let ball = float(op, &balls, scalar).unwrap_or_else(|| panic!("{op:?} has no bounds"));
                    for _ in 0..4 {
                        let near: Vec<Value> = (args.iter())
                            .map(|&x| value(scalar, x + error * (1.8 * random.unit_f64() - 0.9)))
                            .filter(|near| args.iter().any(|x| (near.as_f64() - x).abs() <= error))
                            .collect();
                        let Ok(found) = interp::evaluate(op, &near) else { continue };
                        let found = found.as_f64();
                        let (radius, mid) = (ball.radius(), ball.mid);
                        let is_inside = found == mid
                            || found.is_nan() && (mid.is_nan() || radius.is_infinite())
                            || (found - mid).abs() <= radius;
                        assert!(is_inside, "{op:?} of {near:?} is {found}; bounds of {balls:?}: {ball:?}");
                        checked += 1;
                        finite += radius.is_finite() as usize;
                    }
                }
            }
        }
        assert!(checked > 50_000 && finite * 4 > checked * 3, "{finite} of {checked} are finite");
    }

    /// Sums of products in several orders, in f32, against the bound of a sequential loop.
    #[test]
    fn sums_in_any_order_lie_within_the_bound() {
        let mut random = Random::new(3);
        for count in [2, 3, 17, 100, 1000] {
            let mut terms: Vec<(f32, f32)> =
                (0..count).map(|_| ((random.unit_f64() - 0.5) as f32, (random.unit_f64() - 0.4) as f32)).collect();
            let ball = terms.iter().fold(Ball::exact(0.0), |sum, &(a, b)| {
                let [a, b] = [a, b].map(|x| Ball::exact(x as f64));
                sum.add(a.mul(b, Scalar::F32), Scalar::F32)
            });
            let mut found = vec![
                terms.iter().fold(0f32, |sum, (a, b)| sum + a * b),
                terms.iter().rev().fold(0f32, |sum, (a, b)| a.mul_add(*b, sum)),
            ];
            terms.sort_by(|(a, b), (c, d)| (c * d).total_cmp(&(a * b)));
            found.push(terms.iter().fold(0f32, |sum, (a, b)| sum + a * b));
            let mut tree: Vec<f32> = terms.iter().map(|(a, b)| a * b).collect();
            while tree.len() > 1 {
                tree = tree.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
            found.push(tree[0]);
            for sum in found {
                assert!((sum as f64 - ball.mid).abs() <= ball.radius(), "{count}: {sum}, {ball:?}");
            }
            // The bound still detects a missing term.
            assert!(ball.radius() < 0.02, "{count}: {ball:?}");
        }
    }

    #[test]
    fn integers_stay_exact_and_comparisons_that_rounding_decides_are_undecided() {
        let sum = (1..=1000).fold(Ball::exact(0.0), |sum, n| sum.add(Ball::exact(n as f64), Scalar::F32));
        assert!(sum.is_exact() && sum.mid == 500_500.0);
        let third = Ball::exact(1.0).div(Ball::exact(3.0), Scalar::F32);
        assert!(!third.is_exact());
        assert_eq!(third.lt(Ball::exact(0.333)), Some(false));
        assert_eq!(third.lt(Ball::exact(1.0 / 3.0)), None);
        assert_eq!(third.mul(Ball::exact(3.0), Scalar::F32).eq(Ball::exact(1.0)), None);
        assert_eq!(Ball::exact(2.0).eq(Ball::exact(2.0)), Some(true));
        assert_eq!(Ball::exact(f64::NAN).lt(Ball::exact(2.0)), Some(false));
        assert!(Ball::exact(1e30).mul(Ball::exact(1e30), Scalar::F32).mid.is_infinite());
        assert!(third.div(Ball::within(0.0, 1e-9), Scalar::F32).radius().is_infinite());
    }
}
