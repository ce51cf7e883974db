//! Rules of C++ on references, scopes, declarations and enums.

use super::{check, check_errors};

#[test]
fn const_references_have_their_declared_type() {
    check(&[(
        "__global__ void k(int* x) {
            const float& g = 5; x[0] = g / 2 * 2;
            int a = 300; const unsigned char& c = a; x[1] = c;
            float f = 2.75f; const int& i = f; x[2] = i * 4;
            const unsigned& u = -1; x[3] = u > 0;
            int b = 3; const float& t = b; b = 9; x[4] = t;
            const bool& flag = 5; x[5] = flag;
            const int2& v = {1, 2}; x[6] = v.y;
            const int& same = b; b = 4; x[7] = same;
        }",
        &[5.0, 44.0, 8.0, 1.0, 3.0, 1.0, 2.0, 4.0],
    )]);
    check_errors(&[
        (
            "__global__ void k(int* x) { int n = 1; float& r = n; r = 2.5f; }",
            "a reference to 'float' cannot refer to a 'int'",
        ),
        (
            "struct A { int x; }; struct B { int x; };
            __global__ void k(int* x) { A a{1}; const B& b = a; x[0] = b.x; }",
            "cannot convert 'A' to 'B'",
        ),
        ("__global__ void k(int* x) { int y = 1; unsigned char* q = &y; *q = 300; x[0] = y; }", "a pointer to 'int'"),
        ("__global__ void k(int* x) { int l[2] = {1, 2}; float* p = l; x[0] = p[0]; }", "a pointer to 'int'"),
        ("__global__ void k(int* x) { auto* p = 5; x[0] = p; }", "a pointer must be initialized with a pointer"),
    ]);
}

#[test]
fn references_to_lvalue_expressions_are_not_copies() {
    check(&[
        (
            "__device__ const int& larger(const int& a, const int& b) { return a > b ? a : b; }
            __device__ const int& smaller(const int& a, const int& b) { if (a < b) return a; return b; }
            __device__ int changed(const int& x, int& y) { y = 99; return x; }
            __global__ void k(int* x) {
                int a = 1, b = 2;
                const int& t = x[0] ? a : b; b = 9; x[0] = t;
                const int& p = ++a; a = 50; x[1] = p;
                const int& q = (a += 1); a = 60; x[2] = q;
                a = 1; b = 2; const int& m = larger(a, b); b = 50; x[3] = m;
                a = 1; b = 2; x[4] = changed(x[63] ? b : a, b);
                a = 1; b = 2; x[5] = changed(larger(a, b), b);
                a = 1; b = 2; const int& l = smaller(a, b); a = -5; x[6] = l;
                int& w = a = 7; w = 8; x[7] = a;
            }",
            &[9.0, 50.0, 60.0, 50.0, 99.0, 99.0, -5.0, 8.0],
        ),
        (
            "struct P { int v; };
            __device__ const int& first(const int& a, const int& b) { return a; }
            __global__ void k(int* x) {
                P a{1}, b{2};
                const P& r = x[0] ? a : b; b.v = 7; x[0] = r.v;
                const int& e = x[1] ? x[5] : x[6]; x[5] = 31; x[1] = e;
                const int& c = x[2] ? a.v : 5; a.v = 3; x[2] = c;
            }",
            &[7.0, 31.0, 1.0],
        ),
    ]);
    check_errors(&[(
        "__device__ const int& pick(const int& a, const int& b) {
            for (int i = 0; i < 3; i++) { if (a > i) return a; }
            return b;
        }
        __global__ void k(int* x) { int a = 1, b = 2; const int& r = pick(a, b); a = 5; x[0] = r; }",
        "several returns of a reference",
    )]);
}

#[test]
fn reference_members_are_not_supported() {
    check_errors(&[(
        "struct S { int& a; }; __global__ void k(int* x) { int y = 1; S s{y}; s.a = 3; x[0] = y; }",
        "a reference as a struct member is not supported",
    )]);
}

