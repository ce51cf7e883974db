//! Type promotion between tensors, and of numbers next to tensors.

use std::sync::Arc;

use bornite_ir::{Op as ScalarOp, TypeRule, Value};

use crate::graph::node::{Node, Op};
use crate::{DType, SourceLocation, Tensor};

/// The dtype that two dtypes promote to; `None` if no dtype can represent both, so that one must be
/// cast.
///
/// | | bool | u8 | i32 | i64 | f16 | bf16 | f32 | f64 |
/// |---|---|---|---|---|---|---|---|---|
/// | **bool** | bool | u8 | i32 | i64 | f16 | bf16 | f32 | f64 |
/// | **u8** | u8 | u8 | i32 | i64 | f16 | bf16 | f32 | f64 |
/// | **i32** | i32 | i32 | i32 | i64 | f16 | bf16 | f32 | f64 |
/// | **i64** | i64 | i64 | i64 | i64 | f16 | bf16 | f32 | f64 |
/// | **f16** | f16 | f16 | f16 | f16 | f16 | f32 | f32 | f64 |
/// | **bf16** | bf16 | bf16 | bf16 | bf16 | f32 | bf16 | f32 | f64 |
/// | **f32** | f32 | f32 | f32 | f32 | f32 | f32 | f32 | f64 |
/// | **f64** | f64 | f64 | f64 | f64 | f64 | f64 | f64 | f64 |
///
/// Bools promote to integers and integers to floats. Of two floats or two integers the wider is
/// chosen, f16 and bf16 promote to f32, and a signed and an unsigned integer to the narrowest
/// signed one that can represent both (u8 and i8 to i16, u32 and i32 to i64); u64 and a signed
/// integer have no common dtype. Elementwise operations promote like this; matrix products,
/// concatenations and indices require one dtype.
///
/// A Rust number is weakly typed: next to a float tensor it takes the tensor's dtype (`bf16 * 0.5`
/// stays bf16), and an integer next to an integer tensor takes that dtype, or is an error if it
/// does not fit. Otherwise an integer next to bools is an i64, and a float next to integers or
/// bools an f32.
///
/// ```
/// use bornite::{DType, ops::promote};
/// assert_eq!(promote(DType::U8, DType::I32), Some(DType::I32));
/// assert_eq!(promote(DType::I64, DType::F32), Some(DType::F32));
/// assert_eq!(promote(DType::F16, DType::BF16), Some(DType::F32));
/// assert_eq!(promote(DType::U64, DType::I8), None);
/// ```
pub fn promote(a: DType, b: DType) -> Option<DType> {
    let rank = |t: DType| (t.is_float() as u8) * 2 + t.is_int() as u8;
    let (low, high) = if rank(a) < rank(b) || rank(a) == rank(b) && a.bytes() < b.bytes() { (a, b) } else { (b, a) };
    if low == high || rank(low) < rank(high) {
        return Some(high);
    }
    if high.is_float() {
        return Some(if low.bytes() == high.bytes() { DType::F32 } else { high });
    }
    let holds = |t: &DType| {
        let (wide, a, b) = (t.int_range(), a.int_range(), b.int_range());
        wide.0 <= a.0.min(b.0) && a.1.max(b.1) <= wide.1
    };
    let both_unsigned = !a.is_signed() && !b.is_signed();
    if both_unsigned { Some(high) } else { [DType::I16, DType::I32, DType::I64].into_iter().find(holds) }
}

/// Casts the inputs of a scalar op to their common dtype.
pub(crate) fn promote_inputs(
    op: ScalarOp,
    inputs: Vec<Tensor>,
    location: SourceLocation,
) -> Result<Vec<Tensor>, String> {
    let first = (op.row().rule == TypeRule::Select) as usize;
    let Some(values) = inputs.get(first..).filter(|values| !values.is_empty()) else { return Ok(inputs) };
    let mut dtype = values[0].0.dtype;
    for value in values {
        dtype = promote(dtype, value.0.dtype)
            .ok_or_else(|| format!("no dtype holds both {dtype} and {}; cast one of them", value.0.dtype))?;
    }
    let mut inputs = inputs;
    for input in &mut inputs[first..] {
        *input = input.cast_at(dtype, location);
    }
    Ok(inputs)
}

