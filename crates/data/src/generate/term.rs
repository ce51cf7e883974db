//! Expressions with value ranges, combined such that nothing divides by zero, leaves a function's
//! domain or overflows its type.

use super::builder::ProgramBuilder;
pub use super::distribution::{ARITHMETIC, MATH, MIXED, OpDistribution, PLAIN, TermFn, TermOp};
use crate::program::{BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ScalarType};

/// An expression and the range of its values.
#[derive(Clone, Debug)]
pub struct Term {
    pub e: ProgramExpr,
    pub low: f64,
    pub high: f64,
}

impl Term {
    pub fn new(e: ProgramExpr, low: f64, high: f64) -> Term {
        Term { e, low, high }
    }

    pub fn size(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    pub fn scalar(&self) -> ScalarType {
        self.e.ty.element().unwrap_or(ScalarType::F32)
    }

    /// True if the range keeps this distance from 0.
    fn is_away_from_zero(&self, by: f64) -> bool {
        self.low >= by || self.high <= -by
    }
}

/// Maximum magnitude of intermediate values of a type.
pub fn max_magnitude(scalar: ScalarType) -> f64 {
    match scalar {
        ScalarType::F16 => 60.0,
        ScalarType::BF16 => 200.0,
        ScalarType::F64 => 1e6,
        _ => 5e3,
    }
}

/// Binary operation on operands of one type.
pub fn bin(op: BinaryOp, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
    ProgramExpr::binary(op, a, b)
}

impl ProgramBuilder {
    /// A short decimal constant in a range.
    pub fn constant(&mut self, low: f64, high: f64) -> f64 {
        const NICE: &[f64] = &[
            0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 0.1, 0.2,
            0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.6, 2.2, 0.05, 0.01, 0.35, 0.15, 1.05, 0.45, 10.0, 12.0, 16.0,
        ];
        let fitting: Vec<f64> = NICE.iter().copied().filter(|c| (low..=high).contains(c)).collect();
        if fitting.is_empty() { (low + high) / 2.0 } else { *self.random.pick(&fitting) }
    }

    /// A constant of a type; for doubles, one that is representable as a float, since the dialect's
    /// literals are floats.
    pub fn literal(&mut self, scalar: ScalarType, low: f64, high: f64) -> (ProgramExpr, f64) {
        let mut value = self.constant(low, high);
        if scalar != ScalarType::F32 {
            value = ((value * 16.0).round() / 16.0).max(0.0625);
        }
        (ProgramExpr::float(scalar, value), value)
    }

    /// Combines terms with operations of a distribution until one is left; each is used.
    pub fn combine(
        &mut self,
        mut terms: Vec<Term>,
        mut unary: usize,
        bind: usize,
        distribution: &OpDistribution,
    ) -> Term {
        loop {
            let more = terms.len() > 1;
            if !more && unary == 0 {
                return terms.remove(0);
            }
            let one = unary > 0 && (!more || self.random.chance(45));
            let at = self.random.below(terms.len());
            let a = terms.swap_remove(at);
            let mut combined = if one {
                unary -= 1;
                let fun = *self.random.pick_weighted(distribution.unary);
                self.apply(fun, a)
            } else {
                let at = self.random.below(terms.len());
                let b = terms.swap_remove(at);
                let op = *self.random.pick_weighted(distribution.binary);
                self.join(op, a, b)
            };
            let last = terms.is_empty() && unary == 0;
            if !last && self.can_bind && combined.e.operations() > 1 && self.random.chance(bind) {
                combined.e = self.bind(combined.e);
                // A variable is worthwhile if it is used again.
                if self.random.chance(40) {
                    terms.push(combined.clone());
                }
            }
            terms.push(combined);
        }
    }

