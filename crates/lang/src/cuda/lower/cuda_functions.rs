//! Tables of CUDA functions: the op that each one is, and the type it computes in.

use std::sync::OnceLock;

use bornite_ir::{Op, Scalar};
use foldhash::{HashMap, HashMapExt};

/// Type that a function computes in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MathType {
    /// Always this type.
    Only(Scalar),
    /// `float` if all arguments are at most 32 bits wide, otherwise `double`.
    Overloaded,
}

/// Functions that are a single op.
pub fn op_table() -> &'static HashMap<&'static str, (Op, MathType)> {
    static ROWS: OnceLock<HashMap<&'static str, (Op, MathType)>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let mut all = HashMap::new();
        for &op in Op::ALL {
            if let Some(native) = op.row().native {
                all.insert(native.f32, (op, MathType::Only(Scalar::F32)));
                all.insert(native.f64, (op, MathType::Overloaded));
            }
        }
        let single = |op, names: &[&'static str]| {
            names.iter().map(move |name| (*name, (op, MathType::Only(Scalar::F32)))).collect::<Vec<_>>()
        };
        for (op, float, double) in [
            (Op::Abs, "fabsf", "fabs"),
            (Op::Floor, "floorf", "floor"),
            (Op::Ceil, "ceilf", "ceil"),
            (Op::Trunc, "truncf", "trunc"),
            (Op::Rint, "rintf", "rint"),
            (Op::Rint, "nearbyintf", "nearbyint"),
            (Op::Fma, "fmaf", "fma"),
            (Op::Copysign, "copysignf", "copysign"),
        ] {
            all.insert(float, (op, MathType::Only(Scalar::F32)));
            all.insert(double, (op, MathType::Overloaded));
        }
        all.extend(single(Op::Sqrt, &["__fsqrt_rn"]));
        all.extend(single(Op::Rsqrt, &["__frsqrt_rn"]));
        all.extend(single(Op::Exp, &["__expf"]));
        all.extend(single(Op::Log, &["__logf"]));
        all.extend(single(Op::Log2, &["__log2f"]));
        all.extend(single(Op::Log10, &["__log10f"]));
        all.extend(single(Op::Sin, &["__sinf"]));
        all.extend(single(Op::Cos, &["__cosf"]));
        all.extend(single(Op::Tan, &["__tanf"]));
        all.extend(single(Op::Pow, &["__powf"]));
        all.extend(single(Op::Add, &["__fadd_rn"]));
        all.extend(single(Op::Sub, &["__fsub_rn"]));
        all.extend(single(Op::Mul, &["__fmul_rn"]));
        all.extend(single(Op::Div, &["__fdiv_rn", "__fdividef"]));
        all.extend(single(Op::Fma, &["__fmaf_rn"]));
        for (op, name) in [
            (Op::Sqrt, "__dsqrt_rn"),
            (Op::Add, "__dadd_rn"),
            (Op::Sub, "__dsub_rn"),
            (Op::Mul, "__dmul_rn"),
            (Op::Div, "__ddiv_rn"),
            (Op::Fma, "__fma_rn"),
        ] {
            all.insert(name, (op, MathType::Only(Scalar::F64)));
        }
        all
    })
}

/// Functions on 16-bit floats that are a single op.
pub fn half_op(name: &str) -> Option<Op> {
    Some(match name {
        "__hadd" => Op::Add,
        "__hsub" => Op::Sub,
        "__hmul" => Op::Mul,
        "__hdiv" => Op::Div,
        "__hfma" => Op::Fma,
        "__hneg" => Op::Neg,
        "__habs" => Op::Abs,
        "__hmin" => Op::Fmin,
        "__hmax" => Op::Fmax,
        "__hlt" => Op::Lt,
        "__hle" => Op::Le,
        "__hgt" => Op::Gt,
        "__hge" => Op::Ge,
        "__heq" => Op::Eq,
        "hexp" => Op::Exp,
        "hlog" => Op::Log,
        "hsqrt" => Op::Sqrt,
        "hrsqrt" => Op::Rsqrt,
        "hsin" => Op::Sin,
        "hcos" => Op::Cos,
        "hfloor" => Op::Floor,
        "hceil" => Op::Ceil,
        _ => return None,
    })
}

