//! Expressions with the range that their values lie in, and how they are put together so that nothing divides by zero,
//! leaves its domain, or grows beyond what its type holds.

use super::maker::Maker;
use crate::program::{Binary, Builtin, Expr, Kind, Scalar, Unary};

/// An expression and where its values lie.
#[derive(Clone, Debug)]
pub struct Term {
    pub e: Expr,
    pub low: f64,
    pub high: f64,
}

impl Term {
    pub fn new(e: Expr, low: f64, high: f64) -> Term {
        Term { e, low, high }
    }

    pub fn size(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    fn scalar(&self) -> Scalar {
        self.e.ty.element().unwrap_or(Scalar::F32)
    }

    /// Keeps away from 0 by that much.
    fn clear(&self, by: f64) -> bool {
        self.low >= by || self.high <= -by
    }
}

/// The largest size that values of a type should have on the way.
pub fn most(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::F16 => 60.0,
        Scalar::BF16 => 200.0,
        Scalar::F64 => 1e6,
        _ => 5e3,
    }
}

/// Which operations a category draws from, each with a weight.
pub struct Menu {
    pub binary: &'static [(usize, Op)],
    pub unary: &'static [(usize, Fun)],
}

/// What two terms are joined by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    Pow,
    Atan2,
    Copysign,
    Lerp,
    Choose,
    /// Distance of two numbers.
    AbsDiff,
    /// Square root of the sum of squares.
    Norm,
}

/// What is done to one term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fun {
    /// A function of the dialect, with its domain seen to.
    Call(Builtin),
    Neg,
    /// A square.
    Square,
    /// A product with a constant.
    Scale,
    /// A sum with a constant.
    Shift,
    /// One over it.
    Reciprocal,
    /// Kept between two constants.
    Clamp,
    /// A choice by its sign or size.
    Step,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// x / (1 + |x|).
    Softsign,
    /// A polynomial of degree 2 or 3 in Horner's form.
    Polynomial,
}

pub const ARITHMETIC: Menu = Menu {
    binary: &[(6, Op::Add), (6, Op::Sub), (6, Op::Mul), (4, Op::Div), (1, Op::Min), (1, Op::Max), (1, Op::AbsDiff)],
    unary: &[
        (3, Fun::Neg),
        (3, Fun::Square),
        (5, Fun::Scale),
        (5, Fun::Shift),
        (2, Fun::Reciprocal),
        (1, Fun::Clamp),
        (1, Fun::Call(Builtin::Abs)),
        (1, Fun::Polynomial),
        (1, Fun::Softsign),
    ],
};

pub const MATH: Menu = Menu {
    binary: &[
        (5, Op::Add),
        (4, Op::Sub),
        (6, Op::Mul),
        (3, Op::Div),
        (2, Op::Min),
        (2, Op::Max),
        (2, Op::Pow),
        (2, Op::Atan2),
        (1, Op::Copysign),
        (1, Op::Lerp),
        (1, Op::Norm),
    ],
    unary: &[
        (4, Fun::Call(Builtin::Sin)),
        (4, Fun::Call(Builtin::Cos)),
        (3, Fun::Call(Builtin::Exp)),
        (3, Fun::Call(Builtin::Log)),
        (3, Fun::Call(Builtin::Sqrt)),
        (2, Fun::Call(Builtin::Tanh)),
        (2, Fun::Call(Builtin::Atan)),
        (2, Fun::Call(Builtin::Abs)),
        (1, Fun::Call(Builtin::Cbrt)),
        (1, Fun::Call(Builtin::Tan)),
        (1, Fun::Call(Builtin::Asin)),
        (1, Fun::Call(Builtin::Acos)),
        (1, Fun::Call(Builtin::Sinh)),
        (1, Fun::Call(Builtin::Cosh)),
        (1, Fun::Call(Builtin::Log2)),
        (1, Fun::Call(Builtin::Log10)),
        (1, Fun::Call(Builtin::Erf)),
        (1, Fun::Call(Builtin::Erfc)),
        (1, Fun::Call(Builtin::Floor)),
        (1, Fun::Call(Builtin::Ceil)),
        (1, Fun::Call(Builtin::Round)),
        (1, Fun::Call(Builtin::Rint)),
        (1, Fun::Call(Builtin::Trunc)),
        (1, Fun::Call(Builtin::Frac)),
        (1, Fun::Call(Builtin::Sign)),
        (1, Fun::Call(Builtin::Smoothstep)),
        (1, Fun::Call(Builtin::Degrees)),
        (1, Fun::Call(Builtin::Radians)),
        (2, Fun::Scale),
        (2, Fun::Shift),
        (1, Fun::Square),
        (1, Fun::Clamp),
        (1, Fun::Sigmoid),
        (1, Fun::Neg),
    ],
};

