//! Programs that C++ accepts or rejects by its rules of const, narrowing and layout: this front end
//! and g++ agree.

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use std::process::Command;

use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;
use suite::{Outcome, gpp};

suite! {
    const_and_narrowing_match_gpp,
    struct_layouts_match_gpp,
    random_struct_layouts_match_gpp,
}

/// Definitions of CUDA's types and functions for g++.
const CUDA: &str = "#define __global__\n#define __device__\n#define __shared__\n#define __align__(n) alignas(n)
struct alignas(8) float2 { float x, y; };\nstruct float3 { float x, y, z; };\nstruct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };\nstruct uint3 { unsigned x, y, z; };\nextern const uint3 threadIdx;
inline int atomicAdd(int* p, int v) { return *p += v; }\n";

const STRUCTS: &str =
    "struct S { int a; int b[2]; };\nstruct C { const int a; int b; };\nstruct D { C c; };\ntypedef const int cint;
__device__ void by_reference(int& v) { v = 1; }\n__device__ int by_const_reference(const int& v) { return v; }
__device__ void by_pointer(int* v) { v[0] = 1; }\n__device__ int by_const_pointer(const int* v) { return v[0]; }
template <class T> __device__ T first(const T* v) { return v[0]; }
template <class T> __device__ int read(T& v) { return v; }\n";

