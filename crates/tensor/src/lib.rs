//! Tensors that run on CPUs and NVIDIA GPUs from one binary.
//!
//! A [`Tensor`] is a promise: operations build a graph, and nothing runs until a value is asked for. Gradients are more
//! graph ([`Tensor::grad`]), state lives in [`Var`]s, and [`trace()`] compiles a whole step. A mistake makes a failed
//! tensor that remembers the first error and the line that made it; the first read returns it.
//!
//! ```
//! use bornite::{Device, Tensor};
//! # fn main() -> bornite::Result<()> {
//! let device = Device::auto();
//! let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], device);
//! let b = Tensor::from_slice(&[5.0f32, 6.0, 7.0, 8.0], &[2, 2], device);
//! let product = a.matmul(&b);
//! assert_eq!(product.to_vec::<f32>()?, [19.0, 22.0, 43.0, 50.0]);
//!
//! let loss = (&product * &product).sum(..);
//! let gradients = loss.grad(&[&a]);
//! assert_eq!(gradients[0].to_vec::<f32>()?, [454.0, 618.0, 1030.0, 1402.0]);
//! # Ok(())
//! # }
//! ```

pub mod error;
pub mod fused;
mod graph;
mod kernels;
mod lower;
mod matmul;
pub mod ops;
pub mod runtime;
mod schedule;
#[cfg(test)]
#[allow(dead_code)] // what only the tests of devices need
#[path = "../tests/devices/random.rs"]
mod test_random;

pub use bornite_ir::Scalar as DType;
pub use error::{Error, Result};
pub use graph::tensor::Tensor;
pub use ops::random::Generator;
pub use runtime::device::Device;
pub use runtime::trace::trace;
pub use runtime::var::Var;

/// The cache of compiled kernels on disk; the memory pool of a GPU.
pub use bornite_cuda::{cache, pool};
/// The kernel IR.
pub use bornite_ir as ir;
/// Log messages; times of kernels and transfers; measured choices between kernels.
pub use bornite_support::{log, profile, tune};

/// Custom kernels: from CUDA C++, Python source or the IR, launched as operations of the graph or repeatedly.
pub mod kernel {
    pub use crate::kernels::kernel::CustomKernel;
    pub use crate::kernels::launch::{KernelArg, Launch, LaunchDims};
    pub use crate::kernels::module::Module;
    pub use crate::kernels::prepared::PreparedLaunch;
    pub use crate::kernels::tune::{tune_kernels, tune_kernels_unchecked};
    pub use crate::runtime::execute::array_dtype;
}

/// Plans: which launches a read or a call of a trace makes, in which memory.
pub mod plan {
    #[doc(hidden)]
    pub use crate::lower::{with_gpu_kernels, with_gpu_plans};
    #[doc(hidden)]
    pub use crate::runtime::observe::observed;
    #[doc(hidden)]
    pub use crate::schedule::gpu_kernels;
    pub use crate::schedule::{LiveValue, PeakMemory, PlanSummary, StepSummary, explain, explain_pass, explained};
}

/// Settings of the process: environment variables, and functions that set the same in code.
pub mod settings {
    pub use bornite_cuda::{is_sync, set_sync};
    pub use bornite_support::settings::*;
    pub use bornite_support::{input_limit, set_input_limit};

    pub use crate::matmul::MatmulMode;
    pub use crate::runtime::check::check_nan;
    pub use crate::runtime::device::DEVICE_VARIABLE;
    pub use crate::runtime::math::{is_exact_math, set_exact_math};
}

/// Compiled functions: types that [`trace()`](crate::trace()) takes and returns.
pub mod trace {
    pub use crate::runtime::trace::{TensorSpec, Trace};
}

/// Updates of variables, and many variables in one.
pub mod var {
    pub use crate::runtime::arena::{Arena, SegmentValues};
    pub use crate::runtime::var::{Update, commit};
}

pub(crate) use error::SourceLocation;
pub(crate) use matmul::MatmulMode;
pub(crate) use ops::{Axes, Element, Number, Operand, bf16, f16, promote};
pub(crate) use runtime::interruptible;
pub(crate) use runtime::var::{Update, commit};

/// The tour's programs are compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tensors.md")]
struct Tour;

/// As are those of the page for people who know another library.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFrom;

/// The README's program is compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// As are the programs of the manuals.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cuda.md")]
struct CudaManual;

/// As above.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fusion.md")]
struct FusionManual;

/// As above.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/troubleshooting.md")]
struct TroubleshootingManual;

/// As above.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kernels.md")]
struct KernelsManual;
