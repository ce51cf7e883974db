//! `bornite kernel run`: runs a kernel on generated inputs, in the interpreter or on a device.

use std::path::PathBuf;
use std::process::ExitCode;

use bornite::ir::interp::{self, ExecutionOrder, InterpreterOptions};
use bornite::ir::{Access, Arg, Extent, Fault, Kernel, Param, Scalar, Value, store_scalar};
use bornite::kernel::{CustomKernel, KernelArg, Launch, array_dtype};
use bornite::{Device, Tensor};
use clap::Args;
use serde_json::json;

use super::argument::ArgSpec;
use super::finding::RunFinding;
use super::launch_file::LaunchFile;
use super::outputs::{OutputArray, OutputOptions};
use super::source::{Job, KernelSelector};
use super::unchecked;
use crate::{Failure, print, print_json};

/// Results of a run: contents of all arrays, and printed lines.
pub struct RunOutcome {
    memory: Vec<Vec<u64>>,
    lines: Vec<String>,
}

/// Default value parameters: 16 for extents and strides, 1 in every component of others.
pub fn values(kernel: &Kernel) -> Vec<Vec<Value>> {
    let dims = kernel.params.iter().flat_map(|p| p.dims.iter().flat_map(|dim| [dim.extent, dim.stride]));
    let count = match kernel.launch {
        bornite::ir::LaunchMode::ParallelFor { count } => Some(count),
        bornite::ir::LaunchMode::Blocks { .. } => None,
    };
    let sizes: Vec<Extent> = dims.chain(count).collect();
    (kernel.values.iter().enumerate())
        .map(|(n, value)| {
            let size = if sizes.contains(&Extent::Value(n as u32)) { 16.0 } else { 1.0 };
            value.ty.components(&kernel.structs).into_iter().map(|s| Value::from_f64(s, size)).collect()
        })
        .collect()
}

/// Byte offset and type of every component of a view.
pub fn cells(
    kernel: &Kernel,
    param: &Param,
    firsts: &[Value],
) -> impl Iterator<Item = (usize, Scalar)> + Clone + use<> {
    let layout = param.ty.layout(&kernel.structs);
    let elements = kernel.memory_span(&param.dims, firsts).map_or(0, |span| span.elements as usize);
    let components = layout.offsets.len();
    (0..elements * components).map(move |n| {
        let (offset, scalar) = layout.offsets[n % components];
        (n / components * layout.bytes + offset, scalar)
    })
}

/// Allocates an empty vector of this capacity; an error if memory is not available.
fn reserved(words: usize) -> Result<Vec<u64>, Failure> {
    let mut memory = Vec::new();
    let failed = |_| format!("out of memory: an array of {} bytes does not fit; use smaller sizes", 8 * words);
    memory.try_reserve_exact(words).map_err(failed)?;
    Ok(memory)
}

/// Words of zeros.
pub fn zeros(words: usize) -> Result<Vec<u64>, Failure> {
    let mut memory = reserved(words)?;
    memory.resize(words, 0);
    Ok(memory)
}

/// Copies the memory of all views.
pub fn copy_memory(memory: &[Vec<u64>]) -> Result<Vec<Vec<u64>>, Failure> {
    let copy = |words: &Vec<u64>| {
        let mut copy = reserved(words.len())?;
        copy.extend_from_slice(words);
        Ok(copy)
    };
    memory.iter().map(copy).collect()
}

/// Memory of every view, filled with 0, 1, 2, … modulo 7 where the kernel reads it.
pub fn memory(kernel: &Kernel, firsts: &[Value]) -> Result<Vec<Vec<u64>>, Failure> {
    let bytes: Option<Vec<usize>> = kernel.params.iter().map(|p| kernel.view_bytes(p, firsts)).collect();
    let total: u128 = bytes.iter().flatten().map(|&bytes| bytes as u128).sum();
    let Some(bytes) = bytes.filter(|_| total <= 1 << 30) else {
        return Err(format!("the kernel's arrays have {total} bytes; `kernel run` supports up to 1 GiB").into());
    };
    let filled = (kernel.params.iter().zip(bytes)).map(|(p, bytes)| {
        let mut words = zeros(bytes.div_ceil(8))?;
        if p.access.reads() {
            for (n, (byte, scalar)) in cells(kernel, p, firsts).enumerate() {
                store_scalar(&mut words, byte, Value::from_f64(scalar, (n % 7) as f64));
            }
        }
        Ok(words)
    });
    filled.collect()
}

