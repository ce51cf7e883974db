//! Kernel IR to machine code of this CPU, by Cranelift, and its launch over all cores.
//!
//! Code is scalar and checked: an index outside its view ends the run with a [`Fault`], integer division never traps.

mod emit;
mod half;
mod lower;
mod places;
pub mod pool;
mod primitive;
mod print;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bornite_ir::{Arg, Fault, FaultKind, Kernel, Param, Value, VerifyError, check_args, verify};
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
    #[error("kernel '{0}' has shared memory, barriers, shuffles or votes; run it on the device 'interpreter'")]
    Cooperative(String),
    /// This CPU or operating system is not one Cranelift makes code for.
    #[error("no code can be made for this CPU ({0}); use the device 'interpreter' instead")]
    Host(String),
    /// The compiler refused: a bug worth reporting.
    #[error("failed to compile kernel '{kernel}' for the CPU: {what}")]
    Refused {
        /// The kernel's name.
        kernel: String,
        /// The compiler's words.
        what: String,
    },
}

/// `(views, values, first, end, fault) -> faulted`: runs the instances `first..end`.
type Entry = unsafe extern "C" fn(*const *mut u8, *const u64, u64, u64, *mut FaultRecord) -> u8;

/// What compiled code leaves behind when it stops.
#[derive(Default)]
#[repr(C)]
struct FaultRecord {
    view: u64,
    /// Which dimension the index is of; below 0: a wide access was misaligned.
    dimension: i64,
    index: i64,
    instance: u64,
}

/// Fewer instances than this are not worth handing to another core.
const GRAIN: u64 = 4096;

/// A kernel compiled for this CPU.
pub struct CpuKernel {
    kernel: Kernel,
    entry: Entry,
    /// What `entry` prints; it holds their addresses.
    _prints: Vec<Arc<print::Record>>,
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
    verify(kernel)?;
    if kernel.is_cooperative() {
        return Err(CompileError::Cooperative(kernel.name.clone()));
    }
    let refused = |what: String| CompileError::Refused { kernel: kernel.name.clone(), what };
    let mut module = JITModule::new(JITBuilder::with_isa(host()?, default_libcall_names()));
    let mut context = module.make_context();
    let prints = lower::lower(kernel, &mut context.func, module.target_config());
    let id = module.declare_anonymous_function(&context.func.signature).map_err(|e| refused(e.to_string()))?;
    module.define_function(id, &mut context).map_err(|e| refused(format!("{e:?}")))?;
    module.finalize_definitions().map_err(|e| refused(e.to_string()))?;
    let code = module.get_finalized_function(id);
    // SAFETY: `lower` builds the function with exactly the signature of `Entry` in the host's C calling convention,
    // and the code stays mapped as long as `module`, which lives beside `entry`.
    #[allow(unsafe_code)]
    let entry = unsafe { std::mem::transmute::<*const u8, Entry>(code) };
    Ok(CpuKernel { kernel: kernel.clone(), entry, _prints: prints, module: Mutex::new(Some(module)) })
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
    isa.clone().map_err(CompileError::Host)
}

/// One run over several threads. Chunks are taken in turn, by the calling thread too.
struct Job {
    entry: Entry,
    /// View addresses as compiled code takes them.
    views: Vec<*mut u8>,
    /// Components of value parameters, a word each.
    values: Vec<u64>,
    count: u64,
    chunk: u64,
    next: AtomicU64,
    /// What the first instance to fault left behind.
    fault: Mutex<Option<FaultRecord>>,
}

