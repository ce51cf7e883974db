//! Kernel IR to machine code for the host CPU with Cranelift, and multi-threaded launches.
//!
//! Kernels whose instances all take the same path are vectorized: several instances run at once in
//! 128-bit vectors (`simd/`). An out-of-bounds index ends the run with a [`Fault`]; checks are
//! omitted for indices known to be in bounds (`range_analysis.rs`). Integer division never traps.
//!
//! | to see | look in |
//! |---|---|
//! | the loop over instances | `instances.rs` |
//! | statements and expressions of one instance | `lower.rs`, `emit.rs`, `primitive.rs`, `address.rs` |
//! | vectorization | `simd/` |
//! | how a launch is split over cores | `launch.rs`, `pool.rs` |
//! | how work is interrupted | `interrupt.rs` |

mod address;
mod atomic;
mod emit;
mod half;
mod instances;
mod interrupt;
mod launch;
mod lower;
pub mod pool;
mod primitive;
mod print;
mod range_analysis;
mod simd;

pub use interrupt::{Interrupt, discardable, interruptible, is_interrupted};
pub use launch::set_chunk_size;
pub use pool::{num_threads, set_num_threads};

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use bornite_ir::{Check, Fault, FaultKind, Kernel, Scalar, Stmt, Value, VerifyError, verify};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};

/// Reason why a kernel could not be compiled for the CPU.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompileError {
    /// The kernel is not valid.
    #[error(transparent)]
    Invalid(#[from] VerifyError),
    /// The kernel's threads communicate, so they cannot run one after the other.
    #[error(
        "kernel '{0}' uses shared memory, barriers, shuffles or votes, which are not supported on the CPU; run it on the device 'interpreter'"
    )]
    Cooperative(String),
    /// Cranelift does not support this CPU or operating system.
    #[error("compilation is not supported for this CPU ({0}); use the device 'interpreter'")]
    UnsupportedHost(String),
    /// Cranelift failed: a bug worth reporting.
    #[error("failed to compile kernel '{kernel}' for the CPU: {message}")]
    Backend {
        /// The kernel's name.
        kernel: String,
        /// Cranelift's message.
        message: String,
    },
}

/// Options of CPU compilation.
#[derive(Clone, Copy, Debug)]
pub struct CompileOptions {
    /// If set, kernels may be vectorized. Results are bit-identical.
    pub simd: bool,
    /// If set, indices are checked even if they are known to be in bounds.
    pub check_all_indices: bool,
    /// Maximum number of executed statements, after which a run ends with
    /// [`FaultKind::StatementLimit`]; `None` for no limit.
    pub max_statements: Option<u64>,
    /// If set, `max_statements` applies to each instance instead of to all instances together.
    pub limit_per_instance: bool,
    /// If set, integer division by zero, and of the smallest integer by -1, are faults. Otherwise
    /// both have a defined result.
    pub check_division: bool,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            simd: true,
            check_all_indices: false,
            max_statements: None,
            limit_per_instance: false,
            check_division: false,
        }
    }
}

/// Entry point `(views, values, first, end, fault) -> faulted`; runs the instances `first..end`.
type Entry = unsafe extern "C" fn(*const *mut u8, *const u64, u64, u64, *mut FaultRecord) -> u8;

/// Fault record written by compiled code.
#[derive(Default)]
#[repr(C)]
struct FaultRecord {
    /// Index of the parameter or, after all parameters, of the local array; or the divisor of a
    /// division.
    view: u64,
    /// Dimension of the index; a negative value encodes another kind of fault.
    dimension: i64,
    /// The index, or the dividend of a division.
    index: i64,
    instance: u64,
    /// Remaining statements, if they are limited.
    statements_left: i64,
    /// Address of the memory of local arrays, which the instances of a thread use in turn.
    local_memory: u64,
}

