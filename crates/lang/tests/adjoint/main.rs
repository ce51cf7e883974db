//! Gradients of kernels from source: equal to finite differences, the same bits in the interpreter
//! and in machine code, or refused with the construct and its line.

mod cuda_cases;
mod harness;
mod python_cases;
mod random;
mod refused;
mod rows;

use bornite_ir::adjoint::Accumulation;

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
