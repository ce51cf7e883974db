//! Unchecked launches of CUDA C++ files that the front end does not support, compiled by NVRTC.

use std::path::Path;
use std::process::ExitCode;

use bornite::Device;
use bornite::ir::{Scalar, Value, load_scalar, store_scalar};
use bornite_cuda::{Buffer, KernelFunction, LaunchConfig};
use bornite_lang::Errors;
use serde_json::json;

use super::argument::{ArgSpec, ArgValue, NumberLiteral};
use super::cuda::read;
use super::run::{format_values, values_to_json, zeros};
use super::source::KernelSelector;
use crate::{Failure, note, print, print_json};

/// Runs an unsupported file unchecked on a GPU; on other devices, returns the front end's errors.
pub fn run_unchecked(source: &KernelSelector, error: Failure, device: Device, json: bool) -> Result<ExitCode, Failure> {
    let (Device::Cuda(ordinal), Some(file), true) = (device, source.cuda_file(), error.is::<Errors>()) else {
        return Err(error);
    };
    note(&format!("{error}\n\nunchecked: the kernel is compiled by NVRTC and launched without checks"));
    let (Some(name), launch) = source.kernel_and_launch() else {
        return Err("specify the kernel to run with --kernel NAME".into());
    };
    let device = bornite_cuda::Device::open(ordinal)?;
    let cubin = bornite_cuda::compile(name, &with_plain_names(&read(file)?), &device.info().arch())?;
    let (grid, block) = launch.dims(None);
    let mut buffers = vec![];
    let mut params: Vec<Vec<u8>> = vec![];
    for arg in launch.args() {
        let (bytes, array) = encoded(arg)?;
        if array {
            let buffer = Buffer::new(&device, bytes.len())?;
            buffer.upload(&bytes)?;
            params.push(buffer.address().to_ne_bytes().to_vec());
            buffers.push((arg, buffer, bytes.len()));
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
    let mut outputs = vec![];
    for (arg, buffer, length) in &buffers {
        let mut bytes = vec![0; *length];
        buffer.download(&mut bytes)?;
        outputs.push((arg.name.as_str(), scalar_of(arg), first_values(&bytes, scalar_of(arg))));
    }
    show(file, name, &outputs, json)
}

/// Launches with arguments in the order of the command line.
#[allow(unsafe_code)]
fn launch_unchecked(function: &KernelFunction, geometry: &LaunchConfig, params: &[Vec<u8>]) -> Result<(), Failure> {
    // SAFETY: not known to be safe. The user requested an unchecked kernel and was warned; accesses beyond its
    // buffers are the responsibility of its author, in a process that does nothing else.
    unsafe { function.launch_with(geometry, None, &[], params)? };
    Ok(())
}

fn show(file: &Path, name: &str, outputs: &[(&str, Scalar, Vec<Value>)], json: bool) -> Result<ExitCode, Failure> {
    if json {
        let all: Vec<_> = outputs
            .iter()
            .map(|(view, ty, first)| json!({"view": view, "type": ty.name(), "first": values_to_json(first)}))
            .collect();
        print_json(&json!({"kernel": name, "file": file, "ok": true, "checked": false, "outputs": all}))?;
    } else {
        let lines: Vec<String> =
            outputs.iter().map(|(view, ty, first)| format!("{view}: {ty}, first {}\n", format_values(first))).collect();
        print(&(lines.concat() + "unchecked: indices, races and barriers were not checked\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Type of an argument: as written, else float for arrays and numbers with a decimal point, int
/// otherwise.
fn scalar_of(arg: &ArgSpec) -> Scalar {
    let integers = |all: &[NumberLiteral]| all.iter().all(|number| matches!(number, NumberLiteral::Int(_)));
    arg.dtype.unwrap_or(match &arg.value {
        ArgValue::Literal(all) if integers(all) => Scalar::I32,
        _ => Scalar::F32,
    })
}

/// Bytes of an argument, and true if it is an array.
fn encoded(arg: &ArgSpec) -> Result<(Vec<u8>, bool), Failure> {
    let (scalar, count) = (scalar_of(arg), arg.value.count());
    let mut words = zeros((count * scalar.bytes()).div_ceil(8))?;
    for (n, value) in arg.values(std::iter::repeat_n(scalar, count)).enumerate() {
        store_scalar(&mut words, n * scalar.bytes(), value?);
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(count * scalar.bytes());
    Ok((bytes, matches!(arg.value, ArgValue::Fill(..))))
}

fn first_values(bytes: &[u8], scalar: Scalar) -> Vec<Value> {
    let words: Vec<u64> = bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        })
        .collect();
    (0..(bytes.len() / scalar.bytes()).min(8)).map(|n| load_scalar(&words, n * scalar.bytes(), scalar)).collect()
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
