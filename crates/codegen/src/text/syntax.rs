//! CUDA C++ syntax of values, primitives, conversions and atomics.

use bornite_ir::{Atomic, Builtin, IntRange, Op, PrintPiece, Scalar, Value, print_format_pieces};

use super::{Term, axis};

pub(super) fn c_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::I8 => "signed char",
        Scalar::I16 => "short",
        Scalar::I32 => "int",
        Scalar::I64 => "long long",
        Scalar::U8 => "unsigned char",
        Scalar::U32 => "unsigned",
        Scalar::U64 => "unsigned long long",
        Scalar::U16 => "unsigned short",
        // 16-bit floats are stored as bits, since they are only loaded, stored, selected and
        // converted. The type names are aliases of `unsigned short` that document the format.
        Scalar::F16 => "bn_f16",
        Scalar::BF16 => "bn_bf16",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
    }
}

pub(super) fn literal(value: Value) -> String {
    let x = value.as_f64();
    match value.scalar() {
        Scalar::Bool => (value.bits() != 0).to_string(),
        Scalar::I32 if value.as_i64() == i32::MIN as i64 => "(-2147483647 - 1)".into(),
        Scalar::I64 if value.as_i64() == i64::MIN => "(-9223372036854775807LL - 1)".into(),
        Scalar::I64 => format!("{}LL", value.as_i64()),
        Scalar::U32 => format!("{}u", value.bits()),
        Scalar::U64 => format!("{}ull", value.bits()),
        scalar @ (Scalar::F16 | Scalar::BF16) => format!("bn_{scalar}_of({:#06x})", value.bits()),
        // Shortest decimal that parses to the same float.
        Scalar::F32 if x.is_finite() => format!("{:?}f", x as f32),
        Scalar::F32 => format!("__int_as_float({:#x})", value.bits()),
        Scalar::F64 if x.is_finite() => format!("{x:?}"),
        Scalar::F64 => format!("__longlong_as_double({:#x}LL)", value.bits()),
        _ => value.as_i64().to_string(),
    }
}

/// Returns CUDA's name of a built-in variable.
pub(super) fn builtin_name(builtin: Builtin) -> String {
    let (name, along) = match builtin {
        Builtin::Thread(along) => ("threadIdx", along),
        Builtin::Block(along) => ("blockIdx", along),
        Builtin::BlockSize(along) => ("blockDim", along),
        Builtin::GridSize(along) => ("gridDim", along),
    };
    format!("{name}.{}", axis(along))
}

const WORD_64: &str = "unsigned long long";

/// Prints an atomic update. CUDA has 64-bit atomics for unsigned integers only; signed addition is
/// the same operation.
pub(super) fn atomic_call(atomic: Atomic, scalar: Scalar, element: &str, value: &str) -> String {
    let word = |function: &str, value: String| {
        format!("({})atomic{function}(({WORD_64}*)&{element}, {value})", c_type(scalar))
    };
    let plain = |function: &str, value: &str| format!("atomic{function}(&{element}, {value})");
    let wide_int = matches!(scalar, Scalar::I64 | Scalar::U64);
    match atomic {
        Atomic::Add if scalar == Scalar::I64 => word("Add", format!("({WORD_64}){value}")),
        Atomic::Add => plain("Add", value),
        Atomic::Sub if scalar.is_float() => plain("Add", &format!("-{}", parenthesize(value))),
        Atomic::Sub if wide_int => word("Add", format!("0 - ({WORD_64}){value}")),
        Atomic::Sub => plain("Sub", value),
        Atomic::Min if scalar.is_float() => format!("bn_atomic_min(&{element}, {value})"),
        Atomic::Max if scalar.is_float() => format!("bn_atomic_max(&{element}, {value})"),
        Atomic::Min => plain("Min", value),
        Atomic::Max => plain("Max", value),
        Atomic::And | Atomic::Or | Atomic::Xor => {
            let function = ["And", "Or", "Xor"][atomic as usize - Atomic::And as usize];
            if wide_int { word(function, format!("({WORD_64}){value}")) } else { plain(function, value) }
        }
        Atomic::Exchange if scalar == Scalar::I64 => word("Exch", format!("({WORD_64}){value}")),
        Atomic::Exchange if scalar == Scalar::F64 => format!("bn_exchange(&{element}, {value})"),
        Atomic::Exchange => plain("Exch", value),
    }
}

