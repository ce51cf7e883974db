//! Kernels printed as CUDA and parsed again: printing gives the same text, running the same bits.

#[path = "../../../codegen/tests/fuzz/calls.rs"]
mod calls;
#[path = "../../../codegen/tests/fuzz/generate.rs"]
mod generate;

use std::sync::atomic::{AtomicU64, Ordering};

use bornite_codegen::cuda;
use bornite_ir::interp::ExecutionOrder;
use bornite_ir::{
    Access, Axis, Builder, Builtin, Emit, EmitBits, Kernel, LaunchMode, Scalar, Value, elementwise, templates,
};
use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;

use calls::interpreted;
use generate::{Case, case, vectorizable_case};

/// Parses and lowers the printed text of a kernel.
fn parse_printed(kernel: &Kernel, text: &str, round_trip: bool) -> Result<Kernel, String> {
    let module = CudaModule::parse("printed.cu", text).map_err(|e| e.to_string())?;
    let (grid, block) = match kernel.launch {
        LaunchMode::ParallelFor { .. } => ([1; 3], [1; 3]),
        LaunchMode::Blocks { grid, block } => (grid, block),
    };
    let mut request = LaunchRequest::new(grid, block);
    (request.index_type, request.round_trip) = (Some(kernel.index), round_trip);
    request.views = kernel.params.iter().map(|p| (p.name.clone(), p.dims.clone())).collect();
    if !round_trip {
        // By the names in the text, which may have a trailing underscore.
        request.views.extend(kernel.params.iter().map(|p| (format!("{}_", p.name), p.dims.clone())));
    }
    module.kernel(&cuda::symbol(kernel), &request).map(|lowered| lowered.kernel).map_err(|e| e.to_string())
}

fn check(case: &Case, seed: u64) -> Option<String> {
    let text = cuda::print(&case.kernel);
    let again = match parse_printed(&case.kernel, &text, true) {
        Ok(kernel) => kernel,
        Err(error) => return Some(format!("the printed text is rejected: {error}\n{text}")),
    };
    let round_trip = cuda::print(&again);
    if round_trip != text {
        let line = text.lines().zip(round_trip.lines()).find(|(a, b)| a != b);
        return Some(format!("the printed text changes at {line:?}:\n{text}\n{round_trip}"));
    }
    match (
        interpreted(case, &case.kernel, seed, ExecutionOrder::Forward),
        interpreted(case, &again, seed, ExecutionOrder::Forward),
    ) {
        (Ok(expected), Ok(found)) if expected == found => check_without_round_trip(case, &text, seed, &expected),
        (Ok(_), Ok(_)) => Some(format!("different results:\n{}\n{again}", case.kernel)),
        // Templates that index by their input may fault; both must fault in the same way.
        (Err(expected), Err(found)) if expected.kind == found.kind => None,
        (Err(fault), _) | (_, Err(fault)) => Some(format!("{fault}\n{again}")),
    }
}

/// Checks a printed text that is lowered like any other source, without `round_trip`: it has the
/// same results.
fn check_without_round_trip(case: &Case, text: &str, seed: u64, expected: &[u64]) -> Option<String> {
    // Without `round_trip`, strided and multidimensional views are flat memory.
    let row = |dims: &[bornite_ir::Dim]| dims.len() == 1 && dims[0].stride == bornite_ir::Extent::Const(1);
    // Accesses to several elements of a local array are printed as calls that only `round_trip` knows.
    let is_wide = text.contains("bn_load_private<") || text.contains("bn_store_private(");
    if !case.kernel.params.iter().all(|param| row(&param.dims)) || is_wide {
        return None;
    }
    let read = match parse_printed(&case.kernel, text, false) {
        Ok(kernel) => kernel,
        Err(error) => return Some(format!("the printed text is rejected without round_trip: {error}\n{text}")),
    };
    match interpreted(case, &read, seed, ExecutionOrder::Forward) {
        Ok(found) if found == expected => None,
        Ok(_) => Some(format!("different results without round_trip:\n{text}\n{read}")),
        Err(fault) => Some(format!("without round_trip: {fault}\n{text}\n{read}")),
    }
}

#[test]
fn templates_round_trip() {
    use templates::*;
    let mut kernels = vec![particles().unwrap(), histogram(1000, 37, 64).unwrap()];
    for scalar in Scalar::ALL {
        let made = [
            fill(scalar, 1000, 1.0),
            axpy(scalar, 1000, 2.0),
            block_sum(scalar, 1000, 128),
            warp_sum(scalar, 320),
            transpose(scalar, 45, 70),
            matmul(scalar, 19, 37, 23, 8),
            block_scan(scalar, 1000, 64),
            stencil(scalar, 17, 40),
            softmax(scalar, 4, 100, 64),
            layer_norm(scalar, 4, 100, 64, 1e-5),
            conv2d(scalar, 3, 9, 11, 4, 3),
        ];
        kernels.extend(made.into_iter().flatten());
        kernels.extend(elementwise("elementwise", "gelu(x) * y", scalar, 1000));
    }
    assert!(kernels.len() > 60, "only {} templates", kernels.len());
    for kernel in kernels {
        let values: Vec<Vec<Value>> = (kernel.values.iter())
            .map(|v| v.ty.components(&kernel.structs).iter().map(|&s| Value::from_f64(s, 16.0)).collect())
            .collect();
        let name = kernel.name.clone();
        let case = Case { kernel, values };
        assert_eq!(check(&case, 1).unwrap_or_default(), "", "{name}");
    }
}

/// Shared arrays beyond the static limit.
#[test]
fn large_shared_arrays_round_trip() {
    let mut b = Builder::blocks("large", [2, 1, 1], [64, 1, 1], Scalar::I32);
    let out = b.param("out", Scalar::F32, 128, Access::Write);
    let (first, second) = (b.shared("first", Scalar::F32, 9000), b.shared_array("second", Scalar::F64, &[64, 64]));
    let [thread, block, size] = [Builtin::Thread, Builtin::Block, Builtin::BlockSize].map(|of| b.builtin(of(Axis::X)));
    let value = b.cast(Scalar::F32, &thread);
    b.store(first, thread, value);
    let wide = b.cast(Scalar::F64, &value);
    b.store(second, [thread, thread], wide);
    let (a, c) = (b.load(first, thread), b.load(second, [thread, thread]));
    let c = b.cast(Scalar::F32, &c);
    let (sum, start) = (b.add(&a, &c), b.mul(&block, &size));
    let index = b.add(&start, &thread);
    b.store(out, index, sum);
    let kernel = b.finish().unwrap();
    assert!(cuda::print(&kernel).contains("bn_shared"), "{}", cuda::print(&kernel));
    assert_eq!(check(&Case { kernel, values: vec![] }, 1).unwrap_or_default(), "");
}

#[test]
fn random_kernels_round_trip() {
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let count = if full { 50_000 } else { 5_000 };
    let first = match std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()) << 20,
    };
    println!("kernels from BORNITE_TEST_SEED={first}");
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let case = if seed % 5 == 4 { vectorizable_case(seed) } else { case(seed, true) };
                    if let Some(what) = check(&case, seed) {
                        panic!("BORNITE_TEST_SEED={seed}: {what}");
                    }
                }
            });
        }
    });
}
