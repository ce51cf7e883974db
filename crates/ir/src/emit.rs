//! The one interface through which op-table bodies and derivatives are written.
//!
//! A body (`exp`, `tanh`) or a derivative is a Rust function over [`Emit`]. Whoever implements the trait decides
//! what "emit" means: the IR builder appends expressions, the CUDA printer prints statements, the CPU compiler
//! appends machine instructions, the interpreter computes, the tensor graph adds nodes. So a formula is written once.

use crate::{Op, Scalar, Value};

/// Something that can apply op-table rows to values.
pub trait Emit {
    /// A value: an expression, a register, a tensor.
    type V: Clone;

    /// Applies a row of the op table.
    fn op(&mut self, op: Op, args: &[&Self::V]) -> Self::V;

    /// A constant of the same type as `like`.
    fn constant_like(&mut self, like: &Self::V, value: f64) -> Self::V;

    /// `a + b`.
    fn add(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Add, &[a, b])
    }
    /// `a - b`.
    fn sub(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Sub, &[a, b])
    }
    /// `a * b`.
    fn mul(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Mul, &[a, b])
    }
    /// `a / b`.
    fn div(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Div, &[a, b])
    }
    /// `-a`.
    fn neg(&mut self, a: &Self::V) -> Self::V {
        self.op(Op::Neg, &[a])
    }
    /// `a * b + c`, rounded once.
    fn fma(&mut self, a: &Self::V, b: &Self::V, c: &Self::V) -> Self::V {
        self.op(Op::Fma, &[a, b, c])
    }
    /// `a < b`.
    fn lt(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Lt, &[a, b])
    }
    /// `condition ? a : b`.
    fn select(&mut self, condition: &Self::V, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Select, &[condition, a, b])
    }
}

/// An [`Emit`] whose values have a machine representation: what bodies need and derivatives do not.
pub trait EmitBits: Emit {
    /// The type of a value.
    fn scalar(&self, v: &Self::V) -> Scalar;
    /// A typed constant.
    fn constant(&mut self, value: Value) -> Self::V;
    /// A conversion by value; float to integer saturates and takes NaN to 0.
    fn cast(&mut self, to: Scalar, v: &Self::V) -> Self::V;
    /// The same bits seen as another type of the same width.
    fn bitcast(&mut self, to: Scalar, v: &Self::V) -> Self::V;
}
