//! `bornite kernel run`: a kernel over made-up inputs, on the interpreter or on a device.

use std::process::ExitCode;

use bornite::ir::interp::{self, Options, Order};
use bornite::ir::{Access, Arg, Extent, Fault, Kernel, Param, Scalar, Value, peek, poke};
use bornite::kernel::{CustomKernel, KernelArg, Launch, array_dtype};
use bornite::{Device, Tensor};
use serde_json::json;

use super::source::Job;
use crate::{Failure, print, print_json};

/// What a run gave: memory and printed lines.
pub struct Outcome {
    memory: Vec<Vec<u64>>,
    lines: Vec<String>,
}

/// Value parameters: 16 where a value is an extent or stride, 1 in every component of others.
pub fn values(kernel: &Kernel) -> Vec<Vec<Value>> {
    let dims = kernel.params.iter().flat_map(|p| p.dims.iter().flat_map(|dim| [dim.extent, dim.stride]));
    let count = match kernel.launch {
        bornite::ir::Launch::ParallelFor { count } => Some(count),
        bornite::ir::Launch::Blocks { .. } => None,
    };
    let sizes: Vec<Extent> = dims.chain(count).collect();
    (kernel.values.iter().enumerate())
        .map(|(n, value)| {
            let size = if sizes.contains(&Extent::Value(n as u32)) { 16.0 } else { 1.0 };
            value.ty.components(&kernel.structs).into_iter().map(|s| Value::from_f64(s, size)).collect()
        })
        .collect()
}

/// Byte and type of the components of a view.
pub fn cells(kernel: &Kernel, param: &Param, firsts: &[Value]) -> impl Iterator<Item = (usize, Scalar)> + use<> {
    let layout = param.ty.layout(&kernel.structs);
    let elements = kernel.span(&param.dims, firsts).map_or(0, |span| span.elements as usize);
    let components = layout.offsets.len();
    (0..elements * components).map(move |n| {
        let (offset, scalar) = layout.offsets[n % components];
        (n / components * layout.bytes + offset, scalar)
    })
}

/// Allocates an empty vector with room for the words; fails if the memory is not available.
fn reserved(words: usize) -> Result<Vec<u64>, Failure> {
    let mut memory = Vec::new();
    let failed = |_| format!("out of memory: an array of {} bytes does not fit; choose smaller sizes", 8 * words);
    memory.try_reserve_exact(words).map_err(failed)?;
    Ok(memory)
}

/// Words of zeros.
pub fn zeros(words: usize) -> Result<Vec<u64>, Failure> {
    let mut memory = reserved(words)?;
    memory.resize(words, 0);
    Ok(memory)
}

/// A copy of the memory of all views.
pub fn copied(memory: &[Vec<u64>]) -> Result<Vec<Vec<u64>>, Failure> {
    let copy = |words: &Vec<u64>| {
        let mut copy = reserved(words.len())?;
        copy.extend_from_slice(words);
        Ok(copy)
    };
    memory.iter().map(copy).collect()
}

