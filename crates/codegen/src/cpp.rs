//! Kernel IR to C++ for a CPU: the same text as for a GPU, in a loop over `task_index`.
//!
//! The text is a translation unit of its own for any compiler of C++17 on a little-endian machine, and gives the
//! interpreter's bits if products are not contracted (`-ffp-contract=off`).

use bornite_ir::Kernel;

use crate::text::{self, Dialect, PrintOptions};

/// A kernel whose threads depend on each other has no form in which they run one after the other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel '{0}' uses shared memory, barriers, shuffles or votes and cannot be printed as a C++ loop; print it as CUDA")]
pub struct CooperativeKernelError(pub String);

/// The name of a kernel's function in its text.
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
