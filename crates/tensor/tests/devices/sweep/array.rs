//! Reference arrays: logical elements in row-major order, each an exact integer or an f64.
//! Independent of the library's computations; tensors are created from them and read back as them.

use bornite::{
    DType, Device, Tensor,
    ops::{bf16, f16},
};

/// The dtypes under test.
pub const DTYPES: [DType; 8] =
    [DType::Bool, DType::U8, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Num {
    Int(i64),
    Real(f64),
}

impl Num {
    pub fn int(self) -> i64 {
        match self {
            Num::Int(x) => x,
            Num::Real(x) => x as i64,
        }
    }

    pub fn real(self) -> f64 {
        match self {
            Num::Int(x) => x as f64,
            Num::Real(x) => x,
        }
    }

    /// A number of a dtype: rounded, or truncated to its width.
    pub fn of(dtype: DType, x: f64) -> Num {
        if dtype.is_float() { Num::Real(rounded(dtype, x)) } else { wrapped(dtype, x as i128) }
    }
}

/// The nearest number of a float dtype, ties to even. (The crate `half` ignores the lowest bits of
/// an f64.)
pub fn rounded(dtype: DType, x: f64) -> f64 {
    let (bits, lowest) = match dtype {
        DType::F16 => (11, -14),
        DType::BF16 => (8, -126),
        DType::F32 => return x as f32 as f64,
        _ => return x,
    };
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let quantum = 2f64.powi(exponent.max(lowest) - bits + 1);
    let nearest = (x / quantum).round_ties_even() * quantum;
    if nearest.abs() > limits(dtype).2 { f64::INFINITY.copysign(x) } else { nearest }
}

/// The lowest bits of an integer, as a dtype reads them.
pub fn wrapped(dtype: DType, x: i128) -> Num {
    Num::Int(match dtype {
        DType::Bool => (x != 0) as i64,
        DType::U8 => x as u8 as i64,
        DType::I32 => x as i32 as i64,
        _ => x as i64,
    })
}

/// The distance from 1 to the next number of a float dtype, its smallest and its largest positive
/// number.
pub fn limits(dtype: DType) -> (f64, f64, f64) {
    match dtype {
        DType::F16 => (2f64.powi(-10), 2f64.powi(-24), 65504.0),
        DType::BF16 => (2f64.powi(-7), 2f64.powi(-133), bf16::MAX.to_f64()),
        DType::F32 => (f32::EPSILON as f64, 2f64.powi(-149), f32::MAX as f64),
        _ => (f64::EPSILON, 5e-324, f64::MAX),
    }
}

/// Epsilon of the dtype in which sums of this dtype are accumulated.
pub fn wide_epsilon(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 }
}

#[derive(Clone, Debug)]
pub struct Array {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub data: Vec<Num>,
}

/// Every index of a shape in row-major order.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let total = shape.iter().product();
    let index = |mut n: usize| {
        let mut index = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            index[axis] = n % shape[axis];
            n /= shape[axis];
        }
        index
    };
    (0..total).map(index).collect()
}

impl Array {
    /// The array of `f(index)` for every index.
    pub fn build(dtype: DType, shape: &[usize], f: impl FnMut(&[usize]) -> Num) -> Array {
        let mut f = f;
        let data = indices(shape).iter().map(|index| f(index)).collect();
        Array { dtype, shape: shape.to_vec(), data }
    }

    /// The element at an index, with broadcasting: axes of length 1 accept any index, and leading
    /// axes may be missing.
    pub fn at(&self, index: &[usize]) -> Num {
        let index = &index[index.len() - self.shape.len()..];
        let flat = index.iter().zip(&self.shape).fold(0, |n, (&i, &len)| n * len + if len == 1 { 0 } else { i });
        self.data[flat]
    }

