//! Local arrays, variables without a value, and pointers into one of several arrays or to null.

use super::{check, check_errors};

#[test]
fn local_arrays_hold_any_type() {
    check(&[
        (
            "__global__ void k(float* x) { float a[100]; for (int i = 0; i < 100; ++i) a[i] = i;
            float s = 0; for (int i = 0; i < 100; i += 3) s += a[i]; x[0] = s; }",
            &[1683.0],
        ),
        (
            "__global__ void k(int* x) { int a[5] = {1, 2}; x[0] = 0; for (int i = 0; i < x[5]; ++i) x[0] += a[i] + 1; }",
            &[8.0],
        ),
        (
            "__global__ void k(int* x) { int a[3][40] = {{1}, {2, 3}}; int s = 0;
            for (int i = 0; i < 3; ++i) for (int j = 0; j < 40; ++j) s += a[i][j] * (i + 1) * (j + 1);
            x[0] = s; x[1] = sizeof(int) * 40; }",
            &[17.0, 160.0],
        ),
        (
            "struct P { float a; int n[2]; };
            __global__ void k(float* x) { P p[3]; for (int i = 0; i < 3; ++i) { p[i].a = x[i + 2]; p[i].n[i % 2] = i; }
            x[0] = p[1].a + p[2].a; x[1] = p[2].n[0]; p[0] = p[2]; x[2] = p[0].a; }",
            &[7.0, 2.0],
        ),
        (
            "__global__ void k(float* x) { float4 v[2]; v[0] = make_float4(1, 2, 3, 4); v[1].y = 5; v[1].x = x[0];
            int i = (int)x[1]; x[0] = v[i].y + v[i - 1].w + ((float*)&v[0])[i + 1]; }",
            &[12.0],
        ),
        (
            "__global__ void k(int* x) { char text[200]; text[x[7]] = -3; unsigned char* p = (unsigned char*)text;
            x[0] = p[7]; x[1] = text[7]; }",
            &[253.0, -3.0],
        ),
        (
            "__global__ void k(float* x) { float a[8]; for (int i = 0; i < 8; ++i) a[i] = i; float4* v = (float4*)a;
            x[0] = v[1].z; v[0] = make_float4(9, 8, 7, 6); x[1] = a[3]; }",
            &[6.0, 6.0],
        ),
    ]);
}

#[test]
fn pointers_point_into_local_arrays() {
    check(&[
        (
            "__global__ void k(int* x) { int a[4] = {1, 2, 3, 4}; int* p = &a[2]; x[0] = p[0]; x[1] = p[1]; x[2] = *(a + 1);
            int* q = a; q++; *q = 7; x[3] = a[1]; x[4] = q - a; }",
            &[3.0, 4.0, 2.0, 7.0, 1.0],
        ),
        (
            "__device__ void fill(int* p, int n) { while (n-- > 0) *p++ = n; }
            __device__ int sum(const int (*rows)[3], int n) { int s = 0; for (int i = 0; i < n; ++i) s += rows[i][2]; return s; }
            __global__ void k(int* x) { int a[4][3]; for (int i = 0; i < 4; ++i) fill(a[i], 3); a[x[2]][2] = 50; x[0] = sum(a, 4);
            x[1] = a[3][0]; }",
            &[50.0, 2.0],
        ),
        (
            "__device__ float poly(float v) { float c[70]; for (int i = 0; i < 70; ++i) c[i] = i * v; return c[(int)v]; }
            __global__ void k(float* x) { x[0] = poly(x[3]) + poly(x[2]); }",
            &[13.0],
        ),
        (
            "__global__ void k(int* x) { int total = 0;
            for (int i = 1; i < 4; ++i) { int seen[100]; for (int j = 0; j < i; ++j) seen[j * 30] = j; total += seen[(i - 1) * 30]; }
            x[0] = total; }",
            &[3.0],
        ),
    ]);
}

