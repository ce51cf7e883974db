//! Scalar types and typed constants. Nothing here knows about expressions or kernels.

use std::fmt;

/// The type of one element or one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scalar {
    /// True or false, one byte in memory (0 or 1).
    Bool,
    /// 8-bit signed integer, wrapping.
    I8,
    /// 16-bit signed integer, wrapping.
    I16,
    /// 32-bit signed integer, wrapping.
    I32,
    /// 64-bit signed integer, wrapping.
    I64,
    /// 8-bit unsigned integer, wrapping.
    U8,
    /// 16-bit unsigned integer, wrapping.
    U16,
    /// 32-bit unsigned integer, wrapping.
    U32,
    /// 64-bit unsigned integer, wrapping.
    U64,
    /// IEEE binary16; computed in f32.
    F16,
    /// The upper half of a binary32; computed in f32.
    BF16,
    /// IEEE binary32, denormals kept.
    F32,
    /// IEEE binary64, denormals kept.
    F64,
}

impl Scalar {
    /// The name that NumPy, PyTorch and Warp use, such as `float32`.
    pub fn numpy_name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::I8 => "int8",
            Scalar::I16 => "int16",
            Scalar::I32 => "int32",
            Scalar::I64 => "int64",
            Scalar::U8 => "uint8",
            Scalar::U16 => "uint16",
            Scalar::U32 => "uint32",
            Scalar::U64 => "uint64",
            Scalar::F16 => "float16",
            Scalar::BF16 => "bfloat16",
            Scalar::F32 => "float32",
            Scalar::F64 => "float64",
        }
    }

    /// Every scalar type, for sweeps.
    pub const ALL: [Scalar; 13] = {
        use Scalar::*;
        [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64]
    };

    /// Size of one element in memory.
    pub const fn bytes(self) -> usize {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 | Scalar::F16 | Scalar::BF16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
        }
    }

    /// True for the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Scalar::F16 | Scalar::BF16 | Scalar::F32 | Scalar::F64)
    }

    /// True for the integer types (bool is not one).
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, Scalar::Bool)
    }

    /// True for the signed integer types.
    pub const fn is_signed(self) -> bool {
        matches!(self, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64)
    }

    /// The type that values of this type are computed in: f32 for 16-bit floats, 32 bits for narrower integers.
    pub const fn compute_type(self) -> Scalar {
        match self {
            Scalar::F16 | Scalar::BF16 => Scalar::F32,
            Scalar::I8 | Scalar::I16 => Scalar::I32,
            Scalar::U8 | Scalar::U16 => Scalar::U32,
            other => other,
        }
    }

    /// The signed integer type of the same width as a float.
    pub const fn same_width_int(self) -> Scalar {
        match self.bytes() {
            1 => Scalar::I8,
            2 => Scalar::I16,
            4 => Scalar::I32,
            _ => Scalar::I64,
        }
    }

    /// Smallest and largest value of an integer type, as far as i128 holds both.
    pub const fn int_range(self) -> (i128, i128) {
        let bits = self.bytes() as u32 * 8;
        if self.is_signed() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) }
    }

    /// The type's name: `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::I8 => "i8",
            Scalar::I16 => "i16",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::U8 => "u8",
            Scalar::U16 => "u16",
            Scalar::U32 => "u32",
            Scalar::U64 => "u64",
            Scalar::F16 => "f16",
            Scalar::BF16 => "bf16",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A typed constant, held as its bits so that it can be compared and hashed exactly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Value {
    scalar: Scalar,
    bits: u64,
}

impl Value {
    /// A constant from its bit pattern (zero-extended for types narrower than 64 bits).
    pub const fn from_bits(scalar: Scalar, bits: u64) -> Value {
        let kept = match (scalar, scalar.bytes()) {
            (Scalar::Bool, _) => (bits != 0) as u64,
            (_, 8) => bits,
            (_, bytes) => bits & ((1 << (bytes * 8)) - 1),
        };
        Value { scalar, bits: kept }
    }

    /// `value` rounded to `scalar`: to nearest for floats, saturating for integers, `!= 0` for bool.
    pub fn from_f64(scalar: Scalar, value: f64) -> Value {
        let bits = match scalar {
            Scalar::Bool => (value != 0.0) as u64,
            Scalar::I8 => value as i8 as u64,
            Scalar::I16 => value as i16 as u64,
            Scalar::I32 => value as i32 as u64,
            Scalar::I64 => value as i64 as u64,
            Scalar::U8 => value as u8 as u64,
            Scalar::U16 => value as u16 as u64,
            Scalar::U32 => value as u32 as u64,
            Scalar::U64 => value as u64,
            Scalar::F16 => half::f16::from_f32(value as f32).to_bits() as u64,
            Scalar::BF16 => half::bf16::from_f32(value as f32).to_bits() as u64,
            Scalar::F32 => (value as f32).to_bits() as u64,
            Scalar::F64 => value.to_bits(),
        };
        Value::from_bits(scalar, bits)
    }

    /// An integer constant, wrapped to the width of `scalar`.
    pub const fn int(scalar: Scalar, value: i64) -> Value {
        Value::from_bits(scalar, value as u64)
    }

    /// The value, with every NaN made the same.
    pub fn canonicalize_nan(self) -> Value {
        if self.scalar.is_float() && self.as_f64().is_nan() { Value::from_f64(self.scalar, f64::NAN) } else { self }
    }

    /// The constant's type.
    pub const fn scalar(self) -> Scalar {
        self.scalar
    }

    /// The constant's bit pattern, zero-extended.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// The constant as an f64 (exact but for large 64-bit integers).
    pub fn as_f64(self) -> f64 {
        match self.scalar {
            Scalar::U64 => self.bits as f64,
            Scalar::F16 => half::f16::from_bits(self.bits as u16).to_f64(),
            Scalar::BF16 => half::bf16::from_bits(self.bits as u16).to_f64(),
            Scalar::F32 => f32::from_bits(self.bits as u32) as f64,
            Scalar::F64 => f64::from_bits(self.bits),
            _ => self.as_i64() as f64,
        }
    }

    /// The constant as an i64: floats saturate, large u64 wrap.
    pub fn as_i64(self) -> i64 {
        match self.scalar {
            Scalar::I8 => self.bits as i8 as i64,
            Scalar::I16 => self.bits as i16 as i64,
            Scalar::I32 => self.bits as i32 as i64,
            scalar if scalar.is_float() => self.as_f64() as i64,
            _ => self.bits as i64,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scalar {
            Scalar::Bool => write!(f, "{}", self.bits != 0),
            Scalar::U64 => write!(f, "{}u64", self.bits),
            Scalar::F32 => write!(f, "{:?}f32", f32::from_bits(self.bits as u32)),
            scalar if scalar.is_float() => write!(f, "{:?}{scalar}", self.as_f64()),
            scalar => write!(f, "{}{scalar}", self.as_i64()),
        }
    }
}
