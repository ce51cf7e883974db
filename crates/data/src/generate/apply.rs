//! Unary operations on terms, with arguments kept within their domain.

use super::builder::ProgramBuilder;
use super::describe::idioms;
use super::term::{Term, TermFn, bin, max_magnitude, span};
use crate::program::{BinaryOp, BuiltinFn, ExprKind, ProgramExpr, UnaryOp};

impl ProgramBuilder {
    /// Applies an operation, after bringing its argument into the domain.
    pub fn apply(&mut self, fun: TermFn, a: Term) -> Term {
        let scalar = a.scalar();
        let cap = max_magnitude(scalar);
        let (low, high) = (a.low, a.high);
        // Where expressions cannot be bound to variables, long ones are not duplicated.
        let duplicates = matches!(fun, TermFn::Square | TermFn::Step | TermFn::Softsign | TermFn::Polynomial);
        if duplicates && !self.may_repeat(&a) {
            let other = *self.random.pick(&[TermFn::Scale, TermFn::Shift]);
            return self.apply(other, a);
        }
        match fun {
            TermFn::Call(builtin) => self.apply_builtin(builtin, a),
            // Double negation would cancel out.
            TermFn::Neg if matches!(a.e.kind, ExprKind::Unary(..) | ExprKind::Float(_)) => self.apply(TermFn::Scale, a),
            TermFn::Neg => Term::new(ProgramExpr::unary(UnaryOp::Neg, a.e), -high, -low),
            TermFn::Square if a.size() * a.size() > cap => self.narrowed(a, cap.sqrt() / 2.0),
            TermFn::Square => {
                let a = self.bind_once(a);
                let min = if low > 0.0 {
                    low * low
                } else if high < 0.0 {
                    high * high
                } else {
                    0.0
                };
                let size = a.size();
                Term::new(bin(BinaryOp::Mul, a.e.clone(), a.e), min, size * size)
            }
            TermFn::Scale => {
                let (c, value) = self.literal(scalar, 0.1, if a.size() * 4.0 > cap { 0.9 } else { 4.0 });
                let e = if self.random.chance(50) { bin(BinaryOp::Mul, c, a.e) } else { bin(BinaryOp::Mul, a.e, c) };
                Term::new(e, low * value, high * value)
            }
            TermFn::Shift => {
                let (c, value) = self.literal(scalar, 0.1, 4.0);
                if self.random.chance(50) {
                    Term::new(bin(BinaryOp::Add, a.e, c), low + value, high + value)
                } else if self.random.chance(50) {
                    Term::new(bin(BinaryOp::Sub, a.e, c), low - value, high - value)
                } else {
                    Term::new(bin(BinaryOp::Sub, c, a.e), value - high, value - low)
                }
            }
            TermFn::Reciprocal => {
                let b = self.divisor(a);
                let (c, value) = self.literal(scalar, 0.5, 2.0);
                let (low, high) = span(&[value / b.low, value / b.high]);
                Term::new(bin(BinaryOp::Div, c, b.e), low, high)
            }
            TermFn::Clamp => {
                if high - low < 1.0 {
                    return self.apply(TermFn::Shift, a);
                }
                // Clamp bounds lie within the typical range, so that the clamp has an effect.
                let (low, high) = self.typical_range(&a);
                let quarter = (high - low) / 4.0;
                let step = 2f64.powi((quarter / 2.0).log2().floor() as i32);
                let from = ((low + quarter * (0.2 + self.random.unit_f64())) / step).round() * step;
                let to = ((high - quarter * (0.2 + self.random.unit_f64())) / step).round() * step;
                let (l, h) = (ProgramExpr::float(scalar, from), ProgramExpr::float(scalar, to));
                Term::new(ProgramExpr::call(BuiltinFn::Clamp, vec![a.e, l, h]), from, to)
            }
            TermFn::Step => {
                if high - low < 0.5 {
                    return self.apply(TermFn::Scale, a);
                }
                let a = self.bind_once(a);
                let op = *self.random.pick(&[BinaryOp::Lt, BinaryOp::Gt]);
                let Some(condition) = self.threshold(&a, op) else { return self.apply(TermFn::Scale, a) };
                let other = self.apply(TermFn::Scale, a.clone());
                Term::new(ProgramExpr::choose(condition, a.e, other.e), low.min(other.low), high.max(other.high))
            }
            TermFn::Sigmoid => {
                let a = self.narrowed(a, 8.0);
                Term::new(idioms::sigmoid(a.e), 0.0, 1.0)
            }
            TermFn::Softsign => {
                let a = self.bind_once(a);
                let one = ProgramExpr::float(scalar, 1.0);
                let size = ProgramExpr::call(BuiltinFn::Abs, vec![a.e.clone()]);
                Term::new(bin(BinaryOp::Div, a.e, bin(BinaryOp::Add, one, size)), -1.0, 1.0)
            }
            TermFn::Polynomial => {
                let a = self.narrowed(a, 4.0);
                let a = self.bind_once(a);
                let degree = 1 + self.random.below(2);
                let size = a.size().max(1.0);
                let (first, value) = self.literal(scalar, 0.1, 2.0);
                let (mut e, mut bound) = (first, value);
                for _ in 0..=degree {
                    let (c, value) = self.literal(scalar, 0.1, 2.0);
                    let product = bin(BinaryOp::Mul, e, a.e.clone());
                    let op = if self.random.chance(60) { BinaryOp::Add } else { BinaryOp::Sub };
                    e = bin(op, product, c);
                    bound = bound * size + value;
                }
                let polynomial = Term::new(e, -bound, bound);
                if bound > cap { self.narrowed(polynomial, 8.0) } else { polynomial }
            }
        }
    }