pub(super) fn compare_exchange(scalar: Scalar, element: &str, expected: &str, value: &str) -> String {
    match scalar {
        Scalar::F32 | Scalar::F64 => format!("bn_compare_exchange(&{element}, {expected}, {value})"),
        Scalar::I64 => {
            format!("(long long)atomicCAS(({WORD_64}*)&{element}, ({WORD_64}){expected}, ({WORD_64}){value})")
        }
        _ => format!("atomicCAS(&{element}, {expected}, {value})"),
    }
}

pub(super) fn call(name: &str, args: &[Term]) -> String {
    format!("{name}({})", args.iter().map(|a| a.text.as_str()).collect::<Vec<_>>().join(", "))
}

/// Prints a call of `printf` whose output matches the interpreter's.
pub(super) fn print_call(format: &str, args: &[Term]) -> String {
    let mut text = String::new();
    let mut values = String::new();
    let mut args = args.iter();
    for piece in print_format_pieces(format) {
        let (spec, arg) = match (piece, args.as_slice().first()) {
            (PrintPiece::Text(piece), _) => {
                text += &piece.replace('%', "%%");
                continue;
            }
            (PrintPiece::Value(_), None) => continue,
            (PrintPiece::Value(spec), Some(arg)) => (spec, arg),
        };
        args.next();
        let scalar = arg.scalar();
        let (usual, value) = match scalar {
            Scalar::F16 => (".9g", format!("bn_printable(bn_f16_to_f32({}))", arg.text)),
            Scalar::BF16 => (".9g", format!("bn_printable(bn_bf16_to_f32({}))", arg.text)),
            Scalar::F32 => (".9g", format!("bn_printable({})", arg.text)),
            Scalar::F64 => (".17g", format!("bn_printable({})", arg.text)),
            Scalar::I64 => ("d", arg.text.clone()),
            Scalar::U64 | Scalar::U32 => ("u", arg.text.clone()),
            _ => ("d", format!("(int){}", parenthesize(&arg.text))),
        };
        let (spec, letter) = spec.unwrap_or(usual).split_at(spec.unwrap_or(usual).len() - 1);
        let length = if matches!(scalar, Scalar::I64 | Scalar::U64) && letter != "c" { "ll" } else { "" };
        text += &format!("%{spec}{length}{letter}");
        values += ", ";
        values += &value;
    }
    format!("printf(\"{text}\\n\"{values});")
}

/// Returns the range of an op's exact result on integers, if it is known to fit their type.
pub(super) fn op_range(op: Op, args: &[Term]) -> Option<IntRange> {
    let ranges: Vec<Option<IntRange>> = args.iter().map(|arg| arg.range).collect();
    IntRange::of_op(op, args.last()?.ty.as_scalar()?, &ranges)
}