// SAFETY: the pointers are only passed to compiled code. It reads views lent as `&[u64]` and writes views lent as
// `&mut [u64]`, within their checked bounds, while `run` holds those borrows: it does not return before every thread is
// done. Two instances that write one element would race; kernels are data-parallel by contract, and the interpreter is
// the judge of that.
#[allow(unsafe_code)]
unsafe impl Send for Job {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Job {}

impl Job {
    /// Runs chunks until none is left.
    fn work(&self) {
        loop {
            let first = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            if first >= self.count {
                return;
            }
            let mut record = FaultRecord::default();
            let end = (first + self.chunk).min(self.count);
            // SAFETY: `views` holds one valid address a parameter, checked by `check_args` to be as long as the kernel
            // says; compiled code checks every index against that length; `record` outlives the call. The code itself
            // lives as long as the `CpuKernel` that `run` borrows.
            #[allow(unsafe_code)]
            let faulted = unsafe { (self.entry)(self.views.as_ptr(), self.values.as_ptr(), first, end, &mut record) };
            if faulted != 0 {
                self.next.store(self.count, Ordering::Relaxed);
                self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(record);
            }
        }
    }
}

/// Threads beside the calling one; none if they cannot be had. Not rayon's global pool, and waited for by blocking: a
/// caller that waited inside a pool of its own could be handed other work there, which may want a lock that it holds.
fn helpers() -> Option<&'static rayon::ThreadPool> {
    static POOL: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        let threads: usize = threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into))?;
        let helpers = threads.checked_sub(1).filter(|&n| n > 0)?;
        let builder = rayon::ThreadPoolBuilder::new().num_threads(helpers);
        builder.thread_name(|n| format!("bornite-cpu-{}", n + 1)).build().ok()
    });
    pool.as_ref()
}

impl CpuKernel {
    /// Runs all instances, over this thread and its helpers (`RAYON_NUM_THREADS` in all, by default one a core).
    pub fn run(&self, args: &mut [Arg<'_>]) -> Result<(), Fault> {
        let firsts = check_args(&self.kernel, args)?;
        let (views, values) = args.split_at_mut(self.kernel.params.len());
        let views = (views.iter_mut().zip(&self.kernel.params))
            .map(|(arg, param)| {
                let origin = self.kernel.span(&param.dims, &firsts).map_or(0, |span| span.origin as usize);
                let base = match arg {
                    Arg::Read(words) => words.as_ptr() as *mut u8,
                    Arg::Write(words) => words.as_mut_ptr() as *mut u8,
                    Arg::Value(_) => std::ptr::null_mut(),
                };
                base.wrapping_add(origin * self.kernel.bytes_of(param.ty))
            })
            .collect();
        let values = (values.iter())
            .flat_map(|arg| if let Arg::Value(parts) = arg { *parts } else { &[] })
            .map(|value| value.bits());
        let origin = |param: &Param| self.kernel.span(&param.dims, &firsts).map_or(0, |span| span.origin);
        let values = values.chain(self.kernel.params.iter().map(origin)).collect();
        let count = self.kernel.launch.count(&firsts);
        let helpers = if count > GRAIN { helpers() } else { None };
        let threads = helpers.map_or(1, |pool| pool.current_num_threads() + 1);
        // Several chunks a thread even out cores of unequal speed.
        let chunk = if threads == 1 { count.max(1) } else { count.div_ceil(threads as u64 * 4).max(GRAIN) };
        let job =
            Job { entry: self.entry, views, values, count, chunk, next: AtomicU64::new(0), fault: Mutex::new(None) };
        let job = Arc::new(job);
        match helpers {
            None => job.work(),
            Some(pool) => {
                let (done, finished) = std::sync::mpsc::channel();
                for _ in 1..threads {
                    let (job, done) = (job.clone(), done.clone());
                    pool.spawn(move || {
                        job.work();
                        let _ = done.send(());
                    });
                }
                job.work();
                drop(done);
                for () in finished {} // ends when every helper is done
            }
        }
        match job.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => Ok(()),
            Some(record) => Err(self.fault(&record, &firsts)),
        }
    }

    fn fault(&self, record: &FaultRecord, values: &[Value]) -> Fault {
        let by = format!("instance {}", record.instance);
        let (name, dims) = match self.kernel.params.get(record.view as usize) {
            Some(param) => (param.name.clone(), &param.dims[..]),
            None => (format!("@{}", record.view), &[][..]),
        };
        let kind = if record.dimension < 0 {
            let width = (lower::MISALIGNED - record.dimension) as u8;
            FaultKind::Misaligned { view: name, index: record.index, width, by }
        } else {
            let extent = dims.get(record.dimension as usize).map_or(0, |dim| dim.extent.of(values));
            let view = if dims.len() > 1 { format!("{name}, dimension {}", record.dimension) } else { name };
            let len = extent.max(0) as u64;
            FaultKind::OutOfBounds { view, index: record.index, len, by }
        };
        Fault { kernel: self.kernel.name.clone(), kind, line: None }
    }
}
