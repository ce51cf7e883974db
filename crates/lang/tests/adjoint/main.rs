//! Gradients of kernels from source: equal to finite differences, the same bits in the interpreter
//! and in machine code, or refused with the construct and its line.

mod cuda_cases;
mod harness;
mod python_cases;
mod random;
mod refused;
mod rows;

use bornite_ir::adjoint::{
    Accumulation, AdjointOptions, AdjointRequest, CheckError, CheckOptions, DEFAULT_TAPE_VALUES, adjoint,
    check_gradients,
};
use bornite_ir::{ParamId, Value};

use harness::{Case, check, check_names};

fn check_all(cases: &[Case]) {
    check_names(cases);
    let mut failed = vec![];
    for case in cases {
        for accumulation in [Accumulation::Ordered, Accumulation::Atomic] {
            match check(case, accumulation) {
                Ok(checks) => {
                    for found in checks {
                        println!("{} {:?}: {:.1e}", case.name, accumulation, found.error());
                    }
                }
                Err(message) => failed.push(format!("== {} ({accumulation:?}): {message}", case.name)),
            }
        }
    }
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

#[test]
fn gradients_of_cuda_kernels_equal_finite_differences() {
    check_all(&cuda_cases::cases());
}

#[test]
fn gradients_of_python_kernels_equal_finite_differences() {
    check_all(&python_cases::cases());
}

#[test]
fn cuda_kernels_are_refused() {
    refused::cuda_kernels_are_refused();
}

#[test]
fn python_kernels_are_refused() {
    refused::python_kernels_are_refused();
}

#[test]
fn gradients_of_all_rows_equal_finite_differences() {
    rows::rows_equal_finite_differences();
}

#[test]
fn gradients_of_random_kernels_equal_finite_differences() {
    random::random_kernels_equal_finite_differences();
}

/// A loop whose values are taped, and whose length is an argument: 11 iterations with two values
/// each.
fn taped_case() -> Case {
    let all = cuda_cases::cases();
    let found = all.into_iter().find(|case| case.name == "loop-carried overwrite of unknown length");
    found.unwrap_or_else(|| panic!("the case exists"))
}

#[test]
fn a_full_tape_is_an_error() {
    let case = taped_case();
    let lowered = case.lowered();
    let (values, memory) = case.arguments(&lowered);
    let mut request = AdjointRequest::new(&case.wrt(&lowered.kernel));
    assert_eq!(adjoint(&lowered.kernel, &request).map(|found| found.tape_values), Ok(DEFAULT_TAPE_VALUES));
    for (tape_values, fits) in [(3, false), (21, false), (22, true)] {
        request.options = AdjointOptions { tape_values, ..AdjointOptions::default() };
        let found = check_gradients(&lowered.kernel, &values, &memory, &request, &CheckOptions::default());
        match found {
            Ok(found) => assert!(fits && found[0].error() < 1e-6, "{tape_values}: {found:?}"),
            Err(CheckError::RunAdjoint(fault)) => {
                let message = format!("the gradient keeps at most {tape_values} values of loops per instance");
                assert!(!fits && fault.to_string().contains(&message), "{fault}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    request.options.tape_values = 1 << 20;
    let error = adjoint(&lowered.kernel, &request).map(|found| found.tape_values).unwrap_err();
    assert!(error.message.contains("1048576 values"), "{error}");
}

/// Loops of independent iterations compute their values again.
#[test]
fn tapes_are_used_only_where_needed() {
    let taped = |name: &str| {
        let case = cuda_cases::cases().into_iter().find(|case| case.name == name);
        let case = case.unwrap_or_else(|| panic!("no case '{name}'"));
        let lowered = case.lowered();
        let found = adjoint(&lowered.kernel, &AdjointRequest::new(&case.wrt(&lowered.kernel)));
        found.unwrap_or_else(|error| panic!("{error}")).tape_values
    };
    for name in ["softmax row", "matrix product", "n-body with float4", "convolution", "grid-stride loop"] {
        assert_eq!(taped(name), if name == "softmax row" { DEFAULT_TAPE_VALUES } else { 0 }, "{name}");
    }
    // Six iterations of one value.
    assert_eq!(taped("loop-carried overwrite"), 6);
}

/// Arguments that do not fit the kernel are errors.
#[test]
fn wrong_arguments_are_errors() {
    let case = taped_case();
    let lowered = case.lowered();
    let (values, memory) = case.arguments(&lowered);
    let request = AdjointRequest::new(&case.wrt(&lowered.kernel));
    let check = |values: &[Vec<Value>], memory: &[Vec<u64>], request: &AdjointRequest| {
        let found = check_gradients(&lowered.kernel, values, memory, request, &CheckOptions::default());
        found.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(check(&values, &memory, &request), Ok(()));
    let short: Vec<Vec<u64>> = memory.iter().map(|words| words[..words.len() / 2].to_vec()).collect();
    for (values, memory, expected) in [
        (&values[..], &memory[1..], "arrays and"),
        (&values[1..], &memory[..], "values, found"),
        (&values[..], &short[..], "bytes, found"),
        (&vec![vec![]; values.len()][..], &memory[..], "components, found 0"),
    ] {
        let error = check(values, memory, &request).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let error = check(&values, &memory, &AdjointRequest::new(&[ParamId(99)])).unwrap_err();
    assert!(error.contains("there is no array 99"), "{error}");
}
