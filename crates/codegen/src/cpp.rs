//! Kernel IR to C++ for a CPU: the same source as for a GPU, in a loop over `task_index`.
//!
//! The output is a self-contained translation unit for any C++17 compiler on a little-endian
//! machine. It gives bit-identical results to the interpreter if products are not contracted
//! (`-ffp-contract=off`).

use bornite_ir::Kernel;

use crate::text::{self, Dialect, PrintOptions};

/// Error for kernels whose threads communicate: they cannot run one after the other in a loop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "kernel '{0}' uses shared memory, barriers, shuffles or votes and cannot be printed as a C++ loop; print it as CUDA"
)]
pub struct CooperativeKernelError(pub String);

/// Returns the name of the kernel's function in the generated source.
pub fn symbol(kernel: &Kernel) -> String {
    text::names::kernel(kernel)
}

/// Prints a kernel as a function that runs all its instances.
pub fn print(kernel: &Kernel) -> Result<String, CooperativeKernelError> {
    print_kernel(kernel, true)
}

/// Prints a kernel whose views may overlap: without `__restrict`.
pub fn print_aliased(kernel: &Kernel) -> Result<String, CooperativeKernelError> {
    print_kernel(kernel, false)
}

fn print_kernel(kernel: &Kernel, restrict: bool) -> Result<String, CooperativeKernelError> {
    if kernel.is_cooperative() {
        return Err(CooperativeKernelError(kernel.name.clone()));
    }
    Ok(text::print(kernel, PrintOptions { dialect: Dialect::Cpp, checked: false, restrict }))
}