impl FaultRecord {
    /// Number of words that a fault sets.
    const WORDS: usize = 4;
    /// Byte offset of `statements_left`.
    const STATEMENTS_LEFT: i32 = std::mem::offset_of!(FaultRecord, statements_left) as i32;
    /// Byte offset of `local_memory`.
    const LOCAL_MEMORY: i32 = std::mem::offset_of!(FaultRecord, local_memory) as i32;
}

/// Fault code of a misaligned vector access, minus the vector's width.
const MISALIGNED: i64 = -1;
/// Fault code of an undefined integer division, minus the index of its type.
const DIVISION: i64 = -100;
/// Fault code of an exceeded statement limit.
const TOO_LONG: i64 = -200;
/// Fault code of a failed check; `view` is its index in [`checks`].
const ASSERTION: i64 = -201;
/// Fault code of a component index out of bounds.
const COMPONENT: i64 = -202;

/// Returns all checks of a kernel, in the order of the text form.
fn checks(kernel: &Kernel) -> Vec<&Check> {
    fn of<'k>(block: &'k [Stmt], all: &mut Vec<&'k Check>) {
        for stmt in block {
            if let Stmt::Check(check) = stmt {
                all.push(check);
            }
            stmt.blocks().into_iter().for_each(|inner| of(inner, all));
        }
    }
    let mut all = vec![];
    for code in kernel.functions.iter().map(|function| &function.code).chain([&kernel.code]) {
        of(&code.body, &mut all);
    }
    all
}

/// Kernel compiled for the host CPU.
pub struct CpuKernel {
    kernel: Kernel,
    options: CompileOptions,
    entry: Entry,
    /// Measured cost per instance in picoseconds; 0 if unknown.
    cost_ps: AtomicU64,
    vectors: bool,
    bounds_checks: usize,
    /// Print records that `entry` refers to by address.
    _prints: Vec<Arc<print::PrintRecord>>,
    /// Constants that `entry` loads.
    constants: simd::ConstantPool,
    /// Owns the code pages; `None` only while being dropped.
    module: Mutex<Option<JITModule>>,
}

impl Drop for CpuKernel {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let module = self.module.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(module) = module {
            // SAFETY: `entry` is the only pointer into the module's pages; it is private, used only
            // by `run`, which borrows `self`, and is never returned. So nothing can call into the
            // pages any more.
            unsafe { module.free_memory() };
        }
    }
}

/// Compiles a kernel with default options.
pub fn compile(kernel: &Kernel) -> Result<CpuKernel, CompileError> {
    compile_with(kernel, CompileOptions::default())
}

/// Compiles a kernel.
pub fn compile_with(kernel: &Kernel, mut options: CompileOptions) -> Result<CpuKernel, CompileError> {
    verify(kernel)?;
    if kernel.is_cooperative() {
        return Err(CompileError::Cooperative(kernel.name.clone()));
    }
    // Faults are attributed to single instances, so these run without vectors.
    options.simd &= has_vectors() && options.max_statements.is_none() && !options.check_division;
    let backend_error = |message: String| CompileError::Backend { kernel: kernel.name.clone(), message };
    let mut module = JITModule::new(JITBuilder::with_isa(host()?, default_libcall_names()));
    let mut context = module.make_context();
    let lowered = instances::lower(kernel, options, &mut context.func, module.target_config());
    let id = module.declare_anonymous_function(&context.func.signature).map_err(|e| backend_error(e.to_string()))?;
    module.define_function(id, &mut context).map_err(|e| backend_error(format!("{e:?}")))?;
    module.finalize_definitions().map_err(|e| backend_error(e.to_string()))?;
    let code = module.get_finalized_function(id);
    // SAFETY: `lower` builds the function with exactly the signature of `Entry` in the host's C
    // calling convention, and the code stays mapped as long as `module`, which lives beside
    // `entry`.
    #[allow(unsafe_code)]
    let entry = unsafe { std::mem::transmute::<*const u8, Entry>(code) };
    let instances::Lowered { prints, constants, vectors, bounds_checks } = lowered;
    Ok(CpuKernel {
        kernel: kernel.clone(),
        options,
        entry,
        cost_ps: AtomicU64::new(0),
        vectors,
        bounds_checks,
        _prints: prints,
        constants,
        module: Mutex::new(Some(module)),
    })
}

