//! Tensors that run on CPUs and NVIDIA GPUs from one binary.
//!
//! A [`Tensor`] is a promise: operations build a graph, and nothing runs until a value is asked for. Gradients are more
//! graph ([`Tensor::grad`]), state lives in [`Var`]s, and [`trace`] compiles a whole step. A mistake makes a failed
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
//!
//! From a call to a launch: `nn.rs`, `loss.rs`, … (functions over ops) → `ops.rs`, `reduce.rs`, … (the ops) → `schedule.rs`
//! (which kernels) → `lower.rs` (one kernel's IR) → `execute.rs` (compile and launch on a device). Matrix products
//! leave that path after `schedule.rs`, for `matmul/`.

mod error;
mod fused;
mod graph;
mod kernels;
mod lower;
mod matmul;
mod ops;
mod runtime;
mod schedule;
#[cfg(test)]
#[allow(dead_code)] // what only the tests of devices need
#[path = "../tests/devices/random.rs"]
mod test_random;

pub use bornite_ir::Scalar as DType;
pub use error::{Error, Place, Result};
pub use fused::adamw::{AdamWStep, adamw};
pub use fused::{FusedOp, Given, Memory, MemoryMut, Spelling, fused, set_fusion, with_fusion};
pub use graph::axes::Axes;
pub use graph::checkpoint::checkpoint;
pub use graph::promote::{Number, Operand, promote};
pub use graph::tensor::Tensor;
/// 16-bit floats on the host.
pub use half::{bf16, f16};
pub use kernels::custom::CustomOp;
pub use kernels::module::{KernelArg, Module, Over, SourceKernel};
pub use kernels::recorded::Recorded;
pub use kernels::runner::{Runner, tune_kernel, tune_kernel_unchecked};
#[doc(hidden)]
pub use lower::{with_gpu_kernels, with_gpu_plans};
pub use matmul::MatmulMode;
pub use ops::activation::Activation;
pub use ops::conv::Sliding;
pub use ops::random::Generator;
pub use ops::transfer::Target;
pub use runtime::check::check_nan;
pub use runtime::device::{DEVICE_VARIABLE, Device};
pub use runtime::element::Element;
pub use runtime::execute::run_kernel;
pub use runtime::interrupt::interruptible;
pub use runtime::math::{is_exact_math, set_exact_math};
#[doc(hidden)]
pub use runtime::observe::observed;
pub use runtime::segments::Arena;
pub use runtime::trace::{Spec, Trace, trace};
pub use runtime::var::{Update, Var, commit};
#[doc(hidden)]
pub use schedule::gpu_kernels;
pub use schedule::{Explained, ExplainedStep, LiveValue, Peak, explain, explain_pass, explained};

/// Libraries of NVIDIA; the memory pool of a GPU ([`Device::pool`]) and sizes as text; waiting for every launch.
pub use bornite_cuda::{Library, Pool, is_sync, set_sync};
/// The kernel cache on disk, messages on stderr, GPU memory, profiles, settings of the process, choices between kernels.
pub use bornite_cuda::{cache, pool};
/// The kernel IR, for kernels of one's own (see [`run_kernel`]).
pub use bornite_ir as ir;
pub use bornite_support::{input_limit, parse_bytes, set_input_limit};
pub use bornite_support::{log, profile, settings, tune};

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
