//! Kernel IR to machine code of this CPU, by Cranelift, and its launch over all cores.
//!
//! Kernels whose instances take the same way through the code run several instances at once, in vectors of 128 bits
//! (`lanes/`). Code is checked: an index outside its view ends the run with a [`Fault`], unless it is known to be inside
//! (`range.rs`); integer division never traps.
//!
//! | to see | look in |
//! |---|---|
//! | the loop over instances | `instances.rs` |
//! | statements and expressions of one instance | `lower.rs`, `emit.rs`, `primitive.rs`, `places.rs` |
//! | which kernels run in vectors, and how | `lanes/` |
//! | how a launch is split over cores | `run.rs`, `pool.rs` |
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

/// Why a kernel could not be compiled for this CPU.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompileError {
    /// The kernel itself is wrong.
    #[error(transparent)]
    Invalid(#[from] VerifyError),
    /// Threads of the kernel depend on each other, which code that runs one after the other cannot do.
    #[error("kernel '{0}' uses shared memory, barriers, shuffles or votes, which are not supported on the CPU; run it on the device 'interpreter'")]
    Cooperative(String),
    /// This CPU or operating system is not one Cranelift makes code for.
    #[error("compilation is not supported for this CPU ({0}); use the device 'interpreter'")]
    UnsupportedHost(String),
    /// The compiler refused: a bug worth reporting.
    #[error("failed to compile kernel '{kernel}' for the CPU: {what}")]
    Backend {
        /// The kernel's name.
        kernel: String,
        /// The compiler's words.
        what: String,
    },
}

/// How to compile.
#[derive(Clone, Copy, Debug)]
pub struct CompileOptions {
    /// Whether several instances may run at once, in vectors. Results are the same to the bit.
    pub simd: bool,
    /// Whether indices are checked that are known to be inside their views.
    pub check_all_indices: bool,
    /// Statements after which a run ends with [`FaultKind::StatementLimit`]; `None`: never.
    pub max_statements: Option<u64>,
    /// Whether each instance may execute `max_statements`, instead of all instances together.
    pub limit_per_instance: bool,
    /// Whether integer division by 0, and of the smallest integer by -1, end a run. Both have a value.
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

/// `(views, values, first, end, fault) -> faulted`: runs the instances `first..end`.
type Entry = unsafe extern "C" fn(*const *mut u8, *const u64, u64, u64, *mut FaultRecord) -> u8;

/// What compiled code leaves behind when it stops.
#[derive(Default)]
#[repr(C)]
struct FaultRecord {
    /// The view; of a division, the divisor.
    view: u64,
    /// Which dimension the index is of; below 0, what else it is.
    dimension: i64,
    /// The index; of a division, the dividend.
    index: i64,
    instance: u64,
    /// Statements that may still be executed, where they are counted.
    statements_left: i64,
}

impl FaultRecord {
    /// Words that a fault sets.
    const WORDS: usize = 4;
    /// The byte of `statements_left`.
    const STATEMENTS_LEFT: i32 = std::mem::offset_of!(FaultRecord, statements_left) as i32;
}

/// A "dimension" below 0: a wide access is misaligned; less its width.
const MISALIGNED: i64 = -1;
/// An integer quotient that does not exist or does not fit; less the number of its type.
const DIVISION: i64 = -100;
/// Too many statements.
const TOO_LONG: i64 = -200;
/// Something that is claimed does not hold; the "view" is its number among [`checks`].
const ASSERTION: i64 = -201;
/// There is no such component.
const COMPONENT: i64 = -202;

/// All that a kernel claims, in order of its text.
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

/// A kernel compiled for this CPU.
pub struct CpuKernel {
    kernel: Kernel,
    options: CompileOptions,
    entry: Entry,
    /// What a run was found to take, in picoseconds an instance; 0: nobody knows yet.
    cost_ps: AtomicU64,
    vectors: bool,
    bounds_checks: usize,
    /// What `entry` prints; it holds their addresses.
    _prints: Vec<Arc<print::Record>>,
    /// What `entry` loads; likewise.
    constants: simd::ConstantPool,
    /// Owns the pages that `entry` points into; `None` only while being dropped.
    module: Mutex<Option<JITModule>>,
}

impl Drop for CpuKernel {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let module = self.module.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(module) = module {
            // SAFETY: `entry` is the only pointer into the module's pages; it is private, used only by `run`, which
            // borrows `self`, and is never returned. So nothing can call into the pages any more.
            unsafe { module.free_memory() };
        }
    }
}

/// Compiles a kernel.
pub fn compile(kernel: &Kernel) -> Result<CpuKernel, CompileError> {
    compile_with(kernel, CompileOptions::default())
}

/// Compiles a kernel in a given way.
pub fn compile_with(kernel: &Kernel, mut options: CompileOptions) -> Result<CpuKernel, CompileError> {
    verify(kernel)?;
    if kernel.is_cooperative() {
        return Err(CompileError::Cooperative(kernel.name.clone()));
    }
    // What is reported is reported of one instance, so they run singly.
    options.simd &= has_vectors() && options.max_statements.is_none() && !options.check_division;
    let backend_error = |what: String| CompileError::Backend { kernel: kernel.name.clone(), what };
    let mut module = JITModule::new(JITBuilder::with_isa(host()?, default_libcall_names()));
    let mut context = module.make_context();
    let lowered = instances::lower(kernel, options, &mut context.func, module.target_config());
    let id = module.declare_anonymous_function(&context.func.signature).map_err(|e| backend_error(e.to_string()))?;
    module.define_function(id, &mut context).map_err(|e| backend_error(format!("{e:?}")))?;
    module.finalize_definitions().map_err(|e| backend_error(e.to_string()))?;
    let code = module.get_finalized_function(id);
    // SAFETY: `lower` builds the function with exactly the signature of `Entry` in the host's C calling convention,
    // and the code stays mapped as long as `module`, which lives beside `entry`.
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

/// Whether this CPU has the vector instructions that make vectors worth while: three-operand forms and fused
/// multiply-adds. (Other architectures have them too; nobody has tried.)
fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// The instruction set of this machine, looked up once.
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
    /// True if several instances run at once, in vectors.
    pub fn uses_vectors(&self) -> bool {
        self.vectors
    }

    /// How many indices are checked in each instance, for want of a proof that they are inside their views.
    pub fn bounds_checks(&self) -> usize {
        self.bounds_checks
    }

    fn fault(&self, record: &FaultRecord, values: &[Value]) -> Fault {
        let thread = format!("instance {}", record.instance);
        let (name, dims) = match self.kernel.params.get(record.view as usize) {
            Some(param) => (param.name.clone(), &param.dims[..]),
            None => (format!("@{}", record.view), &[][..]),
        };
        let kind = if record.dimension == TOO_LONG {
            FaultKind::StatementLimit(self.options.max_statements.unwrap_or(0))
        } else if record.dimension == COMPONENT {
            let count =
                self.kernel.params.get(record.view as usize).map_or(0, |p| p.ty.component_count(&self.kernel.structs));
            let view = format!("{name}, components");
            FaultKind::OutOfBounds { view, index: record.index, len: count as u64, thread }
        } else if record.dimension == ASSERTION {
            match checks(&self.kernel).get(record.view as usize) {
                Some(Check::InBounds { len, array, .. }) => {
                    FaultKind::OutOfBounds { view: array.clone(), index: record.index, len: *len, thread }
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
            FaultKind::OutOfBounds { view, index: record.index, len, thread }
        };
        Fault { kernel: self.kernel.name.clone(), kind, line: None }
    }
}
