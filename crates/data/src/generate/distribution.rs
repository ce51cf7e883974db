//! Weighted distributions from which expressions are generated.

use crate::program::BuiltinFn;

/// Operations that a category draws from, each with a weight.
pub struct OpDistribution {
    pub binary: &'static [(usize, TermOp)],
    pub unary: &'static [(usize, TermFn)],
}

/// Binary operation on terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TermOp {
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
pub enum TermFn {
    /// A builtin function, with its argument brought into the domain.
    Call(BuiltinFn),
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

pub const ARITHMETIC: OpDistribution = OpDistribution {
    binary: &[
        (6, TermOp::Add),
        (6, TermOp::Sub),
        (6, TermOp::Mul),
        (4, TermOp::Div),
        (1, TermOp::Min),
        (1, TermOp::Max),
        (1, TermOp::AbsDiff),
    ],
    unary: &[
        (3, TermFn::Neg),
        (3, TermFn::Square),
        (5, TermFn::Scale),
        (5, TermFn::Shift),
        (2, TermFn::Reciprocal),
        (1, TermFn::Clamp),
        (1, TermFn::Call(BuiltinFn::Abs)),
        (1, TermFn::Polynomial),
        (1, TermFn::Softsign),
    ],
};

pub const MATH: OpDistribution = OpDistribution {
    binary: &[
        (5, TermOp::Add),
        (4, TermOp::Sub),
        (6, TermOp::Mul),
        (3, TermOp::Div),
        (2, TermOp::Min),
        (2, TermOp::Max),
        (2, TermOp::Pow),
        (2, TermOp::Atan2),
        (1, TermOp::Copysign),
        (1, TermOp::Lerp),
        (1, TermOp::Norm),
    ],
    unary: &[
        (4, TermFn::Call(BuiltinFn::Sin)),
        (4, TermFn::Call(BuiltinFn::Cos)),
        (3, TermFn::Call(BuiltinFn::Exp)),
        (3, TermFn::Call(BuiltinFn::Log)),
        (3, TermFn::Call(BuiltinFn::Sqrt)),
        (2, TermFn::Call(BuiltinFn::Tanh)),
        (2, TermFn::Call(BuiltinFn::Atan)),
        (2, TermFn::Call(BuiltinFn::Abs)),
        (1, TermFn::Call(BuiltinFn::Cbrt)),
        (1, TermFn::Call(BuiltinFn::Tan)),
        (1, TermFn::Call(BuiltinFn::Asin)),
        (1, TermFn::Call(BuiltinFn::Acos)),
        (1, TermFn::Call(BuiltinFn::Sinh)),
        (1, TermFn::Call(BuiltinFn::Cosh)),
        (1, TermFn::Call(BuiltinFn::Log2)),
        (1, TermFn::Call(BuiltinFn::Log10)),
        (1, TermFn::Call(BuiltinFn::Erf)),
        (1, TermFn::Call(BuiltinFn::Erfc)),
        (1, TermFn::Call(BuiltinFn::Floor)),
        (1, TermFn::Call(BuiltinFn::Ceil)),
        (1, TermFn::Call(BuiltinFn::Round)),
        (1, TermFn::Call(BuiltinFn::Rint)),
        (1, TermFn::Call(BuiltinFn::Trunc)),
        (1, TermFn::Call(BuiltinFn::Frac)),
        (1, TermFn::Call(BuiltinFn::Sign)),
        (1, TermFn::Call(BuiltinFn::Smoothstep)),
        (1, TermFn::Call(BuiltinFn::Degrees)),
        (1, TermFn::Call(BuiltinFn::Radians)),
        (2, TermFn::Scale),
        (2, TermFn::Shift),
        (1, TermFn::Square),
        (1, TermFn::Clamp),
        (1, TermFn::Sigmoid),
        (1, TermFn::Neg),
    ],
};

pub const MIXED: OpDistribution = OpDistribution {
    binary: &[
        (6, TermOp::Add),
        (6, TermOp::Sub),
        (7, TermOp::Mul),
        (3, TermOp::Div),
        (2, TermOp::Min),
        (2, TermOp::Max),
        (1, TermOp::Pow),
        (1, TermOp::Atan2),
        (1, TermOp::Lerp),
        (2, TermOp::Choose),
        (1, TermOp::AbsDiff),
        (1, TermOp::Norm),
    ],
    unary: &[
        (4, TermFn::Scale),
        (4, TermFn::Shift),
        (3, TermFn::Square),
        (2, TermFn::Neg),
        (2, TermFn::Clamp),
        (1, TermFn::Reciprocal),
        (2, TermFn::Call(BuiltinFn::Sqrt)),
        (2, TermFn::Call(BuiltinFn::Abs)),
        (2, TermFn::Call(BuiltinFn::Sin)),
        (2, TermFn::Call(BuiltinFn::Cos)),
        (2, TermFn::Call(BuiltinFn::Exp)),
        (1, TermFn::Call(BuiltinFn::Log)),
        (2, TermFn::Call(BuiltinFn::Tanh)),
        (1, TermFn::Step),
        (1, TermFn::Sigmoid),
        (1, TermFn::Softsign),
        (1, TermFn::Polynomial),
    ],
};

/// Plain sums and products, whose error bounds stay narrow in 16 bits and in long sums.
pub const PLAIN: OpDistribution = OpDistribution {
    binary: &[(6, TermOp::Add), (5, TermOp::Sub), (6, TermOp::Mul), (1, TermOp::Min), (1, TermOp::Max)],
    unary: &[
        (4, TermFn::Scale),
        (4, TermFn::Shift),
        (2, TermFn::Square),
        (2, TermFn::Neg),
        (1, TermFn::Call(BuiltinFn::Abs)),
        (1, TermFn::Clamp),
    ],
};
