//! Unchecked launches of CUDA C++ files that the front end does not support, compiled by NVRTC.

use std::process::ExitCode;

use bornite::Device;
use bornite::ir::{Scalar, Type, store_scalar};
use bornite_cuda::{Buffer, KernelFunction, LaunchConfig};
use bornite_lang::Errors;
use serde_json::json;

use super::argument::{ArgSpec, ArgValue, NumberLiteral};
use super::cuda::read;
use super::outputs::{OutputArray, OutputOptions};
use super::run::{words, zeros};
use super::source::KernelSelector;
use crate::{Failure, note, print, print_json};

/// Runs an unsupported file unchecked on a GPU; on other devices, returns the front end's errors.
pub fn run_unchecked(
    source: &KernelSelector,
    error: Failure,
    device: Device,
    options: &OutputOptions,
    json: bool,
) -> Result<ExitCode, Failure> {
    let (Some(ordinal), Some(file), true) = (device.cuda_ordinal(), source.cuda_file(), error.is::<Errors>()) else {
        return Err(error);
    };
    note(&format!("{error}\n\nunchecked: the kernel is compiled by NVRTC and launched without checks"));
    let (Some(name), launch) = source.kernel_and_launch() else {
        return Err("specify the kernel to run with --kernel NAME".into());
    };
    let device = bornite_cuda::Device::open(ordinal)?;
    let cubin = bornite_cuda::compile(name, &with_plain_names(&read(file)?), &device.info().arch())?;
    let launch = launch.loaded()?;
    let (grid, block) = launch.dims(None);
    let mut buffers = vec![];
    let mut params: Vec<Vec<u8>> = vec![];
    for arg in launch.args() {
        let (bytes, shape) = encoded(arg, launch.seed())?;
        if is_array(arg) {
            let buffer = Buffer::new(&device, bytes.len())?;
            buffer.upload(&bytes)?;
            params.push(buffer.address().to_ne_bytes().to_vec());
            buffers.push((arg, buffer, bytes.len(), shape));
        } else {
            params.push(bytes);
        }
    }
    let sizes: Vec<usize> = params.iter().map(Vec::len).collect();
    let function = KernelFunction::load(&device, &cubin, name, 0, sizes)?;
    let mut geometry = LaunchConfig::new(grid, block);
    geometry.shared_bytes = launch.shared_bytes().try_into().unwrap_or(u32::MAX);
    launch_unchecked(&function, &geometry, &params)?;
    device.synchronize()?;
    let mut memory = vec![];
    for (_, buffer, length, _) in &buffers {
        let mut bytes = vec![0; *length];
        buffer.download(&mut bytes)?;
        memory.push(words(&bytes));
    }
    let arrays: Vec<OutputArray> = (buffers.iter().zip(&memory))
        .map(|((arg, _, _, shape), words)| {
            let scalar = scalar_of(arg);
            let (ty, layout) = (scalar.to_string(), Type::Scalar(scalar).layout(&[]));
            OutputArray { name: &arg.name, ty, layout, shape, words, is_written: true }
        })
        .collect();
    let report = options.report(&arrays, launch.seed())?;
    let ok = report.error.is_none();
    if json {
        print_json(&json!({
            "kernel": name, "file": file, "ok": ok, "checked": false, "outputs": report.outputs,
            "expected": report.expected, "error": report.error,
        }))?;
    } else {
        print(&(report.text + "unchecked: indices, races and barriers were not checked\n"))?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Launches with arguments in the order of the command line.
#[allow(unsafe_code)]
fn launch_unchecked(function: &KernelFunction, geometry: &LaunchConfig, params: &[Vec<u8>]) -> Result<(), Failure> {
    // SAFETY: not known to be safe. The user requested an unchecked kernel and was warned; accesses beyond its
    // buffers are the responsibility of its author, in a process that does nothing else.
    unsafe { function.launch_with(geometry, None, &[], params)? };
    Ok(())
}

/// Type of an argument: as written, else that of its file, else float for arrays and numbers with a
/// decimal point, int otherwise.
fn scalar_of(arg: &ArgSpec) -> Scalar {
    let integers = |all: &[NumberLiteral]| all.iter().all(|number| matches!(number, NumberLiteral::Int(_)));
    arg.dtype.unwrap_or(match &arg.value {
        ArgValue::Literal { numbers, .. } if integers(numbers) => Scalar::I32,
        ArgValue::Contents(contents) => contents.dtype().unwrap_or(Scalar::F32),
        _ => Scalar::F32,
    })
}

fn is_array(arg: &ArgSpec) -> bool {
    !matches!(arg.value, ArgValue::Literal { brackets: false, .. })
}

/// Bytes of an argument, and its shape.
fn encoded(arg: &ArgSpec, seed: u64) -> Result<(Vec<u8>, Vec<u64>), Failure> {
    let scalar = scalar_of(arg);
    let shape = arg.element_shape(&Type::Scalar(scalar).layout(&[]))?;
    let count = shape.iter().product::<u64>() as usize;
    let mut words = zeros((count * scalar.bytes()).div_ceil(8))?;
    for stored in arg.stored((0..count).map(|n| (n * scalar.bytes(), scalar)), seed) {
        let (byte, value) = stored?;
        store_scalar(&mut words, byte, value);
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(count * scalar.bytes());
    Ok((bytes, shape))
}

/// The source with `extern "C"` kernels, so that their names are not mangled, and without host
/// headers, which NVRTC does not need.
fn with_plain_names(text: &str) -> String {
    let host = ["cuda_runtime", "stdio", "cstdio", "stdlib", "cstdlib", "math.h", "cmath", "stdint", "cstdint"];
    let line = |line: &str| {
        let trimmed = line.trim_start();
        if trimmed.starts_with("#include") && host.iter().any(|header| trimmed.contains(header)) {
            return String::new();
        }
        if trimmed.starts_with("__global__") {
            line.replacen("__global__", "extern \"C\" __global__", 1)
        } else {
            line.into()
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