#[test]
fn members_see_the_scope_of_their_struct() {
    check(&[
        (
            "constexpr int K = 1, N = 1;
            struct S {
                static constexpr int K = 3; int v;
                __device__ S(int a = K) : v(a) {}
                static __device__ int st(int q = K) { return q; }
                __device__ int m(int q = K + 1) const { return q; }
            };
            struct B { static constexpr int K = 3; int b = K; };
            struct A { static constexpr int M = 2; static constexpr int N = M + 1; int a[N]; };
            __device__ int h(int) { return 1; }
            struct H { static __device__ int h(int) { return 2; } __device__ int f(int q = h(1)) { return q; } };
            __device__ int outer(int q = K) { return q; }
            struct C { static constexpr int K = 5; int z; __device__ int g() const { return outer(); } };
            __global__ void k(int* x) {
                S s; x[0] = s.v; x[1] = S::st(); x[2] = s.m();
                B b; x[3] = b.b; x[4] = sizeof(A); H f; x[5] = f.f(); C c{0}; x[6] = c.g();
            }",
            &[3.0, 3.0, 4.0, 3.0, 12.0, 2.0, 1.0],
        ),
        (
            "constexpr int a = 50;
            struct B { int a = 3; int w = a + 1; };
            struct D { int u[2] = {1, 2}; int v = u[1] * 10; __device__ int twice() const { return 2 * v; } int t = twice(); };
            __global__ void k(int* x) { B b; x[0] = b.w; B c{5}; x[1] = c.w; D d; x[2] = d.v; x[3] = d.t; }",
            &[4.0, 6.0, 20.0, 40.0],
        ),
    ]);
}

#[test]
fn enums_have_a_type_that_holds_their_values() {
    check(&[(
        "enum LL { L1 = 1ll << 40, L2 }; enum Flags { F31 = 1u << 31, F0 = 1 };
        enum X { A = 4294967295, B = -1 }; enum Y { C = 2147483647, D }; enum Small { P, Q = P + 4, R };
        constexpr unsigned TOP = 0x80000000u; enum Z { E = TOP | 1 };
        __global__ void k(double* x) {
            x[0] = L1; x[1] = L2; x[2] = F31; x[3] = F31 > 0; x[4] = A; x[5] = A > B; x[6] = sizeof(A);
            x[7] = D; x[8] = R - 7; x[9] = E; x[10] = sizeof(R); Flags f = F31; x[11] = f;
        }",
        &[
            1099511627776.0,
            1099511627777.0,
            2147483648.0,
            1.0,
            4294967295.0,
            1.0,
            8.0,
            2147483648.0,
            -2.0,
            2147483649.0,
            4.0,
            2147483648.0,
        ],
    )]);
    check_errors(&[(
        "constexpr long long big(int n) { return 1ll << n; }
        enum E { A = big(40) }; __global__ void k(long long* x) { x[0] = A; }",
        "the value of enumerator 'A', is not supported",
    )]);
}

#[test]
fn names_are_visible_after_their_declaration() {
    check(&[(
        "__device__ int f(double) { return 1; }
        __device__ int g() { return f(1); }
        __device__ int f(int) { return 2; }
        __device__ int p(double) { return 1; }
        template <class T> __device__ int h(T x) { return p(x); }
        __device__ int p(int) { return 3; }
        struct V { int v; };
        template <class T> __device__ int adl(T x) { return later(x); }
        __device__ int later(V v) { return v.v; }
        template <class P> __device__ int adl_pointer(P p) { return through(p); }
        template <class P> __device__ int through(P p) { return p->v + 1; }
        __device__ int forward(int); constexpr int N = 4;
        __device__ int caller() { return forward(N); }
        __device__ int forward(int n) { return n + 1; }
        __global__ void k(int* x) { x[0] = g(); x[1] = h(1); x[2] = adl(V{6}); x[3] = caller(); x[4] = f(1); V v{7}; x[5] = adl_pointer(&v); }",
        &[1.0, 1.0, 6.0, 5.0, 2.0, 8.0],
    )]);
    check_errors(&[
        (
            "__global__ void k(int* x) { x[0] = f(1); } __device__ int f(int) { return 2; }",
            "'f' is used before its declaration",
        ),
        ("__global__ void k(int* x) { x[0] = Y; } constexpr int Y = 3;", "'Y' is used before its declaration"),
        ("__global__ void k(int* x) { x[0] = A; } enum { A = 4 };", "'A' is used before its declaration"),
    ]);
}

