//! Integer terms with value ranges: no signed overflow, no division by zero, and no negative
//! operands of `//` and `%`, on which languages differ.

use super::builder::ProgramBuilder;
use super::term::{Term, span};
use crate::program::{BinaryOp, BuiltinFn, ProgramExpr, ScalarType, UnaryOp};

fn bin(op: BinaryOp, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
    ProgramExpr::binary(op, a, b)
}

fn cap(scalar: ScalarType) -> f64 {
    if scalar.bits() == 64 { 1e15 } else { 1e9 }
}

impl ProgramBuilder {
    /// Combines integer terms until one is left; each is used.
    pub fn combine_int(&mut self, mut terms: Vec<Term>, mut unary: usize, bind: usize) -> Term {
        loop {
            let more = terms.len() > 1;
            if !more && unary == 0 {
                return terms.remove(0);
            }
            let at = self.random.below(terms.len());
            let a = terms.swap_remove(at);
            let mut combined = if unary > 0 && (!more || self.random.chance(45)) {
                unary -= 1;
                self.apply_int(a)
            } else {
                let at = self.random.below(terms.len());
                let b = terms.swap_remove(at);
                self.join_int(a, b)
            };
            if !(terms.is_empty() && unary == 0)
                && self.can_bind
                && combined.e.operations() > 1
                && self.random.chance(bind)
            {
                combined.e = self.bind(combined.e);
                if self.random.chance(40) {
                    terms.push(combined.clone());
                }
            }
            terms.push(combined);
        }
    }

    pub fn join_int(&mut self, a: Term, b: Term) -> Term {
        let scalar = a.e.ty.element().unwrap_or(ScalarType::I32);
        let max = cap(scalar);
        let choice = self.random.below(10);
        let same = a.e == b.e;
        let (low, high, op) = match choice {
            0..=2 => (a.low + b.low, a.high + b.high, BinaryOp::Add),
            3..=4 if !same && scalar.is_signed() => (a.low - b.high, a.high - b.low, BinaryOp::Sub),
            5..=6 => {
                let (low, high) = span(&[a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high]);
                (low, high, BinaryOp::Mul)
            }
            7..=8 if !same && a.high.min(b.high) > a.low.max(b.low) => {
                let (builtin, low, high) = if self.random.chance(50) {
                    (BuiltinFn::Min, a.low.min(b.low), a.high.min(b.high))
                } else {
                    (BuiltinFn::Max, a.low.max(b.low), a.high.max(b.high))
                };
                return Term::new(ProgramExpr::call(builtin, vec![a.e, b.e]), low, high);
            }
            9 if !same && (self.can_bind || a.e.operations() + b.e.operations() <= 4) => {
                let op = *self.random.pick(&[BinaryOp::Lt, BinaryOp::Gt, BinaryOp::Le, BinaryOp::Ge]);
                let condition = bin(op, a.e.clone(), b.e.clone());
                if self.has_both_outcomes(&condition) {
                    let (low, high) = (a.low.min(b.low), a.high.max(b.high));
                    let shifted = self.apply_int(a);
                    let (low, high) = (low.min(shifted.low), high.max(shifted.high));
                    return Term::new(ProgramExpr::choose(condition, shifted.e, b.e), low, high);
                }
                (a.low + b.low, a.high + b.high, BinaryOp::Add)
            }
            _ => (a.low + b.low, a.high + b.high, BinaryOp::Add),
        };
        if low.abs().max(high.abs()) > max {
            let (a, b) = (self.small_int(a), self.small_int(b));
            return Term::new(bin(BinaryOp::Add, a.e, b.e), a.low + b.low, a.high + b.high);
        }
        Term::new(bin(op, a.e, b.e), low, high)
    }

    /// Reduces a term by a remainder.
    pub fn small_int(&mut self, a: Term) -> Term {
        let a = self.not_negative(a);
        if a.high < 1000.0 {
            return a;
        }
        let scalar = a.e.ty.element().unwrap_or(ScalarType::I32);
        let by = *self.random.pick(&[17, 31, 64, 97, 100, 101, 128, 255, 256, 509, 997]);
        Term::new(bin(BinaryOp::Rem, a.e, ProgramExpr::typed_int(scalar, by)), 0.0, by as f64 - 1.0)
    }

    pub fn not_negative(&mut self, a: Term) -> Term {
        if a.low >= 0.0 {
            return a;
        }
        let size = a.size();
        if self.random.chance(70) || a.high < 1.0 {
            return Term::new(ProgramExpr::call(BuiltinFn::Abs, vec![a.e]), 0.0, size);
        }
        let zero = ProgramExpr::typed_int(a.e.ty.element().unwrap_or(ScalarType::I32), 0);
        Term::new(ProgramExpr::call(BuiltinFn::Max, vec![a.e, zero]), 0.0, a.high)
    }

    pub fn apply_int(&mut self, a: Term) -> Term {
        let scalar = a.e.ty.element().unwrap_or(ScalarType::I32);
        let max = cap(scalar);
        let number = |value: i64| ProgramExpr::typed_int(scalar, value);
        match self.random.below(9) {
            0 | 1 => {
                let c = self.random.in_range(1, 20);
                if self.random.chance(60) || !scalar.is_signed() {
                    Term::new(bin(BinaryOp::Add, a.e, number(c)), a.low + c as f64, a.high + c as f64)
                } else {
                    Term::new(bin(BinaryOp::Sub, a.e, number(c)), a.low - c as f64, a.high - c as f64)
                }
            }
            2 | 3 if a.size() * 12.0 < max => {
                let c = self.random.in_range(2, 12);
                Term::new(bin(BinaryOp::Mul, a.e, number(c)), a.low * c as f64, a.high * c as f64)
            }
            4 if a.size() * a.size() < max && (self.can_bind || a.e.operations() <= 2) => {
                let a = self.bind_once(a);
                let size = a.size();
                Term::new(bin(BinaryOp::Mul, a.e.clone(), a.e), 0.0, size * size)
            }
            5 => {
                let a = self.not_negative(a);
                let c = self.random.in_range(2, 9);
                Term::new(bin(BinaryOp::Quotient, a.e, number(c)), 0.0, (a.high / c as f64).floor())
            }
            6 => {
                let a = self.not_negative(a);
                let c = self.random.in_range(3, 50);
                let high = a.high.min(c as f64 - 1.0);
                Term::new(bin(BinaryOp::Rem, a.e, number(c)), 0.0, high)
            }
            7 if scalar.is_signed() => Term::new(ProgramExpr::unary(UnaryOp::Neg, a.e), -a.high, -a.low),
            8 if a.high - a.low >= 8.0 => {
                let quarter = ((a.high - a.low) / 4.0) as i64;
                let from = a.low as i64 + self.random.in_range(1, quarter.max(1));
                let to = a.high as i64 - self.random.in_range(1, quarter.max(1));
                Term::new(
                    ProgramExpr::call(BuiltinFn::Clamp, vec![a.e, number(from), number(to)]),
                    from as f64,
                    to as f64,
                )
            }
            _ => {
                let c = self.random.in_range(1, 9);
                Term::new(bin(BinaryOp::Add, a.e, number(c)), a.low + c as f64, a.high + c as f64)
            }
        }
    }
}
