//! Batch compilation: the CUDA texts of many rows compiled by NVRTC as one program. If that fails,
//! the batch is split in half.

use bornite_cuda::{Cubin, Error, compile_ptx, compile_with};

use crate::Row;

/// Rows compiled per NVRTC program. Larger batches gain little, since NVRTC's startup time is
/// amortized from about this size on.
pub const BATCH: usize = 32;

/// Replacement of `cuda_fp16.h` where CUDA's headers are not available: the same functions,
/// computed in 32 bits and rounded.
const HALF: &str = r#"
struct __half { unsigned short bits; };
__device__ inline float __half2float(__half a) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a.bits)); return r; }
__device__ inline __half __float2half(float a) { __half r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(a)); return r; }
__device__ inline __half __hadd(__half a, __half b) { return __float2half(__half2float(a) + __half2float(b)); }
__device__ inline __half __hsub(__half a, __half b) { return __float2half(__half2float(a) - __half2float(b)); }
__device__ inline __half __hmul(__half a, __half b) { return __float2half(__half2float(a) * __half2float(b)); }
__device__ inline __half __hdiv(__half a, __half b) { return __float2half(__half2float(a) / __half2float(b)); }
__device__ inline __half __hneg(__half a) { return __float2half(-__half2float(a)); }
"#;

const BFLOAT: &str = r#"
struct __nv_bfloat16 { unsigned short bits; };
__device__ inline float __bfloat162float(__nv_bfloat16 a) { return __uint_as_float((unsigned int)a.bits << 16); }
__device__ inline __nv_bfloat16 __float2bfloat16(float a) {
    unsigned int u = __float_as_uint(a);
    __nv_bfloat16 r;
    r.bits = (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    return r;
}
__device__ inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) { return __float2bfloat16(__bfloat162float(a) + __bfloat162float(b)); }
__device__ inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b) { return __float2bfloat16(__bfloat162float(a) - __bfloat162float(b)); }
__device__ inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) { return __float2bfloat16(__bfloat162float(a) * __bfloat162float(b)); }
__device__ inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b) { return __float2bfloat16(__bfloat162float(a) / __bfloat162float(b)); }
__device__ inline __nv_bfloat16 __hneg(__nv_bfloat16 a) { return __float2bfloat16(-__bfloat162float(a)); }
"#;

/// Name of a row's kernel in a combined program.
pub fn symbol(number: usize, row: &Row) -> String {
    format!("row{number}_{}", row.name)
}

/// Kernel name and CUDA text.
pub type NamedSource<'a> = (&'a str, &'a str);

/// Replacements of the CUDA headers that the texts include.
fn headers(texts: &[NamedSource<'_>]) -> String {
    let mut text = String::new();
    for (header, replacement) in [("#include <cuda_fp16.h>", HALF), ("#include <cuda_bf16.h>", BFLOAT)] {
        if texts.iter().any(|(_, cuda)| cuda.contains(header)) {
            text.push_str(replacement);
        }
    }
    text
}

/// Appends a CUDA text without its includes; its kernel is exported as `extern "C"` under the given
/// symbol.
fn append_exported((name, cuda): NamedSource<'_>, symbol: &str, text: &mut String) {
    let head = format!("__global__ void {name}(");
    let exported = format!("extern \"C\" __global__ void {symbol}(");
    for line in cuda.lines().filter(|line| !line.starts_with("#include")) {
        text.push_str(&line.replace(&head, &exported));
        text.push('\n');
    }
}

/// Combines texts into one program: each in its own namespace, each kernel under a unique symbol.
fn combined(texts: &[NamedSource<'_>]) -> String {
    let mut text = headers(texts);
    for (number, named) in texts.iter().enumerate() {
        text.push_str(&format!("namespace rows_{number} {{\n"));
        append_exported(*named, &format!("row{number}_{}", named.0), &mut text);
        text.push_str("}\n");
    }
    text
}

/// A text as a standalone program, its kernel under its own name.
pub(super) fn standalone(named: NamedSource<'_>) -> String {
    let mut text = headers(&[named]);
    append_exported(named, named.0, &mut text);
    text
}

/// Rows that were compiled together.
pub struct CompiledBatch<T> {
    /// Compiler output.
    pub code: T,
    /// Row numbers, in the order of their symbols in the program.
    pub rows: Vec<usize>,
}

/// Compiled batches, and NVRTC's log for each row that failed to compile.
pub type BatchOutcome<T> = Result<(Vec<CompiledBatch<T>>, Vec<(usize, String)>), Error>;

/// Compiles rows to PTX, which is enough for the level `compile` and takes half the time of machine
/// code.
pub fn to_ptx(rows: &[&Row], arch: &str) -> BatchOutcome<String> {
    texts_to_ptx(&named_sources(rows), arch)
}

/// Like [`to_ptx`], for texts.
pub fn texts_to_ptx(texts: &[NamedSource<'_>], arch: &str) -> BatchOutcome<String> {
    compile_in_batches(texts, &|text| compile_ptx("rows", text, arch))
}

/// Compiles rows to machine code with nvcc's defaults (FMA contraction, which the reference bounds
/// allow for), with or without optimization in ptxas.
pub fn to_machine_code(rows: &[&Row], arch: &str, optimized: bool) -> BatchOutcome<Cubin> {
    let options: &[&str] = if optimized { &["--std=c++17"] } else { &["--std=c++17", "--ptxas-options=-O0"] };
    compile_in_batches(&named_sources(rows), &|text| compile_with("rows", text, arch, options))
}

fn named_sources<'a>(rows: &[&'a Row]) -> Vec<NamedSource<'a>> {
    rows.iter().map(|row| (row.name.as_str(), row.cuda.as_str())).collect()
}

fn compile_in_batches<T>(texts: &[NamedSource<'_>], compile: &dyn Fn(&str) -> Result<T, Error>) -> BatchOutcome<T> {
    let (mut done, mut failed) = (vec![], vec![]);
    let mut left: Vec<Vec<usize>> = vec![];
    for first in (0..texts.len()).step_by(BATCH) {
        left.push((first..texts.len().min(first + BATCH)).collect());
    }
    while let Some(numbers) = left.pop() {
        let chosen: Vec<NamedSource<'_>> = numbers.iter().map(|n| texts[*n]).collect();
        match compile(&combined(&chosen)) {
            Ok(code) => done.push(CompiledBatch { code, rows: numbers }),
            Err(Error::Compile { log, .. }) if numbers.len() == 1 => failed.push((numbers[0], log)),
            Err(Error::Compile { .. }) => {
                let (first, second) = numbers.split_at(numbers.len() / 2);
                left.extend([first.to_vec(), second.to_vec()]);
            }
            Err(other) => return Err(other),
        }
    }
    failed.sort_unstable();
    Ok((done, failed))
}
