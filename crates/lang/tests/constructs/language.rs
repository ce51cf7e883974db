//! Declarations, templates and library names.

use super::{check, check_errors};

#[test]
fn declarations() {
    check(&[
        (
            "constexpr unsigned int width(16); const int half_width(width / 2);
            __global__ void k(int* x) { x[0] = width; x[1] = half_width; }",
            &[16.0, 8.0],
        ),
        (
            "__global__ void k(int* x) {
                volatile __shared__ int s[4];
                const static int n = 3;
                s[n] = 5; x[0] = s[n];
            }",
            &[5.0],
        ),
        (
            "template <class T> constexpr T twice = T(2); template <class K, class V> constexpr K empty_key = ~K(0);
            __global__ void k(float* x) { x[0] = twice<float> * 1.5f; x[1] = (empty_key<unsigned, int> == 0xffffffffu); }",
            &[3.0, 1.0],
        ),
        (
            "__managed__ int total; __device__ __managed__ int other;
            __global__ void k(int* x) { x[0] = 4; }",
            &[4.0],
        ),
        (
            "namespace util { __device__ int f(int a) { return a + 1; } }
            namespace u = util;
            __global__ void k(int* x) { namespace v = util; x[0] = u::f(1) + v::f(2); }",
            &[5.0],
        ),
        (
            "__global__ void k(int* x) { uchar4 c = make_uchar4(x[1] + 255, 300, -1, 7); x[0] = c.x; x[1] = c.y; x[2] = c.z; }",
            &[0.0, 44.0, 255.0],
        ),
        ("__global__ void k(double* x) { x[0] = UINT32_MAX; x[1] = M_PI_2 > 1.57; x[2] = INT16_MIN; }", &[4294967295.0, 1.0, -32768.0]),
    ]);
}

#[test]
fn type_traits() {
    check(&[(
        "#include <type_traits>
        template <class T> __device__ int kind() {
            if constexpr (std::is_same_v<T, float>) { return 1; }
            else if constexpr (std::is_same<T, double>::value) { return T(2); }
            else { T v; return v.field; }
        }
        __global__ void k(int* x) {
            x[0] = kind<float>(); x[1] = kind<double>();
            x[2] = std::is_integral<char>::value + std::is_floating_point_v<int>;
            x[3] = std::is_same<int, unsigned>();
        }",
        &[1.0, 2.0, 1.0, 0.0],
    )]);
}

#[test]
fn multidimensional_parameters() {
    check(&[
        (
            "__device__ int at(const int a[][4], int r, int c) { return a[r][c]; }
            __device__ int sum(int (*a)[4]) { int s = 0; for (int i = 0; i < 2; ++i) for (int j = 0; j < 4; ++j) s += a[i][j]; return s; }
            __global__ void k(int x[][4]) { x[3][1] = 100 + at(x, 1, 2) + sum(x); x[0][0] = x[3][1] + x[2][3]; }",
            &[145.0, 1.0],
        ),
        (
            "__global__ void k(float (*x)[2][3]) { x[1][1][2] = 50; x[0][0][0] = x[1][0][1]; }",
            &[7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 50.0],
        ),
    ]);
    check_errors(&[
        ("__global__ void k(int x[][4]) { x[0][4] = 1; }", "index 4 is out of bounds"),
        ("__global__ void k(int x[][4]) { x[x[0][2] + 14][0] = 1; }", "outside"),
        (
            "__device__ int f(int a[][3]) { return a[0][1]; }\n__global__ void k(int x[][4]) { x[0][0] = f(x); }",
            "the rows of this array differ",
        ),
    ]);
}

