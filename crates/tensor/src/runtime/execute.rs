//! Kernels on devices: compiled once for each device, launched over buffers. The one `match` over kinds of device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Instant;

use bornite_codegen::cpu::{self, CpuKernel};
use bornite_codegen::cuda;
use bornite_cuda::DeviceClock;
use bornite_cuda::EXACT_OPTIONS;
use bornite_ir::{Arg, Kernel, Launch, Param, Scalar, Value, interp};
use bornite_support::{log, profile};

use crate::fused::{Memory, MemoryMut, Routine};
use crate::runtime::buffer::{Buffer, HostSlice, with_host_slices};
use crate::runtime::single_flight::SingleFlight;
use crate::runtime::timing::{Host, LaunchInfo};
use crate::{DType, Device, Error, Result};

/// A kernel ready to run on one device.
pub(crate) struct Program {
    kernel: Kernel,
    device: Device,
    code: Code,
    flavour: CodegenMode,
    /// Statements of a block, or on the CPU of an instance, after which a run ends with a fault.
    max_statements: Option<u64>,
}

enum Code {
    Interpreted,
    Cpu(Box<CpuKernel>),
    Cuda(Arc<bornite_cuda::Device>, bornite_cuda::Function),
}

/// How a kernel is printed for CUDA. Elsewhere there is one way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CodegenMode {
    /// With the interpreter's bits.
    Exact,
    /// With CUDA's own functions where the op table names one.
    Native,
    /// Exact, with checks of all indices: it takes the device's status and a code after all else.
    Checked,
}

impl CodegenMode {
    /// That of kernels that tensors are lowered to.
    pub fn for_tensors() -> Result<CodegenMode> {
        Ok(if crate::runtime::math::is_exact_math()? { CodegenMode::Exact } else { CodegenMode::Native })
    }
}

/// Compiles a kernel for a device, or finds it compiled already. Threads that want the same kernel wait for the one that compiles it;
/// different kernels are compiled side by side.
pub(crate) fn program(device: Device, kernel: &Kernel, flavour: CodegenMode) -> Result<Arc<Program>> {
    let flavour = if device.is_cuda() { flavour } else { CodegenMode::Exact };
    static CACHE: Mutex<Option<Cache>> = Mutex::new(None);
    static COMPILING: SingleFlight<Arc<(Device, CodegenMode, Kernel)>> = SingleFlight::new();
    let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let find = || cache().get_or_insert_default().find(device, kernel, flavour);
    if let Some(program) = find() {
        return Ok(program);
    }
    COMPILING.compute_or_wait(Arc::new((device, flavour, kernel.clone())), find, || {
        let code = compile(device, kernel, flavour)?;
        let program = Arc::new(Program { kernel: kernel.clone(), device, code, flavour, max_statements: None });
        log!(Debug, "kernel '{}' is ready on {device} ({})", kernel.name, program.engine());
        cache().get_or_insert_default().insert(device, program.clone());
        Ok(program)
    })
}

/// A kernel that ends with a fault after so many statements of a block, or of an instance where the CPU runs it as machine
/// code. Not cached; on a GPU there is no limit.
pub(crate) fn limited(device: Device, kernel: &Kernel, max_statements: u64) -> Result<Program> {
    let max_statements = Some(max_statements);
    let code = match device {
        Device::Cpu(_) if !kernel.is_cooperative() => {
            let options = cpu::Options { max_statements, per_instance: true, ..cpu::Options::default() };
            Code::Cpu(Box::new(cpu::compile_with(kernel, options)?))
        }
        _ => compile(device, kernel, CodegenMode::Exact)?,
    };
    Ok(Program { kernel: kernel.clone(), device, code, flavour: CodegenMode::Exact, max_statements })
}

/// Compiled kernels, the least used forgotten: eager code with ever new constants must not grow without end.
#[derive(Default)]
struct Cache {
    /// With each program, when it was last asked for.
    programs: HashMap<(Device, CodegenMode), HashMap<Kernel, (Arc<Program>, u64)>>,
    now: u64,
}

