//! Specializations of templates: the one that matches is used; an unsupported one is an error.

use super::{check, check_errors};

#[test]
fn specializations_that_match() {
    check(&[
        (
            "template <int N> constexpr int v = N; template <> constexpr int v<3> = 33;
            __global__ void k(int* x) { x[0] = v<3>; x[1] = v<4>; }",
            &[33.0, 4.0],
        ),
        (
            "template <class T> __device__ int f(T, int) { return 1; }
            template <class T> __device__ int f(T, float) { return 2; }
            template <> __device__ int f<int>(int, float) { return 3; }
            __global__ void k(int* x) { x[0] = f(1, 1); x[1] = f<int>(1, 1); x[2] = f(1, 1.f); x[3] = f(1.f, 1.f); }",
            &[1.0, 1.0, 3.0, 2.0],
        ),
        (
            "template <class T> __device__ int f(T) { return 1; }
            template <class T> __device__ int f(T, T) { return 2; }
            template <> __device__ int f<int>(int) { return 3; }
            __global__ void k(int* x) { x[0] = f(1, 1); x[1] = f(1); x[2] = f(1.f); }",
            &[2.0, 3.0, 1.0],
        ),
        (
            "template <class T> __device__ int f(T) { return 1; }
            template <> __device__ int f(float) { return 4; }
            __global__ void k(int* x) { x[0] = f(1); x[1] = f(1.f); }",
            &[1.0, 4.0],
        ),
        (
            "namespace a {
                template <class T> __device__ int f(T, T) { return 1; }
                template <> __device__ int f<int>(int, int) { return 3; }
            }
            namespace b { template <class T> __device__ int f(T, int) { return 2; } }
            __global__ void k(int* x) { x[0] = b::f(1, 2); x[1] = a::f(1, 2); }",
            &[2.0, 3.0],
        ),
    ]);
}

#[test]
fn unsupported_specializations() {
    check_errors(&[
        (
            "template <class A, class B> constexpr int same = 0; template <class T> constexpr int same<T, T> = 1;
            __global__ void k(int* x) { x[0] = same<int, int>; }",
            "is not supported",
        ),
        (
            "template <class T> __device__ int f(T) { return 1; }
            template <> __device__ int f<float>(float x) { auto l = [] { return 5; }; return l(); }
            __global__ void k(int* x) { x[0] = f(1.f); }",
            "a lambda is not supported",
        ),
        (
            "struct S { int v; template <class T> __device__ int f(T) { return 1; } };
            template <> __device__ int S::f<float>(float) { return 2; }
            __global__ void k(int* x) { S s{1}; x[0] = s.f(1.f); }",
            "a specialization of a member function is not supported",
        ),
        (
            "template <class T> struct S { T v; __device__ int f() { return 1; } };
            template <> __device__ int S<int>::f() { return 2; }
            __global__ void k(int* x) { S<int> s{1}; x[0] = s.f(); }",
            "a specialization of a member function is not supported",
        ),
        (
            "template <class T> struct S { static constexpr int v = 1; };
            template <class T> __device__ int f() { return S<T>::v; }
            template <> struct S<int> { static constexpr int v = 2; };
            __global__ void k(int* x) { x[0] = f<int>(); }",
            "a struct template specialization is not supported",
        ),
        (
            "template <class T> __device__ int f(T); template <> __device__ int f<int>(int) { return 1; }
            __global__ void k(int* x) { x[0] = f(1.f); }",
            "no specialization of 'f' matches",
        ),
        (
            "template <class T> __device__ int f(T) { return 1; } __device__ int f(int) { return 2; }
            __global__ void k(int* x) { x[0] = f<>(1); }",
            "'<>' that selects a template is not supported",
        ),
    ]);
}

#[test]
fn static_assertions() {
    check(&[(
        "static_assert(sizeof(int) == 4, \"ints\"); static_assert(host_only<float>::value, \"not device code\");
        template <int N> struct V { static_assert(N > 0, \"size\"); int a[N]; };
        template <int N> __device__ int f() { static_assert(N % 2 == 0); return N; }
        __global__ void k(int* x) { V<2> v{}; x[0] = f<4>() + v.a[0]; }",
        &[4.0],
    )]);
    check_errors(&[
        ("static_assert(1 > 2, \"one\"); __global__ void k(int* x) { x[0] = 1; }", "static assertion failed: one"),
        (
            "template <int N> __device__ int f() { static_assert(N % 2 == 0, \"even\"); return N; }
            __global__ void k(int* x) { x[0] = f<3>(); }",
            "static assertion failed: even",
        ),
        (
            "template <int N> struct V { int n; static_assert(N > 0, \"size\"); };
            __global__ void k(int* x) { V<0> v{1}; x[0] = v.n; }",
            "static assertion failed: size",
        ),
        (
            "__global__ void k(int* x) { static_assert(some_trait<int>::value, \"trait\"); x[0] = 1; }",
            "this condition of 'static_assert' is not supported",
        ),
    ]);
}