/// Conversion functions: source type, target type, and the op that rounds a float first.
pub fn conversion_function(name: &str) -> Option<(Scalar, Scalar, Option<Op>)> {
    let direct = match name {
        "__half2float" => Some((Scalar::F16, Scalar::F32)),
        "__float2half" | "__float2half_rn" => Some((Scalar::F32, Scalar::F16)),
        "__bfloat162float" => Some((Scalar::BF16, Scalar::F32)),
        "__float2bfloat16" | "__float2bfloat16_rn" => Some((Scalar::F32, Scalar::BF16)),
        "__double2float_rn" => Some((Scalar::F64, Scalar::F32)),
        "__double2half" => Some((Scalar::F64, Scalar::F16)),
        _ => None,
    };
    if let Some((from, to)) = direct {
        return Some((from, to, None));
    }
    let (from, rest) = name.strip_prefix("__")?.split_once('2')?;
    let (to, rounding) = rest.rsplit_once('_')?;
    let scalar = |text: &str| {
        Some(match text {
            "float" => Scalar::F32,
            "double" => Scalar::F64,
            "half" => Scalar::F16,
            "int" => Scalar::I32,
            "uint" => Scalar::U32,
            "ll" => Scalar::I64,
            "ull" => Scalar::U64,
            _ => return None,
        })
    };
    let (from, to) = (scalar(from)?, scalar(to)?);
    let first = match rounding {
        "rn" if from.is_float() && to.is_int() => Some(Op::Rint),
        "rd" if from.is_float() && to.is_int() => Some(Op::Floor),
        "ru" if from.is_float() && to.is_int() => Some(Op::Ceil),
        "rz" if from.is_float() && to.is_int() => None,
        "rn" => None,
        _ => return None,
    };
    Some((from, to, first))
}

pub fn bit_cast_function(name: &str) -> Option<(Scalar, Scalar)> {
    Some(match name {
        "__float_as_int" => (Scalar::F32, Scalar::I32),
        "__float_as_uint" => (Scalar::F32, Scalar::U32),
        "__int_as_float" => (Scalar::I32, Scalar::F32),
        "__uint_as_float" => (Scalar::U32, Scalar::F32),
        "__double_as_longlong" => (Scalar::F64, Scalar::I64),
        "__longlong_as_double" => (Scalar::I64, Scalar::F64),
        "__half_as_ushort" => (Scalar::F16, Scalar::U16),
        "__ushort_as_half" => (Scalar::U16, Scalar::F16),
        "__half_as_short" => (Scalar::F16, Scalar::I16),
        "__short_as_half" => (Scalar::I16, Scalar::F16),
        _ => return None,
    })
}

/// True for `is_same`, `is_same_v` and the other type traits that are supported.
pub fn is_type_trait(name: &str) -> bool {
    let name = name.strip_suffix("_v").unwrap_or(name);
    ["is_same", "is_floating_point", "is_integral", "is_signed", "is_unsigned", "is_pointer"].contains(&name)
}

/// Returns true if a function has no side effects.
pub fn is_math(name: &str) -> bool {
    let is_printer_math = name.strip_prefix("bn_").is_some_and(|rest| {
        !rest.starts_with("load")
            && !rest.starts_with("store")
            && !rest.contains("exchange")
            && !rest.starts_with("atomic")
    });
    is_printer_math
        || op_table().contains_key(name)
        || half_op(name).is_some()
        || conversion_function(name).is_some()
        || bit_cast_function(name).is_some()
        || super::math::COMPOSITE_FUNCTIONS.iter().any(|(found, _)| *found == name)
        || name.starts_with("make_")
        || is_type_trait(name)
        || matches!(
            name,
            "min"
                | "max"
                | "umin"
                | "umax"
                | "llmin"
                | "llmax"
                | "abs"
                | "labs"
                | "llabs"
                | "isnan"
                | "isinf"
                | "isfinite"
                | "signbit"
                | "__saturatef"
                | "__popc"
                | "__popcll"
                | "__clz"
                | "__clzll"
                | "__ffs"
                | "__ffsll"
                | "__frcp_rn"
                | "__drcp_rn"
                | "exp10f"
                | "__exp10f"
                | "numeric_limits"
                | "exp10"
                | "clamp"
        )
}