impl Cache {
    const KEPT: usize = 4096;

    fn find(&mut self, device: Device, kernel: &Kernel, flavour: CodegenMode) -> Option<Arc<Program>> {
        self.now += 1;
        let (program, used) = self.programs.get_mut(&(device, flavour))?.get_mut(kernel)?;
        *used = self.now;
        Some(program.clone())
    }

    fn insert(&mut self, device: Device, program: Arc<Program>) {
        let kernels = self.programs.entry((device, program.flavour)).or_default();
        if kernels.len() >= Cache::KEPT {
            let mut uses: Vec<u64> = kernels.values().map(|(_, used)| *used).collect();
            let (_, &mut median, _) = uses.select_nth_unstable(Cache::KEPT / 2);
            kernels.retain(|_, (_, used)| *used > median);
        }
        kernels.insert(program.kernel.clone(), (program, self.now));
    }
}

fn compile(device: Device, kernel: &Kernel, flavour: CodegenMode) -> Result<Code> {
    match (device.gpu()?, device) {
        (None, Device::Interpreter) => Ok(Code::Interpreted),
        // Threads that wait for each other run side by side on the interpreter only.
        (None, _) if kernel.is_cooperative() => {
            static TOLD: Once = Once::new();
            let name = &kernel.name;
            TOLD.call_once(|| {
                log!(
                    Warn,
                    "kernel '{name}' has barriers or shuffles: on a CPU it runs in the interpreter, which is slow; a GPU runs it compiled"
                );
            });
            Ok(Code::Interpreted)
        }
        (None, _) => {
            let begun = Instant::now();
            let code = cpu::compile(kernel)?;
            profile::compiled(&kernel.name, &device.to_string(), begun.elapsed().as_secs_f64() * 1e3);
            Ok(Code::Cpu(Box::new(code)))
        }
        (Some(device), _) => {
            let checked = flavour == CodegenMode::Checked;
            let source = match flavour {
                CodegenMode::Exact => cuda::print(kernel),
                CodegenMode::Native => cuda::print_as(kernel, cuda::Spelling::Native),
                CodegenMode::Checked => cuda::print_checked(kernel),
            };
            let cache = bornite_cuda::Cache::of_process()?;
            let arch = device.info().arch();
            let cubin = bornite_cuda::compile_cached(cache, &kernel.name, &source, &arch, &EXACT_OPTIONS)?;
            let mut values: Vec<usize> = kernel.values.iter().map(|value| kernel.bytes_of(value.ty)).collect();
            values.extend(checked.then_some(8));
            let pointers = kernel.params.len() + usize::from(checked);
            let function = bornite_cuda::Function::load(&device, &cubin, &cuda::symbol(kernel), pointers, values)?;
            Ok(Code::Cuda(device, function))
        }
    }
}

impl Program {
    /// Runs over one buffer a view and one list of components a value, in the order of the device's work. Written buffers
    /// must be no others. A GPU runs so many threads a block, where the kernel does not say. `about` is for the profiler.
    pub fn launch(&self, buffers: &[&Buffer], values: &[&[Value]], threads: u32, about: LaunchInfo) -> Result<()> {
        let describe = || about.describe(&self.kernel, values);
        match &self.code {
            Code::Interpreted | Code::Cpu(_) => {
                profile::timed(&Host(self.device), describe, || self.launch_untimed(buffers, values, threads))
            }
            Code::Cuda(device, _) => {
                profile::timed(&DeviceClock(device), describe, || self.launch_untimed(buffers, values, threads))
            }
        }
    }