#[test]
fn declarations_that_look_like_expressions_are_errors() {
    check_errors(&[
        (
            "__global__ void k(int* x) { int y = 1; { int(y); y = 5; } x[0] = y; }",
            "a declaration with its name in parentheses is not supported",
        ),
        (
            "__global__ void k(int* x) { for (int i = 0; i < 3; i++) { int i = 7; x[i] = i; } }",
            "'i' is declared twice in this block",
        ),
        (
            "__device__ void v(int a) { return a; } __global__ void k(int* x) { v(1); }",
            "of type 'void' returns a value",
        ),
        ("#if 0\n#else\n#else\n#endif\n__global__ void k(int* x) {}", "'#else' after '#else'"),
        ("__global__ void k(int* x) { int y(); x[0] = 3; }", "a function declaration in a function is not supported"),
        (
            "__device__ int f(int a = 1, int b) { return a + b; } __global__ void k(int* x) { x[0] = f(1, 2); }",
            "'b' has no default",
        ),
    ]);
    check(&[("__global__ void k(int* x) { float y(2.5f); int(x[1]); x[0] = y * 2; }", &[5.0])]);
}

#[test]
fn arrays_decay_in_sizeof() {
    check(&[(
        "__device__ int f(int a[3]) { return sizeof(a) + a[0]; }
        __device__ int g(float* b) { return sizeof(b); }
        __device__ int h(const float c[]) { return sizeof(c) / sizeof(c[0]) + c[0]; }
        __global__ void k(int* x) {
            int a[3] = {1, 2, 3}; float b[3] = {1, 2, 3};
            x[0] = f(a); x[1] = g(b); x[2] = h(b); x[3] = sizeof(a); float* p = b; x[4] = sizeof(p) + p[1];
        }",
        &[9.0, 8.0, 3.0, 12.0, 10.0],
    )]);
}

#[test]
fn overloaded_comma_and_deleted_functions() {
    check(&[
        (
            "struct B { int v; __device__ B operator,(B o) const { return {v * 100 + o.v}; } };
            __global__ void k(int* x) { B a{1}, b{2}; x[0] = (a, b).v; x[1] = (x[2], 5); }",
            &[102.0, 5.0],
        ),
        (
            "__device__ int f(int x) { return x; } __device__ int f(float) = delete;
            struct S { int v; S() = default; __device__ S(int x) : v(x) {} };
            __global__ void k(int* x) { x[0] = f(3); S s; s = S(4); x[1] = s.v; }",
            &[3.0, 4.0],
        ),
    ]);
    check_errors(&[
        (
            "__device__ int f(int x) { return x; } __device__ int f(float) = delete;
            __global__ void k(int* x) { x[0] = f(1.f); }",
            "use of deleted function 'f'",
        ),
        (
            "struct S { int v; __device__ S(int x) : v(x) {} S(float) = delete; };
            __global__ void k(int* x) { S s(2.5f); x[0] = s.v; }",
            "use of deleted function 'S'",
        ),
        (
            "struct T { int v; T& operator=(const T&) = delete; };
            __global__ void k(int* x) { T a{1}, b{2}; a = b; x[0] = a.v; }",
            "use of deleted function 'operator='",
        ),
        (
            "struct T { int v; T(const T&) = delete; };
            __global__ void k(int* x) { T a{1}; T b = a; x[0] = b.v; }",
            "a deleted copy constructor or destructor is not supported",
        ),
    ]);
}