/// Arguments of a kernel: its arrays on a device, with the contents of the memory, then its values.
pub fn arguments(kernel: &Kernel, values: &[Vec<Value>], memory: &[Vec<u64>], device: Device) -> Vec<KernelArg> {
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    let arrays = kernel.params.iter().zip(memory).map(|(param, words)| {
        let dtype = array_dtype(kernel, param);
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let bytes = &bytes[..kernel.view_bytes(param, &firsts).unwrap_or(0).min(bytes.len())];
        KernelArg::Array(Tensor::from_bytes(bytes, &[bytes.len() / dtype.bytes()], dtype, device))
    });
    arrays.chain(values.iter().map(|parts| parts[..].into())).collect()
}

/// Bytes as 64-bit words, padded with zeros.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

fn interpret(job: &Job, options: InterpreterOptions) -> Result<Result<RunOutcome, Fault>, Failure> {
    let mut lines = vec![];
    let (memory, outcome) = with_args(job, |kernel, args| {
        interp::run_printing(kernel, args, options, &mut |line| lines.push(line.to_owned()))
    })?;
    Ok(outcome.map(|()| RunOutcome { memory, lines }))
}

/// Calls `run` with copies of a kernel's arrays, and returns them with its result.
pub fn with_args<R>(job: &Job, run: impl FnOnce(&Kernel, &mut [Arg<'_>]) -> R) -> Result<(Vec<Vec<u64>>, R), Failure> {
    let mut memory = copy_memory(&job.memory)?;
    let mut args: Vec<Arg> = (memory.iter_mut().zip(&job.kernel.params))
        .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
        .collect();
    args.extend(job.values.iter().map(|parts| Arg::Value(parts)));
    let result = run(&job.kernel, &mut args);
    Ok((memory, result))
}

/// Runs on a device with a limit of statements. Printed lines are not captured there.
pub fn on_device(job: &Job, device: Device, max_statements: u64) -> Result<Result<RunOutcome, Fault>, Failure> {
    let launch = Launch { check: device.is_cuda(), max_statements: Some(max_statements), ..Launch::default() };
    let run = || {
        let args = arguments(&job.kernel, &job.values, &job.memory, device);
        let prepared = CustomKernel::from_ir(job.kernel.clone())?.prepare(launch, &args)?;
        prepared.run()?;
        prepared.arrays()?.iter().map(|array| Ok(words(&array.to_bytes()?))).collect()
    };
    match run() {
        Ok(memory) => Ok(Ok(RunOutcome { memory, lines: vec![] })),
        Err(bornite::Error::Fault(fault)) => Ok(Err(fault)),
        Err(other) => Err(other.into()),
    }
}

/// Options of `bornite kernel run`.
#[derive(Args)]
pub struct RunOptions {
    #[command(flatten)]
    source: KernelSelector,
    /// Settings of the launch in a TOML file; flags take precedence
    #[arg(long = "launch", value_name = "FILE")]
    launch_file: Option<PathBuf>,
    /// One of interpreter, cpu, cpu:N, cuda, cuda:N, auto
    #[arg(long, default_value = "interpreter")]
    device: String,
    /// Run threads and blocks in both orders and compare the results (interpreter only)
    #[arg(long)]
    sanitize: bool,
    /// Maximum number of statements per block (per thread on the CPU) before the run is aborted
    #[arg(long, value_name = "N", default_value_t = super::MAX_STATEMENTS)]
    max_statements: u64,
    #[command(flatten)]
    outputs: OutputOptions,
    /// Write JSON to stdout
    #[arg(long)]
    pub json: bool,
}

/// Runs a kernel; an unsupported CUDA C++ file unchecked, on a GPU.
pub fn run(options: &RunOptions) -> Result<ExitCode, Failure> {
    let device: Device = options.device.parse()?;
    let (mut source, mut outputs) = (options.source.clone(), options.outputs.clone());
    if let Some(path) = &options.launch_file {
        let file = LaunchFile::read(path)?;
        outputs.rtol = outputs.rtol.or(file.rtol);
        outputs.atol = outputs.atol.or(file.atol);
        add_missing(&mut outputs.expect, &file.expect);
        source.add_missing(file).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let outputs = outputs.loaded()?;
    match source.job() {
        Ok(job) => execute(&job, device, options, &outputs, source.kernel_and_launch().1.seed()),
        Err(error) => unchecked::run_unchecked(&source, error, device, &outputs, options.json),
    }
}

/// Adds the arguments of parameters that have none.
pub fn add_missing(args: &mut Vec<ArgSpec>, from: &[ArgSpec]) {
    let missing: Vec<ArgSpec> =
        from.iter().filter(|arg| args.iter().all(|other| other.name != arg.name)).cloned().collect();
    args.extend(missing);
}

/// Runs a kernel and prints its outputs, or the finding of the checks.
fn execute(
    job: &Job,
    device: Device,
    options: &RunOptions,
    outputs: &OutputOptions,
    seed: u64,
) -> Result<ExitCode, Failure> {
    let (kernel, sanitize, max_statements) = (&job.kernel, options.sanitize, options.max_statements);
    let interpreter = |order| InterpreterOptions {
        order,
        max_statements: Some(max_statements),
        check_instance_races: true,
        check_division: sanitize,
    };
    let outcome = match device {
        Device::Interpreter => interpret(job, interpreter(ExecutionOrder::Forward))?,
        _ if sanitize => return Err("--sanitize runs in the interpreter; remove --device".into()),
        device => match on_device(job, device, max_statements)? {
            // Machine code has no line information; the interpreter does.
            Err(fault) => {
                let same = |found: &Fault| std::mem::discriminant(&found.kind) == std::mem::discriminant(&fault.kind);
                Err(interpret(job, interpreter(ExecutionOrder::Forward))?.err().filter(same).unwrap_or(fault))
            }
            outcome => outcome,
        },
    };
    let mut found = outcome.as_ref().err().map(|fault| RunFinding::of_fault(job, fault));
    if let (true, Ok(forward)) = (sanitize, &outcome) {
        found = match interpret(job, interpreter(ExecutionOrder::Reverse))? {
            Err(fault) => Some(RunFinding::of_fault(job, &fault)),
            Ok(reverse) if reverse.memory != forward.memory => Some(RunFinding::order_dependence(job)),
            Ok(_) => None,
        };
    }
    let none = RunOutcome { memory: vec![], lines: vec![] };
    let shown = outcome.as_ref().unwrap_or(&none);
    let arrays: Vec<OutputArray> = (kernel.params.iter().zip(&job.arrays).zip(&shown.memory))
        .map(|((param, (name, shape)), words)| OutputArray {
            name,
            ty: param.ty.name(&kernel.structs).to_string(),
            layout: param.ty.layout(&kernel.structs),
            shape,
            words,
            is_written: param.access.writes(),
        })
        .collect();
    // Arrays of a run with a finding are neither written to files nor compared.
    let report = match found {
        Some(_) => outputs.only_shown().report(&arrays, seed)?,
        None => outputs.report(&arrays, seed)?,
    };
    let ok = found.is_none() && report.error.is_none();
    if options.json {
        let mut members = RunFinding::json(found.as_ref(), job);
        if let Some(error) = report.error {
            members.insert("error".into(), json!(error));
        }
        members.insert("kernel".into(), json!(kernel.name));
        members.insert("device".into(), json!(device.to_string()));
        members.insert("ok".into(), json!(ok));
        members.insert("checked".into(), json!(true));
        members.insert("outputs".into(), report.outputs);
        members.insert("expected".into(), report.expected);
        members.insert("printed".into(), json!(shown.lines));
        print_json(&members.into())?;
    } else if let Some(found) = &found {
        print(&found.text(job))?;
    } else {
        let printed: String = shown.lines.iter().map(|line| format!("{line}\n")).collect();
        let verdict = if sanitize { "no errors found in either order of threads\n" } else { "" };
        print(&(printed + &report.text + verdict))?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
