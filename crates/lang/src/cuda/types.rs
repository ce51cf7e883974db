//! Types of CUDA C++ and the usual arithmetic conversions.

use bornite_ir::{Scalar, Type};

/// A type of the supported subset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CType {
    Void,
    Value(Type),
    /// A pointer to values of this type.
    Pointer(Type),
    Group(Group),
    /// A collective of CUB.
    Collective(Collective),
    /// Shared storage of a collective.
    TempStorage(Collective),
}

/// A collective of CUB over values of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collective {
    pub kind: CollectiveKind,
    pub scalar: Scalar,
    /// Number of threads that take part.
    pub threads: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveKind {
    BlockReduce,
    BlockScan,
    WarpReduce,
}

/// Returns true for the collectives of CUB that are supported.
pub fn is_collective(name: &str) -> bool {
    matches!(name, "BlockReduce" | "BlockScan" | "WarpReduce")
}

/// A cooperative group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    Block,
    Grid,
    /// A tile of that number of threads of a warp; the second number is the size of the tile that
    /// was partitioned, 0 if it was the thread block.
    Tile(u8, u8),
}

impl Group {
    /// Returns true if both have the same C++ type, or the other converts to it.
    pub fn is_same_type(self, other: Group) -> bool {
        match (self, other) {
            (Group::Tile(a, _), Group::Tile(b, _)) => a == b,
            _ => self == other,
        }
    }
}

/// Returns true for the types of cooperative groups.
pub fn is_group_type(name: &str) -> bool {
    matches!(name, "thread_block" | "grid_group" | "thread_block_tile" | "coalesced_group" | "thread_group")
}

/// Type that CUDA, the C++ library or the CUDA printer defines by name.
pub fn builtin_type(name: &str) -> Option<Type> {
    let scalar = |scalar: Scalar| Some(Type::Scalar(scalar));
    match name {
        "int8_t" => return scalar(Scalar::I8),
        "int16_t" => return scalar(Scalar::I16),
        "int32_t" => return scalar(Scalar::I32),
        "int64_t" | "ptrdiff_t" | "ssize_t" | "intptr_t" => return scalar(Scalar::I64),
        "uint8_t" | "uchar" => return scalar(Scalar::U8),
        "uint16_t" | "ushort" => return scalar(Scalar::U16),
        "uint32_t" | "uint" => return scalar(Scalar::U32),
        "uint64_t" | "size_t" | "uintptr_t" | "ulong" => return scalar(Scalar::U64),
        "half" | "__half" | "bn_f16" => return scalar(Scalar::F16),
        "nv_bfloat16" | "__nv_bfloat16" | "bn_bf16" => return scalar(Scalar::BF16),
        "half2" | "__half2" => return Some(Type::Vector(Scalar::F16, 2)),
        "nv_bfloat162" | "__nv_bfloat162" => return Some(Type::Vector(Scalar::BF16, 2)),
        "dim3" => return Some(Type::Vector(Scalar::U32, 3)),
        _ => {}
    }
    if let Some(n) = name.strip_suffix(['2', '3', '4']).map(|rest| (rest, name.as_bytes()[rest.len()] - b'0')) {
        let element = match n.0 {
            "char" => Some(Scalar::I8),
            "uchar" => Some(Scalar::U8),
            "short" => Some(Scalar::I16),
            "ushort" => Some(Scalar::U16),
            "int" => Some(Scalar::I32),
            "uint" => Some(Scalar::U32),
            "long" | "longlong" => Some(Scalar::I64),
            "ulong" | "ulonglong" => Some(Scalar::U64),
            "float" => Some(Scalar::F32),
            "double" => Some(Scalar::F64),
            _ => None,
        };
        if let Some(element) = element {
            return Some(Type::Vector(element, n.1));
        }
    }
    vector_or_matrix_type(name)
}

/// `f32x3` and `f32x2x4`: the CUDA printer's names of vectors and matrices.
pub fn vector_or_matrix_type(name: &str) -> Option<Type> {
    let (first, rest) = name.split_once('x')?;
    let scalar = Scalar::ALL.into_iter().find(|scalar| scalar.name() == first)?;
    let size = |text: &str| text.parse::<u8>().ok().filter(|n| *n > 0 && !text.starts_with('+'));
    match rest.split_once('x') {
        None => Some(Type::Vector(scalar, size(rest)?)),
        Some((rows, columns)) => Some(Type::Matrix(scalar, size(rows)?, size(columns)?)),
    }
}

/// Integer promotion: nothing is computed in types narrower than `int`.
pub fn promoted(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Bool | Scalar::I8 | Scalar::I16 | Scalar::U8 | Scalar::U16 => Scalar::I32,
        other => other,
    }
}

/// Common type of two numbers in an arithmetic operation.
pub fn common_type(a: Scalar, b: Scalar) -> Scalar {
    let (a, b) = (promoted(a), promoted(b));
    let rank = |scalar: Scalar| match scalar {
        Scalar::F64 => 8,
        Scalar::F32 => 7,
        Scalar::BF16 => 6,
        Scalar::F16 => 5,
        Scalar::U64 => 4,
        Scalar::I64 => 3,
        Scalar::U32 => 2,
        _ => 1,
    };
    match (a, b) {
        // Neither type holds all values of the other.
        (Scalar::F16, Scalar::BF16) | (Scalar::BF16, Scalar::F16) => Scalar::F32,
        _ if rank(a) >= rank(b) => a,
        _ => b,
    }
}

/// CUDA's name of a vector type.
pub fn vector_name(scalar: Scalar, n: u8) -> String {
    let element = match scalar {
        Scalar::I8 => "char",
        Scalar::U8 => "uchar",
        Scalar::U16 => "ushort",
        Scalar::U32 => "uint",
        Scalar::I64 => "longlong",
        Scalar::U64 => "ulonglong",
        Scalar::F16 => "half",
        Scalar::BF16 => "nv_bfloat16",
        other => scalar_name(other),
    };
    format!("{element}{n}")
}

/// Name of a type in messages.
pub fn scalar_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::I8 => "signed char",
        Scalar::I16 => "short",
        Scalar::I32 => "int",
        Scalar::I64 => "long long",
        Scalar::U8 => "unsigned char",
        Scalar::U16 => "unsigned short",
        Scalar::U32 => "unsigned",
        Scalar::U64 => "unsigned long long",
        Scalar::F16 => "__half",
        Scalar::BF16 => "__nv_bfloat16",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
    }
}
