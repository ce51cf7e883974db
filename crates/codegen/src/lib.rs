//! Code generation from kernel IR: CUDA C++, C++, machine code for the host CPU, and source in the
//! style of NVIDIA Warp's generated code.
//!
//! [`cuda::print`] prints source that NVRTC compiles without include paths; [`cpp::print`] prints
//! the same kernel as a loop for any C++ compiler; [`cpu::compile`] compiles a kernel that runs in
//! this process. All backends use the op tables of `bornite-ir`. This crate knows nothing about
//! launching on a GPU; that is `bornite-cuda`.
//!
//! # Example
//!
//! ```
//! use bornite_codegen::{cpu, cuda};
//! use bornite_ir::{Access, Arg, Builder, Emit, Scalar};
//!
//! // out[i] = 2 * x[i]
//! let mut b = Builder::new("twice", 4, Scalar::I32);
//! let x = b.param("x", Scalar::F64, 4, Access::Read);
//! let out = b.param("out", Scalar::F64, 4, Access::Write);
//! let i = b.index();
//! let value = b.load(x, i);
//! let twice = b.scale(&value, 2.0);
//! b.store(out, i, twice);
//! let kernel = b.finish()?;
//!
//! let source = cuda::print(&kernel);
//! println!("{source}");
//! assert!(source.contains("extern \"C\" __global__ void"));
//! assert!(source.contains("twice(const double* __restrict__ x, double* __restrict__ out)"));
//!
//! let input = [1.0f64, 2.0, 3.0, 4.0].map(f64::to_bits);
//! let mut output = [0u64; 4];
//! cpu::compile(&kernel)?.run(&mut [Arg::Read(&input), Arg::Write(&mut output)])?;
//! assert_eq!(output.map(f64::from_bits), [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cpp;
pub mod cpu;
pub mod cuda;
mod text;
mod warp_style;

pub use warp_style::{WarpSource, warp_style};
