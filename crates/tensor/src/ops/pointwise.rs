//! Elementwise methods, one per scalar op, and the matrix product. Operators are in `operators.rs`,
//! type promotion is in `graph/promote.rs`.

use std::sync::Arc;

use bornite_ir::Op as ScalarOp;

use crate::graph::infer::broadcast;
use crate::graph::node::{Node, Op};
use crate::graph::promote::promote_inputs;
use crate::{DType, Operand, SourceLocation, Tensor};

/// Applies a scalar op elementwise, after broadcasting and type promotion of the inputs.
pub(crate) fn map(op: ScalarOp, inputs: &[&Tensor], location: SourceLocation) -> Tensor {
    let mut shape = vec![];
    for input in inputs {
        let Ok(node) = input.node() else { return (*input).clone() };
        shape = match broadcast(&shape, &node.shape) {
            Ok(shape) => shape,
            Err(message) => return Tensor::failed_at(op.row().name, message, location),
        };
    }
    let inputs = inputs.iter().map(|input| input.broadcast_to(&shape, location)).collect();
    match promote_inputs(op, inputs, location) {
        Ok(inputs) => Tensor::build(Op::Map(op), inputs, location),
        Err(message) => Tensor::failed_at(op.row().name, message, location),
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> Tensor {
            map(ScalarOp::$op, &[self], SourceLocation::here())
        }
    )+ } };
}

unary! {
    /// Negation; integers wrap.
    neg = Neg;
    /// Absolute value.
    abs = Abs;
    /// Sign: 1, -1, or the element itself if it is 0, -0 or NaN.
    sign = Sign;
    /// Logical negation of bools, bitwise complement of integers.
    not = Not;
    /// Number of one bits of each integer.
    popcount = Popcount;
    /// Number of leading zero bits of each integer.
    leading_zeros = LeadingZeros;
    /// Rounds down.
    floor = Floor;
    /// Rounds up.
    ceil = Ceil;
    /// Rounds toward 0.
    trunc = Trunc;
    /// Rounds to the nearest integer, ties to even.
    rint = Rint;
    /// Rounds to the nearest integer, ties away from 0.
    round = Round;
    /// Square root.
    sqrt = Sqrt;
    /// 1 / √x.
    rsqrt = Rsqrt;
    /// Cube root.
    cbrt = Cbrt;
    /// Exponential function.
    exp = Exp;
    /// 2ˣ.
    exp2 = Exp2;
    /// exp(x) - 1, accurate near 0.
    expm1 = Expm1;
    /// Natural logarithm.
    log = Log;
    /// Logarithm to base 2.
    log2 = Log2;
    /// Logarithm to base 10.
    log10 = Log10;
    /// log(1 + x), accurate near 0.
    log1p = Log1p;
    /// Sine.
    sin = Sin;
    /// Cosine.
    cos = Cos;
    /// Tangent.
    tan = Tan;
    /// Inverse sine, in [-π/2, π/2].
    asin = Asin;
    /// Inverse cosine, in [0, π].
    acos = Acos;
    /// Inverse tangent, in [-π/2, π/2].
    atan = Atan;
    /// Hyperbolic sine.
    sinh = Sinh;
    /// Hyperbolic cosine.
    cosh = Cosh;
    /// Hyperbolic tangent.
    tanh = Tanh;
    /// Inverse hyperbolic sine.
    asinh = Asinh;
    /// Inverse hyperbolic cosine; NaN below 1.
    acosh = Acosh;
    /// Inverse hyperbolic tangent; infinite at ±1, NaN beyond.
    atanh = Atanh;
    /// Error function.
    erf = Erf;
    /// 1 - erf(x), accurate for large x.
    erfc = Erfc;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, other: impl Into<Operand>) -> Tensor {
            let location = SourceLocation::here();
            map(ScalarOp::$op, &[self, &other.into().into_tensor(self, location)], location)
        }
    )+ } };
}

binary! {
    /// Sum, as `+`.
    add = Add;
    /// Difference, as `-`.
    sub = Sub;
    /// Product, as `*`.
    mul = Mul;
    /// Quotient, as `/`; integers truncate, and n / 0 is 0.
    div = Div;
    /// Remainder of integers, with the sign of the dividend; n % 0 is 0.
    rem = Rem;
    /// Exact remainder of floats, with the sign of the dividend.
    fmod = Fmod;
    /// Elementwise minimum; NaN if either is NaN. The gradient of equal elements goes to `other`.
    minimum = Min;
    /// Elementwise maximum; NaN if either is NaN. The gradient of equal elements goes to `other`.
    maximum = Max;
    /// Elementwise minimum; ignores NaN if the other is a number.
    fmin = Fmin;
    /// Elementwise maximum; ignores NaN if the other is a number.
    fmax = Fmax;
    /// The magnitude of this with the sign of `other`.
    copysign = Copysign;
    /// Logical and of bools, bitwise and of integers.
    and = And;
    /// Logical or of bools, bitwise or of integers.
    or = Or;
    /// Logical xor of bools, bitwise xor of integers.
    xor = Xor;
    /// Left shift of integers; the count is taken modulo the width.
    shl = Shl;
    /// Right shift of integers, arithmetic if signed; the count is taken modulo the width.
    shr = Shr;
    /// True where equal to `other`.
    equal = Eq;
    /// True where not equal to `other`, or if either is NaN.
    not_equal = Ne;
    /// True where less than `other`.
    lt = Lt;
    /// True where less than or equal to `other`.
    le = Le;
    /// True where greater than `other`.
    gt = Gt;
    /// True where greater than or equal to `other`.
    ge = Ge;
    /// √(x² + y²) without intermediate overflow.
    hypot = Hypot;
    /// This to the power of `other`.
    pow = Pow;
    /// The angle in [-π, π] of the point (`other`, this).
    atan2 = Atan2;
}