#[test]
fn pointers_choose_between_arrays() {
    check(&[
        (
            "__global__ void k(float* x) { __shared__ float tile[8]; tile[1] = 20; float* p = x[1] > 0 ? tile : x; float* q = x[0] > 0 ? tile : x;
            x[0] = p[1]; x[2] = q[1]; p[2] = 5; x[3] = tile[2]; }",
            &[20.0, 1.0, 1.0, 5.0],
        ),
        (
            "__global__ void k(int* x) { int a[2] = {1, 2}; int b[2] = {3, 4}; int* p; if (x[1]) p = a; else p = b;
            x[0] = p[0]; p++; x[1] = *p; p = b; p += 1; x[2] = p[0]; x[3] = p[-1]; }",
            &[1.0, 2.0, 4.0, 3.0],
        ),
        (
            "__global__ void k(int* x) { int* p = nullptr; int n = 0;
            for (int i = 0; i < 4; ++i) { if (p) n += *p; if (p == nullptr || i == 2) p = x + i + 1; else p = NULL; }
            x[0] = n; x[1] = p != nullptr; x[2] = !p; }",
            &[4.0, 0.0, 1.0],
        ),
        (
            "__device__ int get(const int* p, int otherwise) { return p ? p[2] : otherwise; }
            __global__ void k(int* x) { const int* some = x[1] > 0 ? x : nullptr; const int* none = x[0] > 0 ? x : nullptr;
            x[0] = get(some, -1); x[1] = get(none, -1); x[2] = get(nullptr, -2); }",
            &[2.0, -1.0, -2.0],
        ),
    ]);
}

#[test]
fn faults_in_local_memory_are_reported() {
    check_errors(&[
        (
            "__global__ void k(int* x) {\n int a[100];\n a[x[3]] = 1;\n x[0] = a[x[2]];\n}",
            "k.cu:4: 'a[2]' is read before it is written",
        ),
        (
            "__global__ void k(int* x) {\n int a[4] = {1};\n x[0] = a[x[9]];\n}",
            "k.cu:3: index 9 is outside 'a' of 4 elements",
        ),
        (
            "__global__ void k(int* x) {\n for (int i = 0; i < 2; ++i) {\n  int a[80];\n  if (i == 0) a[x[3]] = 1;\n  x[0] = a[x[3]];\n }\n}",
            "is read before it is written",
        ),
        ("__global__ void k(int* x) {\n int n;\n if (x[1] > 5) n = 1;\n x[0] = n;\n}", "k.cu:4: 'n[0]' is read before"),
        (
            "struct P { int a, b; };\n__global__ void k(int* x) {\n P p;\n p.a = 1;\n x[0] = p.a;\n x[1] = p.b;\n}",
            "k.cu:6: 'p[0]' is read before",
        ),
        (
            "__global__ void k(int* x) {\n int a[3];\n a[0] = 1;\n x[0] = a[0] + a[1];\n}",
            "k.cu:4: 'a[1]' is read before",
        ),
        (
            "__device__ int f(int v) {\n int r;\n if (v > 3) r = 1;\n return r;\n}\n__global__ void k(int* x) { x[0] = f(x[2]); }",
            "is read before",
        ),
        (
            "__global__ void k(int* x) {\n int* p = nullptr;\n if (x[1] > 5) p = x;\n x[0] = *p;\n}",
            "k.cu:4: 'the pointer is not null' does not hold",
        ),
        (
            "__global__ void k(int* x) {\n int* p = x[1] > 5 ? x : nullptr;\n p[1] = 3;\n}",
            "k.cu:3: 'the pointer is not null' does not hold",
        ),
        ("__global__ void k(int* x) { int a[2]; atomicAdd(&a[x[0]], 1); }", "local"),
    ]);
}

/// Variables that are written on every path before they are read stay in registers.
#[test]
fn initialized_variables_are_in_registers() {
    let text = "__global__ void k(float* x) {
        float v, w; int n; float a[4]; float3 p;
        if (x[threadIdx.x] >= 0) { v = 1; n = 2; } else { v = 2; n = 3; }
        for (int i = 0; i < 4; ++i) a[i] = v;
        switch (n) { case 2: w = 1; break; default: w = 3; }
        p.x = w; p.y = 1; p.z = p.x;
        float sum = 0;
        for (int i = 0; i < 4; ++i) sum += a[i] * p.z;
        int lane; if (threadIdx.x == 0) lane = 3;
        lane = __shfl_sync(0xffffffff, lane, 0);
        x[threadIdx.x] = sum + lane;
    }";
    let module = bornite_lang::cuda::CudaModule::parse("k.cu", text).unwrap_or_else(|errors| panic!("{errors}"));
    let request = bornite_lang::LaunchRequest::new([1; 3], [32, 1, 1]).length("x", 64);
    let kernel = module.kernel("k", &request).unwrap_or_else(|errors| panic!("{errors}")).kernel;
    assert!(kernel.local_arrays.is_empty(), "{kernel}");
    let found = super::run_kernel(&module, "k", 32).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(found[..3], [7.0; 3], "{kernel}");
}
