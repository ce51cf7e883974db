//! Identifiers in generated source: kept unless they are reserved in C++ or used by the generated
//! source itself. Also declares composite types.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::OnceLock;

use bornite_ir::{Code, Kernel, LocalArrayId, Op, ParamId, Scalar, SharedId, StructId, Type, View};

use super::syntax::c_type;

/// Reserved words in CUDA C++ and C++: keywords, names that CUDA and the C library declare, names
/// that generated source uses.
const TAKEN: &str = " alignas alignof and and_eq asm auto bitand bitor blockDim blockIdx bool break case catch char \
    char16_t char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr \
    constinit continue decltype default delete do double dynamic_cast else enum explicit export extern false float for \
    friend goto gridDim if index inline int linux long main mutable namespace new noexcept not not_eq nullptr operator \
    or or_eq private protected public register reinterpret_cast requires restrict return short signed sizeof static \
    static_assert static_cast std struct switch task_index template this thread_local threadIdx throw true try typedef \
    typeid typename typeof union unix unsigned using virtual void volatile warpSize wchar_t while xor xor_eq \
    NULL EOF BUFSIZ NAN INFINITY HUGE_VAL HUGE_VALF M_PI M_E FP_NAN FP_INFINITE FP_ZERO RAND_MAX stdin stdout stderr \
    FILE size_t ptrdiff_t fpos_t va_list div_t ldiv_t intptr_t uintptr_t int8_t int16_t int32_t int64_t uint8_t uint16_t \
    uint32_t uint64_t float_t double_t dim3 half nv_bfloat16 clock clock64 assert malloc free calloc realloc abort exit \
    atexit remove rename tmpfile tmpnam fopen fclose fflush printf fprintf sprintf snprintf scanf puts putchar getchar \
    gets fputs fputc fgets fread fwrite fseek ftell rewind perror getc putc ungetc setbuf setvbuf vprintf memcpy memmove \
    memset memcmp memchr strlen strcpy strncpy strcat strncat strcmp strncmp strchr strrchr strstr strtok strerror strcoll \
    strxfrm strspn strcspn strpbrk time difftime labs llabs ldiv lldiv div rand srand qsort bsearch getenv system gamma \
    lgamma tgamma j0 j1 jn y0 y1 yn logb ilogb scalbn scalbln frexp ldexp modf remquo remainder nextafter nexttoward fdim \
    nan nearbyint lrint llrint lround llround drem significand finite isinf isnan isfinite signbit norm norm3d norm4d \
    rnorm rnorm3d rnorm4d exp10 exp10f pow10 sincos sincosf sinpi cospi sincospi normcdf normcdfinv erfinv erfcinv erfcx \
    rcbrt rhypot cyl_bessel_i0 cyl_bessel_i1 umin umax llmin llmax ullmin ullmax fma fmaf fabs fabsf fmodf floorf ceilf \
    truncf rintf atomicAdd atomicSub atomicMin atomicMax atomicAnd atomicOr atomicXor atomicExch atomicCAS atomicInc \
    atomicDec ";

/// Scalar types with built-in CUDA vector types: `float2`, `uchar4`.
const VECTORS: [&str; 12] =
    ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "longlong", "ulonglong", "float", "double"];

/// Returns true if a name is reserved.
fn is_taken(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // v3 is an expression, total_3 a variable, f32x3 a type.
    let numbered = name.strip_prefix('v').is_some_and(digits) || name.rsplit_once('_').is_some_and(|(_, n)| digits(n));
    let shaped = name.split_once('x').is_some_and(|(scalar, _)| Scalar::ALL.iter().any(|s| s.name() == scalar));
    let reserved = name.starts_with("bn_") || name.starts_with("__") || name.ends_with('_');
    let vector =
        VECTORS.iter().any(|scalar| name.strip_prefix(scalar).is_some_and(|n| matches!(n, "1" | "2" | "3" | "4")));
    numbered || shaped || reserved || vector || words().contains(name)
}

/// Returns all reserved words.
fn words() -> &'static HashSet<&'static str> {
    static WORDS: OnceLock<HashSet<&'static str>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let rows = Op::ALL.iter().map(|op| op.row());
        let natives = rows.clone().filter_map(|row| row.native).flat_map(|native| [native.f32, native.f64]);
        TAKEN.split_whitespace().chain(rows.map(|row| row.name)).chain(natives).collect()
    })
}

/// Allocates unique names: unchanged if free, otherwise with appended underscores.
#[derive(Clone, Default)]
struct UniqueNames(Vec<String>);

impl UniqueNames {
    fn allocate(&mut self, name: &str) -> String {
        let mut printed = name.to_owned();
        while is_taken(name) && printed == name || self.0.contains(&printed) {
            printed.push('_');
        }
        self.0.push(printed.clone());
        printed
    }
}

/// Printed names of a kernel.
pub(super) struct Names {
    pub structs: Vec<String>,
    /// Field names of each struct.
    pub fields: Vec<Vec<String>>,
    pub functions: Vec<String>,
    /// Parameter names of each function.
    pub arguments: Vec<Vec<String>>,
    pub params: Vec<String>,
    pub values: Vec<String>,
    pub shared: Vec<String>,
    pub local_arrays: Vec<String>,
}

