//! Value types, and their names in Python and C.

/// Scalar type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum ScalarType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
}

use ScalarType::*;

impl ScalarType {
    /// True for floats.
    pub fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// True for integers.
    pub fn is_int(self) -> bool {
        !self.is_float() && self != Bool
    }

    /// True for signed integers.
    pub fn is_signed(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64)
    }

    /// Size in bits.
    pub fn bits(self) -> u32 {
        match self {
            Bool | I8 | U8 => 8,
            I16 | U16 | F16 | BF16 => 16,
            I32 | U32 | F32 => 32,
            I64 | U64 | F64 => 64,
        }
    }

    /// Name in metadata and recipes.
    pub fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            U8 => "u8",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }

    /// Name in C.
    pub fn c(self) -> &'static str {
        match self {
            Bool => "bool",
            I8 => "signed char",
            I16 => "short",
            I32 => "int",
            I64 => "long long",
            U8 => "unsigned char",
            U16 => "unsigned short",
            U32 => "unsigned int",
            U64 => "unsigned long long",
            F16 => "__half",
            BF16 => "__nv_bfloat16",
            F32 => "float",
            F64 => "double",
        }
    }

    /// Name in Python annotations and conversions.
    pub fn python(self) -> &'static str {
        match self {
            Bool => "bool",
            I8 => "wp.int8",
            I16 => "wp.int16",
            I32 => "int",
            I64 => "wp.int64",
            U8 => "wp.uint8",
            U16 => "wp.uint16",
            U32 => "wp.uint32",
            U64 => "wp.uint64",
            F16 => "wp.float16",
            BF16 => "wp.bfloat16",
            F32 => "float",
            F64 => "wp.float64",
        }
    }
}

/// Type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Ty {
    /// A scalar.
    Scalar(ScalarType),
    /// A vector of two to four components.
    Vector(ScalarType, u8),
    /// A square matrix with this many rows.
    Matrix(ScalarType, u8),
    /// A struct of the program.
    Struct(u8),
}

impl From<ScalarType> for Ty {
    fn from(scalar: ScalarType) -> Ty {
        Ty::Scalar(scalar)
    }
}

impl Ty {
    /// Boolean.
    pub const BOOL: Ty = Ty::Scalar(Bool);
    /// An `int`.
    pub const I32: Ty = Ty::Scalar(I32);
    /// A `float`.
    pub const F32: Ty = Ty::Scalar(F32);

    /// Component type; `None` for structs.
    pub fn element(self) -> Option<ScalarType> {
        match self {
            Ty::Scalar(scalar) | Ty::Vector(scalar, _) | Ty::Matrix(scalar, _) => Some(scalar),
            Ty::Struct(_) => None,
        }
    }

    /// The scalar type, if it is one.
    pub fn scalar(self) -> Option<ScalarType> {
        if let Ty::Scalar(scalar) = self { Some(scalar) } else { None }
    }

    /// Number of components of a vector or matrix; 1 for scalars.
    pub fn components(self) -> usize {
        match self {
            Ty::Scalar(_) | Ty::Struct(_) => 1,
            Ty::Vector(_, n) => n as usize,
            Ty::Matrix(_, n) => n as usize * n as usize,
        }
    }

    /// Name in Python.
    pub fn python(self, structs: &[super::StructDef]) -> String {
        let suffix = |scalar| match scalar {
            F64 => "d",
            F16 => "h",
            I32 => "i",
            _ => "",
        };
        match self {
            Ty::Scalar(scalar) => scalar.python().into(),
            Ty::Vector(scalar, n) => format!("wp.vec{n}{}", suffix(scalar)),
            Ty::Matrix(scalar, n) => format!("wp.mat{n}{n}{}", suffix(scalar)),
            Ty::Struct(n) => structs[n as usize].name.clone(),
        }
    }

    /// Name in C.
    pub fn c(self, structs: &[super::StructDef]) -> String {
        let short = |scalar| match scalar {
            F64 => "double",
            I32 => "int",
            _ => "float",
        };
        match self {
            Ty::Scalar(scalar) => scalar.c().into(),
            Ty::Vector(scalar, n) => format!("{}{n}", short(scalar)),
            Ty::Matrix(F64, n) => format!("mat{n}d"),
            Ty::Matrix(_, n) => format!("mat{n}"),
            Ty::Struct(n) => structs[n as usize].name.clone(),
        }
    }

    /// Types of all components, in order.
    pub fn scalars(self, structs: &[super::StructDef]) -> Vec<ScalarType> {
        match self {
            Ty::Struct(n) => structs[n as usize].fields.iter().flat_map(|(_, ty)| ty.scalars(structs)).collect(),
            _ => vec![self.element().unwrap_or(F32); self.components()],
        }
    }

    /// Type of a component or field.
    pub fn component(self, at: u8, structs: &[super::StructDef]) -> Ty {
        match self {
            Ty::Struct(n) => structs[n as usize].fields[at as usize].1,
            _ => Ty::Scalar(self.element().unwrap_or(F32)),
        }
    }
}
