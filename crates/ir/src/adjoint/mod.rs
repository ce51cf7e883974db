//! Reverse-mode differentiation of kernels: from a kernel, a kernel that computes gradients.
//!
//! Each instance of the adjoint kernel runs the instance of the kernel again, then its statements
//! backwards. The passes, in order:
//!
//! | pass | file | result |
//! |---|---|---|
//! | flatten | `flatten.rs` | scalars and blocks without early exits (`scalar_code.rs`) |
//! | activity | `activity.rs`, `discard.rs` | the values that carry derivatives |
//! | arrays | `arrays.rs`, `index.rs` | how each array is accessed; which elements belong to one instance |
//! | needs | `needs.rs` | the values that the backward sweep uses: recomputed, kept in variables, or taped |
//! | emit | `emit.rs`, `forward.rs`, `backward.rs` | the adjoint kernel |
//! | clean | `clean.rs` | the same without unused code and parameters |
//!
//! `check.rs` compares gradients with finite differences, of the kernel in f64 (`widen.rs`).
//!
//! Integers, indices and conditions are constants of the derivative. Kernels whose gradient this
//! module cannot prove correct are errors ([`AdjointError`]) with the line and what to change.

mod activity;
mod arrays;
mod backward;
mod check;
mod clean;
mod discard;
mod emit;
mod flatten;
mod forward;
mod index;
mod needs;
mod scalar_code;
mod widen;

pub use check::{CheckError, CheckOptions, GradientCheck, WorstElement, check_gradients};
pub use widen::in_f64;

use crate::{Kernel, ParamId, Stmt, verify};

/// Default bound of the tape of an instance, in values.
pub const DEFAULT_TAPE_VALUES: u64 = 4096;

/// Addition of the contributions of several instances to one element of a gradient.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Accumulation {
    /// Ordered: the instances are divided into consecutive ranges, each of which adds in order to
    /// its own copy of the gradient. The number of ranges depends on the kernel only, so that the
    /// bits are the same in every run and on every device.
    #[default]
    Ordered,
    /// Atomic: all instances run in parallel and the order of additions is not defined.
    Atomic,
}

/// Settings of an adjoint kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdjointOptions {
    /// Addition of contributions of several instances.
    pub accumulation: Accumulation,
    /// Maximum number of values that an instance may tape, where loop bounds do not determine it.
    /// An instance that needs more fails an assertion.
    pub tape_values: u64,
}

impl Default for AdjointOptions {
    fn default() -> AdjointOptions {
        AdjointOptions { accumulation: Accumulation::default(), tape_values: DEFAULT_TAPE_VALUES }
    }
}

/// Task of [`adjoint`].
#[derive(Clone, Debug)]
pub struct AdjointRequest {
    /// The arrays to differentiate with respect to: their contents before the launch.
    pub with_respect_to: Vec<ParamId>,
    /// Settings.
    pub options: AdjointOptions,
}

impl AdjointRequest {
    /// Gradients with respect to these arrays, with default settings.
    pub fn new(with_respect_to: &[ParamId]) -> AdjointRequest {
        AdjointRequest { with_respect_to: with_respect_to.into(), options: AdjointOptions::default() }
    }
}

/// Contents of an array parameter of an adjoint kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdjointRole {
    /// The array before the launch of the kernel. If the adjoint kernel writes it, it is a scratch
    /// copy.
    Original,
    /// On entry, the gradient of the array after the launch; on exit, if it is written, that of the
    /// array before the launch.
    OutputGradient,
    /// On entry zeros; on exit the gradient of the array. `copies` above 1: that many gradients,
    /// one after the other along the first dimension, which must be added in order. If the kernel
    /// may write the array by its access mode but does not, the gradient of the array after the
    /// launch must be added too.
    Gradient {
        /// Number of gradients.
        copies: u64,
    },
}

/// Array parameter of an adjoint kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdjointArray {
    /// The array of the kernel.
    pub param: ParamId,
    /// Its contents.
    pub role: AdjointRole,
}

/// An adjoint kernel. Its value parameters are those of the kernel.
#[derive(Clone, Debug)]
pub struct Adjoint {
    /// The kernel, a `ParallelFor`.
    pub kernel: Kernel,
    /// Its arrays, in the order of its parameters.
    pub arrays: Vec<AdjointArray>,
    /// Size of each instance's tape, in values; 0 if it has none.
    pub tape_values: u64,
}

/// A kernel cannot be differentiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdjointError {
    /// The kernel's name.
    pub kernel: String,
    /// The construct that is not supported.
    pub message: String,
    /// The change that would help.
    pub remedy: String,
    /// Line of the kernel's text form, from 1.
    pub line: Option<usize>,
}

impl std::error::Error for AdjointError {}

impl std::fmt::Display for AdjointError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kernel '{}' cannot be differentiated: {}", self.kernel, self.message)?;
        if let Some(line) = self.line {
            write!(f, " (line {line} of the IR text)")?;
        }
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Construct that is not supported, and what to do instead.
struct Refusal {
    what: String,
    remedy: String,
}

impl AdjointError {
    fn at(kernel: &Kernel, site: Option<&Stmt>, refusal: Refusal) -> AdjointError {
        AdjointError {
            kernel: kernel.name.clone(),
            message: refusal.what,
            remedy: refusal.remedy,
            line: site.and_then(|stmt| kernel.line_of(stmt)),
        }
    }
}

/// Differentiates a verified kernel. All arrays of floats that the kernel writes are outputs.
///
/// ```
/// use bornite_ir::{Access, Builder, Emit, ParamId, Scalar, adjoint::{AdjointRequest, AdjointRole, adjoint}};
/// let mut b = Builder::new("square", 4, Scalar::I32);
/// let x = b.param("x", Scalar::F32, 4, Access::Read);
/// let y = b.param("y", Scalar::F32, 4, Access::Write);
/// let i = b.index();
/// let value = b.load(x, i);
/// let square = b.mul(&value, &value);
/// b.store(y, i, square);
/// let found = adjoint(&b.finish()?, &AdjointRequest::new(&[x]))?;
/// let roles: Vec<AdjointRole> = found.arrays.iter().map(|array| array.role).collect();
/// let gradient = AdjointRole::Gradient { copies: 1 };
/// assert_eq!(roles, [AdjointRole::Original, AdjointRole::OutputGradient, gradient]);
/// assert_eq!(found.kernel.params[2].name, "grad_x");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn adjoint(kernel: &Kernel, request: &AdjointRequest) -> Result<Adjoint, AdjointError> {
    let refuse =
        |what: String, remedy: &str| Err(AdjointError::at(kernel, None, Refusal { what, remedy: remedy.into() }));
    if let Err(error) = verify(kernel) {
        return refuse(error.message, "");
    }
    let count = kernel.params.len();
    if let Some(param) = request.with_respect_to.iter().find(|param| param.0 as usize >= count) {
        return refuse(format!("there is no array {}; it has {count}", param.0), "");
    }
    if let Some(shared) = kernel.shared.first() {
        return refuse(
            format!("shared memory ('{}')", shared.name),
            "kernels whose threads cooperate need a gradient kernel",
        );
    }
    let code = flatten::flatten(kernel)?;
    let activity = activity::analyze(kernel, &code, request)?;
    let arrays = arrays::classify(kernel, &code, &activity, request)?;
    let needs = needs::find(kernel, &code, &activity, &arrays);
    emit::emit(kernel, &code, &activity, &arrays, &needs, request)
}