    /// Combines two terms; an operation that does not suit their ranges is replaced by a similar
    /// one.
    pub fn join(&mut self, op: TermOp, a: Term, b: Term) -> Term {
        let scalar = a.scalar();
        let cap = max_magnitude(scalar);
        match op {
            TermOp::Add => {
                let (low, high) = (a.low + b.low, a.high + b.high);
                if low.abs().max(high.abs()) > cap {
                    return self.add_narrowed(a, b);
                }
                Term::new(bin(BinaryOp::Add, a.e, b.e), low, high)
            }
            TermOp::Sub => {
                let (low, high) = (a.low - b.high, a.high - b.low);
                if a.e == b.e {
                    return self.join(TermOp::Add, a, b);
                }
                if low.abs().max(high.abs()) > cap {
                    return self.add_narrowed(a, b);
                }
                Term::new(bin(BinaryOp::Sub, a.e, b.e), low, high)
            }
            TermOp::Mul => {
                let corners = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high];
                let (low, high) = span(&corners);
                if low.abs().max(high.abs()) > cap {
                    return self.join(TermOp::Add, a, b);
                }
                let low = if a.e == b.e { low.max(0.0) } else { low };
                Term::new(bin(BinaryOp::Mul, a.e, b.e), low, high)
            }
            TermOp::Div => {
                if a.e == b.e {
                    return self.join(TermOp::Add, a, b);
                }
                let b = self.divisor(b);
                let corners = [a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high];
                let (low, high) = span(&corners);
                if low.abs().max(high.abs()) > cap {
                    return self.join(TermOp::Sub, a, b);
                }
                Term::new(bin(BinaryOp::Div, a.e, b.e), low, high)
            }
            TermOp::Min | TermOp::Max => {
                // With disjoint ranges, one operand would be dead.
                if a.high.min(b.high) - a.low.max(b.low) < 0.1 || a.e == b.e {
                    return self.join(TermOp::Add, a, b);
                }
                if op == TermOp::Min {
                    Term::new(ProgramExpr::call(BuiltinFn::Min, vec![a.e, b.e]), a.low.min(b.low), a.high.min(b.high))
                } else {
                    Term::new(ProgramExpr::call(BuiltinFn::Max, vec![a.e, b.e]), a.low.max(b.low), a.high.max(b.high))
                }
            }
            TermOp::Pow => {
                let a = self.positive(a, 0.2);
                let b = if b.size() > 2.5 { self.narrowed(b, 2.0) } else { b };
                let corners = [a.low.powf(b.low), a.low.powf(b.high), a.high.powf(b.low), a.high.powf(b.high)];
                let (low, high) = span(&corners);
                if high > cap / 4.0 {
                    return self.join(TermOp::Mul, a, b);
                }
                Term::new(ProgramExpr::call(BuiltinFn::Pow, vec![a.e, b.e]), low, high)
            }
            TermOp::Atan2 => {
                let b = self.positive(b, 0.25);
                Term::new(ProgramExpr::call(BuiltinFn::Atan2, vec![a.e, b.e]), -1.58, 1.58)
            }
            TermOp::Copysign => {
                if !(b.low < -0.1 && b.high > 0.1) || a.e == b.e {
                    return self.join(TermOp::Sub, a, b);
                }
                let size = a.size();
                Term::new(ProgramExpr::call(BuiltinFn::Copysign, vec![a.e, b.e]), -size, size)
            }
            TermOp::Lerp => {
                if a.e == b.e {
                    return self.join(TermOp::Add, a, b);
                }
                let (t, _) = self.literal(scalar, 0.1, 0.9);
                let (low, high) = (a.low.min(b.low), a.high.max(b.high));
                Term::new(ProgramExpr::call(BuiltinFn::Lerp, vec![a.e, b.e, t]), low, high)
            }
            TermOp::Choose if !self.may_repeat(&a) || !self.may_repeat(&b) => self.join(TermOp::Add, a, b),
            TermOp::Norm if !self.may_repeat(&a) || !self.may_repeat(&b) => self.join(TermOp::Sub, a, b),
            TermOp::Choose => {
                let (a, b) = (self.bind_once(a), self.bind_once(b));
                let Some(condition) = self.comparison(&a, &b) else { return self.join(TermOp::Add, a, b) };
                let (low, high) = (a.low.min(b.low), a.high.max(b.high));
                let (a, b) = if self.random.chance(50) {
                    (self.apply(TermFn::Scale, a), b)
                } else {
                    (a, self.apply(TermFn::Shift, b))
                };
                let (low, high) = (low.min(a.low).min(b.low), high.max(a.high).max(b.high));
                Term::new(ProgramExpr::choose(condition, a.e, b.e), low, high)
            }
            TermOp::AbsDiff => {
                let difference = self.join(TermOp::Sub, a, b);
                let size = difference.size();
                Term::new(ProgramExpr::call(BuiltinFn::Abs, vec![difference.e]), 0.0, size)
            }
            TermOp::Norm => {
                if a.size() > cap.sqrt() / 2.0 || b.size() > cap.sqrt() / 2.0 {
                    return self.join(TermOp::Add, a, b);
                }
                let (a, b) = (self.apply(TermFn::Square, a), self.apply(TermFn::Square, b));
                let sum = self.join(TermOp::Add, a, b);
                let sum = self.positive(sum, 0.05);
                let (low, high) = (sum.low.sqrt(), sum.high.sqrt());
                Term::new(ProgramExpr::call(BuiltinFn::Sqrt, vec![sum.e]), low, high)
            }
        }
    }

    /// A comparison with both outcomes, if one is found.
    pub fn comparison(&mut self, a: &Term, b: &Term) -> Option<ProgramExpr> {
        let op = *self.random.pick(&[BinaryOp::Lt, BinaryOp::Gt, BinaryOp::Le, BinaryOp::Ge]);
        let overlap = a.high.min(b.high) - a.low.max(b.low);
        if overlap > 0.2 * (a.high - a.low).min(b.high - b.low) && overlap > 0.1 && a.e != b.e && self.random.chance(60)
        {
            let condition = bin(op, a.e.clone(), b.e.clone());
            if self.has_both_outcomes(&condition) {
                return Some(condition);
            }
        }
        self.threshold(a, op)
    }

