//! The rows of the op table as methods, and the product of matrices. Their operators are in `operators.rs`; what mixes
//! dtypes is in `promote.rs`.

use std::sync::Arc;

use bornite_ir::Op as ScalarOp;

use crate::graph::infer::broadcast;
use crate::graph::node::{Node, Op};
use crate::graph::promote::promote_inputs;
use crate::{DType, Operand, SourceLocation, Tensor};

/// Brings the inputs to one shape and one dtype and applies a row of the op table.
pub(crate) fn map(row: ScalarOp, inputs: &[&Tensor], location: SourceLocation) -> Tensor {
    let mut shape = vec![];
    for input in inputs {
        let Ok(node) = input.node() else { return (*input).clone() };
        shape = match broadcast(&shape, &node.shape) {
            Ok(shape) => shape,
            Err(message) => return Tensor::failed_at(row.row().name, message, location),
        };
    }
    let inputs = inputs.iter().map(|input| input.broadcast_to(&shape, location)).collect();
    match promote_inputs(row, inputs, location) {
        Ok(inputs) => Tensor::build(Op::Map(row), inputs, location),
        Err(message) => Tensor::failed_at(row.row().name, message, location),
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $row:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> Tensor {
            map(ScalarOp::$row, &[self], SourceLocation::here())
        }
    )+ } };
}

unary! {
    /// Minus each element; integers wrap.
    neg = Neg;
    /// The size of each element.
    abs = Abs;
    /// 1 above 0, -1 below; 0, -0 and NaN are their own.
    sign = Sign;
    /// The opposite of each bool; the complement of each integer's bits.
    not = Not;
    /// Number of one bits of each integer.
    popcount = Popcount;
    /// Number of zero bits above the highest one bit of each integer.
    leading_zeros = LeadingZeros;
    /// The largest integer not above.
    floor = Floor;
    /// The smallest integer not below.
    ceil = Ceil;
    /// The integer part.
    trunc = Trunc;
    /// The nearest integer, ties to even.
    rint = Rint;
    /// The nearest integer, ties away from 0.
    round = Round;
    /// Square root.
    sqrt = Sqrt;
    /// 1 / √x.
    rsqrt = Rsqrt;
    /// Cube root.
    cbrt = Cbrt;
    /// e to the power of each element.
    exp = Exp;
    /// 2 to the power of each element.
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
    /// The angle in [-π/2, π/2] of that sine.
    asin = Asin;
    /// The angle in [0, π] of that cosine.
    acos = Acos;
    /// The angle in [-π/2, π/2] of that tangent.
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
    /// 1 - erf(x), accurate where that is small.
    erfc = Erfc;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $row:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, other: impl Into<Operand>) -> Tensor {
            let location = SourceLocation::here();
            map(ScalarOp::$row, &[self, &other.into().to_tensor(self, location)], location)
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
    /// Remainder of integers, with the sign of the first; n % 0 is 0.
    rem = Rem;
    /// Remainder of floats, exact, with the sign of the first.
    fmod = Fmod;
    /// The smaller of each pair; NaN where either is. Where equal, the gradient goes to `other`.
    minimum = Min;
    /// The larger of each pair; NaN where either is. Where equal, the gradient goes to `other`.
    maximum = Max;
    /// The smaller of each pair; the other where one is NaN.
    fmin = Fmin;
    /// The larger of each pair; the other where one is NaN.
    fmax = Fmax;
    /// This one's size with the sign of `other`.
    copysign = Copysign;
    /// True where both are; of integers, the bits that both have.
    and = And;
    /// True where either is; of integers, the bits that either has.
    or = Or;
    /// True where one is and the other is not; of integers, the bits that one has.
    xor = Xor;
    /// Integers shifted left; counts are masked to the width.
    shl = Shl;
    /// Integers shifted right, keeping the sign; counts are masked to the width.
    shr = Shr;
    /// True where equal to `other`.
    equal = Eq;
    /// True where not equal to `other`, or either is NaN.
    not_equal = Ne;
    /// True where smaller than `other`.
    lt = Lt;
    /// True where smaller than `other` or equal.
    le = Le;
    /// True where larger than `other`.
    gt = Gt;
    /// True where larger than `other` or equal.
    ge = Ge;
    /// √(x² + y²) without overflow on the way.
    hypot = Hypot;
    /// This to the power of `other`.
    pow = Pow;
    /// The angle in [-π, π] of the point (`other`, this).
    atan2 = Atan2;
}

impl Tensor {
    /// Any row of the op table, element by element over broadcast inputs.
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
            (a, Operand::Tensor(b)) => (a.to_tensor(&b, location), b),
            (Operand::Tensor(a), b) => (a.clone(), b.to_tensor(&a, location)),
            (a, b) => (a.to_tensor(self, location), b.to_tensor(self, location)),
        };
        map(ScalarOp::Select, &[self, &a, &b], location)
    }

    /// Not below `low` and not above `high`.
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Operand>, high: impl Into<Operand>) -> Tensor {
        let location = SourceLocation::here();
        map(ScalarOp::Clamp, &[self, &low.into().to_tensor(self, location), &high.into().to_tensor(self, location)], location)
    }

    /// This times `factor` plus `addend`, rounded once.
    #[track_caller]
    pub fn fma(&self, factor: impl Into<Operand>, addend: impl Into<Operand>) -> Tensor {
        let location = SourceLocation::here();
        map(ScalarOp::Fma, &[self, &factor.into().to_tensor(self, location), &addend.into().to_tensor(self, location)], location)
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
        // Rows of a batch times one matrix are one product, and so is the matrix's gradient. Not where the shapes are wrong,
        // since the error should show them, nor where there are more rows than a library counts.
        let rows = batch_a.iter().try_fold(*m, |rows, &length| rows.checked_mul(length));
        let one = k == k2 && a.dtype == b.dtype && batch_b.is_empty() && !batch_a.is_empty();
        if let Some(rows) = rows.filter(|&rows| one && rows <= i32::MAX as usize) {
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

    /// The same value without history: no gradient flows through it. Of a tensor that is computed already, it does not
    /// keep what that was made of, so a long loop frees its past with `x.realize()?; x = x.detach();`.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        let location = SourceLocation::here();
        // Memory that somebody may write again has no history to let go.
        let kept = |node: &Node| !node.inputs.is_empty() && !node.op.storage_may_move();
        let source = match self.node().ok().filter(|node| kept(node)).and_then(|node| Some((node, node.value()?))) {
            Some((node, value)) => Tensor(Arc::new(Node::leaf(Op::Data, node, location, value))),
            None => self.clone(),
        };
        Tensor::build(Op::Detach, vec![source], location)
    }
}
