//! Names in printed text: kept, but for those that C++ or the text itself has taken; and how composite types are declared.

use std::fmt::Write;

use bornite_ir::{Code, Kernel, Op, Scalar, StructId, Type};

use super::spell::c_type;

/// Words that cannot be names in CUDA C++ text, or that the printed text uses itself.
const TAKEN: &str = " alignas alignof and and_eq asm auto bitand bitor blockDim blockIdx bool break case catch char \
    char16_t char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr \
    constinit continue decltype default delete do double dynamic_cast else enum explicit export extern false float for \
    friend goto gridDim if index inline int long main memcpy mutable namespace new noexcept not not_eq nullptr operator \
    or or_eq printf private protected public register reinterpret_cast requires restrict return short signed sizeof \
    static static_assert static_cast std struct switch task_index template this thread_local threadIdx throw true try \
    typedef typeid typename uint2 uint4 union unsigned using virtual void volatile warpSize wchar_t while xor xor_eq \
    fma fmaf fabs fabsf fmodf floorf ceilf truncf rintf atomicAdd atomicSub atomicMin atomicMax atomicAnd atomicOr \
    atomicXor atomicExch atomicCAS ";

/// A name as it is printed: kept, but for an underscore after words that are taken (and after names that end in one,
/// so that different names stay different).
pub(crate) fn printed(name: &str) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // v3 is an expression, total_3 a variable, f32x3 a type.
    let numbered = name.strip_prefix('v').is_some_and(digits) || name.rsplit_once('_').is_some_and(|(_, n)| digits(n));
    let shaped = name.split_once('x').is_some_and(|(scalar, _)| Scalar::ALL.iter().any(|s| s.name() == scalar));
    let reserved = name.starts_with("bn_") || name.starts_with("__") || name.ends_with('_');
    let function = Op::ALL.iter().any(|op| {
        let row = op.row();
        row.name == name || row.native.is_some_and(|native| native.f32 == name || native.f64 == name)
    });
    let taken = TAKEN.contains(&format!(" {name} "));
    if numbered || shaped || reserved || function || taken { format!("{name}_") } else { name.into() }
}

/// The name of a kernel's function.
pub(crate) fn kernel(kernel: &Kernel) -> String {
    other(kernel, &kernel.name)
}

/// A name that is not a struct's: it gives way to one.
pub(super) fn other(kernel: &Kernel, name: &str) -> String {
    if kernel.structs.iter().any(|s| s.name == name) && !name.ends_with('_') {
        return format!("{name}_");
    }
    printed(name)
}

/// A view, value or parameter: it gives way to structs and functions.
pub(super) fn variable(kernel: &Kernel, name: &str) -> String {
    let function = kernel.functions.iter().any(|f| f.name == name) || kernel.name == name;
    if function && !name.ends_with('_') { format!("{name}_") } else { other(kernel, name) }
}

/// A type as it is printed.
pub(super) fn type_name(kernel: &Kernel, ty: Type) -> String {
    match ty {
        Type::Scalar(scalar) => c_type(scalar).into(),
        Type::Struct(StructId(n)) => printed(&kernel.structs[n as usize].name),
        _ => ty.name(&kernel.structs).to_string(),
    }
}

/// How a component or field is reached: `.x`, `.m[1][0]`, `.mass`.
pub(super) fn member(kernel: &Kernel, ty: Type, at: usize) -> String {
    match ty {
        Type::Scalar(_) => String::new(),
        Type::Vector(_, n) if n <= 4 => format!(".{}", ["x", "y", "z", "w"][at % 4]),
        Type::Vector(..) => format!(".v[{at}]"),
        Type::Matrix(_, _, columns) => format!(".m[{}][{}]", at / columns as usize, at % columns as usize),
        Type::Struct(StructId(n)) => format!(".{}", printed(&kernel.structs[n as usize].fields[at].name)),
    }
}

/// Declarations of the vectors, matrices and structs that a kernel uses.
pub(super) fn declarations(kernel: &Kernel) -> String {
    let mut used: Vec<Type> = vec![];
    let mut note = |ty: Type| {
        if ty.as_scalar().is_none() && !used.contains(&ty) {
            used.push(ty);
        }
    };
    let fields = kernel.structs.iter().flat_map(|s| s.fields.iter().map(|f| f.ty));
    let views = kernel.params.iter().map(|p| p.ty).chain(kernel.shared.iter().map(|s| s.ty));
    fields.chain(views).chain(kernel.values.iter().map(|v| v.ty)).for_each(&mut note);
    let mut note_code = |code: &Code| {
        code.types.iter().copied().chain(code.locals.iter().map(|local| local.ty)).for_each(&mut note);
    };
    for function in &kernel.functions {
        note_code(&function.code);
        note_code(&Code { types: function.params.iter().map(|p| p.ty).collect(), ..Code::default() });
    }
    note_code(&kernel.code);
    let mut text = String::new();
    for ty in used {
        let (name, each) = (type_name(kernel, ty), ty.element().map_or("", c_type));
        let _ = match ty {
            Type::Vector(_, n) if n <= 4 => {
                writeln!(text, "struct {name} {{ {each} {}; }};", ["x", "y", "z", "w"][..n as usize].join(", "))
            }
            Type::Vector(_, n) => writeln!(text, "struct {name} {{ {each} v[{n}]; }};"),
            Type::Matrix(_, rows, columns) => writeln!(text, "struct {name} {{ {each} m[{rows}][{columns}]; }};"),
            Type::Scalar(_) | Type::Struct(_) => Ok(()),
        };
    }
    for found in &kernel.structs {
        let fields = found.fields.iter().map(|f| format!("{} {};", type_name(kernel, f.ty), printed(&f.name)));
        let _ = writeln!(text, "struct {} {{ {} }};", printed(&found.name), fields.collect::<Vec<_>>().join(" "));
    }
    text
}
