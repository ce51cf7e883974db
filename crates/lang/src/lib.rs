//! Front ends of the kernel languages: source text to kernel IR, without nvcc, Python or a GPU.
//!
//! [`cuda`] reads a subset of CUDA C++: ordinary handwritten kernels, and the text that
//! `bornite_codegen` prints. A file is parsed once ([`cuda::CudaModule::parse`]); each of its
//! kernels is then lowered for a launch ([`cuda::CudaModule::kernel`]), which fixes grid, block,
//! array lengths and template arguments, so that the interpreter can check every access. [`python`]
//! reads the Python syntax of NVIDIA Warp in the same way. This crate must not know of GPUs,
//! tensors or the command line.
//!
//! | to see | look in |
//! |---|---|
//! | errors in a source, and how they are printed | [`Diagnostic`], [`Errors`] |
//! | the launch that a kernel is lowered for | [`LaunchRequest`] |
//! | typed expressions before they become IR, for all front ends | `lower/` |
//! | CUDA C++: lexer, preprocessor, parser, lowering | `cuda/` |
//! | Python syntax: declarations, constants, types, lowering, builtins | `python/` |
//!
//! Parse a kernel and run it in the interpreter, which checks every access:
//!
//! ```
//! use bornite_ir::{Arg, Scalar, Value, interp, load_scalar, store_scalar};
//! use bornite_lang::{LaunchRequest, cuda::CudaModule};
//!
//! let module = CudaModule::parse("scale.cu", "
//!     __global__ void scale(float* x, float a, int n) {
//!         int i = blockIdx.x * blockDim.x + threadIdx.x;
//!         if (i < n) x[i] *= a;
//!     }")?;
//! let launch = LaunchRequest::new([4, 1, 1], [256, 1, 1]).length("x", 1000);
//! let kernel = module.kernel("scale", &launch)?.kernel;
//!
//! // Memory is passed as 64-bit words: here 1000 floats.
//! let mut x = vec![0u64; 500];
//! store_scalar(&mut x, 3 * 4, Value::from_f64(Scalar::F32, 2.0));
//! let (a, n) = ([Value::from_f64(Scalar::F32, 1.5)], [Value::int(Scalar::I32, 1000)]);
//! interp::run(&kernel, &mut [Arg::Write(&mut x), Arg::Value(&a), Arg::Value(&n)]).unwrap();
//! assert_eq!(load_scalar(&x, 3 * 4, Scalar::F32).as_f64(), 3.0);
//! # Ok::<(), bornite_lang::Errors>(())
//! ```
//!
//! Errors are printed with their source line:
//!
//! ```
//! # use bornite_lang::cuda::CudaModule;
//! let errors = CudaModule::parse("k.cu", "__global__ void k(Matrix* m) {}").unwrap_err();
//! assert!(errors.to_string().starts_with("error: unknown type 'Matrix'\n --> k.cu:1:19"));
//! ```

pub mod cuda;
mod diagnostic;
mod lower;
pub mod python;
mod request;

pub use bornite_ir::ParamRef;
pub use diagnostic::{Diagnostic, Errors, LoadError, SourceSpan};
pub use request::{LaunchRequest, Lowered};