/// Kernel bodies, and whether C++ accepts them.
const BODIES: &[(bool, &[&str])] = &[
    (
        true,
        &[
            "const int a = n; x[0] = a;",
            "const int a = n; const int* p = &a; x[0] = *p + by_const_pointer(&a) + by_const_reference(a);",
            "const int a = n; int b = a; b++; x[0] = b;",
            "{ const int a = n; x[0] = a; } { int a = 0; a++; x[1] = a; }",
            "const int a[2] = {n, n}; x[0] = a[n & 1];",
            "const int& r = n; x[0] = r;",
            "const int* p = x; p++; x[0] = *p;",
            "int* const p = x; p[0] = 1;",
            "const int* p = x; int* q = (int*)p; q[0] = 1;",
            "const S s = {1, {2, 3}}; x[0] = s.a + s.b[1];",
            "C c = {1, 2}; c.b = 3; x[0] = c.a + c.b;",
            "auto p = y; x[0] = p[1]; p++; x[1] = *p;",
            "const auto p = x; p[0] = 1;",
            "const int* p = x; x[0] = first(p) + read(p[1]);",
            "static const int a = 3; static constexpr int b[2] = {4, 5}; x[0] = a + b[n & 1];",
            "static const int a = 3; const int* p = &a; x[0] = *p;",
            "int a{3}; float b{3}; float c{1.1}; double e{f}; long long g{n}; x[0] = a + b + c + e + g;",
            "char a{100}; unsigned char b{255}; bool c{1}; bool g{0}; x[0] = a + b + c + g;",
            "unsigned a{5}; int b{1ll}; float c{16777216}; x[0] = a + b + c;",
            "float4 a = {1.0, 2.0, 3.0, 4.0}; float4 b{f, 1, 2, f}; x[0] = a.x + b.w;",
            "int a[2] = {1, n}; float b[2][2] = {{1, 2}, {3.5, 4}}; x[0] = a[n & 1] + b[1][0];",
            "auto a = float{f}; auto b = int(d); x[0] = a + b + (int)d; S s = {(int)u, {n}}; x[1] = s.a;",
            "int a = 3.5; float b = d; char c = n; unsigned e = -1; x[0] = a + b + c + e;",
        ],
    ),
    (
        false,
        &[
            "const int a = 1; a = 2; x[0] = a;",
            "const int a = n; a += 2; x[0] = a;",
            "const int a = n; a++; x[0] = a;",
            "const int a = n; --a; x[0] = a;",
            "const int a; x[0] = a;",
            "cint a = n; a = 2; x[0] = a;",
            "constexpr int a = 1; a = 2; x[0] = a;",
            "const auto a = n; a = 2; x[0] = a;",
            "for (const int i = 0; i < 3; i++) x[i] = 1;",
            "const int a[2] = {n, n}; a[0] = 2; x[0] = a[0];",
            "const int a[2] = {1, 2}; a[0] = 2; x[0] = a[0];",
            "const int a[2][2] = {{1, 2}, {n, n}}; a[0][1] = 2; x[0] = a[0][1];",
            "const int& r = n; r = 2; x[0] = r;",
            "int m = n; const int& r = m; r++; x[0] = r;",
            "const int& r = x[0]; r = 2;",
            "const int a = n; int* p = &a; x[0] = *p;",
            "const int a = n; int& r = a; x[0] = r;",
            "const int a = n; by_reference(a); x[0] = a;",
            "const int a = n; by_pointer(&a); x[0] = a;",
            "const int a[2] = {n, n}; by_pointer(a); x[0] = a[0];",
            "const int* p = x; int* q = p; x[0] = *q;",
            "const int* p = x; int* q = x; q = p; x[0] = *q;",
            "const int* p = x; *p = 1;",
            "const int* p = x; p[0]++;",
            "const int* p = x + 1; p[0] = 1;",
            "const int* p = &x[1]; (*p) += 1;",
            "const int* p = x; by_pointer(p);",
            "const int* p = x; atomicAdd(p, 1);",
            "__shared__ int t[4]; const int* p = t; p[1] = 1; x[0] = t[1];",
            "__shared__ int t[4]; const int* p = t; atomicAdd(&p[1], 1); x[0] = t[1];",
            "int* const p = x; p++; x[0] = *p;",
            "int* const p = x; p = x + 1; x[0] = *p;",
            "const auto p = x; p += 1; x[0] = *p;",
            "y[0] = 1;",
            "const S s = {1, {2, 3}}; s.a = 3; x[0] = s.a;",
            "const S s = {1, {2, 3}}; s.b[1] = 3; x[0] = s.b[1];",
            "C c = {1, 2}; c.a = 3; x[0] = c.a;",
            "C c = {1, 2}; C e = {3, 4}; c = e; x[0] = c.a;",
            "D c = {{1, 2}}; D e = {{3, 4}}; c = e; x[0] = c.c.a;",
            "const int* p = n > 1 ? x : x + 1; *p = 1;",
            "const S* p = all; p->a = 1; x[0] = p->a;",
            "k = 1; x[0] = k;",
            "k++; x[0] = k;",
            "const float4 v = {1, 2, 3, 4}; v.x = 2; x[0] = v.x;",
            "threadIdx.x = 1;",
            "int a{3.5}; x[0] = a;",
            "int a = {3.5}; x[0] = a;",
            "int a{3.0}; x[0] = a;",
            "int a{f}; x[0] = a;",
            "int a{u}; x[0] = a;",
            "int a{threadIdx.x}; x[0] = a;",
            "unsigned a{n}; x[0] = a;",
            "unsigned a{-1}; x[0] = a;",
            "float a{n}; x[0] = a;",
            "float a{d}; x[0] = a;",
            "float a{1e40}; x[0] = a;",
            "float a{16777217}; x[0] = a;",
            "double a{wide}; x[0] = a;",
            "char a{300}; x[0] = a;",
            "signed char a{n}; x[0] = a;",
            "bool a{2}; x[0] = a;",
            "bool a{n}; x[0] = a;",
            "int a{wide}; x[0] = a;",
            "int a{1ll << 40}; x[0] = a;",
            "float4 a{n, n, n, n}; x[0] = a.x;",
            "int2 a = {f, 1}; x[0] = a.x;",
            "int a[2] = {1, 2.5}; x[0] = a[n];",
            "const int a[2] = {1, 2.5}; x[0] = a[n & 1];",
            "float a[2][2] = {{1, 2}, {d, 4}}; x[0] = a[0][0];",
            "auto a = float{d}; x[0] = a;",
            "auto a = int{3.5}; x[0] = a;",
            "S s = {1, {2, f}}; x[0] = s.b[1];",
            "S s = {1, 2, f}; x[0] = s.b[1];",
            "S s; s = {f, {2, 3}}; x[0] = s.a;",
        ],
    ),
];