    /// A contiguous tensor.
    pub fn tensor(&self, device: Device) -> Tensor {
        macro_rules! make {
            ($t:ty, $from:expr) => {{
                let data: Vec<$t> = self.data.iter().map($from).collect();
                Tensor::from_slice(&data, &self.shape, device)
            }};
        }
        match self.dtype {
            DType::Bool => make!(bool, |x| x.int() != 0),
            DType::U8 => make!(u8, |x| x.int() as u8),
            DType::I32 => make!(i32, |x| x.int() as i32),
            DType::F16 => make!(f16, |x| f16::from_f64(x.real())),
            DType::BF16 => make!(bf16, |x| bf16::from_f64(x.real())),
            DType::F32 => make!(f32, |x| x.real() as f32),
            DType::F64 => make!(f64, |x| x.real()),
            _ => make!(i64, |x| x.int()),
        }
    }

    /// The elements of a tensor.
    pub fn read(tensor: &Tensor) -> bornite::Result<Array> {
        macro_rules! read {
            ($t:ty, $to:expr) => {
                tensor.to_vec::<$t>()?.into_iter().map($to).collect()
            };
        }
        let dtype = tensor.dtype()?;
        let data = match dtype {
            DType::Bool => read!(bool, |x| Num::Int(x as i64)),
            DType::U8 => read!(u8, |x| Num::Int(x as i64)),
            DType::I32 => read!(i32, |x| Num::Int(x as i64)),
            DType::F16 => read!(f16, |x| Num::Real(x.to_f64())),
            DType::BF16 => read!(bf16, |x| Num::Real(x.to_f64())),
            DType::F32 => read!(f32, |x| Num::Real(x as f64)),
            DType::F64 => read!(f64, Num::Real),
            _ => read!(i64, Num::Int),
        };
        Ok(Array { dtype, shape: tensor.shape()?.to_vec(), data })
    }
}

/// Maximum difference of a float from the reference. Integers and bools are always exact.
pub enum Bound {
    /// The reference, rounded once, with the sign of its zero.
    Exact,
    /// A number of epsilons of the expected value.
    Relative(f64),
    /// Absolute differences, one per element.
    Each(Vec<f64>),
}

/// Compares arrays; `Err` describes the first difference.
pub fn compare(found: &Array, expected: &Array, bound: &Bound) -> Result<(), String> {
    if (found.dtype, &found.shape) != (expected.dtype, &expected.shape) {
        let (f, e) = (found, expected);
        return Err(format!("gives {}{:?}, expected {}{:?}", f.dtype, f.shape, e.dtype, e.shape));
    }
    for (n, (&f, &e)) in found.data.iter().zip(&expected.data).enumerate() {
        let fits = match (f, e, bound) {
            (Num::Int(f), Num::Int(e), _) => f == e,
            (Num::Real(f), Num::Real(e), Bound::Exact) => {
                let e = rounded(expected.dtype, e);
                f.is_nan() && e.is_nan() || f == e && f.is_sign_negative() == e.is_sign_negative()
            }
            (Num::Real(f), Num::Real(e), Bound::Relative(k)) => {
                near(expected.dtype, f, e, k * limits(expected.dtype).0 * e.abs())
            }
            (Num::Real(f), Num::Real(e), Bound::Each(bounds)) => near(expected.dtype, f, e, bounds[n]),
            _ => false,
        };
        if !fits {
            return Err(format!("element {n} of {:?} is {f:?}, expected {e:?}", found.shape));
        }
    }
    Ok(())
}

fn near(dtype: DType, found: f64, expected: f64, bound: f64) -> bool {
    let (epsilon, smallest, largest) = limits(dtype);
    if expected.is_nan() || found.is_nan() {
        return expected.is_nan() && found.is_nan();
    }
    if found == rounded(dtype, expected) {
        return true;
    }
    // Both the largest number and infinity are correct near the limit.
    if found.is_infinite() || expected.abs() > largest {
        let edge = largest * (1.0 - 16.0 * epsilon);
        return found.signum() == expected.signum() && found.abs() >= edge && expected.abs() + bound >= edge;
    }
    // An infinite bound would accept anything.
    bound.is_finite() && (found - expected).abs() <= bound + smallest
}
