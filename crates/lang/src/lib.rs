//! Kernel languages: source texts to kernel IR, without nvcc, Python or a GPU.
//!
//! [`cuda`] reads a subset of CUDA C++: what our own printer writes, and ordinary kernels written by hand. A file is read
//! once ([`cuda::CudaModule::parse`]); a kernel of it is made for a launch ([`cuda::CudaModule::kernel`]): grid, block, lengths of
//! arrays and template arguments are then known, and the interpreter can check every access. [`python`] reads the Python
//! syntax of NVIDIA Warp in the same way. This crate must not know of GPUs, tensors or the command line.
//!
//! | to see | look in |
//! |---|---|
//! | what is wrong with a source, and how it is shown | [`Diagnostic`], [`Errors`] |
//! | what a launch tells the front end | [`LaunchRequest`] |
//! | typed expressions before they become IR, for all languages | `lower/` |
//! | CUDA C++: tokens, macros, syntax, meaning | `cuda/` |
//! | Python syntax: declarations, constants, types, meaning, builtins | `python/` |
//!
//! ```
//! use bornite_lang::{Request, cuda::CudaModule};
//! let module = CudaModule::parse("scale.cu", "
//!     __global__ void scale(float* x, float a, int n) {
//!         int i = blockIdx.x * blockDim.x + threadIdx.x;
//!         if (i < n) x[i] *= a;
//!     }")?;
//! let lowered = module.kernel("scale", &Request::new([4, 1, 1], [256, 1, 1]).length("x", 1000))?;
//! assert_eq!(lowered.kernel.params[0].name, "x");
//! # Ok::<(), bornite_lang::Errors>(())
//! ```

pub mod cuda;
mod diagnostic;
mod lower;
pub mod python;
mod request;

pub use bornite_ir::ParamRef;
pub use diagnostic::{Diagnostic, Errors, LoadError, SourceSpan};
pub use request::{LaunchRequest, Lowered};
