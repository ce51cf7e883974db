//! Ends of declarations: what follows a declaration is never part of it.

use super::{check, check_errors};

/// The `=` of `operator=` does not start an initializer.
#[test]
fn assignment_operators_end_at_their_brace() {
    check(&[
        (
            "struct S { int a; __device__ S& operator=(int o) { a = o; return *this; } };\n\
             __device__ int f(float) { return 2; }\nstruct X { int q; };\n__device__ int f(int) { return 1; }\n\
             __global__ void k(int* x) { X y{3}; S s{4}; s = 7; x[0] = f(1.5f); x[1] = y.q; x[2] = s.a; }",
            &[2.0, 3.0, 7.0],
        ),
        (
            "struct S { int a;\n  __device__ S& operator=(const S& o) { a = o.a + 1; return *this; }\n  int b = 5; };\n\
             __global__ void k(int* x) { S s, t; t.a = 3; s = t; x[0] = s.a; x[1] = s.b; }",
            &[4.0, 5.0],
        ),
        (
            "struct S { int a; S& operator=(const S&) = default; __device__ bool operator==(S o) const { return a == o.a; } };\n\
             __global__ void k(int* x) { S s{1}, t{2}; s = t; x[0] = s == t; }",
            &[1.0],
        ),
    ]);
}

/// A file that ends inside a declaration is an error that names it.
#[test]
fn truncated_files() {
    let kernel = "__global__ void k(int* x) { x[0] = 1; }\n";
    let cases = [
        ("struct S {", "struct 'S' is unfinished"),
        ("struct S { int a;", "struct 'S' is unfinished"),
        ("class C", "class 'C' is unfinished"),
        ("template <", "a template is unfinished"),
        ("template <class T> __device__ T f(T a) {", "function 'f' is unfinished"),
        ("namespace", "end of a namespace declaration"),
        ("namespace n {", "expected '}'"),
        ("enum class", "an enum is unfinished"),
        ("enum E { A,", "enum 'E' is unfinished"),
        ("using", "an alias is unfinished"),
        ("using T = int", "alias 'T' is unfinished"),
        ("typedef int T", "alias 'T' is unfinished"),
        ("__device__ int f(int a", "function 'f' is unfinished"),
        ("int main() { if (1) {", "function 'main' is unfinished"),
        ("__device__ int a", "declaration 'a' is unfinished"),
    ];
    for (text, expected) in cases {
        check_errors(&[(&format!("{kernel}{text}"), expected), (text, expected)]);
    }
    // Every prefix of a kernel is an error, or has no kernel.
    for length in 1..kernel.len() - 2 {
        check_errors(&[(&kernel[..length], "")]);
    }
}

/// A kernel that an unfinished declaration would swallow is an error.
#[test]
fn kernels_are_not_swallowed() {
    let kernel = "__global__ void k(int* x) { x[0] = 1; }\n";
    for text in
        ["void host() { if (1) { }\n", "int n = 3\n", "struct S { int a;\n", "auto f = [](int a) { return a; }\n"]
    {
        check_errors(&[
            (&format!("{text}{kernel}int last;\n"), "a kernel inside"),
            (&format!("{kernel}{text}{}", kernel.replace("k(", "l(")), "a kernel inside"),
        ]);
    }
    check(&[(&format!("struct S {{ friend __global__ void k(int* x); int a; }};\n{kernel}"), &[1.0])]);
}