/// A Rust number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
}

/// Operand of an operation: a tensor, or a number that takes its dtype from the other operand.
///
/// ```
/// use bornite::{Device, Tensor};
/// # fn main() -> bornite::Result<()> {
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], Device::cpu());
/// assert_eq!(x.pow(2).to_vec::<f32>()?, [1.0, 4.0, 9.0]);
/// assert_eq!(x.clamp(1.5, &x.max(..)).to_vec::<f32>()?, [1.5, 2.0, 3.0]);
/// let (rate, count) = (0.5f32, 3usize); // any number on the right of an operator, an f64 or i64 on the left
/// assert_eq!((2 * &x * rate / count).sum(..).item()?, 2.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// A number.
    Number(Number),
}

impl From<&Tensor> for Operand {
    fn from(tensor: &Tensor) -> Operand {
        Operand::Tensor(tensor.clone())
    }
}

impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Operand {
        Operand::Tensor(tensor)
    }
}

macro_rules! numbers {
    ($($number:ty: $kind:ident $wide:ty),+) => { $(
        impl From<$number> for Operand {
            fn from(number: $number) -> Operand {
                Operand::Number(Number::$kind(number as $wide))
            }
        }
    )+ };
}

numbers!(f32: Float f64, f64: Float f64);
numbers!(i8: Int i128, i16: Int i128, i32: Int i128, i64: Int i128, isize: Int i128);
numbers!(u8: Int i128, u16: Int i128, u32: Int i128, u64: Int i128, usize: Int i128);

impl Operand {
    /// The tensor, or the number as a scalar that follows the dtype of `like`.
    pub(crate) fn into_tensor(self, like: &Tensor, location: SourceLocation) -> Tensor {
        match self {
            Operand::Tensor(tensor) => tensor,
            Operand::Number(number) => like.weak_scalar(number, location),
        }
    }
}

impl Tensor {
    /// A number as a scalar tensor whose dtype follows this tensor's, by the rules of [`promote`].
    fn weak_scalar(&self, number: Number, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let dtype = match number {
            _ if node.dtype.is_float() => node.dtype,
            Number::Float(_) => DType::F32,
            Number::Int(_) if node.dtype == DType::Bool => DType::I64,
            Number::Int(_) => node.dtype,
        };
        let value = match number {
            Number::Float(number) => Value::from_f64(dtype, number),
            Number::Int(number) if dtype.is_float() => Value::from_f64(dtype, number as f64),
            Number::Int(number) => {
                let (lowest, highest) = dtype.int_range();
                if !(lowest..=highest).contains(&number) {
                    let message = format!("{number} is not representable in {dtype}; cast the tensor first");
                    return Tensor::failed_at("scalar", message, location);
                }
                Value::int(dtype, number as i64)
            }
        };
        Tensor(Arc::new(Node::new(Op::Full(value), dtype, vec![], node.device, vec![], location)))
    }

    /// A scalar tensor of this tensor's dtype and device.
    pub(crate) fn scalar_like(&self, value: f64, location: SourceLocation) -> Tensor {
        let Ok(node) = self.node() else { return self.clone() };
        let constant = Value::from_f64(node.dtype, value);
        if !node.dtype.is_float() && constant.as_f64() != value {
            let message = format!("{value} is not representable in {}; cast the tensor first", node.dtype);
            return Tensor::failed_at("scalar", message, location);
        }
        Tensor(Arc::new(Node::new(Op::Full(constant), node.dtype, vec![], node.device, vec![], location)))
    }
}
