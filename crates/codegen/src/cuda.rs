//! Kernel IR to CUDA C++.
//!
//! The text needs no header and gives the interpreter's bits when compiled with `--fmad=false`: products and sums are
//! fused only where the IR says `fma`, and op-table bodies become device functions printed from the same source.

use bornite_ir::Kernel;

use crate::text::{self, Dialect};

/// Threads in a block of every printed `ParallelFor`.
pub const BLOCK: u32 = 256;

/// Which spelling of op-table rows is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spelling {
    /// The interpreter's bits: bodies of the op table become device functions.
    Exact,
    /// CUDA's own functions where a row names one; within the bounds that the row gives.
    Native,
}

/// The name of a kernel's function in its text.
pub fn symbol(kernel: &Kernel) -> String {
    text::names::kernel(kernel)
}

/// Prints a kernel as a translation unit of its own, exactly spelled.
pub fn print(kernel: &Kernel) -> String {
    print_as(kernel, Spelling::Exact)
}

/// Prints a kernel as a translation unit of its own.
pub fn print_as(kernel: &Kernel, spelling: Spelling) -> String {
    text::print(kernel, Dialect::Cuda(spelling))
}