/// Prints a primitive op on compute types (and a select on any type).
pub(super) fn primitive(op: Op, args: &[Term]) -> String {
    let scalar = args[0].scalar();
    let t = |n: usize| args[n].text.as_str();
    let float = scalar.is_float();
    let ty = c_type(scalar);
    let is_64 = scalar.bytes() == 8;
    let suffix = if scalar == Scalar::F32 { "f" } else { "" };
    let unsigned = if is_64 { "unsigned long long" } else { "unsigned" };
    let plain = |sign: &str| format!("{} {sign} {}", t(0), t(1));
    // Signed overflow is undefined in C++ and wraps in the IR.
    let wrapping = |sign: &str| {
        if !scalar.is_signed() || op_range(op, args).is_some() {
            plain(sign)
        } else {
            format!("({ty})(({unsigned}){} {sign} ({unsigned}){})", t(0), t(1))
        }
    };
    let width = scalar.bytes() * 8 - 1;
    let function = |name: &str| call(&format!("{name}{suffix}"), args);
    match op {
        Op::Add if float => plain("+"),
        Op::Sub if float => plain("-"),
        Op::Mul if float => plain("*"),
        Op::Add => wrapping("+"),
        Op::Sub => wrapping("-"),
        Op::Mul => wrapping("*"),
        Op::Div if float => plain("/"),
        Op::Div | Op::Rem => {
            let safe = args[1].range.and_then(IntRange::single_value).is_some_and(|n| n != 0 && n != -1);
            match (op, safe, scalar.is_signed()) {
                (Op::Div, true, _) => plain("/"),
                (_, true, _) => plain("%"),
                (Op::Div, false, true) => call("bn_div", args),
                (_, false, true) => call("bn_rem", args),
                (Op::Div, false, false) => format!("{1} == 0 ? 0 : {0} / {1}", t(0), t(1)),
                (_, false, false) => format!("{1} == 0 ? 0 : {0} % {1}", t(0), t(1)),
            }
        }
        Op::Fmod => function("fmod"),
        Op::Neg if float => format!("-{}", parenthesize(t(0))),
        Op::Neg => format!("({ty})(0 - ({unsigned}){})", t(0)),
        Op::Abs if float => function("fabs"),
        Op::Abs if scalar.is_signed() => format!("{0} < 0 ? ({ty})(0 - ({unsigned}){0}) : {0}", t(0)),
        Op::Abs => t(0).into(),
        Op::Min => call("bn_min", args),
        Op::Max => call("bn_max", args),
        Op::And => plain("&"),
        Op::Or => plain("|"),
        Op::Xor => plain("^"),
        Op::Not if scalar == Scalar::Bool => format!("!{}", t(0)),
        Op::Not => format!("~{}", parenthesize(t(0))),
        Op::Shl => format!("({ty})(({unsigned}){} << ({} & {width}))", t(0), t(1)),
        Op::Shr => format!("{} >> ({} & {width})", t(0), t(1)),
        Op::Popcount if is_64 => format!("({ty})__popcll({})", t(0)),
        Op::Popcount => format!("({ty})__popc({})", t(0)),
        Op::LeadingZeros if is_64 => format!("({ty})__clzll({})", t(0)),
        Op::LeadingZeros => format!("({ty})__clz({})", t(0)),
        Op::Eq => plain("=="),
        Op::Ne => plain("!="),
        Op::Lt => plain("<"),
        Op::Le => plain("<="),
        Op::Gt => plain(">"),
        Op::Ge => plain(">="),
        Op::Select => format!("{} ? {} : {}", t(0), t(1), t(2)),
        Op::Fma => function("fma"),
        Op::Sqrt if scalar == Scalar::F32 => call("__fsqrt_rn", args),
        Op::Sqrt => call("__dsqrt_rn", args),
        Op::Floor => function("floor"),
        Op::Ceil => function("ceil"),
        Op::Trunc => function("trunc"),
        Op::Rint => function("rint"),
        op => unreachable!("{op:?} has a body"),
    }
}

/// Parenthesizes negative operands: `- -1.0f` must not become `--1.0f`.
pub(super) fn parenthesize(text: &str) -> String {
    if text.starts_with('-') { format!("({text})") } else { text.into() }
}

/// Prints one step of a conversion; see [`EmitBits::cast_step`].
pub(super) fn cast_step(to: Scalar, from: &Term) -> String {
    let text = &from.text;
    match (from.scalar(), to) {
        (Scalar::F16, _) => format!("bn_f16_to_f32({text})"),
        (Scalar::BF16, _) => format!("bn_bf16_to_f32({text})"),
        (_, Scalar::F16) => format!("bn_f32_to_f16({text})"),
        (_, Scalar::BF16) => format!("bn_f32_to_bf16({text})"),
        (_, Scalar::Bool) => format!("{text} != 0"),
        (Scalar::F32 | Scalar::F64, to) if to.is_int() => format!("bn_to_{to}({text})"),
        _ => format!("({}){}", c_type(to), parenthesize(text)),
    }
}

pub(super) fn bitcast(to: Scalar, from: &Term) -> String {
    let text = &from.text;
    match (from.scalar(), to) {
        (Scalar::F32, Scalar::I32) => format!("__float_as_int({text})"),
        (Scalar::F32, Scalar::U32) => format!("__float_as_uint({text})"),
        (Scalar::I32, Scalar::F32) => format!("__int_as_float({text})"),
        (Scalar::U32, Scalar::F32) => format!("__uint_as_float({text})"),
        (Scalar::F64, _) if to.is_int() => format!("({})__double_as_longlong({text})", c_type(to)),
        (_, Scalar::F64) if from.scalar().is_int() => format!("__longlong_as_double((long long){text})"),
        (from @ (Scalar::F16 | Scalar::BF16), to) if from != to => {
            let bits = Term::new(format!("bn_{from}_bits({text})"), Scalar::U16);
            if to == Scalar::U16 { bits.text } else { bitcast(to, &bits) }
        }
        (Scalar::U16, Scalar::F16 | Scalar::BF16) => format!("bn_{to}_of({text})"),
        (_, Scalar::F16 | Scalar::BF16) if from.scalar() != to => {
            format!("bn_{to}_of((unsigned short){})", parenthesize(text))
        }
        (from, to) if from != to => format!("({}){}", c_type(to), parenthesize(text)),
        _ => text.clone(),
    }
}