    fn apply_builtin(&mut self, builtin: BuiltinFn, a: Term) -> Term {
        use BuiltinFn::*;
        let scalar = a.scalar();
        let call = |e: ProgramExpr| ProgramExpr::call(builtin, vec![e]);
        match builtin {
            Abs if a.low >= 0.0 || self.has_constant_sign(&a) => self.apply(TermFn::Shift, a),
            Abs => {
                let size = a.size();
                Term::new(call(a.e), 0.0, size)
            }
            Sign if a.low < -0.1 && a.high > 0.1 => Term::new(call(a.e), -1.0, 1.0),
            Sign => self.apply(TermFn::Square, a),
            Floor | Ceil | Round | Rint | Trunc => {
                let a = if a.high - a.low < 3.0 { self.apply(TermFn::Scale, a) } else { a };
                let scaled = if a.high - a.low < 3.0 {
                    Term::new(bin(BinaryOp::Mul, a.e, ProgramExpr::float(scalar, 4.0)), a.low * 4.0, a.high * 4.0)
                } else {
                    a
                };
                let (low, high) = (scaled.low.floor(), scaled.high.ceil());
                Term::new(call(scaled.e), low, high)
            }
            Frac => Term::new(call(a.e), -1.0, 1.0),
            Sqrt => {
                let a = self.positive(a, 0.05);
                let (low, high) = (a.low.sqrt(), a.high.sqrt());
                Term::new(call(a.e), low, high)
            }
            Cbrt => {
                let a = self.positive(a, 0.05);
                let (low, high) = (a.low.cbrt(), a.high.cbrt());
                Term::new(call(a.e), low, high)
            }
            Exp => {
                let a = match self.random.below(3) {
                    _ if a.high <= 3.0 && a.low >= -12.0 => a,
                    0 => {
                        let size = ProgramExpr::call(Abs, vec![a.e]);
                        let a = Term::new(ProgramExpr::unary(UnaryOp::Neg, size), -a.low.abs().max(a.high.abs()), 0.0);
                        if a.low < -12.0 { self.narrowed(a, 4.0) } else { a }
                    }
                    _ => self.narrowed(a, 2.5),
                };
                let (low, high) = (a.low.exp(), a.high.exp());
                Term::new(call(a.e), low, high)
            }
            Log | Log2 | Log10 => {
                let a = self.positive(a, 0.1);
                let log = |x: f64| match builtin {
                    Log => x.ln(),
                    Log2 => x.log2(),
                    _ => x.log10(),
                };
                let (low, high) = (log(a.low), log(a.high));
                Term::new(call(a.e), low, high)
            }
            Sin | Cos => {
                let a = self.narrowed(a, 50.0);
                Term::new(call(a.e), -1.0, 1.0)
            }
            Tan => {
                let a = self.narrowed(a, 1.25);
                let (low, high) = (a.low.tan(), a.high.tan());
                Term::new(call(a.e), low, high)
            }
            Asin | Acos => {
                let a = self.narrowed(a, 0.9375);
                let (low, high) = if builtin == Asin { (-1.6, 1.6) } else { (0.0, 3.2) };
                Term::new(call(a.e), low, high)
            }
            Atan => Term::new(call(a.e), -1.6, 1.6),
            Sinh | Cosh => {
                let a = self.narrowed(a, 3.0);
                let size = a.size().cosh();
                let low = if builtin == Cosh { 1.0 } else { -size };
                Term::new(call(a.e), low, size)
            }
            Tanh => {
                let a = self.narrowed(a, 8.0);
                Term::new(call(a.e), -1.0, 1.0)
            }
            Erf | Erfc => {
                let a = self.narrowed(a, 3.0);
                let (low, high) = if builtin == Erf { (-1.0, 1.0) } else { (0.0, 2.0) };
                Term::new(call(a.e), low, high)
            }
            Degrees => {
                let a = self.narrowed(a, 10.0);
                Term::new(call(a.e), a.low * 57.3, a.high * 57.3)
            }
            Radians => {
                let (low, high) = (a.low * 0.01746, a.high * 0.01746);
                Term::new(call(a.e), low, high)
            }
            Smoothstep => {
                if a.high - a.low < 0.5 {
                    return self.apply(TermFn::Scale, a);
                }
                let third = (a.high - a.low) / 3.0;
                let step = 2f64.powi((third / 2.0).log2().floor() as i32);
                let from = ((a.low + third * 0.7) / step).round() * step;
                let to = (((a.high - third * 0.7) / step).round() * step).max(from + step);
                let (from, to) = (ProgramExpr::float(scalar, from), ProgramExpr::float(scalar, to));
                Term::new(ProgramExpr::call(Smoothstep, vec![from, to, a.e]), 0.0, 1.0)
            }
            _ => self.apply(TermFn::Scale, a),
        }
    }
}