#[test]
fn pointers() {
    check(&[
        // Null pointers are constants in an inlined function.
        (
            "__device__ int sum(const int* a, const int* b) { int s = a[1]; if (b != nullptr) s += b[2]; return b ? s : -s; }
            __global__ void k(int* x) { x[0] = sum(x, nullptr); x[1] = sum(x + 4, x); x[2] = sum(x, NULL); }",
            &[-1.0, 7.0, -7.0],
        ),
        // An array of vectors that is also used as an array of their elements.
        (
            "__global__ void k(float2* x) {
                float* flat = (float*)x;
                float4* wide = reinterpret_cast<float4*>(x);
                flat[0] = x[1].y + flat[5];
                x[2].x = wide[0].w * 10;
            }",
            &[8.0, 1.0, 2.0, 3.0, 30.0, 5.0],
        ),
        (
            "__device__ auto larger(int a, int b) { int m = a > b ? a : b; return m; }
            __device__ auto row(int* p, int n) { return p + 4 * n; }
            __global__ void k(int* x) { x[0] = larger(3, 9); x[1] = row(x, 2)[1]; }",
            &[9.0, 9.0],
        ),
    ]);
    check_errors(&[(
        "__device__ int f(const int* a) { return a[0]; }\n__global__ void k(int* x) { x[0] = f(nullptr); }",
        "k.cu:1: 'the pointer is not null' does not hold",
    )]);
}

#[test]
fn initializers_and_overloads() {
    check(&[
        (
            "struct P { int a = 7, b; float c; };
            __global__ void k(float* x) { P p = {.b = 2, .c = 0.5f}; P q{.a = 1}; x[0] = p.a; x[1] = p.b; x[2] = p.c; x[3] = q.a + q.b; }",
            &[7.0, 2.0, 0.5, 1.0],
        ),
        (
            "struct P { int a, b; __device__ P(int v) : a(v), b(2 * v) {} __device__ P(const P& o) : a(o.a), b(o.b) {} };
            __global__ void k(int* x) { P p(3); P q = p; q.a = 9; x[0] = p.a; x[1] = q.a + q.b; }",
            &[3.0, 15.0],
        ),
    ]);
    check_errors(&[(
        "struct P { int a, b; };\n__global__ void k(int* x) { P p = {.b = 1, .a = 2}; }",
        "'a' is not a later field",
    )]);
    let text = "__global__ void k(int* x) { x[0] = 1; }\n__global__ void k(float* x, int n) { x[0] = 2; }";
    let module = bornite_lang::cuda::CudaModule::parse("k.cu", text).unwrap();
    let names: Vec<String> = module.kernels().into_iter().map(|kernel| kernel.name).collect();
    assert_eq!(names, ["k(int*)", "k(float*, int)"]);
    assert_eq!(super::run_kernel(&module, "k(int*)", 1).unwrap()[0], 1.0);
}

#[test]
fn pointers_without_an_initializer() {
    check(&[(
        "__global__ void k(int* x) {
            int *p, *q;
            if (x[1] == 1) p = x + 4; else p = x;
            for (q = x; q < x + 3; ++q) *q += 10;
            x[0] = *p; x[5] = p[2];
        }",
        &[4.0, 11.0, 12.0, 3.0, 4.0, 6.0],
    )]);
    check_errors(&[("__global__ void k(int* x) { int* p; x[0] = *p; p = x; }", "this pointer has no value yet")]);
}

/// The end of a loop may change through a pointer, a reference or a member function.
#[test]
fn loop_ends_that_change() {
    check(&[(
        "struct C { int n; __device__ void dec() { n--; } __device__ int run() { int c = 0; for (int i = 0; i < n; ++i) { this->n--; c++; } return c; } };
        __device__ void less(int* p) { *p -= 1; }
        __global__ void k(int* x) {
            int a = 10, *p = &a, n = 0;
            for (int i = 0; i < a; ++i) { *p -= 1; n++; }
            x[0] = n;
            C o{10}, *q = &o;
            n = 0;
            for (int i = 0; i < o.n; ++i) { q->dec(); n++; }
            x[1] = n;
            int b = 10; n = 0;
            for (int i = 0; i < b; ++i) { less(&b); n++; }
            x[2] = n;
            int c = 10; int& r = c; n = 0;
            for (int i = 0; i < c; ++i) { r--; n++; }
            x[3] = n;
            C s{10};
            x[4] = s.run();
            n = 0;
            for (int i = 0; i < s.n; ++i) { s.dec(); n++; }
            x[5] = n;
        }",
        &[5.0, 5.0, 5.0, 5.0, 5.0, 3.0],
    )]);
}
