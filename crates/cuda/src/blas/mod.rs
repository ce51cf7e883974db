//! Matrix products by cuBLASLt: a [`Matmul`] says which, a [`MatmulPlan`] has everything ready to run it, [`MatmulPlan::run`] gives
//! it to the device's work stream or into this thread's capture, without allocating.
//!
//! # Rows and columns
//! Everything outside `matmul.rs` speaks row-major: `D = alpha · A·B + beta · C` with A of `m × k`, B of `k × n`, C and D
//! of `m × n`, each row after row at a stride. cuBLASLt speaks column-major (its own row-major order leaves out
//! epilogues). Memory that is an `r × c` matrix row by row is the `c × r` transpose column by column, so the library is
//! asked for `Dᵀ = Bᵀ·Aᵀ`: its first operand is our B, its second our A, its m is our n. A matrix whose *columns* lie one
//! after the other (`transposed` here) is then what the library calls transposed. `Matmul::column_major` is the one
//! place that knows; a bias a column of D is the library's bias a row.
//!
//! # What is exact
//! f32 is computed in f32 ([`ComputeType::F32`]; TF32 only by [`ComputeType::Tf32`]), 16-bit floats are summed in f32, also
//! across splits of k. The order of summation is the algorithm's: the same plan gives the same bits at every run, another
//! algorithm or library may not.

mod descriptors;
mod library;
mod matmul;
mod plan;
mod search;

pub use library::{is_unsupported, version};
pub use matmul::{ComputeType, ElementType, Epilogue, Matmul, MatrixLayout};
pub use plan::{Algorithm, MatmulArgs, MatmulPlan};