    /// True if a term may be printed more than once.
    pub fn may_repeat(&self, a: &Term) -> bool {
        self.can_bind || a.e.operations() <= 2
    }

    /// Prepares a term for repeated use: binds it to a variable, unless it is short.
    pub fn bind_once(&mut self, a: Term) -> Term {
        if !self.can_bind || a.e.operations() <= 1 && !matches!(a.e.kind, ExprKind::Call(..)) {
            return a;
        }
        Term { e: self.bind(a.e), ..a }
    }

    /// Adds two terms whose sum would be too large, after narrowing both.
    fn add_narrowed(&mut self, a: Term, b: Term) -> Term {
        let (a, b) = (self.narrowed(a, 8.0), self.narrowed(b, 8.0));
        self.join(TermOp::Add, a, b)
    }

    /// Reduces a term to at most this magnitude.
    pub fn narrowed(&mut self, a: Term, size: f64) -> Term {
        let scalar = a.scalar();
        if a.size() <= size {
            return a;
        }
        let choice = if matches!(scalar, ScalarType::F16 | ScalarType::BF16) {
            1 + self.random.below(2)
        } else {
            self.random.below(5)
        };
        // A clamp must affect some values but not all; without samples, that is unknown.
        let choice = if choice == 1 && !self.exceeds(&a, size) { 2 } else { choice };
        match choice {
            0 => Term::new(ProgramExpr::call(BuiltinFn::Tanh, vec![a.e]), -1.0, 1.0),
            1 => {
                let bound = ProgramExpr::float(scalar, size);
                let low = ProgramExpr::float(scalar, -size);
                let clamped = ProgramExpr::call(BuiltinFn::Clamp, vec![a.e, low, bound]);
                Term::new(clamped, a.low.max(-size), a.high.min(size))
            }
            2 => {
                let factor = 2f64.powi((size / a.size()).log2().floor() as i32);
                Term::new(bin(BinaryOp::Mul, a.e, ProgramExpr::float(scalar, factor)), a.low * factor, a.high * factor)
            }
            3 => Term::new(ProgramExpr::call(BuiltinFn::Sin, vec![a.e]), -1.0, 1.0),
            _ => {
                let by = 2f64.powi((a.size() / size).log2().ceil() as i32);
                Term::new(bin(BinaryOp::Div, a.e, ProgramExpr::float(scalar, by)), a.low / by, a.high / by)
            }
        }
    }

    /// Makes a term usable as a divisor, away from 0.
    pub fn divisor(&mut self, a: Term) -> Term {
        if a.is_away_from_zero(0.25) {
            return a;
        }
        let scalar = a.scalar();
        match self.random.below(3) {
            choice
                if a.size() < 60.0
                    && self.may_repeat(&a)
                    && (choice == 0 || choice == 2 && self.has_constant_sign(&a)) =>
            {
                let a = self.bind_once(a);
                let size = a.size();
                let (c, value) = self.literal(scalar, 0.5, 4.0);
                let square = bin(BinaryOp::Mul, a.e.clone(), a.e);
                Term::new(bin(BinaryOp::Add, square, c), value, size * size + value)
            }
            1 if a.high > 1.0 => {
                let (c, value) = self.literal(scalar, 0.25, a.high.min(2.0));
                Term::new(ProgramExpr::call(BuiltinFn::Max, vec![a.e, c]), value, a.high)
            }
            _ => {
                let (c, value) = self.literal(scalar, 0.5, 4.0);
                let size = a.size();
                let min = if a.low > 0.0 { a.low } else { 0.0 };
                let size_of = if a.low >= 0.0 { a.e } else { ProgramExpr::call(BuiltinFn::Abs, vec![a.e]) };
                Term::new(bin(BinaryOp::Add, size_of, c), min + value, size + value)
            }
        }
    }

    /// Makes a term at least this large.
    pub fn positive(&mut self, a: Term, min: f64) -> Term {
        if a.low >= min {
            return a;
        }
        let scalar = a.scalar();
        let (c, value) = self.literal(scalar, min.max(0.25), 3.0_f64.max(min));
        match self.random.below(3) {
            choice
                if a.size() < 60.0
                    && self.may_repeat(&a)
                    && (choice == 0 || choice == 2 && self.has_constant_sign(&a)) =>
            {
                let a = self.bind_once(a);
                let size = a.size();
                let square = bin(BinaryOp::Mul, a.e.clone(), a.e);
                Term::new(bin(BinaryOp::Add, square, c), value, size * size + value)
            }
            1 if a.high > value + 0.5 => Term::new(ProgramExpr::call(BuiltinFn::Max, vec![a.e, c]), value, a.high),
            _ => {
                let size = a.size();
                let size_of = if a.low >= 0.0 { a.e } else { ProgramExpr::call(BuiltinFn::Abs, vec![a.e]) };
                Term::new(bin(BinaryOp::Add, size_of, c), value + a.low.max(0.0), size + value)
            }
        }
    }
}

/// Minimum and maximum.
pub fn span(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)))
}
