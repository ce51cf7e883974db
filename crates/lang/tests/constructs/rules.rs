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
