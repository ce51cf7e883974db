//! Warp functions among some lanes, atomics that wrap around, and pairs of 16-bit floats.

use bornite_lang::cuda::CudaModule;

use super::{check, check_errors, run_kernel};

/// Runs `body` with 64 threads; `lane` and the element `v` of each thread are declared.
fn run(body: &str) -> Result<Vec<f64>, String> {
    let text = format!(
        "__global__ void k(int* x) {{ int lane = threadIdx.x % 32, v = x[threadIdx.x]; __syncthreads(); {body} }}"
    );
    let module = CudaModule::parse("k.cu", &text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    run_kernel(&module, "k", 64)
}

#[test]
fn masks() {
    let cases: &[(&str, &[f64])] = &[
        ("if (lane < 8) x[threadIdx.x] = __shfl_xor_sync(0xff, v, 1);", &[1.0, 0.0, 3.0, 2.0, 5.0, 4.0, 7.0, 6.0, 8.0]),
        (
            "unsigned m = __ballot_sync(~0u, v % 3 == 0);
            if (v % 3 == 0) x[threadIdx.x] = __popc(__ballot_sync(m, v > 5)) + 10 * (__any_sync(m, v == 1) != 0);",
            &[9.0, 1.0, 2.0, 9.0],
        ),
        ("if (lane & 1) x[threadIdx.x] = __reduce_add_sync(0xaaaaaaaau, v);", &[0.0, 256.0, 2.0, 256.0]),
        ("if (lane > 29) { int m = __reduce_max_sync(3u << 30, -v); if (threadIdx.x == 31) x[0] = m; }", &[-30.0, 1.0]),
        (
            "if (lane < 4) { int all; unsigned same = __match_any_sync(0xf, v / 2), every = __match_all_sync(0xf, v / 4, &all);
            x[threadIdx.x] = same * 1000 + every * 10 + all; }",
            &[3151.0, 3151.0, 12151.0, 12151.0, 4.0],
        ),
        ("x[threadIdx.x] = __popc(__match_any_sync(~0u, (double)(v % 4)));", &[8.0, 8.0, 8.0]),
        ("x[threadIdx.x] = __reduce_min_sync(~0u, v) + (int)__reduce_xor_sync(~0u, 1 << (lane % 3));", &[3.0; 3]),
    ];
    for (body, expected) in cases {
        let found = run(body).unwrap_or_else(|error| panic!("{body}\n{error}"));
        assert_eq!(found[..expected.len()], **expected, "{body}");
    }
}

/// Threads that a mask names must take part, and only they may be read.
#[test]
fn misused_masks() {
    let cases = [
        ("if (lane < 7) x[0] = __shfl_xor_sync(0xff, v, 1);", "take part in a shuffle"),
        ("if (lane < 9) x[0] = __shfl_xor_sync(0xff, v, 1);", "take part in a shuffle"),
        ("if (lane < 8) x[threadIdx.x] = __shfl_down_sync(0xff, v, 1);", "take part in a shuffle"),
        ("if (lane < 8) x[threadIdx.x] = __any_sync(lane < 4 ? 0xff : 0xf0, v);", "take part in a vote"),
        ("if (lane < 8) __syncwarp(0xff);", "'__syncwarp' of a part of a warp is not supported"),
    ];
    for (body, expected) in cases {
        let error = run(body).unwrap_err();
        assert!(error.contains(expected), "{body}\n{error}");
    }
}

#[test]
fn counters_that_wrap_around() {
    check(&[(
        "__global__ void k(unsigned* x) {
            x[0] = 2; x[1] = 2; x[2] = 9;
            unsigned a = atomicInc(&x[0], 3), b = atomicInc(x, 3), c = atomicInc(x, 3);
            unsigned d = atomicDec(&x[1], 5);
            atomicDec(x + 1, 5); atomicDec(x + 1, 5); atomicDec(x + 2, 5);
            x[3] = a * 100 + b * 10 + c; x[4] = d;
        }",
        &[1.0, 5.0, 5.0, 230.0, 2.0],
    )]);
    check_errors(&[("__global__ void k(int* x) { atomicInc(x, 3); }", "'atomicInc' on something other than")]);
}

#[test]
fn pairs_and_bytes() {
    check(&[
        (
            "__global__ void k(float* x) {
                half2 a = __floats2half2_rn(1, 2), b = __float2half2_rn(3), c = make_half2(5, 6);
                half2 d = __hfma2(a, b, c);
                x[0] = __low2float(d); x[1] = __high2float(d);
                float2 f = __half22float2(__hmul2(a + b, __hsub2(c, a)) / b);
                x[2] = f.x; x[3] = f.y;
                a += b; a *= c;
                x[4] = (float)a.x; x[5] = __half2float(__high2half(__hneg2(a)));
                __nv_bfloat162 g = __hmax2(__floats2bfloat162_rn(1, 9), __float2bfloat162_rn(4));
                x[6] = __bfloat1622float2(g).x + 10 * __bfloat1622float2(g).y;
                half2 h = __lowhigh2highlow(__halves2half2(d.y, d.x));
                x[7] = __low2float(h);
            }",
            &[8.0, 12.0, 5.33203125, 6.66796875, 20.0, -30.0, 94.0, 8.0],
        ),
        (
            "__global__ void k(int* x) {
                int a = (int)0x80ff7f01; unsigned b = 0x80ff7f01u;
                x[0] = __dp4a(a, a, 100); x[1] = __dp4a(b, b, 100u);
                __stcs(&x[2], 7); __stcg(x + 3, x[2] + 1);
            }",
            &[32615.0, 97639.0, 7.0, 8.0],
        ),
    ]);
    check_errors(&[
        (
            "__global__ void k(float* x) { half2 a = __float2half2_rn(1); x[0] = (float)__hadd2(a, a.x).x; }",
            "takes pairs",
        ),
        ("__global__ void k(float* x) { half2 a = __float2half2_rn(1); x[0] = a < a; }", "this operator on pairs"),
        ("__global__ void k(const int* x) { __stcs(&x[0], 1); }", "const"),
    ]);
}
