//! Constructs of C++ and CUDA with known results: each program runs in the interpreter.

mod classes;
mod collectives;
mod failures;
mod groups;
mod includes;
mod instances;
mod language;
mod local_arrays;
mod namespaces;
mod pointers;
mod preprocessor;
mod reinterpret;
mod rules;
mod specializations;
mod standalone;
mod types;
mod unfinished;
mod warps;

use bornite_ir::interp::run;
use bornite_ir::{Arg, Scalar, Value, load_scalar, store_scalar};
use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;

/// Number of elements of the array that a kernel gets.
pub const LENGTH: usize = 64;

/// Runs a kernel of a module in one block of `threads` threads over the numbers `0, 1, …`.
pub fn run_kernel(module: &CudaModule, name: &str, threads: u32) -> Result<Vec<f64>, String> {
    let request = LaunchRequest::new([1; 3], [threads, 1, 1]).length("x", LENGTH as u64).shared_bytes(1024);
    let lowered = module.kernel(name, &request).map_err(|errors| errors.to_string())?;
    let scalar = lowered.kernel.params[0].ty.as_scalar().unwrap_or(Scalar::F32);
    let mut words = vec![0u64; LENGTH];
    (0..LENGTH).for_each(|n| store_scalar(&mut words, n * scalar.bytes(), Value::from_f64(scalar, n as f64)));
    match run(&lowered.kernel, &mut [Arg::Write(&mut words)]) {
        Ok(()) => Ok((0..LENGTH).map(|n| load_scalar(&words, n * scalar.bytes(), scalar).as_f64()).collect()),
        Err(fault) => {
            let (file, line) = module.location(lowered.line_of(&fault).unwrap_or(1));
            Err(format!("{file}:{line}: {}", fault.kind))
        }
    }
}

/// Runs the kernel `k` of each program with one thread, and compares its first results.
pub fn check(programs: &[(&str, &[f64])]) {
    for (text, expected) in programs {
        let module = CudaModule::parse("k.cu", text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
        let found = run_kernel(&module, "k", 1).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
        assert_eq!(&found[..expected.len()], *expected, "{text}");
        standalone::check(text, "k");
    }
}

/// Checks that each program is rejected with an error that contains a text.
pub fn check_errors(programs: &[(&str, &str)]) {
    for (text, expected) in programs {
        let outcome = CudaModule::parse("k.cu", text).map_err(|errors| errors.to_string());
        let found = outcome.and_then(|module| run_kernel(&module, "k", 1));
        assert!(found.as_ref().is_err_and(|error| error.contains(expected)), "{text}\n{found:?}");
    }
}
