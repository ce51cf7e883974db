//! Components and fields of elements in memory are independent for races, uninitialised reads and
//! atomics.

use bornite_codegen::cuda;
use bornite_ir::interp::run;
use bornite_ir::{Arg, Kernel, load_scalar};
use bornite_lang::cuda::CudaModule;
use bornite_lang::{LaunchRequest, Lowered};

const HEAD: &str = "struct Bin { int count; float sum; float2 at; int hits[3]; };\n";

fn lower(text: &str, threads: u32) -> Lowered {
    let module = CudaModule::parse("k.cu", text).unwrap_or_else(|errors| panic!("{errors}"));
    let request = LaunchRequest::new([2, 1, 1], [threads, 1, 1]).length("x", 64).length("b", 8).length("v", 8);
    module.kernel("k", &request).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// Runs a kernel on zeros: the first numbers of its first array, or the fault.
fn outcome(kernel: &Kernel) -> Result<Vec<f64>, String> {
    let mut memory: Vec<Vec<u64>> = vec![vec![0; 512]; kernel.params.len()];
    let mut args: Vec<Arg<'_>> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .collect();
    run(kernel, &mut args).map_err(|fault| fault.kind.to_string())?;
    let layout = kernel.params[0].ty.layout(&kernel.structs);
    let cell = |n: usize| {
        let (offset, scalar) = layout.offsets[n % layout.offsets.len()];
        load_scalar(&memory[0], n / layout.offsets.len() * layout.bytes + offset, scalar).as_f64()
    };
    Ok((0..16).map(cell).collect())
}

#[test]
fn components_are_independent() {
    let right: &[(&str, u32, &[f64])] = &[
        // Initialised field by field.
        (
            "k(float* x) { __shared__ float3 s[32]; int t = threadIdx.x; s[t].x = t; s[t].y = 2 * t; __syncthreads();
             if (blockIdx.x == 0) x[t] = s[31 - t].x + s[31 - t].y; }",
            32,
            &[93.0, 90.0, 87.0],
        ),
        (
            "k(int* x) { __shared__ int2 range; if (threadIdx.x == 0) { range.x = 3; range.y = 5; } __syncthreads();
             if (blockIdx.x == 0) x[threadIdx.x] = range.x * 10 + range.y; }",
            4,
            &[35.0, 35.0],
        ),
        (
            "k(int* x) { __shared__ float s[8]; int* c = (int*)&s[4]; c[threadIdx.x] = threadIdx.x + 7; __syncthreads();
             if (blockIdx.x == 0) x[threadIdx.x] = c[3 - threadIdx.x]; }",
            4,
            &[10.0, 9.0, 8.0, 7.0],
        ),
        // Written by different threads, and read at the same time.
        ("k(float3* v) { if (blockIdx.x == 0) v[threadIdx.x].x = 1.f; else v[threadIdx.x].z = 2.f; }", 2, &[1.0, 0.0, 2.0, 1.0]),
        (
            "k(float4* v) { int t = threadIdx.x; if (blockIdx.x == 0) v[t].x = t + 1; else v[t].w = v[t].y + 3.f; }",
            2,
            &[1.0, 0.0, 0.0, 3.0, 2.0],
        ),
        ("k(float3* v) { int t = threadIdx.x; if (blockIdx.x == 0) ((float*)&v[0])[t] = t + 1; }", 3, &[1.0, 2.0, 3.0, 0.0]),
        ("k(float* x) { float4* w = (float4*)x; if (blockIdx.x == 0) w[1].x = 5.f; else w[1].z = 6.f; }", 1, &[0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 6.0]),
        (
            "k(Bin* b) { Bin* own = &b[1]; if (blockIdx.x == 0) own->hits[threadIdx.x] = threadIdx.x + 1;
             else if (threadIdx.x == 0) own->at = make_float2(8.f, 9.f); }",
            3,
            &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0, 9.0, 1.0, 2.0, 3.0],
        ),
        ("k(float* x) { float4* w = (float4*)x; if (blockIdx.x == 0) w[1].x = 5.f; else w[1].z = w[1].y + 1.f; }", 1, &[0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 1.0]),
        ("k(float3* v) { if (blockIdx.x == 0) *(float*)&v[threadIdx.x] = 4.f; atomicAdd((float*)&v[2], 1.f); }", 2, &[4.0, 0.0, 0.0, 4.0, 0.0, 0.0, 4.0]),
        (
            "k(int* x) { __shared__ Bin s; int t = threadIdx.x; s.hits[t] = t + 5; __syncthreads();
             if (blockIdx.x == 0) x[t] = s.hits[2 - t]; }",
            3,
            &[7.0, 6.0, 5.0],
        ),
        // Atomics.
        (
            "k(Bin* b) { atomicAdd(&b[0].count, 1); atomicAdd(&b[0].sum, 0.5f); atomicMax(&b[0].hits[1], (int)threadIdx.x);
             atomicAdd(&b[0].at.y, 1.f); }",
            16,
            &[32.0, 16.0, 0.0, 32.0, 0.0, 15.0],
        ),
        (
            "k(int2* v) { int old = atomicCAS(&v[0].y, 0, 7); if (old == 7) atomicAdd(&v[1].x, 1); }",
            16,
            &[0.0, 7.0, 31.0, 0.0],
        ),
        ("k(float2* v) { float old = atomicExch(&v[0].x, 3.f); v[1 + blockIdx.x].x = old; }", 1, &[3.0, 0.0, 0.0, 0.0, 3.0]),
    ];
    for (body, threads, expected) in right {
        let text = format!("{HEAD}__global__ void {body}");
        let lowered = lower(&text, *threads);
        let found = outcome(&lowered.kernel).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
        assert_eq!(&found[..expected.len()], *expected, "{text}\n{}", lowered.kernel);
        // Round trips through the IR's text form and through CUDA text.
        let own = lowered.kernel.to_string();
        assert_eq!(own.parse::<Kernel>().map(|kernel| kernel.to_string()), Ok(own.clone()), "{text}");
        let printed = cuda::print(&lowered.kernel);
        let again = CudaModule::parse("k.cu", &printed).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
        let request = LaunchRequest::new([2, 1, 1], [*threads, 1, 1]);
        let request = ["x", "b", "v"].iter().fold(request, |request, name| request.length(name, 64));
        let again = again.kernel("k", &request).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
        assert_eq!(outcome(&again.kernel).as_deref(), Ok(&found[..]), "{printed}");
    }
    let wrong: &[(&str, u32, &str)] = &[
        (
            "k(float3* v) { v[0].y = 1.f; }",
            2,
            "race on 'v[0]': a write by thread [0, 0, 0] of block [0, 0, 0] and a write",
        ),
        ("k(float3* v) { if (threadIdx.x == 0) v[1].y = 1.f; else v[0].x = v[1].y; }", 2, "race on 'v[1]'"),
        ("k(float3* v) { if (threadIdx.x == 0) v[1].y = 1.f; else v[0] = v[1]; }", 2, "race on 'v[1]'"),
        ("k(Bin* b) { atomicAdd(&b[0].count, 1); b[0].count = 2; }", 2, "race on 'b[0]'"),
        (
            "k(float* x) { __shared__ float3 s[2]; s[threadIdx.x].x = 1.f; x[blockIdx.x * 2 + threadIdx.x] = s[threadIdx.x].y; }",
            2,
            "'s[0]' is read before it is written",
        ),
        (
            "k(float3* v) { int t = threadIdx.x; if (blockIdx.x == 0) ((float*)&v[0])[t] = 1.f; }",
            4,
            "index 3 is outside 'v' of 3 elements",
        ),
        ("k(float3* v) { v[8 + blockIdx.x].x = 1.f; }", 1, "index 8 is outside 'v' of 8 elements"),
    ];
    for (body, threads, expected) in wrong {
        let text = format!("{HEAD}__global__ void {body}");
        let found = outcome(&lower(&text, *threads).kernel).expect_err(&text);
        assert!(found.starts_with(expected), "{text}\nexpected: {expected}\nfound: {found}");
    }
}
