//! Kernel IR to CUDA C++.
//!
//! The text needs no header and gives the interpreter's bits when compiled with `--fmad=false`: products and sums are
//! fused only where the IR says `fma`, and op-table bodies become device functions printed from the same source.

use bornite_ir::{Kernel, View};

use crate::text::{self, Dialect, PrintOptions};

/// Threads in a block of every printed `ParallelFor`.
pub const THREADS_PER_BLOCK: u32 = 256;

/// Which spelling of op-table rows is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MathMode {
    /// The interpreter's bits: bodies of the op table become device functions.
    Exact,
    /// CUDA's own functions where a row names one; within the bounds that the row gives.
    Native,
}

/// The name of a kernel's function in its text.
pub fn symbol(kernel: &Kernel) -> String {
    text::names::kernel(kernel)
}

/// Bytes of shared memory that a launch must give each block: 0 where the text declares all that it uses.
pub fn dynamic_shared_bytes(kernel: &Kernel) -> u32 {
    text::entry::dynamic_shared_memory(kernel).map_or(0, |(_, bytes)| bytes.try_into().unwrap_or(u32::MAX))
}

/// Prints a kernel as a translation unit of its own, exactly spelled.
pub fn print(kernel: &Kernel) -> String {
    print_with(kernel, MathMode::Exact)
}

/// Prints a kernel as a translation unit of its own.
pub fn print_with(kernel: &Kernel, math: MathMode) -> String {
    text::print(kernel, PrintOptions { dialect: Dialect::Cuda(math), checked: false, restrict: true })
}

/// Prints a kernel whose views may overlap: without `__restrict__`.
pub fn print_aliased(kernel: &Kernel, math: MathMode) -> String {
    text::print(kernel, PrintOptions { dialect: Dialect::Cuda(math), checked: false, restrict: false })
}

/// Prints a kernel that checks its indices, for kernels that are not known to be right. It takes two more parameters: after
/// all pointers one to two 64-bit integers, and after all values a number of 64 bits. A thread that meets a bad index ends; if the first integer is still 0 it
/// then becomes the number plus what [`out_of_bounds_code`] tells of the place, and the second one the index.
pub fn print_checked(kernel: &Kernel) -> String {
    text::print(kernel, PrintOptions { dialect: Dialect::Cuda(MathMode::Exact), checked: true, restrict: true })
}

/// What checked text adds to its number where an index along a dimension of a view is bad: counted from 1 over the
/// dimensions of all parameters, then of all shared arrays. (0: several elements were accessed at once from a place that
/// is no multiple of their number.)
pub fn out_of_bounds_code(kernel: &Kernel, view: View, dimension: usize) -> usize {
    text::out_of_bounds_code(kernel, view, dimension)
}
