//! Matrix products by a library: cuBLASLt on a GPU (`blas.rs`), gemm on the CPU (`cpu.rs`,
//! `gemm.rs`). `library.rs` decides which products a library computes and from which memory.
//!
//! Library products are the exception to bitwise reproducibility across devices. Generated kernels
//! (`lower.rs`) give equal bits everywhere; a library chooses its own summation order, so a float
//! product agrees with the interpreter's within a bound (about k roundings of Σ|a||b|). Two runs of
//! one product on one device are still bitwise equal, eager or traced, and on the CPU for any
//! number of threads. [`MatmulMode::Exact`] uses generated kernels. So do, in every mode, integers,
//! empty shapes, the interpreter and machines without cuBLASLt.

mod blas;
mod cpu;
mod epilogue;
pub(crate) mod gemm;
mod library;
mod mode;
mod padding;
pub(crate) mod strided;

pub(crate) use library::{LibraryCall, LibraryMatmul, contiguous_layout, find_library_matmuls, locate};
pub use mode::MatmulMode;