/// Memory for every view: 0, 1, 2, … modulo 7 where the kernel reads it.
pub fn memory(kernel: &Kernel, firsts: &[Value]) -> Result<Vec<Vec<u64>>, Failure> {
    let bytes: Option<Vec<usize>> = kernel.params.iter().map(|p| kernel.view_bytes(p, firsts)).collect();
    let total: u128 = bytes.iter().flatten().map(|&bytes| bytes as u128).sum();
    let Some(bytes) = bytes.filter(|_| total <= 1 << 30) else {
        return Err(format!("the kernel's views have {total} bytes; a try-out is for less than a GiB").into());
    };
    let made = (kernel.params.iter().zip(bytes)).map(|(p, bytes)| {
        let mut words = zeros(bytes.div_ceil(8))?;
        if p.access.reads() {
            for (n, (byte, scalar)) in cells(kernel, p, firsts).enumerate() {
                poke(&mut words, byte, Value::from_f64(scalar, (n % 7) as f64));
            }
        }
        Ok(words)
    });
    made.collect()
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

/// Bytes as 64-bit words, the last one filled up with zeros.
fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

fn interpret(job: &Job, options: Options) -> Result<Result<Outcome, Fault>, Failure> {
    let kernel = &job.kernel;
    let mut memory = copied(&job.memory)?;
    let mut args: Vec<Arg> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
        .collect();
    args.extend(job.values.iter().map(|parts| Arg::Value(parts)));
    let mut lines = vec![];
    let outcome = interp::run_printing(kernel, &mut args, options, &mut |line| lines.push(line.to_owned()));
    Ok(outcome.map(|()| Outcome { memory, lines }))
}

/// Runs on a device, up to a limit of statements. Lines that a kernel prints there are not caught.
pub fn on_device(job: &Job, device: Device, max_statements: u64) -> Result<Result<Outcome, Fault>, Failure> {
    let launch =
        Launch { check: matches!(device, Device::Cuda(_)), max_statements: Some(max_statements), ..Launch::default() };
    let run = || {
        let args = arguments(&job.kernel, &job.values, &job.memory, device);
        let prepared = CustomKernel::from_ir(job.kernel.clone())?.prepare(launch, &args)?;
        prepared.run()?;
        prepared.arrays()?.iter().map(|array| Ok(words(&array.to_bytes()?))).collect()
    };
    match run() {
        Ok(memory) => Ok(Ok(Outcome { memory, lines: vec![] })),
        Err(bornite::Error::Fault(fault)) => Ok(Err(fault)),
        Err(other) => Err(other.into()),
    }
}

/// What the checks found: words, and the line; of the source where there is one, else of the text form.
struct Finding {
    words: String,
    line: Option<usize>,
}

fn finding(job: &Job, fault: &Fault) -> Finding {
    match &job.origin {
        Some(origin) => Finding {
            words: format!("error: kernel '{}': {}", fault.kernel, fault.kind),
            line: origin.line_of(fault).map(|line| line as usize),
        },
        None => Finding { words: fault.to_string(), line: fault.line },
    }
}

/// Numbers as they are: all digits of integers, and of floats as many as tell them apart.
pub fn in_words(values: &[Value]) -> String {
    let word = |value: &Value| match value.scalar() {
        Scalar::F64 => format!("{:?}", value.as_f64()),
        scalar if scalar.is_float() => format!("{:?}", value.as_f64() as f32),
        Scalar::U64 => value.bits().to_string(),
        Scalar::Bool => (value.as_i64() != 0).to_string(),
        _ => value.as_i64().to_string(),
    };
    format!("[{}]", values.iter().map(word).collect::<Vec<_>>().join(", "))
}

/// The same in JSON, which has no infinities: words stand for these.
pub fn in_json(values: &[Value]) -> Vec<serde_json::Value> {
    let word = |value: &Value| match value.scalar() {
        scalar if scalar.is_float() => match value.as_f64() {
            x if x.is_finite() => json!(x),
            x => json!(if x.is_nan() {
                "nan"
            } else if x > 0.0 {
                "inf"
            } else {
                "-inf"
            }),
        },
        Scalar::U64 => json!(value.bits()),
        Scalar::Bool => json!(value.as_i64() != 0),
        _ => json!(value.as_i64()),
    };
    values.iter().map(word).collect()
}

/// Runs a kernel and shows what it writes, or what the checks found.
pub fn execute(
    job: &Job,
    device: Device,
    sanitize: bool,
    max_statements: u64,
    json: bool,
) -> Result<ExitCode, Failure> {
    let kernel = &job.kernel;
    let options = |order| Options { order, max_statements: Some(max_statements), instances: true, divisions: sanitize };
    let outcome = match device {
        Device::Interpreter => interpret(job, options(Order::Forward))?,
        _ if sanitize => return Err("--sanitize runs on the interpreter; leave --device out".into()),
        device => match on_device(job, device, max_statements)? {
            // Machine code knows no lines; the interpreter does.
            Err(fault) => {
                let same = |found: &Fault| std::mem::discriminant(&found.kind) == std::mem::discriminant(&fault.kind);
                Err(interpret(job, options(Order::Forward))?.err().filter(same).unwrap_or(fault))
            }
            outcome => outcome,
        },
    };
    let mut found = outcome.as_ref().err().map(|fault| finding(job, fault));
    if let (true, Ok(forward)) = (sanitize, &outcome) {
        found = match interpret(job, options(Order::Reverse))? {
            Err(fault) => Some(finding(job, &fault)),
            Ok(reverse) if reverse.memory != forward.memory => Some(Finding {
                words: format!("kernel '{}': its results depend on the order of threads", kernel.name),
                line: None,
            }),
            Ok(_) => None,
        };
    }
    let firsts: Vec<Value> = job.values.iter().filter_map(|parts| parts.first().copied()).collect();
    let none = Outcome { memory: vec![vec![]; kernel.params.len()], lines: vec![] };
    let shown = outcome.as_ref().unwrap_or(&none);
    let written: Vec<(&str, String, Vec<Value>)> = (kernel.params.iter().zip(&shown.memory))
        .filter(|(p, words)| p.access.writes() && !words.is_empty())
        .map(|(p, words)| {
            let first = cells(kernel, p, &firsts).take(8).map(|(byte, scalar)| peek(words, byte, scalar));
            (p.name.as_str(), p.ty.name(&kernel.structs).to_string(), first.collect())
        })
        .collect();
    if json {
        let outputs: Vec<_> = written
            .iter()
            .map(|(name, ty, first)| json!({"view": name, "type": ty, "first": in_json(first)}))
            .collect();
        let (error, line) = found.as_ref().map_or((None, None), |found| (Some(&found.words), found.line));
        print_json(&json!({
            "kernel": kernel.name, "device": device.to_string(), "ok": found.is_none(), "error": error, "line": line, "outputs": outputs,
            "file": job.origin.as_ref().map(|origin| &origin.file), "checked": true, "printed": shown.lines,
        }))?;
    } else if let Some(Finding { words, line }) = &found {
        let text = kernel.to_string();
        let shown = line.and_then(|n| match &job.origin {
            Some(origin) => Some(format!("\n{}", origin.shown(n as u32))),
            None => text.lines().nth(n - 1).map(|line| format!("\n{n:4} | {line}")),
        });
        print(&format!("{words}{}\n", shown.unwrap_or_default()))?;
    } else {
        let printed: String = shown.lines.iter().map(|line| format!("{line}\n")).collect();
        let lines: Vec<String> =
            written.iter().map(|(name, ty, first)| format!("{name}: {ty}, first {}\n", in_words(first))).collect();
        let verdict = if sanitize { "no finding, in either order of threads\n" } else { "" };
        print(&(printed + &lines.concat() + verdict))?;
    }
    Ok(if found.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
