//! Kernels on devices: compiled once per device, launched with buffers. The only place that matches
//! on the kind of device to run generated code.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Instant;

use bornite_codegen::cpu::{self, CpuKernel};
use bornite_codegen::cuda;
use bornite_cuda::DeviceClock;
use bornite_cuda::EXACT_OPTIONS;
use bornite_ir::{Arg, Kernel, LaunchMode, Param, Scalar, Value, interp};
use bornite_support::{log, profile};

use crate::fused::{Memory, MemoryMut, Routine};
use crate::runtime::buffer::{Buffer, HostSlice, with_host_slices};
use crate::runtime::single_flight::SingleFlight;
use crate::runtime::timing::{HostDeviceClock, LaunchInfo};
use crate::{DType, Device, Error, Result};

/// A kernel compiled for one device.
pub(crate) struct Program {
    kernel: Kernel,
    device: Device,
    code: Code,
    mode: CodegenMode,
    /// Limit of executed statements per block, or per instance on the CPU, after which a run ends
    /// with a fault.
    max_statements: Option<u64>,
}

enum Code {
    Interpreted,
    Cpu(Box<CpuKernel>),
    Cuda(Arc<bornite_cuda::Device>, bornite_cuda::KernelFunction),
}

/// Code generation mode for CUDA. Other devices have only `Exact`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CodegenMode {
    /// Bitwise equal to the interpreter.
    Exact,
    /// With CUDA's math functions.
    Native,
    /// Exact, with bounds checks of all indices. Takes the status words and an error code as
    /// additional arguments.
    Checked,
}

impl CodegenMode {
    /// Mode of generated kernels.
    pub fn for_tensors() -> Result<CodegenMode> {
        Ok(if crate::runtime::math::is_exact_math()? { CodegenMode::Exact } else { CodegenMode::Native })
    }
}

/// Compiles a kernel for a device, or returns it from the cache. If several threads need the same
/// kernel, one compiles it and the others wait; different kernels are compiled concurrently.
pub(crate) fn program(device: Device, kernel: &Kernel, mode: CodegenMode) -> Result<Arc<Program>> {
    let mode = if device.is_cuda() { mode } else { CodegenMode::Exact };
    static CACHE: Mutex<Option<ProgramCache>> = Mutex::new(None);
    static COMPILING: SingleFlight<Arc<(Device, CodegenMode, Kernel)>> = SingleFlight::new();
    let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let find = || cache().get_or_insert_default().find(device, kernel, mode);
    if let Some(program) = find() {
        return Ok(program);
    }
    COMPILING.compute_or_wait(Arc::new((device, mode, kernel.clone())), find, || {
        let code = compile(device, kernel, mode)?;
        let program = Arc::new(Program { kernel: kernel.clone(), device, code, mode, max_statements: None });
        log!(Debug, "kernel '{}' is ready on {device} ({})", kernel.name, program.backend());
        cache().get_or_insert_default().insert(device, program.clone());
        Ok(program)
    })
}

/// Compiles a kernel that ends with a fault after `max_statements` statements per block, or per
/// instance if the CPU runs compiled code. Not cached. A GPU has no limit.
pub(crate) fn program_with_limit(device: Device, kernel: &Kernel, max_statements: u64) -> Result<Program> {
    let max_statements = Some(max_statements);
    let code = match device {
        Device::Cpu(_) if !kernel.is_cooperative() => {
            let options =
                cpu::CompileOptions { max_statements, limit_per_instance: true, ..cpu::CompileOptions::default() };
            Code::Cpu(Box::new(cpu::compile_with(kernel, options)?))
        }
        _ => compile(device, kernel, CodegenMode::Exact)?,
    };
    Ok(Program { kernel: kernel.clone(), device, code, mode: CodegenMode::Exact, max_statements })
}

/// Compiled kernels. The least recently used half is evicted when the cache is full, since eager
/// code may produce new kernels forever.
#[derive(Default)]
struct ProgramCache {
    /// Each program with the time of its last use.
    programs: HashMap<(Device, CodegenMode), HashMap<Kernel, (Arc<Program>, u64)>>,
    now: u64,
}