    /// What it runs.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// What runs it, in words.
    pub fn engine(&self) -> &'static str {
        match &self.code {
            Code::Interpreted => "interpreter",
            Code::Cpu(_) => "machine code",
            Code::Cuda(..) => "CUDA",
        }
    }

    /// How often the n-th argument passes through memory: what is read and written does so twice.
    pub fn passes(&self, n: usize) -> u64 {
        let access = self.kernel.params.get(n).map(|param| param.access);
        access.map_or(1, |access| access.reads() as u64 + access.writes() as u64)
    }

    fn launch_untimed(&self, buffers: &[&Buffer], values: &[&[Value]], threads: u32) -> Result<()> {
        let kernel = &self.kernel;
        let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
        if kernel.launch.count(&firsts) == 0 {
            return Ok(());
        }
        match &self.code {
            Code::Interpreted => {
                // Kernels of tensors write each element once; to watch that would cost memory for every element.
                let max_statements = self.max_statements;
                let options = interp::Options { instances: false, max_statements, ..interp::Options::default() };
                with_host_args(kernel, buffers, values, |args| interp::run_with(kernel, args, options))
            }
            Code::Cpu(code) => with_host_args(kernel, buffers, values, |args| code.run(args)),
            Code::Cuda(_, function) => {
                let (grid, block) = match kernel.launch {
                    Launch::Blocks { grid, block } => (grid, block),
                    // Covers every instance: the printed text may stride over the grid, but need not.
                    Launch::ParallelFor { .. } => {
                        let blocks = kernel.launch.count(&firsts).div_ceil(threads as u64);
                        ([blocks.min(i32::MAX as u64) as u32, 1, 1], [threads, 1, 1])
                    }
                };
                let shared_bytes = cuda::shared_bytes(kernel);
                let geometry = bornite_cuda::Geometry { shared_bytes, ..bornite_cuda::Geometry::new(grid, block) };
                let own = buffers.len().min(kernel.params.len());
                let mut pointers = cuda_pointers(kernel, &buffers[..own], &firsts)?;
                let mut packed: Vec<Vec<u8>> =
                    kernel.values.iter().zip(values).map(|(param, parts)| packed(kernel, param.ty, parts)).collect();
                if let (CodegenMode::Checked, Some(status), Some([code])) =
                    (self.flavour, buffers.last().and_then(|status| status.pointer()), values.last())
                {
                    pointers.push(status);
                    packed.push(code.bits().to_le_bytes().to_vec());
                }
                // SAFETY: the text was printed from `kernel`: it takes one pointer a view, here to memory as long as the
                // view is, and values as C lays them out. Kernels of tensors index within their views by construction;
                // others check each index before it is used, or were run in the interpreter over the same arguments
                // (`PreparedLaunch`), which checks every index and, in block kernels, that threads do not race. What is
                // left is such a kernel whose indices depend on the order of its atomics, and unchecked launches, whose
                // callers vouch for them.
                #[allow(unsafe_code)]
                let launched = unsafe { function.launch_as(&geometry, None, &pointers, &packed) };
                Ok(launched?)
            }
        }
    }
}

/// A routine of the host as a step of a plan.
pub(crate) struct RoutineCall {
    pub name: &'static str,
    pub run: Routine,
    pub device: Device,
    /// Dtype and number of elements of each result, then of each input.
    pub results: Vec<(DType, usize)>,
    pub inputs: Vec<(DType, usize)>,
}

impl RoutineCall {
    /// Runs over one buffer a result, then one an input.
    pub fn launch(&self, buffers: &[&Buffer], about: LaunchInfo) -> Result<()> {
        let bytes = |of: &[(DType, usize)]| of.iter().map(|(dtype, n)| (dtype.bytes() * n) as u64).sum::<u64>();
        let describe = || about.work(self.name, bytes(&self.results) + bytes(&self.inputs));
        profile::timed(&Host(self.device), describe, || self.launch_untimed(buffers))
    }

