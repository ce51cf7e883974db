//! Declarations that the kept text needs of headers. NVRTC has no C and C++ headers: for it, the
//! names that the text uses are declared; other compilers include the headers.

use super::needed::Needed;
use super::units::Units;
use crate::cuda::CudaModule;
use crate::cuda::lex::TokenKind;
use crate::cuda::preprocess::{PreprocessorOptions, TraceKind};

/// Types of C headers: name, definition, header.
const TYPES: &[(&str, &str, &str)] = &[
    ("int8_t", "signed char", "stdint.h"),
    ("int16_t", "short", "stdint.h"),
    ("int32_t", "int", "stdint.h"),
    ("int64_t", "long", "stdint.h"),
    ("uint8_t", "unsigned char", "stdint.h"),
    ("uint16_t", "unsigned short", "stdint.h"),
    ("uint32_t", "unsigned int", "stdint.h"),
    ("uint64_t", "unsigned long", "stdint.h"),
    ("intptr_t", "long", "stdint.h"),
    ("uintptr_t", "unsigned long", "stdint.h"),
    ("uint", "unsigned int", "sys/types.h"),
    ("ushort", "unsigned short", "sys/types.h"),
    ("ulong", "unsigned long", "sys/types.h"),
    ("u_char", "unsigned char", "sys/types.h"),
    ("ssize_t", "long", "sys/types.h"),
    ("ptrdiff_t", "long", "stddef.h"),
];

/// Macros of C headers: name, value, header.
const MACROS: &[(&str, &str, &str)] = &[
    ("FLT_MAX", "3.402823466e+38f", "float.h"),
    ("FLT_MIN", "1.175494351e-38f", "float.h"),
    ("FLT_EPSILON", "1.192092896e-07f", "float.h"),
    ("DBL_MAX", "1.7976931348623158e+308", "float.h"),
    ("DBL_MIN", "2.2250738585072014e-308", "float.h"),
    ("DBL_EPSILON", "2.2204460492503131e-16", "float.h"),
    ("CHAR_BIT", "8", "limits.h"),
    ("CHAR_MAX", "127", "limits.h"),
    ("UCHAR_MAX", "255", "limits.h"),
    ("SHRT_MAX", "32767", "limits.h"),
    ("SHRT_MIN", "(-32768)", "limits.h"),
    ("USHRT_MAX", "65535", "limits.h"),
    ("INT_MAX", "2147483647", "limits.h"),
    ("INT_MIN", "(-2147483647 - 1)", "limits.h"),
    ("UINT_MAX", "4294967295u", "limits.h"),
    ("LONG_MAX", "9223372036854775807l", "limits.h"),
    ("LONG_MIN", "(-9223372036854775807l - 1)", "limits.h"),
    ("ULONG_MAX", "18446744073709551615ul", "limits.h"),
    ("LLONG_MAX", "9223372036854775807ll", "limits.h"),
    ("LLONG_MIN", "(-9223372036854775807ll - 1)", "limits.h"),
    ("ULLONG_MAX", "18446744073709551615ull", "limits.h"),
    ("INT32_MAX", "2147483647", "stdint.h"),
    ("INT32_MIN", "(-2147483647 - 1)", "stdint.h"),
    ("UINT32_MAX", "4294967295u", "stdint.h"),
    ("INT64_MAX", "9223372036854775807l", "stdint.h"),
    ("UINT64_MAX", "18446744073709551615ul", "stdint.h"),
    ("UINT16_MAX", "65535", "stdint.h"),
    ("UINT8_MAX", "255", "stdint.h"),
    ("INT32_C(c)", "c", "stdint.h"),
    ("UINT32_C(c)", "c##u", "stdint.h"),
    ("INT64_C(c)", "c##l", "stdint.h"),
    ("UINT64_C(c)", "c##ul", "stdint.h"),
    ("INFINITY", "__int_as_float(0x7f800000)", "math.h"),
    ("NAN", "__int_as_float(0x7fffffff)", "math.h"),
    ("HUGE_VALF", "__int_as_float(0x7f800000)", "math.h"),
    ("HUGE_VAL", "__longlong_as_double(0x7ff0000000000000ll)", "math.h"),
    ("M_E", "2.7182818284590452354", "math.h"),
    ("M_LOG2E", "1.4426950408889634074", "math.h"),
    ("M_LOG10E", "0.43429448190325182765", "math.h"),
    ("M_LN2", "0.69314718055994530942", "math.h"),
    ("M_LN10", "2.30258509299404568402", "math.h"),
    ("M_PI", "3.14159265358979323846", "math.h"),
    ("M_PI_2", "1.57079632679489661923", "math.h"),
    ("M_PI_4", "0.78539816339744830962", "math.h"),
    ("M_1_PI", "0.31830988618379067154", "math.h"),
    ("M_2_PI", "0.63661977236758134308", "math.h"),
    ("M_2_SQRTPI", "1.12837916709551257390", "math.h"),
    ("M_SQRT2", "1.41421356237309504880", "math.h"),
    ("M_SQRT1_2", "0.70710678118654752440", "math.h"),
];

/// Functions that NVRTC declares, with the headers of other compilers.
const FUNCTIONS: &[(&str, &str)] = &[
    ("assert", "assert.h"),
    ("printf", "stdio.h"),
    ("memcpy", "string.h"),
    ("memset", "string.h"),
    ("malloc", "stdlib.h"),
];

