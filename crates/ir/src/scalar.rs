//! Scalar types and typed constants. Nothing here knows about expressions or kernels.

use std::fmt;

/// The type of one element or one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scalar {
    /// True or false, one byte in memory (0 or 1).
    Bool,
    /// 32-bit signed integer, wrapping.
    I32,
    /// 64-bit signed integer, wrapping.
    I64,
    /// IEEE binary32, denormals kept.
    F32,
    /// IEEE binary64, denormals kept.
    F64,
}

impl Scalar {
    /// Every scalar type, for sweeps.
    pub const ALL: [Scalar; 5] = [Scalar::Bool, Scalar::I32, Scalar::I64, Scalar::F32, Scalar::F64];

    /// Size of one element in memory.
    pub const fn bytes(self) -> usize {
        match self {
            Scalar::Bool => 1,
            Scalar::I32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::F64 => 8,
        }
    }

    /// True for the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Scalar::F32 | Scalar::F64)
    }

    /// True for the integer types (bool is not one).
    pub const fn is_int(self) -> bool {
        matches!(self, Scalar::I32 | Scalar::I64)
    }

    /// The integer type of the same width as a float, and the float type of the same width as an integer.
    pub const fn same_width(self) -> Scalar {
        match self {
            Scalar::F32 => Scalar::I32,
            Scalar::F64 => Scalar::I64,
            Scalar::I32 => Scalar::F32,
            Scalar::I64 => Scalar::F64,
            Scalar::Bool => Scalar::Bool,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scalar::Bool => "bool",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        })
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
        let kept = match scalar {
            Scalar::Bool => (bits != 0) as u64,
            Scalar::I32 | Scalar::F32 => bits & 0xffff_ffff,
            Scalar::I64 | Scalar::F64 => bits,
        };
        Value { scalar, bits: kept }
    }

    /// `value` rounded to `scalar`: to nearest for floats, saturating for integers, `!= 0` for bool.
    pub fn from_f64(scalar: Scalar, value: f64) -> Value {
        let bits = match scalar {
            Scalar::Bool => (value != 0.0) as u64,
            Scalar::I32 => value as i32 as u32 as u64,
            Scalar::I64 => value as i64 as u64,
            Scalar::F32 => (value as f32).to_bits() as u64,
            Scalar::F64 => value.to_bits(),
        };
        Value { scalar, bits }
    }

    /// An integer constant, wrapped to the width of `scalar`.
    pub const fn int(scalar: Scalar, value: i64) -> Value {
        Value::from_bits(scalar, value as u64)
    }

    /// The constant's type.
    pub const fn scalar(self) -> Scalar {
        self.scalar
    }

    /// The constant's bit pattern, zero-extended.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// The constant as an f64 (exact but for large i64).
    pub fn as_f64(self) -> f64 {
        match self.scalar {
            Scalar::Bool => self.bits as f64,
            Scalar::I32 | Scalar::I64 => self.as_i64() as f64,
            Scalar::F32 => f32::from_bits(self.bits as u32) as f64,
            Scalar::F64 => f64::from_bits(self.bits),
        }
    }

    /// The constant as an i64; floats saturate.
    pub fn as_i64(self) -> i64 {
        match self.scalar {
            Scalar::Bool | Scalar::I64 => self.bits as i64,
            Scalar::I32 => self.bits as u32 as i32 as i64,
            Scalar::F32 | Scalar::F64 => self.as_f64() as i64,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scalar {
            Scalar::Bool => write!(f, "{}", self.bits != 0),
            Scalar::I32 | Scalar::I64 => write!(f, "{}{}", self.as_i64(), self.scalar),
            Scalar::F32 => write!(f, "{:?}f32", f32::from_bits(self.bits as u32)),
            Scalar::F64 => write!(f, "{:?}f64", f64::from_bits(self.bits)),
        }
    }
}