pub const MIXED: Menu = Menu {
    binary: &[
        (6, Op::Add),
        (6, Op::Sub),
        (7, Op::Mul),
        (3, Op::Div),
        (2, Op::Min),
        (2, Op::Max),
        (1, Op::Pow),
        (1, Op::Atan2),
        (1, Op::Lerp),
        (2, Op::Choose),
        (1, Op::AbsDiff),
        (1, Op::Norm),
    ],
    unary: &[
        (4, Fun::Scale),
        (4, Fun::Shift),
        (3, Fun::Square),
        (2, Fun::Neg),
        (2, Fun::Clamp),
        (1, Fun::Reciprocal),
        (2, Fun::Call(Builtin::Sqrt)),
        (2, Fun::Call(Builtin::Abs)),
        (2, Fun::Call(Builtin::Sin)),
        (2, Fun::Call(Builtin::Cos)),
        (2, Fun::Call(Builtin::Exp)),
        (1, Fun::Call(Builtin::Log)),
        (2, Fun::Call(Builtin::Tanh)),
        (1, Fun::Step),
        (1, Fun::Sigmoid),
        (1, Fun::Softsign),
        (1, Fun::Polynomial),
    ],
};

/// Plain sums and products only: what stays sharp in 16 bits and in long sums.
pub const PLAIN: Menu = Menu {
    binary: &[(6, Op::Add), (5, Op::Sub), (6, Op::Mul), (1, Op::Min), (1, Op::Max)],
    unary: &[
        (4, Fun::Scale),
        (4, Fun::Shift),
        (2, Fun::Square),
        (2, Fun::Neg),
        (1, Fun::Call(Builtin::Abs)),
        (1, Fun::Clamp),
    ],
};

fn bin(op: Binary, a: Expr, b: Expr) -> Expr {
    Expr::binary(op, a, b)
}

impl Maker {
    /// A constant that people write, between two numbers in size.
    pub fn constant(&mut self, low: f64, high: f64) -> f64 {
        const NICE: &[f64] = &[
            0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 0.1, 0.2,
            0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.6, 2.2, 0.05, 0.01, 0.35, 0.15, 1.05, 0.45, 10.0, 12.0, 16.0,
        ];
        let fitting: Vec<f64> = NICE.iter().copied().filter(|c| (low..=high).contains(c)).collect();
        if fitting.is_empty() { (low + high) / 2.0 } else { *self.random.pick(&fitting) }
    }

    /// A constant of a type; of doubles one that floats hold too, since the dialect's literals are floats.
    fn literal(&mut self, scalar: Scalar, low: f64, high: f64) -> (Expr, f64) {
        let mut value = self.constant(low, high);
        if scalar != Scalar::F32 {
            value = ((value * 16.0).round() / 16.0).max(0.0625);
        }
        (Expr::float(scalar, value), value)
    }

    /// Joins terms with operations of a menu until one is left; each is used.
    pub fn combine(&mut self, mut terms: Vec<Term>, mut unary: usize, bind: usize, menu: &Menu) -> Term {
        loop {
            let more = terms.len() > 1;
            if !more && unary == 0 {
                return terms.remove(0);
            }
            let one = unary > 0 && (!more || self.random.chance(45));
            let at = self.random.below(terms.len());
            let a = terms.swap_remove(at);
            let mut made = if one {
                unary -= 1;
                let fun = *self.random.weighted(menu.unary);
                self.apply(fun, a)
            } else {
                let at = self.random.below(terms.len());
                let b = terms.swap_remove(at);
                let op = *self.random.weighted(menu.binary);
                self.join(op, a, b)
            };
            let last = terms.is_empty() && unary == 0;
            if !last && self.binds && made.e.operations() > 1 && self.random.chance(bind) {
                made.e = self.bind(made.e);
                // A name is worth it if it is used again.
                if self.random.chance(40) {
                    terms.push(made.clone());
                }
            }
            terms.push(made);
        }
    }