/// Structs, their size in bytes in C++, and a part of the error where the layout is not supported.
const LAYOUTS: &[(&str, usize, Option<&str>)] = &[
    ("struct L { char a; int b; };", 8, None),
    ("struct L { float4 a; float2 b; float2 c; };", 32, None),
    ("struct L { float3 a; float b; float4 c; };", 32, None),
    ("struct L { char a; float3 b; };", 16, None),
    ("struct alignas(16) L { float a[4]; };", 16, None),
    ("struct __align__(8) L { float a, b; };", 8, None),
    ("struct I { float2 a; };\nstruct L { I a; int b, c; };", 16, None),
    ("#pragma pack(push, 1)\nstruct H { char a; int b; };\n#pragma pack(pop)\nstruct L { char a; int b; };", 8, None),
    ("#pragma pack(4)\nstruct L { char a; int b; };", 8, None),
    ("#pragma pack(1)\nstruct L { char a, b; };", 2, None),
    ("struct L { int a; [[maybe_unused]] int b; } __attribute__((unused));", 8, None),
    ("#pragma pack(1)\nstruct L { char a; int b; };", 5, Some("'#pragma pack(1)'")),
    ("#pragma pack(push, 2)\nstruct L { char a; int b; };", 6, Some("'#pragma pack(2)'")),
    ("struct L { char a; alignas(8) int b; };", 16, None),
    ("struct L { alignas(16) float a, b; };", 32, None),
    ("struct alignas(16) L { float a, b; };", 16, None),
    ("struct alignas(16) I { float a[4]; };\nstruct L { int a; I b; };", 32, None),
    ("struct L { float a; float2 b; };", 16, None),
    ("struct L { float a; float4 b; char c; };", 48, None),
    ("struct L { float a; float b[2]; };", 12, None),
    ("struct I { char a; float2 b; };\nstruct L { char a; I b; };", 24, None),
    ("template <class T> struct P { char a; T b; };\nusing L = P<float2>;", 16, None),
    ("struct f32x2 { float x, y; };\nstruct L { float a; f32x2 b; };", 12, None),
    ("struct L { alignas(512) int a; };", 512, Some("an alignment of 512")),
    ("struct L { char a; int b; } __attribute__((packed));", 5, Some("'__attribute__((packed))'")),
    ("struct __attribute__((packed)) L { char a; int b; };", 5, Some("'__attribute__((packed))'")),
    ("struct __attribute__((aligned(16))) L { int b; };", 16, Some("'__attribute__((aligned(16)))'")),
    ("struct L { char a; int b __attribute__((packed)); };", 5, Some("'__attribute__((packed))'")),
    ("struct [[gnu::packed]] L { char a; int b; };", 5, Some("'[[gnu::packed]]'")),
];

fn kernel(body: &str) -> String {
    format!(
        "{STRUCTS}__global__ void kernel(int* x, const float* y, S* all, int n, unsigned u, double d, float f, long long wide,
             const int k) {{ {body} }}\n"
    )
}

/// Errors of the front end; `None` if it accepts the text.
fn errors_of(text: &str) -> Option<String> {
    let mut request = LaunchRequest::new([1; 3], [4, 1, 1]);
    request.default_length = Some(64);
    let kernel_ir = CudaModule::parse("k.cu", text).and_then(|module| module.kernel("kernel", &request).map(|_| ()));
    kernel_ir.err().map(|errors| errors.to_string())
}

/// Returns true if g++ accepts a text.
fn compiles(name: &str, text: &str) -> bool {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("accepted");
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join(format!("{name}.cpp"));
    std::fs::write(&source, format!("{CUDA}{text}")).unwrap();
    let flags = ["-std=c++17", "-fsyntax-only", "-Werror=narrowing"];
    Command::new("g++").args(flags).arg(&source).output().unwrap().status.success()
}