/// Returns true if this CPU has the vector instructions that make vectorization worthwhile:
/// three-operand forms and fused multiply-adds. (Other architectures have them too, but are
/// untested.)
fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Returns the host's instruction set, detected once.
fn host() -> Result<OwnedTargetIsa, CompileError> {
    static HOST: OnceLock<Result<OwnedTargetIsa, String>> = OnceLock::new();
    let isa = HOST.get_or_init(|| {
        let mut flags = settings::builder();
        for (name, value) in [("opt_level", "speed"), ("is_pic", "false"), ("use_colocated_libcalls", "false")] {
            flags.set(name, value).map_err(|e| e.to_string())?;
        }
        let verifier = if cfg!(debug_assertions) { "true" } else { "false" };
        flags.set("enable_verifier", verifier).map_err(|e| e.to_string())?;
        let isa = cranelift_native::builder().map_err(str::to_owned)?;
        isa.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
    });
    isa.clone().map_err(CompileError::UnsupportedHost)
}

impl CpuKernel {
    /// Returns true if the kernel is vectorized.
    pub fn uses_vectors(&self) -> bool {
        self.vectors
    }

    /// Returns the number of bounds checks per instance: indices that could not be proven to be in
    /// bounds.
    pub fn bounds_checks(&self) -> usize {
        self.bounds_checks
    }

    fn fault(&self, record: &FaultRecord, values: &[Value]) -> Fault {
        let thread = format!("instance {}", record.instance);
        let (n, params) = (record.view as usize, &self.kernel.params);
        let (name, ty, dims) = match (params.get(n), self.kernel.local_arrays.get(n.wrapping_sub(params.len()))) {
            (Some(param), _) => (param.name.clone(), Some(param.ty), &param.dims[..]),
            (None, Some(array)) => (array.name.clone(), Some(array.ty), &array.dims[..]),
            (None, None) => (format!("@{}", record.view), None, &[][..]),
        };
        let kind = if record.dimension == TOO_LONG {
            FaultKind::StatementLimit(self.options.max_statements.unwrap_or(0))
        } else if record.dimension == COMPONENT {
            let count = ty.map_or(0, |ty| ty.component_count(&self.kernel.structs));
            let view = format!("{name}, components");
            FaultKind::OutOfBounds { view, index: record.index, len: count as u64, indices: Box::default(), thread }
        } else if record.dimension == ASSERTION {
            match checks(&self.kernel).get(record.view as usize) {
                Some(Check::InBounds { len, array, .. }) => {
                    let (view, index) = (array.clone(), record.index);
                    FaultKind::OutOfBounds { view, index, len: *len, indices: Box::default(), thread }
                }
                Some(Check::Assert { message, .. }) => FaultKind::AssertionFailed { message: message.clone(), thread },
                None => FaultKind::AssertionFailed { message: String::new(), thread },
            }
        } else if record.dimension <= DIVISION {
            let scalar = Scalar::ALL[(DIVISION - record.dimension) as usize];
            let [a, b] = [record.index as u64, record.view].map(|bits| Value::from_bits(scalar, bits).to_string());
            FaultKind::Division { a, b, thread }
        } else if record.dimension < 0 {
            let width = (MISALIGNED - record.dimension) as u8;
            FaultKind::Misaligned { view: name, index: record.index, width, thread }
        } else {
            let extent = dims.get(record.dimension as usize).map_or(0, |dim| dim.extent.resolve(values));
            let view = if dims.len() > 1 { format!("{name}, dimension {}", record.dimension) } else { name };
            let len = extent.max(0) as u64;
            FaultKind::OutOfBounds { view, index: record.index, len, indices: Box::default(), thread }
        };
        Fault { kernel: self.kernel.name.clone(), kind, line: None }
    }
}