impl ProgramCache {
    const MAX_PROGRAMS: usize = 4096;

    fn find(&mut self, device: Device, kernel: &Kernel, mode: CodegenMode) -> Option<Arc<Program>> {
        self.now += 1;
        let (program, used) = self.programs.get_mut(&(device, mode))?.get_mut(kernel)?;
        *used = self.now;
        Some(program.clone())
    }

    fn insert(&mut self, device: Device, program: Arc<Program>) {
        let kernels = self.programs.entry((device, program.mode)).or_default();
        if kernels.len() >= ProgramCache::MAX_PROGRAMS {
            let mut uses: Vec<u64> = kernels.values().map(|(_, used)| *used).collect();
            let (_, &mut median, _) = uses.select_nth_unstable(ProgramCache::MAX_PROGRAMS / 2);
            kernels.retain(|_, (_, used)| *used > median);
        }
        kernels.insert(program.kernel.clone(), (program, self.now));
    }
}

fn compile(device: Device, kernel: &Kernel, mode: CodegenMode) -> Result<Code> {
    match (device.gpu()?, device) {
        (None, Device::Interpreter) => Ok(Code::Interpreted),
        // Only the interpreter runs threads that synchronize with each other.
        (None, _) if kernel.is_cooperative() => {
            static WARNED: Once = Once::new();
            let name = &kernel.name;
            WARNED.call_once(|| {
                log!(
                    Warn,
                    "kernel '{name}' uses barriers or shuffles, so the CPU runs it in the interpreter, which is slow; use a GPU to run it compiled"
                );
            });
            Ok(Code::Interpreted)
        }
        (None, _) => {
            let begun = Instant::now();
            let code = cpu::compile(kernel)?;
            profile::record_compilation(&kernel.name, &device.to_string(), begun.elapsed().as_secs_f64() * 1e3);
            Ok(Code::Cpu(Box::new(code)))
        }
        (Some(device), _) => {
            let checked = mode == CodegenMode::Checked;
            let source = match mode {
                CodegenMode::Exact => cuda::print(kernel),
                CodegenMode::Native => cuda::print_with(kernel, cuda::MathMode::Native),
                CodegenMode::Checked => cuda::print_checked(kernel),
            };
            let cache = bornite_cuda::Cache::global()?;
            let arch = device.info().arch();
            let cubin = bornite_cuda::compile_cached(cache, &kernel.name, &source, &arch, &EXACT_OPTIONS)?;
            let mut values: Vec<usize> = kernel.values.iter().map(|value| kernel.bytes_of(value.ty)).collect();
            values.extend(checked.then_some(8));
            let pointers = kernel.params.len() + usize::from(checked);
            let function =
                bornite_cuda::KernelFunction::load(&device, &cubin, &cuda::symbol(kernel), pointers, values)?;
            Ok(Code::Cuda(device, function))
        }
    }
}

impl Program {
    /// Launches the kernel with one buffer per view parameter and one list of components per value
    /// parameter, in stream order. Written buffers must not overlap others. `threads` is the block
    /// size on a GPU, for kernels without one. `info` is for the profiler.
    pub fn launch(&self, buffers: &[&Buffer], values: &[&[Value]], threads: u32, info: LaunchInfo) -> Result<()> {
        let describe = || info.describe(&self.kernel, values);
        match &self.code {
            Code::Interpreted | Code::Cpu(_) => profile::timed(&HostDeviceClock(self.device), describe, || {
                self.launch_untimed(buffers, values, threads)
            }),
            Code::Cuda(device, _) => {
                profile::timed(&DeviceClock(device), describe, || self.launch_untimed(buffers, values, threads))
            }
        }
    }

