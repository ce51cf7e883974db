//! Scalar types and typed constants. Knows nothing of expressions or kernels; composite types are
//! in `ty.rs`.

use std::fmt;

/// Scalar type of an element or a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scalar {
    /// Boolean, one byte in memory (0 or 1).
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
    /// IEEE 754 binary16; arithmetic is done in f32.
    F16,
    /// bfloat16, the upper half of an f32; arithmetic is done in f32.
    BF16,
    /// IEEE 754 binary32, with denormals.
    F32,
    /// IEEE 754 binary64, with denormals.
    F64,
}

impl Scalar {
    /// Returns the name that NumPy, PyTorch and Warp use, such as `float32`.
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

    /// All scalar types.
    pub const ALL: [Scalar; 13] = {
        use Scalar::*;
        [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64]
    };

    /// Returns the size of one element in memory, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 | Scalar::F16 | Scalar::BF16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
        }
    }

    /// Returns true for the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Scalar::F16 | Scalar::BF16 | Scalar::F32 | Scalar::F64)
    }

    /// Returns true for the integer types; bool is not one of them.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, Scalar::Bool)
    }

    /// Returns true for the signed integer types.
    pub const fn is_signed(self) -> bool {
        matches!(self, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64)
    }

    /// Returns the type in which arithmetic on this type is done: f32 for 16-bit floats, 32 bits
    /// for narrower integers, otherwise the type itself.
    pub const fn compute_type(self) -> Scalar {
        match self {
            Scalar::F16 | Scalar::BF16 => Scalar::F32,
            Scalar::I8 | Scalar::I16 => Scalar::I32,
            Scalar::U8 | Scalar::U16 => Scalar::U32,
            other => other,
        }
    }

    /// Returns the signed integer type of the same width.
    pub const fn same_width_int(self) -> Scalar {
        match self.bytes() {
            1 => Scalar::I8,
            2 => Scalar::I16,
            4 => Scalar::I32,
            _ => Scalar::I64,
        }
    }

    /// Returns the smallest and the largest value of an integer type.
    pub const fn int_range(self) -> (i128, i128) {
        let bits = self.bytes() as u32 * 8;
        if self.is_signed() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) }
    }

    /// Returns the name in the text form, such as `f32`.
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

/// Typed constant, stored as bits so that it can be compared and hashed exactly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Value {
    scalar: Scalar,
    bits: u64,
}

impl Value {
    /// Creates a constant from its bit pattern, zero-extended for types narrower than 64 bits.
    pub const fn from_bits(scalar: Scalar, bits: u64) -> Value {
        let masked = match (scalar, scalar.bytes()) {
            (Scalar::Bool, _) => (bits != 0) as u64,
            (_, 8) => bits,
            (_, bytes) => bits & ((1 << (bytes * 8)) - 1),
        };
        Value { scalar, bits: masked }
    }

    /// Converts `value` to `scalar`: rounds to nearest for floats, saturates for integers, `!= 0`
    /// for bool.
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

    /// Creates an integer constant, wrapped to the width of `scalar`.
    pub const fn int(scalar: Scalar, value: i64) -> Value {
        Value::from_bits(scalar, value as u64)
    }

    /// Replaces any NaN by the canonical NaN of its type.
    pub fn canonicalize_nan(self) -> Value {
        if self.scalar.is_float() && self.as_f64().is_nan() { Value::from_f64(self.scalar, f64::NAN) } else { self }
    }

    /// Returns the constant's type.
    pub const fn scalar(self) -> Scalar {
        self.scalar
    }

    /// Returns the constant's bit pattern, zero-extended.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// Converts the constant to f64; exact except for large 64-bit integers.
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

    /// Converts the constant to i64; floats saturate, large u64 values wrap.
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