fn const_and_narrowing_match_gpp() -> Outcome {
    let mut wrong = String::new();
    for (accepted, bodies) in BODIES {
        for body in *bodies {
            let found = errors_of(&kernel(body));
            if found.is_none() != *accepted {
                wrong += &format!("{body}\n{}\n", found.unwrap_or("accepted".into()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // All valid bodies in one file, invalid ones one by one.
    let right: String = BODIES[0].1.iter().map(|body| format!("{{ {body} }}\n")).collect();
    gpp()?;
    assert!(compiles("right", &kernel(&right)), "g++ rejects a body that should be valid");
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    for body in BODIES[1].1.iter().step_by(if full { 1 } else { 4 }) {
        assert!(!compiles("wrong", &kernel(body)), "g++ accepts: {body}");
    }
    Ok(())
}

fn struct_layouts_match_gpp() -> Outcome {
    let mut all = String::new();
    for (n, (text, bytes, expected)) in LAYOUTS.iter().enumerate() {
        all += &format!("namespace n{n} {{\n{text}\n#pragma pack()\nstatic_assert(sizeof(L) == {bytes});\n}}\n");
        let kernel = format!("{text}\n__global__ void kernel(L* l, int* x) {{ x[0] = sizeof(L); }}");
        match (errors_of(&kernel), expected) {
            (None, None) => {
                let request = LaunchRequest::new([1; 3], [1; 3]).length("l", 4).length("x", 4);
                let kernel_ir = CudaModule::parse("k.cu", &kernel).unwrap().kernel("kernel", &request).unwrap().kernel;
                assert_eq!(kernel_ir.bytes_of(kernel_ir.params[0].ty), *bytes, "{text}");
            }
            (Some(found), Some(name)) => assert!(found.contains(name), "{text}\n{found}"),
            (found, _) => panic!("{text}\n{}", found.unwrap_or("accepted".into())),
        }
    }
    gpp()?;
    assert!(compiles("layouts", &all), "g++ gives one of the structs another layout");
    Ok(())
}

/// Random structs: every component has g++'s offset.
fn random_struct_layouts_match_gpp() -> Outcome {
    let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    println!("BORNITE_TEST_SEED={seed}");
    let mut state = seed;
    let mut below = |count: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % count
    };
    let types: [(&str, &[&str]); 8] = [
        ("char", &[""]),
        ("short", &[""]),
        ("float", &[""]),
        ("double", &[""]),
        ("float2", &[".x", ".y"]),
        ("float3", &[".x", ".y", ".z"]),
        ("float4", &[".x", ".y", ".z", ".w"]),
        ("int2", &[".x", ".y"]),
    ];
    let mut all = "#include <cstddef>\n".to_owned();
    for n in 0..200 {
        let mut structs: Vec<(String, Vec<String>)> = vec![];
        let mut text = String::new();
        for level in 0..=below(3) {
            let (mut fields, mut paths) = (String::new(), vec![]);
            for field in 0..1 + below(4) {
                let align = if below(4) == 0 { format!("alignas({}) ", 16 << below(2)) } else { String::new() };
                match below(types.len() + 2) {
                    at if at < types.len() => {
                        fields += &format!("{align}{} f{field}; ", types[at].0);
                        paths.extend(types[at].1.iter().map(|part| format!("f{field}{part}")));
                    }
                    at if at == types.len() || structs.is_empty() => {
                        fields += &format!("{align}float f{field}[3]; ");
                        paths.extend((0..3).map(|k| format!("f{field}[{k}]")));
                    }
                    _ => {
                        let (name, inner) = &structs[below(structs.len())];
                        fields += &format!("{name} f{field}; ");
                        paths.extend(inner.iter().map(|part| format!("f{field}.{part}")));
                    }
                }
            }
            let align = if below(4) == 0 { "alignas(32) " } else { "" };
            text += &format!("struct {align}L{level} {{ {fields}}};\n");
            structs.push((format!("L{level}"), paths));
        }
        let (last, paths) = structs.last().unwrap();
        let kernel = format!("{text}__global__ void kernel({last}* l, int* x) {{ x[0] = sizeof({last}); }}");
        let request = LaunchRequest::new([1; 3], [1; 3]).length("l", 4).length("x", 4);
        // Nested structs can have too many components.
        if paths.len() > bornite_ir::MAX_COMPONENTS {
            continue;
        }
        let kernel_ir = CudaModule::parse("k.cu", &kernel).unwrap().kernel("kernel", &request).unwrap().kernel;
        // The printed struct has the same layout.
        let printed = CudaModule::parse("p.cu", &bornite_codegen::cuda::print(&kernel_ir)).unwrap();
        let again = printed.kernel("kernel", &LaunchRequest { round_trip: true, ..request }).unwrap().kernel;
        assert_eq!(kernel_ir.structs, again.structs, "{kernel}");
        assert_eq!(
            kernel_ir.structs,
            kernel_ir.to_string().parse::<bornite_ir::Kernel>().unwrap().structs,
            "{kernel_ir}"
        );
        let layout = kernel_ir.params[0].ty.layout(&kernel_ir.structs);
        all += &format!("namespace n{n} {{\n{text}static_assert(sizeof({last}) == {});\n", layout.bytes);
        for (path, (offset, _)) in paths.iter().zip(&layout.offsets) {
            all += &format!("static_assert(offsetof({last}, {path}) == {offset});\n");
        }
        all += "}\n";
    }
    gpp()?;
    assert!(compiles("random_layouts", &all), "g++ gives one of the structs another layout (random_layouts.cpp)");
    Ok(())
}