#[test]
fn template_arguments_are_deduced_without_conflict() {
    check(&[(
        "template <class T> __device__ T mx(T a, T b) { return a > b ? a : b; }
        template <class T> __device__ int f(T, int) { return 1; }
        template <class T> __device__ int f(T, float) { return 2; }
        template <class T> __device__ int h(T) { return 3; } __device__ int h_i32(int) { return 4; }
        template <int N> __device__ int g() { return N; } __device__ int g_1() { return 5; }
        __global__ void k(int* x) {
            x[0] = mx(1, 2) + mx<float>(1, 2.5f) * 2; x[1] = f(1, 1); x[2] = f(1, 1.f);
            x[3] = h(1); x[4] = h_i32(1); x[5] = g<1>(); x[6] = g_1();
        }",
        &[7.0, 1.0, 2.0, 3.0, 4.0, 1.0, 5.0],
    )]);
    check_errors(&[
        (
            "template <class T> __device__ T mx(T a, T b) { return a > b ? a : b; }
            __global__ void k(int* x) { x[0] = mx(1, 2.5f) * 2; }",
            "conflicting types 'int' and 'float' for template parameter 'T'",
        ),
        (
            "template <class T> __device__ void st(T* p, T v) { *p = v; }
            __global__ void k(int* x) { st(x, 2.5f); }",
            "conflicting types 'int' and 'float'",
        ),
    ]);
}

#[test]
fn overloads_of_host_and_device_are_not_mixed() {
    check(&[(
        "__device__ int f(int) { return 1; } int f(float) { return 2; } __global__ void k(int* x) { x[0] = f(7); }",
        &[1.0],
    )]);
    check_errors(&[(
        "__device__ int f(int) { return 1; } int f(float) { return 2; } __global__ void k(int* x) { x[0] = f(1.5f); }",
        "overloading 'f' for the host and for the device is not supported",
    )]);
}

#[test]
fn char_and_signed_char_are_not_mixed() {
    check_errors(&[(
        "__global__ void k(int* x) { signed char s = 100; auto c = x[0] ? 'a' : s; c += 200; x[0] = c; }",
        "'char' and 'signed char'",
    )]);
    check(&[("__global__ void k(int* x) { char s = 100; auto c = x[1] ? s : 'a'; x[0] = c + sizeof(c); }", &[101.0])]);
}

#[test]
fn nested_namespaces_are_limited() {
    let text = "namespace a { ".repeat(5000) + "__global__ void k(int* x) {}" + &"}".repeat(5000);
    check_errors(&[(&text, "more than 200 nested namespaces is not supported")]);
}

#[test]
fn comparisons_with_casts_are_no_templates() {
    check(&[(
        "__global__ void k(int* x) {
            int i = 2; unsigned char c = 200; bool b = true;
            x[0] = i < float(2.5); x[1] = c < int(300); x[2] = b < double(2); x[3] = (i < int(c)) > bool(0);
        }",
        &[1.0, 1.0, 1.0, 1.0],
    )]);
}

#[test]
fn constants_of_deduced_type() {
    check(&[(
        "static constexpr auto HALF = 0.5; constexpr auto COUNT = 8u; const auto NEXT = COUNT + 1;
        __global__ void k(int* x) { x[0] = 4 * HALF; x[1] = COUNT - 9 > 0; x[2] = NEXT; x[3] = sizeof(HALF); }",
        &[2.0, 1.0, 9.0, 8.0],
    )]);
}

#[test]
fn bools_are_not_counted_and_enums_are_not_numbers() {
    check(&[(
        "enum E { A, B = 5 }; enum class F { C, D };
        __device__ E next(E e) { return static_cast<E>(e + 1); }
        __global__ void k(int* x) {
            E e = B; x[0] = e + 1; E n = next(A); x[1] = n; F f = (F)1; x[2] = (int)f; E c = (E)(A + 1); x[3] = c;
            E d = x[0] ? A : B; x[4] = d; int count = A; count++; x[5] = count;
        }",
        &[6.0, 1.0, 1.0, 1.0, 0.0, 1.0],
    )]);
    check_errors(&[
        ("__global__ void k(int* x) { bool b = false; b++; x[0] = b; }", "'++' on a bool"),
        ("__global__ void k(int* x) { bool b = true; --b; x[0] = b; }", "'--' on a bool"),
        ("enum E { A }; __global__ void k(int* x) { E e = 1; x[0] = e; }", "cannot initialize enum 'e' with a number"),
        ("enum E { A }; __global__ void k(int* x) { E e = A + 1; x[0] = e; }", "cannot initialize enum 'e'"),
    ]);
}
