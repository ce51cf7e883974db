//! Kernel IR to CUDA C++.
//!
//! The output needs no headers and gives bit-identical results to the interpreter when compiled
//! with `--fmad=false`: multiplications and additions are fused only where the IR has an `fma`, and
//! op-table bodies become device functions.

use bornite_ir::{Kernel, View};

use crate::text::{self, Dialect, PrintOptions};

/// Block size of a `ParallelFor` kernel, in threads.
pub const THREADS_PER_BLOCK: u32 = 256;

/// Implementation of math functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MathMode {
    /// Bit-identical to the interpreter: op-table bodies become device functions.
    Exact,
    /// CUDA's math functions where the op table names one, within the error bound it states.
    Native,
}

/// Returns the name of the kernel's function in the generated source.
pub fn symbol(kernel: &Kernel) -> String {
    text::names::kernel(kernel)
}

/// Returns the dynamic shared memory that a launch must provide per block, in bytes; 0 if all
/// arrays are declared statically.
pub fn dynamic_shared_bytes(kernel: &Kernel) -> u32 {
    text::entry::dynamic_shared_memory(kernel).map_or(0, |(_, bytes)| bytes.try_into().unwrap_or(u32::MAX))
}

/// Prints a kernel as a self-contained translation unit with [`MathMode::Exact`].
pub fn print(kernel: &Kernel) -> String {
    print_with(kernel, MathMode::Exact)
}

/// Prints a kernel as a self-contained translation unit.
pub fn print_with(kernel: &Kernel, math: MathMode) -> String {
    text::print(kernel, PrintOptions { dialect: Dialect::Cuda(math), checked: false, restrict: true })
}

/// Prints a kernel whose views may overlap: without `__restrict__`.
pub fn print_aliased(kernel: &Kernel, math: MathMode) -> String {
    text::print(kernel, PrintOptions { dialect: Dialect::Cuda(math), checked: false, restrict: false })
}

/// Prints a kernel with bounds checks, for kernels that are not known to be correct.
///
/// It has two additional parameters: after all pointers, a pointer to a status of two 64-bit
/// integers; after all values, a 64-bit base code. A thread with an out-of-bounds index exits. If
/// the first status word is still 0, it is set to the base code plus [`out_of_bounds_code`], and
/// the second word to the index.
pub fn print_checked(kernel: &Kernel) -> String {
    text::print(kernel, PrintOptions { dialect: Dialect::Cuda(MathMode::Exact), checked: true, restrict: true })
}

/// Returns the status code, relative to the base code, of an out-of-bounds index along `dimension`
/// of `view`: numbered from 1 over the dimensions of all parameters, then of all shared
/// arrays, then of all local arrays. Code 0 is a misaligned vector access.
pub fn out_of_bounds_code(kernel: &Kernel, view: View, dimension: usize) -> usize {
    text::out_of_bounds_code(kernel, view, dimension)
}