    /// The kernel's IR.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// Name of the backend that runs it.
    pub fn backend(&self) -> &'static str {
        match &self.code {
            Code::Interpreted => "interpreter",
            Code::Cpu(_) => "machine code",
            Code::Cuda(..) => "CUDA",
        }
    }

    /// Number of memory passes over the n-th argument: 2 if it is read and written, else 1.
    pub fn memory_passes(&self, n: usize) -> u64 {
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
                // Generated kernels write each element once; race checking would need memory for
                // every element.
                let max_statements = self.max_statements;
                let options = interp::InterpreterOptions {
                    check_instance_races: false,
                    max_statements,
                    ..interp::InterpreterOptions::default()
                };
                with_host_args(kernel, buffers, values, |args| interp::run_with(kernel, args, options))
            }
            Code::Cpu(code) => with_host_args(kernel, buffers, values, |args| code.run(args)),
            Code::Cuda(_, function) => {
                let (grid, block) = match kernel.launch {
                    LaunchMode::Blocks { grid, block } => (grid, block),
                    // The grid covers every instance, so the kernel's grid-stride loop runs once.
                    LaunchMode::ParallelFor { .. } => {
                        let blocks = kernel.launch.count(&firsts).div_ceil(threads as u64);
                        ([blocks.min(i32::MAX as u64) as u32, 1, 1], [threads, 1, 1])
                    }
                };
                let shared_bytes = cuda::dynamic_shared_bytes(kernel);
                let geometry =
                    bornite_cuda::LaunchConfig { shared_bytes, ..bornite_cuda::LaunchConfig::new(grid, block) };
                let own = buffers.len().min(kernel.params.len());
                let mut pointers = cuda_pointers(kernel, &buffers[..own], &firsts)?;
                let mut packed: Vec<Vec<u8>> =
                    kernel.values.iter().zip(values).map(|(param, parts)| packed(kernel, param.ty, parts)).collect();
                if let (CodegenMode::Checked, Some(status), Some([code])) =
                    (self.mode, buffers.last().and_then(|status| status.pointer()), values.last())
                {
                    pointers.push(status);
                    packed.push(code.bits().to_le_bytes().to_vec());
                }
                // SAFETY: the code was generated from `kernel`: it takes one pointer per view, here
                // to memory as long as the view, and values in C layout. Generated kernels index
                // within their views by construction; custom kernels check each index before use,
                // or were run in the interpreter with the same arguments (`PreparedLaunch`), which
                // checks every index and, in block kernels, that threads do not race. Not covered
                // are such kernels whose indices depend on the order of atomics, and unchecked
                // launches, whose callers guarantee safety.
                #[allow(unsafe_code)]
                let launched = unsafe { function.launch_with(&geometry, None, &pointers, &packed) };
                Ok(launched?)
            }
        }
    }
}

/// A host routine as a step of a plan.
pub(crate) struct RoutineCall {
    pub name: &'static str,
    pub run: Routine,
    pub device: Device,
    /// Dtype and number of elements of each output.
    pub outputs: Vec<(DType, usize)>,
    /// Dtype and number of elements of each input.
    pub inputs: Vec<(DType, usize)>,
}

impl RoutineCall {
    /// Runs with one buffer per output, then one per input.
    pub fn launch(&self, buffers: &[&Buffer], info: LaunchInfo) -> Result<()> {
        let bytes = |of: &[(DType, usize)]| of.iter().map(|(dtype, n)| (dtype.bytes() * n) as u64).sum::<u64>();
        let describe = || info.work(self.name, bytes(&self.outputs) + bytes(&self.inputs));
        profile::timed(&HostDeviceClock(self.device), describe, || self.launch_untimed(buffers))
    }

