//! Programs that cannot be lowered: every failure is an error, never a missing statement, a panic or
//! a stack overflow.

use super::{check, check_errors};

#[test]
fn failed_operands_of_operators_are_reported() {
    check_errors(&[
        (
            "__device__ const float3 c3 = {1, 2, 3};
            struct V { int x; __device__ V operator-() const { return V{-x}; } };
            __global__ void k(int* x) { x[1] = 5; x[0] = -c3.x; x[2] = 6; }",
            "a global constant of struct or vector type is not supported",
        ),
        (
            "struct W { int x; __device__ bool operator!() const { return x == 0; } };
            __device__ const int2 w = {1, 2};
            __global__ void k(int* x) { if (!(w.x > 5)) x[0] = 4; }",
            "a global constant of struct or vector type is not supported",
        ),
        (
            "extern const int hv;
            struct V { int x; __device__ V operator-() const { return V{-x}; } };
            __global__ void k(int* x) { x[0] = -hv; }",
            "'hv' is a host variable",
        ),
    ]);
}

#[test]
fn constants_defined_by_themselves() {
    check_errors(&[
        (
            "constexpr int a = b; constexpr int b = a; __global__ void k(int* x) { x[0] = a + 1; }",
            "'b' is used before its declaration",
        ),
        ("constexpr int a = a; __global__ void k(int* x) { x[0] = a; }", "the value of 'a' depends on itself"),
        ("enum E { A = B, B = A }; __global__ void k(int* x) { x[0] = A; }", "the value of 'A' depends on itself"),
    ]);
}

#[test]
fn increments_of_structs() {
    check(&[(
        "struct I {
            int n;
            __device__ I& operator++() { ++n; return *this; }
            __device__ I operator++(int) { I old{n}; n += 10; return old; }
            __device__ I& operator--() { --n; return *this; }
        };
        __global__ void k(int* x) { I i{1}; ++i; x[0] = i.n; x[1] = (i++).n; x[2] = i.n; --i; x[3] = i.n; }",
        &[2.0, 2.0, 12.0, 11.0],
    )]);
}

#[test]
fn recursive_definitions() {
    let chain: String = (1..2000).map(|n| format!("constexpr int a{n} = a{} + 1;\n", n - 1)).collect();
    let chain = format!("constexpr int a0 = 0;\n{chain}__global__ void k(int* x) {{ x[0] = a1999; }}");
    let deep = "is not supported";
    check_errors(&[
        (
            "template <int N> struct S { static constexpr int v = S<N + 1>::v; };
            __global__ void k(int* x) { x[0] = S<0>::v; }",
            deep,
        ),
        ("struct S { int a = S{}.a; }; __global__ void k(int* x) { S s; x[0] = s.a; }", deep),
        ("__device__ int f(int x = f()) { return x; } __global__ void k(int* x) { x[0] = f(); }", deep),
        (&chain, "nesting deeper than"),
    ]);
    let short: String = (1..40).map(|n| format!("constexpr int a{n} = a{} + 1;\n", n - 1)).collect();
    let short = format!("constexpr int a0 = 0;\n{short}__global__ void k(int* x) {{ x[0] = a39; }}");
    check(&[(&short, &[39.0])]);
}

#[test]
fn long_chains_of_calls() {
    let chain: String =
        (1..100).map(|n| format!("__device__ int f{n}(int v) {{ return f{}(v) + 1; }}\n", n - 1)).collect();
    let chain =
        format!("__device__ int f0(int v) {{ return v; }}\n{chain}__global__ void k(int* x) {{ x[0] = f99(0); }}");
    check_errors(&[(&chain, "a chain of more than 32 calls")]);
}
