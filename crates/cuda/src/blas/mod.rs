//! Matrix products by cuBLASLt: a [`Matmul`] describes the product, a [`MatmulPlan`] has its
//! descriptors and algorithm, and [`MatmulPlan::run`] enqueues it on the device's work stream or
//! into this thread's capture, without allocating.
//!
//! # Row-major and column-major
//! Everything outside `matmul.rs` is row-major: `D = alpha · A·B + beta · C` with A of `m × k`, B
//! of `k × n`, C and D of `m × n`, each with a row stride. cuBLASLt is column-major (its row-major
//! order does not support epilogues). A row-major `r × c` matrix in memory is the `c × r` transpose
//! in column-major order, so the library computes `Dᵀ = Bᵀ·Aᵀ`: its first operand is our B, its
//! second our A, its m is our n. A column-major matrix (`transposed` here) is then what the library
//! calls transposed. Only `Matmul::column_major` knows this; a bias per column of D is the
//! library's bias per row.
//!
//! # Numerics
//! f32 is computed in f32 ([`ComputeType::F32`]; TF32 only with [`ComputeType::Tf32`]), 16-bit
//! floats are accumulated in f32, also across splits of k. The order of summation depends on the
//! algorithm: the same plan gives the same bits at every run, another algorithm or library version
//! may not.

mod descriptors;
mod library;
mod matmul;
mod plan;
mod search;

pub use library::{is_unsupported, version};
pub use matmul::{ComputeType, ElementType, Epilogue, Matmul, MatrixLayout};
pub use plan::{Algorithm, MatmulArgs, MatmulPlan};