    fn launch_untimed(&self, buffers: &[&Buffer]) -> Result<()> {
        let bad_call = |what: &str| {
            let kind = bornite_ir::FaultKind::InvalidCall(what.into());
            Error::Fault(bornite_ir::Fault { kernel: self.name.into(), kind, line: None })
        };
        if buffers.len() != self.outputs.len() + self.inputs.len() {
            return Err(bad_call("the number of buffers does not match its parameters"));
        }
        let requests: Vec<(&Buffer, bool)> =
            buffers.iter().enumerate().map(|(n, &buffer)| (buffer, n < self.outputs.len())).collect();
        let run = |slices: Vec<HostSlice<'_>>| {
            let (mut outputs, mut inputs) = (vec![], vec![]);
            for (slices, &(dtype, elements)) in slices.into_iter().zip(self.outputs.iter().chain(&self.inputs)) {
                match slices {
                    HostSlice::Write(words) => outputs.push(MemoryMut { words, dtype, elements }),
                    HostSlice::Read(words) => inputs.push(Memory { words, dtype, elements }),
                }
            }
            (self.run)(&inputs, &mut outputs)
        };
        with_host_slices(&requests, run).map_err(bad_call)?
    }
}

/// Pointers to the element of index 0 of each view, after checking that its buffer is long enough.
fn cuda_pointers<'a>(
    kernel: &Kernel,
    buffers: &[&'a Buffer],
    firsts: &[Value],
) -> Result<Vec<bornite_cuda::DevicePointer<'a>>> {
    if buffers.len() != kernel.params.len() {
        return Err(bad_call(kernel, "the number of buffers does not match its parameters"));
    }
    (kernel.params.iter().zip(buffers))
        .map(|(param, buffer)| {
            let Some((memory, at)) = buffer.pointer() else {
                return Err(bad_call(kernel, "called with a host buffer"));
            };
            let origin = kernel.memory_span(&param.dims, firsts).map_or(0, |span| span.origin as usize);
            match kernel.view_bytes(param, firsts) {
                Some(bytes) if bytes <= buffer.bytes() => Ok((memory, at + origin * kernel.bytes_of(param.ty))),
                _ => Err(bad_call(kernel, &format!("'{}' is longer than its buffer", param.name))),
            }
        })
        .collect()
}

/// Bytes of a value in C layout.
fn packed(kernel: &Kernel, ty: bornite_ir::Type, parts: &[Value]) -> Vec<u8> {
    let layout = ty.layout(&kernel.structs);
    let mut bytes = vec![0; layout.bytes];
    for ((offset, scalar), part) in layout.offsets.iter().zip(parts) {
        bytes[*offset..offset + scalar.bytes()].copy_from_slice(&part.bits().to_le_bytes()[..scalar.bytes()]);
    }
    bytes
}

pub(crate) fn bad_call(kernel: &Kernel, what: &str) -> Error {
    Error::Fault(bornite_ir::Fault::invalid_call(kernel, what))
}

/// Calls `run` with host buffers as kernel arguments.
pub(crate) fn with_host_args(
    kernel: &Kernel,
    buffers: &[&Buffer],
    values: &[&[Value]],
    run: impl FnOnce(&mut [Arg<'_>]) -> std::result::Result<(), bornite_ir::Fault>,
) -> Result<()> {
    if buffers.len() != kernel.params.len() {
        return Err(bad_call(kernel, "the number of buffers does not match its parameters"));
    }
    let requests: Vec<(&Buffer, bool)> =
        kernel.params.iter().zip(buffers).map(|(param, &buffer)| (buffer, param.access.writes())).collect();
    let run = |slices: Vec<HostSlice<'_>>| {
        let views = slices.into_iter().map(|slices| match slices {
            HostSlice::Read(words) => Arg::Read(words),
            HostSlice::Write(words) => Arg::Write(words),
        });
        let mut args: Vec<Arg<'_>> = views.chain(values.iter().map(|parts| Arg::Value(parts))).collect();
        run(&mut args)
    };
    Ok(with_host_slices(&requests, run).map_err(|what| bad_call(kernel, what))??)
}

/// Dtype of the tensors that can be passed as an array parameter of a kernel: that of the
/// components of its elements, or U8 if they differ.
pub fn array_dtype(kernel: &Kernel, param: &Param) -> Scalar {
    let mut components = param.ty.components(&kernel.structs).into_iter();
    match components.next() {
        Some(first) if components.all(|scalar| scalar == first) => first,
        _ => Scalar::U8,
    }
}
