//! Matrix products by a library: which ones, from which memory, with which copies. On a GPU by cuBLASLt (`blas.rs`), on
//! the CPU by gemm (`cpu.rs`, `gemm.rs`).
//!
//! This is where "the same bits on every device" ends. Generated kernels (`lower.rs`) give equal bits everywhere; a
//! library sums in an order of its own, so a product of floats agrees with the interpreter's within a bound (about k
//! roundings of Σ|a||b|), not to the bit. Two runs of one product on one device still agree to the bit, eager or traced,
//! and on the CPU for any number of threads. [`MatmulMode::Exact`] keeps the generated kernels. Integers, empty shapes, the
//! interpreter and machines without cuBLASLt have them always.

mod blas;
mod cpu;
mod epilogue;
pub(crate) mod gemm;
mod library;
mod mode;
pub(crate) mod strided;

pub(crate) use library::{LibraryCall, LibraryMatmul, contiguous_layout, locate, products};
pub use mode::MatmulMode;