/// Functions and types of CUDA that may be written with `std::`.
const STD_NAMES: &[&str] = &[
    "abs",
    "fabs",
    "min",
    "max",
    "fmin",
    "fmax",
    "sqrt",
    "cbrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "pow",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "floor",
    "ceil",
    "round",
    "trunc",
    "fmod",
    "hypot",
    "fma",
    "erf",
    "erfc",
    "tgamma",
    "lgamma",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
    "copysign",
    "size_t",
    "ptrdiff_t",
];

/// Headers of C++ that kernels may use, if they use `std`.
const CPP_HEADERS: &[&str] =
    &["limits", "type_traits", "utility", "algorithm", "functional", "tuple", "array", "cmath", "complex"];

/// Headers of CUDA, and how names of theirs begin.
const CUDA_HEADERS: &[(&str, &[&str])] = &[
    (
        "cuda_fp16.h",
        &[
            "half",
            "__half",
            "__float2half",
            "__hadd",
            "__hmul",
            "__hsub",
            "__hfma",
            "__hdiv",
            "__hmax",
            "__hmin",
            "hexp",
            "h2",
        ],
    ),
    ("cuda_bf16.h", &["__nv_bfloat", "nv_bfloat", "__bfloat", "__float2bfloat"]),
    ("cuda_fp8.h", &["__nv_fp8", "__nv_cvt"]),
    ("cuda_pipeline.h", &["__pipeline"]),
    ("math_constants.h", &["CUDART_"]),
    ("cooperative_groups", &["cooperative_groups"]),
    ("mma.h", &["nvcuda", "wmma"]),
    ("curand", &["curand"]),
    ("cuComplex.h", &["cuComplex", "cuDoubleComplex", "cuFloatComplex", "make_cu", "cuC"]),
    ("cub/", &["cub"]),
    ("thrust/", &["thrust"]),
    ("cuda/", &["cuda"]),
];

/// Declarations before the kept text.
pub fn prologue(module: &CudaModule, units: &Units, needed: &Needed, options: &PreprocessorOptions) -> String {
    let uses = |name: &str| needed.mentions(name) && !needed.declares(name);
    let (mut nvrtc, mut headers): (Vec<String>, Vec<&str>) = (vec![], vec![]);
    for (name, ty, header) in TYPES.iter().filter(|(name, ..)| uses(name)) {
        nvrtc.push(format!("typedef {ty} {name};"));
        headers.push(header);
    }
    for (name, value, header) in MACROS.iter().filter(|(name, ..)| uses(name.trim_end_matches("(c)"))) {
        nvrtc.push(format!("#define {name} {value}"));
        headers.push(header);
    }
    if needed.mentions("std") {
        let types = TYPES.iter().filter(|(name, _, header)| *header == "stdint.h" && uses(name));
        let names = STD_NAMES.iter().copied().filter(|name| needed.mentions(name)).chain(types.map(|(name, ..)| *name));
        let names: Vec<String> = names.map(|name| format!("using ::{name};")).collect();
        if !names.is_empty() {
            nvrtc.push(format!("namespace std {{ {} }}", names.join(" ")));
            headers.extend(["algorithm", "cmath", "cstdint"]);
        }
    }
    headers.extend(FUNCTIONS.iter().filter(|(name, _)| uses(name)).map(|(_, header)| header));
    let included: Vec<String> = system_headers(module, units);
    if needed.mentions("std") {
        headers.extend(CPP_HEADERS.iter().filter(|header| included.iter().any(|name| name == *header)));
    }
    headers.sort_unstable();
    headers.dedup();
    let mut out = String::new();
    for define in &options.defines {
        let (name, value) = define.split_once('=').unwrap_or((define, "1"));
        if needed.mentions(name.split('(').next().unwrap_or(name)) {
            out += &format!("#define {name} {value} // -D\n");
        }
    }
    let includes = |names: &[&str]| names.iter().map(|name| format!("#include <{name}>\n")).collect::<String>();
    match (nvrtc.is_empty(), headers.is_empty()) {
        (true, true) => {}
        (true, false) => out += &format!("#ifndef __CUDACC_RTC__\n{}#endif\n", includes(&headers)),
        _ => {
            out += "#ifdef __CUDACC_RTC__ // NVRTC has no C headers\n";
            nvrtc.iter().for_each(|line| out += &format!("{line}\n"));
            out += &format!("#else\n{}#endif\n", includes(&headers));
        }
    }
    let mentioned: Vec<&str> = needed.mentioned().collect();
    for name in &included {
        let found = CUDA_HEADERS.iter().find(|(header, _)| name.starts_with(header));
        let is_used = found.is_some_and(|(_, prefixes)| {
            mentioned.iter().any(|used| prefixes.iter().any(|prefix| used.starts_with(prefix)))
        });
        if is_used {
            out += &includes(&[name]);
        }
    }
    if out.is_empty() { out } else { out + "\n" }
}

/// Names of the included headers that are not inlined, in order.
fn system_headers(module: &CudaModule, units: &Units) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for (n, element) in units.elements.iter().enumerate() {
        let is_inlined = units.elements.get(n + 1).is_some_and(|next| matches!(next.kind, TraceKind::Enter(_)));
        if element.kind != TraceKind::Directive(true) || element.word != "include" || is_inlined {
            continue;
        }
        let line = &units.raw[element.raw.clone()];
        let name = match line {
            [_, _, open, .., close] if open.kind == TokenKind::Reserved("<") => {
                module.source.text[open.span.end as usize..close.span.start as usize].trim()
            }
            [_, _, name, ..] => module.source.text_of(name.span).trim_matches('"'),
            _ => continue,
        };
        if !out.iter().any(|known| known == name) {
            out.push(name.to_owned());
        }
    }
    out
}