/// Returns the name of a kernel's function, which is allocated first.
pub(crate) fn kernel(kernel: &Kernel) -> String {
    UniqueNames::default().allocate(&kernel.name)
}

impl Names {
    pub fn new(kernel: &Kernel) -> Names {
        let mut taken = UniqueNames::default();
        taken.allocate(&kernel.name);
        let structs = kernel.structs.iter().map(|s| taken.allocate(&s.name)).collect();
        let functions = kernel.functions.iter().map(|f| taken.allocate(&f.name)).collect();
        // Inner names shadow outer ones, so they must differ from those too.
        let inside = |names: &mut dyn Iterator<Item = &String>| {
            let mut taken = taken.clone();
            names.map(|name| taken.allocate(name)).collect::<Vec<String>>()
        };
        let fields = kernel.structs.iter().map(|s| inside(&mut s.fields.iter().map(|f| &f.name))).collect();
        let arguments = kernel.functions.iter().map(|f| inside(&mut f.params.iter().map(|p| &p.name))).collect();
        let views = kernel.params.iter().map(|p| &p.name).chain(kernel.values.iter().map(|v| &v.name));
        let arrays = kernel.shared.iter().map(|s| &s.name).chain(kernel.local_arrays.iter().map(|array| &array.name));
        let mut all = inside(&mut views.chain(arrays));
        let mut rest = all.split_off(kernel.params.len());
        let mut shared = rest.split_off(kernel.values.len());
        let local_arrays = shared.split_off(kernel.shared.len());
        Names { structs, fields, functions, arguments, params: all, values: rest, shared, local_arrays }
    }

    pub fn view(&self, view: View) -> &str {
        match view {
            View::Param(ParamId(n)) => &self.params[n as usize],
            View::Shared(SharedId(n)) => &self.shared[n as usize],
            View::Local(LocalArrayId(n)) => &self.local_arrays[n as usize],
        }
    }

    /// Returns the printed name of a type.
    pub fn of_type(&self, kernel: &Kernel, ty: Type) -> String {
        match ty {
            Type::Scalar(scalar) => c_type(scalar).into(),
            Type::Struct(StructId(n)) => self.structs[n as usize].clone(),
            _ => ty.name(&kernel.structs).to_string(),
        }
    }

    /// Returns the member access of a flattened component: `.body.velocity.x`.
    pub fn component(&self, kernel: &Kernel, ty: Type, at: usize) -> String {
        let Type::Struct(StructId(n)) = ty else { return self.member(ty, at) };
        let mut rest = at;
        for (number, field) in kernel.structs[n as usize].fields.iter().enumerate() {
            let count = field.ty.component_count(&kernel.structs);
            if rest < count {
                return self.member(ty, number) + &self.component(kernel, field.ty, rest);
            }
            rest -= count;
        }
        String::new()
    }

    /// Returns the member access of a component or field: `.x`, `.m[1][0]`, `.mass`.
    pub fn member(&self, ty: Type, at: usize) -> String {
        match ty {
            Type::Scalar(_) => String::new(),
            Type::Vector(_, n) if n <= 4 => format!(".{}", ["x", "y", "z", "w"][at % 4]),
            Type::Vector(..) => format!(".v[{at}]"),
            Type::Matrix(_, _, columns) => format!(".m[{}][{}]", at / columns as usize, at % columns as usize),
            Type::Struct(StructId(n)) => format!(".{}", self.fields[n as usize][at]),
        }
    }
}

/// Prints the declarations of the vectors, matrices and structs that a kernel uses.
pub(super) fn declarations(kernel: &Kernel, names: &Names) -> String {
    let mut used: Vec<Type> = vec![];
    let mut note = |ty: Type| {
        if ty.as_scalar().is_none() && !used.contains(&ty) {
            used.push(ty);
        }
    };
    let fields = kernel.structs.iter().flat_map(|s| s.fields.iter().map(|f| f.ty));
    let views = kernel.params.iter().map(|p| p.ty).chain(kernel.shared.iter().map(|s| s.ty));
    let views = views.chain(kernel.local_arrays.iter().map(|array| array.ty));
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
        let (name, each) = (names.of_type(kernel, ty), ty.element().map_or("", c_type));
        let _ = match ty {
            Type::Vector(_, n) if n <= 4 => {
                writeln!(text, "struct {name} {{ {each} {}; }};", ["x", "y", "z", "w"][..n as usize].join(", "))
            }
            Type::Vector(_, n) => writeln!(text, "struct {name} {{ {each} v[{n}]; }};"),
            Type::Matrix(_, rows, columns) => writeln!(text, "struct {name} {{ {each} m[{rows}][{columns}]; }};"),
            Type::Scalar(_) | Type::Struct(_) => Ok(()),
        };
    }
    for (n, found) in kernel.structs.iter().enumerate() {
        let fields = found.fields.iter().zip(&names.fields[n]);
        let align = |align: u32| if align > 1 { format!("alignas({align}) ") } else { String::new() };
        let fields = fields.map(|(f, name)| format!("{}{} {name};", align(f.align), names.of_type(kernel, f.ty)));
        let _ = writeln!(text, "struct {} {{ {} }};", names.structs[n], fields.collect::<Vec<_>>().join(" "));
    }
    text
}
