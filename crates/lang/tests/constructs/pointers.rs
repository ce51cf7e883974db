//! Pointers in structs and arrays, and functions that return pointers.

use super::{check, check_errors};

#[test]
fn structs_hold_pointers() {
    check(&[
        (
            "struct M { int* p; int n; };
            __device__ int first(M m) { return m.p[0]; }
            __device__ M sub(M m, int by) { M s; s.p = m.p + by; s.n = m.n - by; return s; }
            __global__ void k(int* x) {
                M m; m.p = x + 3; m.n = 5; x[0] = m.p[2];
                M c = m; c.p++; x[1] = *c.p; x[2] = first(c);
                M s = sub(m, 4); x[3] = s.p[1] + s.n;
                M b{x, 7}; x[4] = b.p[9]; b.p += 10; x[5] = b.p[0];
                b.p = nullptr; x[6] = b.p == nullptr; M zero = {}; x[7] = zero.p == nullptr;
            }",
            &[5.0, 4.0, 4.0, 9.0, 9.0, 10.0, 1.0, 1.0],
        ),
        (
            "struct S {
                float* a;
                __device__ S(float* q) : a(q) {}
                __device__ float get(int i) const { return a[i]; }
                __device__ void set(float* q) { a = q; }
            };
            __global__ void k(float* x) {
                S s(x + 2); x[0] = s.get(3); s.set(x + 20); x[1] = s.get(1);
                const S& r = s; x[2] = r.a[0]; S* p = &s; x[3] = p->a[5]; p->a = x; x[4] = p->get(7);
                S t = S(x + 30); x[5] = t.a[1]; S u = x + 9; x[6] = u.a[0];
            }",
            &[5.0, 21.0, 20.0, 25.0, 7.0, 31.0, 9.0],
        ),
    ]);
}

#[test]
fn arrays_hold_pointers() {
    check(&[
        (
            "__device__ int* pick(int* a, int* b, bool c) { if (c) return a; return b; }
            __device__ int* at(int* p, int i) { return p + i; }
            __global__ void k(int* x) {
                int l[3] = {7, 8, 9}; int* t[3] = {x + 5, l, nullptr};
                x[0] = t[0][1]; x[1] = t[1][2]; t[2] = x + 9; t[2]++; x[2] = *t[2];
                for (int i = 0; i < 3; i++) x[3] += *t[i];
                x[4] = *pick(x + 7, l, x[63] == 63); x[5] = atomicAdd(&t[2][1], 5);
                int* q = t[1]; q[0] = 77; x[6] = l[0]; *at(x, 7) = 50; x[8] = *at(x + 1, 10);
            }",
            &[6.0, 9.0, 10.0, 25.0, 7.0, 11.0, 77.0, 50.0, 16.0],
        ),
        (
            "struct S { float* a; int n; };
            __global__ void k(float* x) {
                S s = S{x + 2}; x[0] = s.a[3];
                __shared__ float* p; __shared__ float buffer[4]; p = buffer; p[1] = 5; x[1] = buffer[1];
                S many[3] = {}; many[1] = {x, 4}; x[5] = many[0].a == nullptr; many[2].a = buffer;
                x[2] = many[1].a[7] + many[2].a[1]; int i = x[1] - 4; x[3] = many[i].n;
                many[i].a += 2; x[4] = many[1].a[9];
            }",
            &[5.0, 5.0, 12.0, 4.0, 11.0, 1.0],
        ),
    ]);
}

#[test]
fn stored_pointers_are_compared() {
    check(&[(
        "struct Range { int* first; int* last; };
        __global__ void k(int* x) {
            int l[8] = {1, 2, 3, 4, 5, 6, 7, 8};
            Range r{x + 4, x + 9}, q{l, l + 3};
            int sum = 0; for (int* p = r.first; p < r.last; p++) sum += *p;
            x[0] = sum; x[1] = q.last - q.first; x[2] = q.first == l; x[3] = q.first != r.first;
            Range t = q; t.first += 3; x[4] = t.first == q.last; x[5] = t.first == x; x[6] = r.first <= x + 3;
            int* n = nullptr; if (x[6]) n = l; x[7] = n == q.first;
        }",
        &[30.0, 3.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    )]);
    check_errors(&[(
        "struct S { int* p; }; __global__ void k(int* x) { int l[2]; S s{x}, t{l}; x[0] = s.p < t.p; }",
        "the pointers point into the same array",
    )]);
}

#[test]
fn stored_pointers_are_checked() {
    check_errors(&[
        ("__global__ void k(int* x) { int* t[2]; t[0] = x; x[1] = *t[1]; }", "'t[1]' is read before it is written"),
        ("__global__ void k(int* x) { int* t[2] = {x}; x[1] = *t[1]; }", "the pointer is not null"),
        ("struct S { int* p; }; __global__ void k(int* x) { S s{x + 60}; x[0] = s.p[5]; }", "is outside 'x'"),
        ("struct S { int* p; }; __global__ void k(const int* x) { S s{x}; }", "pointer to const"),
        ("struct S { float* p; }; __global__ void k(int* x) { S s{x}; }", "a pointer to 'int'"),
        (
            "__global__ void k(int* x) { __shared__ int* p; int l = 1; p = &l; x[0] = *p; }",
            "a '__shared__' pointer to a local variable",
        ),
        ("__global__ void k(int* x) { int* p = x; int** q = &p; **q = 1; }", "the address of a pointer"),
        ("struct S { int* p; }; __global__ void k(int* x) { S s{x}; (*&s.p)[0] = 1; }", "the address of a pointer"),
        ("struct S { int* p; }; __global__ void k(int* x) { S s{x}; ((char*)&s)[0] = 1; }", "the bytes of pointers"),
        ("struct E { explicit __device__ E(int* p) {} }; __global__ void k(int* x) { E e = x; }", "found a pointer"),
    ]);
}
