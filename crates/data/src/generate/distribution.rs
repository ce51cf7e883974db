//! Weighted distributions from which expressions are generated.

use crate::program::Builtin;

/// Operations that a category draws from, each with a weight.
pub struct Menu {
    pub binary: &'static [(usize, Op)],
    pub unary: &'static [(usize, Fun)],
}

/// Binary operation on terms.
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
    /// Absolute difference.
    AbsDiff,
    /// Square root of the sum of squares.
    Norm,
}

/// Unary operation on a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fun {
    /// A builtin function, with its argument brought into the domain.
    Call(Builtin),
    Neg,
    /// A square.
    Square,
    /// A product with a constant.
    Scale,
    /// A sum with a constant.
    Shift,
    /// The reciprocal.
    Reciprocal,
    /// A clamp between two constants.
    Clamp,
    /// A selection by a threshold.
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

/// Plain sums and products, whose error bounds stay narrow in 16 bits and in long sums.
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
