//! Types that overload resolution, deduction and type traits tell apart.

use super::{check, check_errors, run_kernel};
use bornite_lang::cuda::CudaModule;

#[test]
fn references_to_const_structs() {
    let functions = "struct S { int a; };
        __device__ int f(S& s) { return 10; } __device__ int f(const S& s) { return 20; }";
    let programs = [
        ("const S c{0}; S v{1}; x[0] = f(c); x[1] = f(v);", [20.0, 10.0]),
        ("S s{1}; const S& c = s; x[0] = f(c); x[1] = f(s);", [20.0, 10.0]),
        ("__shared__ S m[2]; m[0].a = 1; m[1].a = 2; const S& r = m[0]; x[0] = f(r); x[1] = f(m[0]);", [20.0, 10.0]),
        ("__shared__ S m[2]; m[0].a = 1; m[1].a = 2; const S* p = m; x[0] = f(*p); x[1] = f(m[1]);", [20.0, 10.0]),
        ("__shared__ S m[2]; m[0].a = 1; m[1].a = 2; const S* p = m; x[0] = f(p[1]); x[1] = f(p[0]);", [20.0, 20.0]),
    ];
    for (body, expected) in programs {
        check(&[(&format!("{functions} __global__ void k(int* x) {{ {body} }}"), &expected)]);
    }
}

#[test]
fn default_arguments_of_overloads() {
    check(&[(
        "__device__ int f(int, int = 5); __device__ float f(float, float = 7);
        __device__ int f(int a, int b) { return 10 + b; } __device__ float f(float a, float b) { return 10 + b; }
        __global__ void k(int* x) { x[0] = f(1.f); x[1] = f(1); }",
        &[17.0, 15.0],
    )]);
}

#[test]
fn enums() {
    check(&[(
        "enum class E { A, B }; enum U { P = 3 };
        __device__ int f(E e, int) { return (int)e; } __device__ int f(E e, float) { return 10 + (int)e; }
        __global__ void k(int* x) { x[0] = f(E::B, 1); x[1] = f(E::B, 1.f); x[2] = P | 4; }",
        &[1.0, 11.0, 7.0],
    )]);
    check_errors(&[
        (
            "enum class E { A }; __device__ int f(E) { return 1; } __device__ int f(float) { return 2; }
            __global__ void k(int* x) { x[0] = f(1); }",
            "overloading 'f' for an enum and another type is not supported",
        ),
        (
            "enum C { R }; __device__ int f(C) { return 1; } __device__ int f(int) { return 2; }
            __global__ void k(int* x) { C c = R; x[0] = f(c); }",
            "",
        ),
        (
            "enum class E { A = 1, B = 2 };
            __device__ E operator|(E a, E b) { return (E)((int)a + (int)b + 64); }
            __global__ void k(int* x) { x[0] = (int)(E::A | E::B); }",
            "operator '|' overloaded for enums is not supported",
        ),
        (
            "enum E { A }; __global__ void k(int* x) { x[0] = std::is_same_v<E, int>; }",
            "an enum as a template argument is not supported",
        ),
        (
            "enum E { A }; __global__ void k(int* x) { x[0] = std::is_integral_v<E>; }",
            "an enum as a template argument is not supported",
        ),
        (
            "enum E { A }; template <class T> __device__ int f(T) { return std::is_same_v<T, int>; }
            __global__ void k(int* x) { x[0] = f(A); }",
            "a template argument that is deduced from an enum is not supported",
        ),
        (
            "enum E { A }; template <class T> __device__ int f(T) { return 1; } __device__ int f(int) { return 2; }
            __global__ void k(int* x) { E e = A; x[0] = f(e); }",
            "is not supported",
        ),
    ]);
}

#[test]
fn types_with_the_same_values() {
    check(&[(
        "template <class T> __device__ int f(T* p) { return std::is_same_v<T, int>; }
        __global__ void k(int* x) {
            x[0] = std::is_same_v<long, int>; x[1] = std::is_same_v<char, char>; x[2] = std::is_same<long, int64_t>::value;
            x[3] = f(x);
        }",
        &[0.0, 1.0, 1.0, 1.0],
    )]);
    check_errors(&[
        ("__global__ void k(int* x) { x[0] = std::is_same_v<long, long long>; }", "uses both 'long' and 'long long'"),
        ("__global__ void k(int* x) { x[0] = std::is_same_v<char, signed char>; }", "uses both 'char'"),
        (
            "template <class T> __device__ int f(T* p) { return std::is_same_v<T, int>; }
            __global__ void k(int* x) { const int* p = x; x[0] = f(p); }",
            "deduced as const",
        ),
    ]);
}

#[test]
fn nested_tiles() {
    let text = "namespace cg = cooperative_groups;
        __device__ int rank(cg::thread_block_tile<4> t) { return t.meta_group_rank(); }
        __global__ void k(int* x) {
            cg::thread_block block = cg::this_thread_block();
            auto w = cg::tiled_partition<32>(block);
            auto t = cg::tiled_partition<4>(w);
            auto u = cg::tiled_partition<4>(block);
            if (threadIdx.x == 37) {
                x[0] = t.meta_group_rank(); x[1] = t.meta_group_size();
                x[2] = u.meta_group_rank(); x[3] = u.meta_group_size(); x[4] = rank(t);
            }
        }";
    let module = CudaModule::parse("k.cu", text).unwrap();
    assert_eq!(run_kernel(&module, "k", 64).unwrap()[..5], [1.0, 8.0, 9.0, 16.0, 1.0]);
}