impl Tensor {
    /// Applies a scalar op of the IR elementwise over broadcast inputs.
    ///
    /// ```
    /// use bornite::{Device, Tensor, ir::Op};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[3.0f32, 5.0], &[2], Device::cpu());
    /// let y = Tensor::from_slice(&[4.0f32], &[1], Device::cpu());
    /// assert_eq!(Tensor::apply(Op::Hypot, &[&x, &y]).to_vec::<f32>()?[0], 5.0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn apply(op: ScalarOp, inputs: &[&Tensor]) -> Tensor {
        map(op, inputs, SourceLocation::here())
    }

    /// `a` where `self` (a bool tensor) is true, else `b`.
    #[track_caller]
    pub fn select(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
        let location = SourceLocation::here();
        let (a, b) = match (a.into(), b.into()) {
            (a, Operand::Tensor(b)) => (a.into_tensor(&b, location), b),
            (Operand::Tensor(a), b) => (a.clone(), b.into_tensor(&a, location)),
            (a, b) => (a.into_tensor(self, location), b.into_tensor(self, location)),
        };
        map(ScalarOp::Select, &[self, &a, &b], location)
    }

    /// Clamps each element to [`low`, `high`].
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Operand>, high: impl Into<Operand>) -> Tensor {
        let location = SourceLocation::here();
        map(
            ScalarOp::Clamp,
            &[self, &low.into().into_tensor(self, location), &high.into().into_tensor(self, location)],
            location,
        )
    }

    /// This times `factor` plus `addend`, rounded once.
    #[track_caller]
    pub fn fma(&self, factor: impl Into<Operand>, addend: impl Into<Operand>) -> Tensor {
        let location = SourceLocation::here();
        map(
            ScalarOp::Fma,
            &[self, &factor.into().into_tensor(self, location), &addend.into().into_tensor(self, location)],
            location,
        )
    }

    /// This to the power of a number.
    #[track_caller]
    pub fn powf(&self, power: f64) -> Tensor {
        match power {
            2.0 => self * self,
            0.5 => self.sqrt(),
            _ => self.pow(power),
        }
    }

    /// Converts each element; float to integer saturates.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        self.cast_at(dtype, SourceLocation::here())
    }

    pub(crate) fn cast_at(&self, dtype: DType, location: SourceLocation) -> Tensor {
        match self.node() {
            Ok(node) if node.dtype == dtype => self.clone(),
            _ => Tensor::build(Op::Cast(dtype), vec![self.clone()], location),
        }
    }

    /// Matrix product over the last two axes; leading axes broadcast.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        let location = SourceLocation::here();
        let (Ok(a), Ok(b)) = (self.node(), other.node()) else {
            return if self.node().is_err() { self.clone() } else { other.clone() };
        };
        let ([batch_a @ .., m, k], [batch_b @ .., k2, n]) = (a.shape.as_slice(), b.shape.as_slice()) else {
            let message = format!("expects at least two axes, found shapes {:?} and {:?}", a.shape, b.shape);
            return Tensor::failed_at("matmul", message, location);
        };
        // A batch times a single matrix is one product over all rows, and so is the gradient of the
        // matrix. Not if the shapes are invalid, since the error should show them, nor if there are
        // more rows than a library call supports.
        let rows = batch_a.iter().try_fold(*m, |rows, &length| rows.checked_mul(length));
        let merge = k == k2 && a.dtype == b.dtype && batch_b.is_empty() && !batch_a.is_empty();
        if let Some(rows) = rows.filter(|&rows| merge && rows <= i32::MAX as usize) {
            let merged = self.reshape_at(&[rows, *k], location);
            let product = Tensor::build(Op::Matmul, vec![merged, other.clone()], location);
            return product.reshape_at(&[batch_a, &[*m, *n]].concat(), location);
        }
        match broadcast(batch_a, batch_b) {
            Ok(batch) => {
                let a = self.broadcast_to(&[&batch[..], &[*m, *k]].concat(), location);
                let b = other.broadcast_to(&[&batch[..], &[*k2, *n]].concat(), location);
                Tensor::build(Op::Matmul, vec![a, b], location)
            }
            Err(message) => Tensor::failed_at("matmul", message, location),
        }
    }

    /// The same value as a constant: no gradient flows through it. If the value is already
    /// computed, the graph behind it is released, so a long loop frees memory with
    /// `x.realize()?; x = x.detach();`.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        let location = SourceLocation::here();
        // Storage that may be overwritten later has no graph to release.
        let releasable = |node: &Node| !node.inputs.is_empty() && !node.op.storage_may_move();
        let source = match self.node().ok().filter(|node| releasable(node)).and_then(|node| Some((node, node.value()?)))
        {
            Some((node, value)) => Tensor(Arc::new(Node::leaf(Op::Data, node, location, value))),
            None => self.clone(),
        };
        Tensor::build(Op::Detach, vec![source], location)
    }
}
