//! `+ - * / %`, `& | ^`, `-` and `!` on tensors, references to them and numbers, and `+=` and its
//! like.
//!
//! The right-hand side is any [`Operand`]: one generic impl, so that the compiler infers the result
//! before the type of `2.0`. A number on the left-hand side must be f64 or i64: with a second float
//! type, `2.0 * x` would be ambiguous.

use std::ops::{Add, AddAssign, BitAnd, BitOr, BitXor, Div, DivAssign, Mul, MulAssign, Neg, Not, Rem, RemAssign, Sub};
use std::ops::{BitAndAssign, BitOrAssign, BitXorAssign, SubAssign};

use bornite_ir::Op as ScalarOp;

use crate::ops::pointwise::map;
use crate::{Operand, SourceLocation, Tensor};

/// Selects the scalar op of an operator by its operands.
type SelectOp = fn(&Tensor, &Tensor) -> ScalarOp;

/// The remainder of integers or of floats.
fn remainder(a: &Tensor, b: &Tensor) -> ScalarOp {
    if a.0.dtype.is_float() || b.0.dtype.is_float() { ScalarOp::Fmod } else { ScalarOp::Rem }
}

fn apply(row: SelectOp, a: &Tensor, b: Operand, location: SourceLocation) -> Tensor {
    let b = b.into_tensor(a, location);
    map(row(a, &b), &[a, &b], location)
}

macro_rules! operator {
    ($($trait:ident $method:ident, $assign:ident $assign_method:ident = $row:expr;)+) => { $(
        operator!(@right $trait $method, Tensor, $row);
        operator!(@right $trait $method, &Tensor, $row);
        operator!(@left $trait $method, f64, Tensor, $row);
        operator!(@left $trait $method, f64, &Tensor, $row);
        operator!(@left $trait $method, i64, Tensor, $row);
        operator!(@left $trait $method, i64, &Tensor, $row);
        /// Assigns the result to this handle. Other handles keep their value.
        impl<O: Into<Operand>> $assign<O> for Tensor {
            #[track_caller]
            fn $assign_method(&mut self, other: O) {
                *self = apply($row, self, other.into(), SourceLocation::here());
            }
        }
    )+ };
    (@right $trait:ident $method:ident, $t:ty, $row:expr) => {
        impl<O: Into<Operand>> $trait<O> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: O) -> Tensor {
                apply($row, &self, other.into(), SourceLocation::here())
            }
        }
    };
    (@left $trait:ident $method:ident, $number:ty, $t:ty, $row:expr) => {
        impl $trait<$t> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $t) -> Tensor {
                let (row, location): (SelectOp, _) = ($row, SourceLocation::here());
                let number = Operand::from(self).into_tensor(&other, location);
                map(row(&number, &other), &[&number, &other], location)
            }
        }
    };
}

operator! {
    Add add, AddAssign add_assign = |_, _| ScalarOp::Add;
    Sub sub, SubAssign sub_assign = |_, _| ScalarOp::Sub;
    Mul mul, MulAssign mul_assign = |_, _| ScalarOp::Mul;
    Div div, DivAssign div_assign = |_, _| ScalarOp::Div;
    Rem rem, RemAssign rem_assign = remainder;
    BitAnd bitand, BitAndAssign bitand_assign = |_, _| ScalarOp::And;
    BitOr bitor, BitOrAssign bitor_assign = |_, _| ScalarOp::Or;
    BitXor bitxor, BitXorAssign bitxor_assign = |_, _| ScalarOp::Xor;
}

macro_rules! prefix {
    ($($trait:ident $method:ident $row:ident $t:ty;)+) => { $(
        impl $trait for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                map(ScalarOp::$row, &[&self], SourceLocation::here())
            }
        }
    )+ };
}

prefix! {
    Neg neg Neg Tensor;
    Neg neg Neg &Tensor;
    Not not Not Tensor;
    Not not Not &Tensor;
}
