//! Matrix products on a GPU by cuBLASLt: which ones, from which memory, with which copies.
//!
//! This is where "the same bits on every device" ends. Generated kernels (`lower.rs`) give equal bits everywhere; the
//! library sums in an order of its own, so on CUDA a product of floats agrees with the other devices within a bound
//! (about k roundings of Σ|a||b|), not to the bit. Two runs of one product on one device still agree to the bit, eager
//! or traced. [`MatmulMode::Exact`] keeps the generated kernels. Integers, empty shapes, other devices and machines without
//! the library have them always.

mod mode;
mod product;
pub(crate) mod strided;

pub use mode::MatmulMode;
pub(crate) use product::{Product, products};
