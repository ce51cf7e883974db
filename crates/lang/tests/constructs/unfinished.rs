//! Ends of declarations: what follows a declaration is never part of it.

use super::check;

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
