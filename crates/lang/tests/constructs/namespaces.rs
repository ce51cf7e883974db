//! Namespaces: names are found where C++ finds them; where that is not known, the use is an error.

use super::{check, check_errors};

const SEVERAL: &str = "has several definitions";

#[test]
fn qualified_names_of_several_namespaces() {
    check(&[
        (
            "namespace a { constexpr int N = 2; } namespace b { constexpr int N = 4; }
            __global__ void k(int* x) { x[0] = a::N; x[1] = b::N; }",
            &[2.0, 4.0],
        ),
        (
            "struct S { int x = 1; }; namespace b { struct S { int x = 7; }; }
            __global__ void k(int* x) { b::S t; x[0] = t.x; S s; x[1] = s.x; }",
            &[7.0, 1.0],
        ),
        (
            "namespace a { enum E { X = 1, Y }; } namespace b { enum E { X = 10, Y }; }
            __global__ void k(int* x) { x[0] = b::Y; x[1] = a::Y; x[2] = b::E::Y; x[3] = a::E::X; }",
            &[11.0, 2.0, 11.0, 1.0],
        ),
        (
            "namespace a { __device__ const int tbl[2] = {1, 2}; } namespace b { __device__ const int tbl[2] = {5, 6}; }
            __global__ void k(int* x) { x[0] = b::tbl[0]; x[1] = a::tbl[0]; }",
            &[5.0, 1.0],
        ),
        ("constexpr int N = 1; __global__ void k(int* x) { int N = 9; x[0] = ::N; x[1] = N; }", &[1.0, 9.0]),
        (
            "namespace a { __device__ int f(int) { return 1; } } namespace b { __device__ int f(float) { return 2; } }
            __global__ void k(int* x) { x[0] = a::f(1.f); x[1] = b::f(1); }",
            &[1.0, 2.0],
        ),
        (
            "__device__ int f(double) { return 1; }
            namespace n { __device__ int f(int) { return 2; } __device__ int g() { return f(1.5); } }
            __global__ void k(int* x) { x[0] = n::g(); x[1] = f(1); x[2] = n::f(1.5); x[3] = ::f(1); }",
            &[2.0, 1.0, 2.0, 1.0],
        ),
        (
            "__device__ int f(int) { return 10; }
            struct S { int v; __device__ int f(int) { return 20; } __device__ int g() { return ::f(3) + f(3); } };
            __global__ void k(int* x) { S s{1}; x[0] = s.g(); }",
            &[30.0],
        ),
        (
            "constexpr int N = 1;
            namespace a { constexpr int N = 2; namespace b { __device__ int f() { return N; } } }
            __global__ void k(int* x) { x[0] = a::b::f(); x[1] = N; }",
            &[2.0, 1.0],
        ),
    ]);
}

#[test]
fn functions_named_like_functions_of_cuda() {
    check(&[(
        "namespace my {
            __device__ float max(float, float) { return 77; }
            __device__ float sqrtf(float) { return 5; }
            __device__ float g() { return max(1.f, 2.f); }
        }
        __global__ void k(float* x) {
            x[0] = max(1.f, 2.f); x[1] = sqrtf(4.f); x[2] = my::max(1.f, 2.f); x[3] = my::g(); x[4] = std::max(3.f, 4.f);
        }",
        &[2.0, 2.0, 77.0, 77.0, 4.0],
    )]);
}

#[test]
fn ambiguous_names() {
    // A name declared later is not visible.
    check(&[(
        "constexpr int N = 1;
        namespace b { __device__ int f() { return N; } constexpr int N = 2; }
        __global__ void k(int* x) { x[0] = b::f(); }",
        &[1.0],
    )]);
    check_errors(&[
        (
            "namespace detail { __device__ int impl(int) { return 1; } }
            namespace v2 {
                namespace detail { __device__ int impl(float) { return 2; } }
                __device__ int g(int x) { return detail::impl(x); }
            }
            __global__ void k(int* x) { x[0] = v2::g(1); }",
            SEVERAL,
        ),
        (
            "namespace a { __device__ int f(int) { return 1; } } __device__ int f(float) { return 2; }
            __global__ void k(int* x) { using a::f; x[0] = f(1.f); }",
            SEVERAL,
        ),
        (
            "namespace a { constexpr int N = 2; } constexpr int N = 1;
            __global__ void k(int* x) { using a::N; x[0] = N; }",
            SEVERAL,
        ),
        ("constexpr int N = 1; constexpr int N = 2; __global__ void k(int* x) { x[0] = N; }", SEVERAL),
        ("struct S { int a; }; struct S { int b; }; __global__ void k(int* x) { S s{1}; x[0] = s.a; }", SEVERAL),
        ("enum A { X = 1 }; enum B { X = 2 }; __global__ void k(int* x) { x[0] = X; }", SEVERAL),
        (
            "namespace a { struct S { int v; __device__ int f() { return 1; } }; }
            namespace b { struct S { int v; __device__ int f() { return 2; } }; }
            __global__ void k(int* x) { b::S s{1}; x[0] = s.f(); }",
            SEVERAL,
        ),
    ]);
}

#[test]
fn repeated_declarations() {
    check(&[
        (
            "typedef float real; typedef float real; extern const int n; const int n = 3; enum class E : int;
            enum class E : int { A = 4 };
            __global__ void k(int* x) { real r = 2; x[0] = r + n; x[1] = (int)E::A; }",
            &[5.0, 4.0],
        ),
        // Only the kernels that use a name need it to be unique.
        ("constexpr int N = 1; constexpr int N = 2; __global__ void k(int* x) { x[0] = 7; }", &[7.0]),
    ]);
}