    fn launch_untimed(&self, buffers: &[&Buffer]) -> Result<()> {
        let wrong = |what: &str| {
            let kind = bornite_ir::FaultKind::BadCall(what.into());
            Error::Fault(bornite_ir::Fault { kernel: self.name.into(), kind, line: None })
        };
        if buffers.len() != self.results.len() + self.inputs.len() {
            return Err(wrong("buffers are missing"));
        }
        let asked: Vec<(&Buffer, bool)> =
            buffers.iter().enumerate().map(|(n, &buffer)| (buffer, n < self.results.len())).collect();
        let run = |lent: Vec<HostSlice<'_>>| {
            let (mut results, mut inputs) = (vec![], vec![]);
            for (lent, &(dtype, elements)) in lent.into_iter().zip(self.results.iter().chain(&self.inputs)) {
                match lent {
                    HostSlice::Write(words) => results.push(MemoryMut { words, dtype, elements }),
                    HostSlice::Read(words) => inputs.push(Memory { words, dtype, elements }),
                }
            }
            (self.run)(&inputs, &mut results)
        };
        with_host_slices(&asked, run).map_err(wrong)?
    }
}

/// The memory behind each view, which must be as long as the view is; the pointer goes to the element of index 0.
fn cuda_pointers<'a>(
    kernel: &Kernel,
    buffers: &[&'a Buffer],
    firsts: &[Value],
) -> Result<Vec<bornite_cuda::Pointer<'a>>> {
    if buffers.len() != kernel.params.len() {
        return Err(bad_call(kernel, "buffers are missing"));
    }
    (kernel.params.iter().zip(buffers))
        .map(|(param, buffer)| {
            let Some((memory, at)) = buffer.pointer() else {
                return Err(bad_call(kernel, "called with a buffer of the host"));
            };
            let origin = kernel.span(&param.dims, firsts).map_or(0, |span| span.origin as usize);
            match kernel.view_bytes(param, firsts) {
                Some(bytes) if bytes <= buffer.bytes() => Ok((memory, at + origin * kernel.bytes_of(param.ty))),
                _ => Err(bad_call(kernel, &format!("'{}' is longer than its buffer", param.name))),
            }
        })
        .collect()
}

/// A value as C lays it out.
fn packed(kernel: &Kernel, ty: bornite_ir::Type, parts: &[Value]) -> Vec<u8> {
    let layout = ty.layout(&kernel.structs);
    let mut bytes = vec![0; layout.bytes];
    for ((offset, scalar), part) in layout.offsets.iter().zip(parts) {
        bytes[*offset..offset + scalar.bytes()].copy_from_slice(&part.bits().to_le_bytes()[..scalar.bytes()]);
    }
    bytes
}

pub(crate) fn bad_call(kernel: &Kernel, what: &str) -> Error {
    Error::Fault(bornite_ir::Fault::bad_call(kernel, what))
}

/// Lends host buffers to `run` as kernel arguments.
pub(crate) fn with_host_args(
    kernel: &Kernel,
    buffers: &[&Buffer],
    values: &[&[Value]],
    run: impl FnOnce(&mut [Arg<'_>]) -> std::result::Result<(), bornite_ir::Fault>,
) -> Result<()> {
    if buffers.len() != kernel.params.len() {
        return Err(bad_call(kernel, "buffers are missing"));
    }
    let asked: Vec<(&Buffer, bool)> =
        kernel.params.iter().zip(buffers).map(|(param, &buffer)| (buffer, param.access.writes())).collect();
    let run = |lent: Vec<HostSlice<'_>>| {
        let views = lent.into_iter().map(|lent| match lent {
            HostSlice::Read(words) => Arg::Read(words),
            HostSlice::Write(words) => Arg::Write(words),
        });
        let mut args: Vec<Arg<'_>> = views.chain(values.iter().map(|parts| Arg::Value(parts))).collect();
        run(&mut args)
    };
    Ok(with_host_slices(&asked, run).map_err(|what| bad_call(kernel, what))??)
}

/// Dtype of the tensors that are passed as an array of a kernel in the IR: that of its components, or bytes if they differ.
pub fn array_dtype(kernel: &Kernel, param: &Param) -> Scalar {
    let mut components = param.ty.components(&kernel.structs).into_iter();
    match components.next() {
        Some(first) if components.all(|scalar| scalar == first) => first,
        _ => Scalar::U8,
    }
}
