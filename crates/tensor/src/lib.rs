//! Tensors that run on CPUs and NVIDIA GPUs from one binary.
//!
//! A [`Tensor`] is lazy: operations build a graph, and nothing runs until a value is read.
//! [`Tensor::grad`] extends the graph with gradients, [`Var`]s hold state, and [`trace()`] compiles
//! a complete step. An invalid operation returns a failed tensor, which carries the error and the
//! line of the caller to the first read.
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
#[allow(dead_code)] // some functions are used by tests/devices only
#[path = "../tests/devices/random.rs"]
mod test_random;

pub use bornite_ir::Scalar as DType;
pub use error::{Error, Result};
pub use graph::tensor::Tensor;
pub use ops::random::Generator;
pub use runtime::device::Device;
pub use runtime::trace::trace;
pub use runtime::var::Var;

/// The on-disk cache of compiled kernels; the memory pool of a GPU.
pub use bornite_cuda::{cache, pool};
/// The kernel IR.
pub use bornite_ir as ir;
/// Logging; profiles of kernels and transfers; the kernel tuner.
pub use bornite_support::{log, profile, tune};

/// Custom kernels in CUDA C++, Python syntax or the IR, launched as graph operations or repeatedly.
pub mod kernel {
    pub use crate::kernels::analysis::{
        AccessStats, AnalysisFinding, BranchStats, KernelAnalysis, MemorySpace, Stride,
    };
    pub use crate::kernels::kernel::CustomKernel;
    pub use crate::kernels::launch::{KernelArg, Launch, LaunchDims};
    pub use crate::kernels::module::Module;
    pub use crate::kernels::prepared::PreparedLaunch;
    pub use crate::kernels::tune::{tune_kernels, tune_kernels_unchecked};
    pub use crate::runtime::execute::array_dtype;
    pub use bornite_ir::adjoint::{Accumulation, AdjointOptions};
}

/// Execution plans: the launches and the memory of a read or of a call of a trace.
pub mod plan {
    #[doc(hidden)]
    pub use crate::lower::{with_gpu_kernels, with_gpu_plans};
    #[doc(hidden)]
    pub use crate::runtime::cuda_source::with_kernel_delays;
    #[doc(hidden)]
    pub use crate::runtime::observe::observed;
    #[doc(hidden)]
    pub use crate::schedule::gpu_kernels;
    pub use crate::schedule::{LiveValue, PeakMemory, PlanSummary, StepSummary, explain, explain_pass, summarize};
}

/// Process-wide settings: environment variables, and functions that override them.
pub mod settings {
    pub use bornite_cuda::{is_sync, set_sync};
    pub use bornite_support::settings::*;
    pub use bornite_support::{input_limit, set_input_limit};

    pub use crate::matmul::MatmulMode;
    pub use crate::runtime::check::check_nan;
    pub use crate::runtime::cuda_source::{is_deterministic, set_deterministic};
    pub use crate::runtime::device::DEVICE_VARIABLE;
    pub use crate::runtime::math::{is_exact_math, set_exact_math};
}

/// Compiled functions: the argument and return types of [`trace()`](crate::trace()).
pub mod trace {
    pub use crate::runtime::trace::{HostValue, TensorSpec, Trace};
}

/// Updates of variables, and arenas of many variables in one buffer.
pub mod var {
    pub use crate::runtime::arena::{Arena, SegmentValues};
    pub use crate::runtime::var::{Update, commit};
}

pub(crate) use error::SourceLocation;
pub(crate) use matmul::MatmulMode;
pub(crate) use ops::{Axes, Element, Number, Operand, bf16, f16, promote};
pub(crate) use runtime::interruptible;
pub(crate) use runtime::var::{Update, commit};

/// Runs the programs of docs/tensors.md as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tensors.md")]
struct Tour;

/// Runs the programs of docs/coming-from.md as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFrom;

/// Runs the program of the README as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Runs the programs of the manuals as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cuda.md")]
struct CudaManual;

/// Runs the programs of this page as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fusion.md")]
struct FusionManual;

/// Runs the programs of this page as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/troubleshooting.md")]
struct TroubleshootingManual;

/// Runs the programs of this page as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kernels.md")]
struct KernelsManual;