    /// Joins two terms; where an operation does not suit their ranges, with a neighbour that does.
    pub fn join(&mut self, op: Op, a: Term, b: Term) -> Term {
        let scalar = a.scalar();
        let cap = most(scalar);
        match op {
            Op::Add => {
                let (low, high) = (a.low + b.low, a.high + b.high);
                if low.abs().max(high.abs()) > cap {
                    return self.tamed(a, b);
                }
                Term::new(bin(Binary::Add, a.e, b.e), low, high)
            }
            Op::Sub => {
                let (low, high) = (a.low - b.high, a.high - b.low);
                if a.e == b.e {
                    return self.join(Op::Add, a, b);
                }
                if low.abs().max(high.abs()) > cap {
                    return self.tamed(a, b);
                }
                Term::new(bin(Binary::Sub, a.e, b.e), low, high)
            }
            Op::Mul => {
                let corners = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high];
                let (low, high) = span(&corners);
                if low.abs().max(high.abs()) > cap {
                    return self.join(Op::Add, a, b);
                }
                let low = if a.e == b.e { low.max(0.0) } else { low };
                Term::new(bin(Binary::Mul, a.e, b.e), low, high)
            }
            Op::Div => {
                if a.e == b.e {
                    return self.join(Op::Add, a, b);
                }
                let b = self.divisor(b);
                let corners = [a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high];
                let (low, high) = span(&corners);
                if low.abs().max(high.abs()) > cap {
                    return self.join(Op::Sub, a, b);
                }
                Term::new(bin(Binary::Div, a.e, b.e), low, high)
            }
            Op::Min | Op::Max => {
                // Ranges that do not overlap would make one of them dead.
                if a.high.min(b.high) - a.low.max(b.low) < 0.1 || a.e == b.e {
                    return self.join(Op::Add, a, b);
                }
                if op == Op::Min {
                    Term::new(Expr::call(Builtin::Min, vec![a.e, b.e]), a.low.min(b.low), a.high.min(b.high))
                } else {
                    Term::new(Expr::call(Builtin::Max, vec![a.e, b.e]), a.low.max(b.low), a.high.max(b.high))
                }
            }
            Op::Pow => {
                let a = self.positive(a, 0.2);
                let b = if b.size() > 2.5 { self.narrowed(b, 2.0) } else { b };
                let corners = [a.low.powf(b.low), a.low.powf(b.high), a.high.powf(b.low), a.high.powf(b.high)];
                let (low, high) = span(&corners);
                if high > cap / 4.0 {
                    return self.join(Op::Mul, a, b);
                }
                Term::new(Expr::call(Builtin::Pow, vec![a.e, b.e]), low, high)
            }
            Op::Atan2 => {
                let b = self.positive(b, 0.25);
                Term::new(Expr::call(Builtin::Atan2, vec![a.e, b.e]), -1.58, 1.58)
            }
            Op::Copysign => {
                if !(b.low < -0.1 && b.high > 0.1) || a.e == b.e {
                    return self.join(Op::Sub, a, b);
                }
                let size = a.size();
                Term::new(Expr::call(Builtin::Copysign, vec![a.e, b.e]), -size, size)
            }
            Op::Lerp => {
                if a.e == b.e {
                    return self.join(Op::Add, a, b);
                }
                let (t, _) = self.literal(scalar, 0.1, 0.9);
                let (low, high) = (a.low.min(b.low), a.high.max(b.high));
                Term::new(Expr::call(Builtin::Lerp, vec![a.e, b.e, t]), low, high)
            }
            Op::Choose if !self.repeats(&a) || !self.repeats(&b) => self.join(Op::Add, a, b),
            Op::Norm if !self.repeats(&a) || !self.repeats(&b) => self.join(Op::Sub, a, b),
            Op::Choose => {
                let (a, b) = (self.once(a), self.once(b));
                let condition = self.comparison(&a, &b);
                let (low, high) = (a.low.min(b.low), a.high.max(b.high));
                let (a, b) = if self.random.chance(50) {
                    (self.apply(Fun::Scale, a), b)
                } else {
                    (a, self.apply(Fun::Shift, b))
                };
                let (low, high) = (low.min(a.low).min(b.low), high.max(a.high).max(b.high));
                Term::new(Expr::choose(condition, a.e, b.e), low, high)
            }
            Op::AbsDiff => {
                let difference = self.join(Op::Sub, a, b);
                let size = difference.size();
                Term::new(Expr::call(Builtin::Abs, vec![difference.e]), 0.0, size)
            }
            Op::Norm => {
                if a.size() > cap.sqrt() / 2.0 || b.size() > cap.sqrt() / 2.0 {
                    return self.join(Op::Add, a, b);
                }
                let (a, b) = (self.apply(Fun::Square, a), self.apply(Fun::Square, b));
                let sum = self.join(Op::Add, a, b);
                let sum = self.positive(sum, 0.05);
                let (low, high) = (sum.low.sqrt(), sum.high.sqrt());
                Term::new(Expr::call(Builtin::Sqrt, vec![sum.e]), low, high)
            }
        }
    }

    /// A comparison that can go either way.
    pub fn comparison(&mut self, a: &Term, b: &Term) -> Expr {
        let op = *self.random.pick(&[Binary::Lt, Binary::Gt, Binary::Le, Binary::Ge]);
        let overlap = a.high.min(b.high) - a.low.max(b.low);
        if overlap > 0.2 * (a.high - a.low).min(b.high - b.low) && overlap > 0.1 && a.e != b.e && self.random.chance(60)
        {
            return bin(op, a.e.clone(), b.e.clone());
        }
        self.threshold(a, op)
    }

    /// A comparison of a term with a number in the middle of its range.
    pub fn threshold(&mut self, a: &Term, op: Binary) -> Expr {
        let share = 0.25 + 0.5 * self.random.unit();
        let at = a.low + (a.high - a.low) * share;
        let step = 2f64.powi(((a.high - a.low).max(1e-3) / 16.0).log2().floor() as i32);
        // No minus zero.
        let at = (at / step).round() * step + 0.0;
        bin(op, a.e.clone(), Expr::float(a.scalar(), at))
    }

    /// Whether a term may be written more than once.
    fn repeats(&self, a: &Term) -> bool {
        self.binds || a.e.operations() <= 2
    }

    /// A term that is written more than once: named, unless it is short.
    pub fn once(&mut self, a: Term) -> Term {
        if !self.binds || a.e.operations() <= 1 && !matches!(a.e.kind, Kind::Call(..)) {
            return a;
        }
        Term { e: self.bind(a.e), ..a }
    }

    /// Two terms that are too large to be added as they are.
    fn tamed(&mut self, a: Term, b: Term) -> Term {
        let (a, b) = (self.narrowed(a, 8.0), self.narrowed(b, 8.0));
        self.join(Op::Add, a, b)
    }

    /// A term brought to at most that size.
    pub fn narrowed(&mut self, a: Term, size: f64) -> Term {
        let scalar = a.scalar();
        if a.size() <= size {
            return a;
        }
        let choice =
            if matches!(scalar, Scalar::F16 | Scalar::BF16) { 1 + self.random.below(2) } else { self.random.below(5) };
        match choice {
            0 => Term::new(Expr::call(Builtin::Tanh, vec![a.e]), -1.0, 1.0),
            1 => {
                let bound = Expr::float(scalar, size);
                let low = Expr::float(scalar, -size);
                let clamped = Expr::call(Builtin::Clamp, vec![a.e, low, bound]);
                Term::new(clamped, a.low.max(-size), a.high.min(size))
            }
            2 => {
                let factor = 2f64.powi((size / a.size()).log2().floor() as i32);
                Term::new(bin(Binary::Mul, a.e, Expr::float(scalar, factor)), a.low * factor, a.high * factor)
            }
            3 => Term::new(Expr::call(Builtin::Sin, vec![a.e]), -1.0, 1.0),
            _ => {
                let by = 2f64.powi((a.size() / size).log2().ceil() as i32);
                Term::new(bin(Binary::Div, a.e, Expr::float(scalar, by)), a.low / by, a.high / by)
            }
        }
    }

    /// A term that keeps away from 0.
    pub fn divisor(&mut self, a: Term) -> Term {
        if a.clear(0.25) {
            return a;
        }
        let scalar = a.scalar();
        match self.random.below(3) {
            0 if a.size() < 60.0 && self.repeats(&a) => {
                let a = self.once(a);
                let size = a.size();
                let (c, value) = self.literal(scalar, 0.5, 4.0);
                let square = bin(Binary::Mul, a.e.clone(), a.e);
                Term::new(bin(Binary::Add, square, c), value, size * size + value)
            }
            1 if a.high > 1.0 => {
                let (c, value) = self.literal(scalar, 0.25, a.high.min(2.0));
                Term::new(Expr::call(Builtin::Max, vec![a.e, c]), value, a.high)
            }
            _ => {
                let (c, value) = self.literal(scalar, 0.5, 4.0);
                let size = a.size();
                let least = if a.low > 0.0 { a.low } else { 0.0 };
                let size_of = if a.low >= 0.0 { a.e } else { Expr::call(Builtin::Abs, vec![a.e]) };
                Term::new(bin(Binary::Add, size_of, c), least + value, size + value)
            }
        }
    }

    /// A term at least that large.
    pub fn positive(&mut self, a: Term, least: f64) -> Term {
        if a.low >= least {
            return a;
        }
        let scalar = a.scalar();
        let (c, value) = self.literal(scalar, least.max(0.25), 3.0_f64.max(least));
        match self.random.below(3) {
            0 if a.size() < 60.0 && self.repeats(&a) => {
                let a = self.once(a);
                let size = a.size();
                let square = bin(Binary::Mul, a.e.clone(), a.e);
                Term::new(bin(Binary::Add, square, c), value, size * size + value)
            }
            1 if a.high > value + 0.5 => Term::new(Expr::call(Builtin::Max, vec![a.e, c]), value, a.high),
            _ => {
                let size = a.size();
                let size_of = if a.low >= 0.0 { a.e } else { Expr::call(Builtin::Abs, vec![a.e]) };
                Term::new(bin(Binary::Add, size_of, c), value + a.low.max(0.0), size + value)
            }
        }
    }

    /// Applies a function, its domain seen to.
    pub fn apply(&mut self, fun: Fun, a: Term) -> Term {
        let scalar = a.scalar();
        let cap = most(scalar);
        let (low, high) = (a.low, a.high);
        // Where nothing can be named, what is long is not written twice.
        let twice = matches!(fun, Fun::Square | Fun::Step | Fun::Softsign | Fun::Polynomial);
        if twice && !self.repeats(&a) {
            let other = *self.random.pick(&[Fun::Scale, Fun::Shift]);
            return self.apply(other, a);
        }
        match fun {
            Fun::Call(builtin) => self.apply_builtin(builtin, a),
            // The minus of a minus is nothing.
            Fun::Neg if matches!(a.e.kind, Kind::Unary(..) | Kind::Float(_)) => self.apply(Fun::Scale, a),
            Fun::Neg => Term::new(Expr::unary(Unary::Neg, a.e), -high, -low),
            Fun::Square if a.size() * a.size() > cap => self.narrowed(a, cap.sqrt() / 2.0),
            Fun::Square => {
                let a = self.once(a);
                let least = if low > 0.0 {
                    low * low
                } else if high < 0.0 {
                    high * high
                } else {
                    0.0
                };
                let size = a.size();
                Term::new(bin(Binary::Mul, a.e.clone(), a.e), least, size * size)
            }
            Fun::Scale => {
                let (c, value) = self.literal(scalar, 0.1, if a.size() * 4.0 > cap { 0.9 } else { 4.0 });
                let e = if self.random.chance(50) { bin(Binary::Mul, c, a.e) } else { bin(Binary::Mul, a.e, c) };
                Term::new(e, low * value, high * value)
            }
            Fun::Shift => {
                let (c, value) = self.literal(scalar, 0.1, 4.0);
                if self.random.chance(50) {
                    Term::new(bin(Binary::Add, a.e, c), low + value, high + value)
                } else if self.random.chance(50) {
                    Term::new(bin(Binary::Sub, a.e, c), low - value, high - value)
                } else {
                    Term::new(bin(Binary::Sub, c, a.e), value - high, value - low)
                }
            }
            Fun::Reciprocal => {
                let b = self.divisor(a);
                let (c, value) = self.literal(scalar, 0.5, 2.0);
                let (low, high) = span(&[value / b.low, value / b.high]);
                Term::new(bin(Binary::Div, c, b.e), low, high)
            }
            Fun::Clamp => {
                if high - low < 1.0 {
                    return self.apply(Fun::Shift, a);
                }
                let quarter = (high - low) / 4.0;
                let step = 2f64.powi((quarter / 2.0).log2().floor() as i32);
                let from = ((low + quarter * (0.2 + self.random.unit())) / step).round() * step;
                let to = ((high - quarter * (0.2 + self.random.unit())) / step).round() * step;
                let (l, h) = (Expr::float(scalar, from), Expr::float(scalar, to));
                Term::new(Expr::call(Builtin::Clamp, vec![a.e, l, h]), from, to)
            }
            Fun::Step => {
                if high - low < 0.5 {
                    return self.apply(Fun::Scale, a);
                }
                let a = self.once(a);
                let op = *self.random.pick(&[Binary::Lt, Binary::Gt]);
                let condition = self.threshold(&a, op);
                let other = self.apply(Fun::Scale, a.clone());
                Term::new(Expr::choose(condition, a.e, other.e), low.min(other.low), high.max(other.high))
            }
            Fun::Sigmoid => {
                let a = self.narrowed(a, 8.0);
                let one = Expr::float(scalar, 1.0);
                let exp = Expr::call(Builtin::Exp, vec![Expr::unary(Unary::Neg, a.e)]);
                let below = bin(Binary::Add, one.clone(), exp);
                Term::new(bin(Binary::Div, one, below), 0.0, 1.0)
            }
            Fun::Softsign => {
                let a = self.once(a);
                let one = Expr::float(scalar, 1.0);
                let size = Expr::call(Builtin::Abs, vec![a.e.clone()]);
                Term::new(bin(Binary::Div, a.e, bin(Binary::Add, one, size)), -1.0, 1.0)
            }
            Fun::Polynomial => {
                let a = self.narrowed(a, 4.0);
                let a = self.once(a);
                let degree = 1 + self.random.below(2);
                let size = a.size().max(1.0);
                let (first, value) = self.literal(scalar, 0.1, 2.0);
                let (mut e, mut bound) = (first, value);
                for _ in 0..=degree {
                    let (c, value) = self.literal(scalar, 0.1, 2.0);
                    let product = bin(Binary::Mul, e, a.e.clone());
                    let op = if self.random.chance(60) { Binary::Add } else { Binary::Sub };
                    e = bin(op, product, c);
                    bound = bound * size + value;
                }
                let made = Term::new(e, -bound, bound);
                if bound > cap { self.narrowed(made, 8.0) } else { made }
            }
        }
    }

    fn apply_builtin(&mut self, builtin: Builtin, a: Term) -> Term {
        use Builtin::*;
        let scalar = a.scalar();
        let call = |e: Expr| Expr::call(builtin, vec![e]);
        match builtin {
            Abs if a.low >= 0.0 => self.apply(Fun::Shift, a),
            Abs => {
                let size = a.size();
                Term::new(call(a.e), 0.0, size)
            }
            Sign if a.low < -0.1 && a.high > 0.1 => Term::new(call(a.e), -1.0, 1.0),
            Sign => self.apply(Fun::Square, a),
            Floor | Ceil | Round | Rint | Trunc => {
                let a = if a.high - a.low < 3.0 { self.apply(Fun::Scale, a) } else { a };
                let scaled = if a.high - a.low < 3.0 {
                    Term::new(bin(Binary::Mul, a.e, Expr::float(scalar, 4.0)), a.low * 4.0, a.high * 4.0)
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
                        let size = Expr::call(Abs, vec![a.e]);
                        let a = Term::new(Expr::unary(Unary::Neg, size), -a.low.abs().max(a.high.abs()), 0.0);
                        if a.low < -12.0 { self.narrowed(a, 4.0) } else { a }
                    }
                    _ => self.narrowed(a, 2.5),
                };
                let (low, high) = (a.low.exp(), a.high.exp());
                Term::new(call(a.e), low, high)
            }
            Log | Log2 | Log10 => {
                let a = self.positive(a, 0.1);
                let of = |x: f64| match builtin {
                    Log => x.ln(),
                    Log2 => x.log2(),
                    _ => x.log10(),
                };
                let (low, high) = (of(a.low), of(a.high));
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
                    return self.apply(Fun::Scale, a);
                }
                let third = (a.high - a.low) / 3.0;
                let step = 2f64.powi((third / 2.0).log2().floor() as i32);
                let from = ((a.low + third * 0.7) / step).round() * step;
                let to = (((a.high - third * 0.7) / step).round() * step).max(from + step);
                let (from, to) = (Expr::float(scalar, from), Expr::float(scalar, to));
                Term::new(Expr::call(Smoothstep, vec![from, to, a.e]), 0.0, 1.0)
            }
            _ => self.apply(Fun::Scale, a),
        }
    }
}

/// The least and the largest of some.
pub fn span(of: &[f64]) -> (f64, f64) {
    of.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)))
}
