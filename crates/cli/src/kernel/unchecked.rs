//! CUDA C++ that our front end does not take, run as NVRTC compiles it: nothing about it is checked.

use std::path::Path;
use std::process::ExitCode;

use bornite::Device;
use bornite::ir::{Scalar, Value, peek, poke};
use bornite_cuda::{Buffer, Function, Geometry};
use bornite_lang::Errors;
use serde_json::json;

use super::cuda::read;
use super::given::{Named, Number, What};
use super::run::{in_json, in_words, zeros};
use super::source::Source;
use crate::{Failure, note, print, print_json};

/// Runs a file whose kernel our front end refuses, on a GPU; on other devices, what is wrong with it.
pub fn instead(source: &Source, error: Failure, device: Device, json: bool) -> Result<ExitCode, Failure> {
    let (Device::Cuda(ordinal), Some(file), true) = (device, source.cuda_file(), error.is::<Errors>()) else {
        return Err(error);
    };
    note(&format!("{error}\n\nunchecked: the file is compiled by NVRTC and run as it is"));
    let (Some(name), launch) = source.named() else {
        return Err("say with --kernel which kernel of the file is to be run".into());
    };
    let device = bornite_cuda::Device::open(ordinal)?;
    let cubin = bornite_cuda::compile(name, &with_plain_names(&read(file)?), &device.info().arch())?;
    let (grid, block) = launch.dims(None);
    let mut buffers = vec![];
    let mut params: Vec<Vec<u8>> = vec![];
    for named in launch.named() {
        let (bytes, array) = passed(named)?;
        if array {
            let buffer = Buffer::new(&device, bytes.len())?;
            buffer.upload(&bytes)?;
            params.push(buffer.address().to_ne_bytes().to_vec());
            buffers.push((named, buffer, bytes.len()));
        } else {
            params.push(bytes);
        }
    }
    let sizes: Vec<usize> = params.iter().map(Vec::len).collect();
    let function = Function::load(&device, &cubin, name, 0, sizes)?;
    let mut geometry = Geometry::new(grid, block);
    geometry.shared_bytes = launch.shared_bytes().try_into().unwrap_or(u32::MAX);
    run(&function, &geometry, &params)?;
    device.synchronize()?;
    let mut outputs = vec![];
    for (named, buffer, length) in &buffers {
        let mut bytes = vec![0; *length];
        buffer.download(&mut bytes)?;
        outputs.push((named.name.as_str(), scalar_of(named), first(&bytes, scalar_of(named))));
    }
    show(file, name, &outputs, json)
}

/// Fires the launch, whose arguments are in the order of the command line.
#[allow(unsafe_code)]
fn run(function: &Function, geometry: &Geometry, params: &[Vec<u8>]) -> Result<(), Failure> {
    // SAFETY: not known to be safe. The user asked for a kernel that nothing could check, and was told so; what it touches
    // beyond its buffers is its author's doing, in a process that does nothing else.
    unsafe { function.launch_as(geometry, None, &[], params)? };
    Ok(())
}

fn show(file: &Path, name: &str, outputs: &[(&str, Scalar, Vec<Value>)], json: bool) -> Result<ExitCode, Failure> {
    if json {
        let all: Vec<_> = outputs
            .iter()
            .map(|(view, ty, first)| json!({"view": view, "type": ty.name(), "first": in_json(first)}))
            .collect();
        print_json(&json!({"kernel": name, "file": file, "ok": true, "checked": false, "outputs": all}))?;
    } else {
        let lines: Vec<String> =
            outputs.iter().map(|(view, ty, first)| format!("{view}: {ty}, first {}\n", in_words(first))).collect();
        print(&(lines.concat() + "unchecked: indices, races and barriers were not looked at\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The type of what is passed: as said, else float for arrays and for numbers with a point, int for others.
fn scalar_of(named: &Named) -> Scalar {
    let whole = |all: &[Number]| all.iter().all(|number| matches!(number, Number::Int(_)));
    named.dtype.unwrap_or(match &named.what {
        What::Numbers(all) if whole(all) => Scalar::I32,
        _ => Scalar::F32,
    })
}

/// The bytes of an argument, and whether it is an array.
fn passed(named: &Named) -> Result<(Vec<u8>, bool), Failure> {
    let (scalar, count) = (scalar_of(named), named.what.count());
    let mut words = zeros((count * scalar.bytes()).div_ceil(8))?;
    for (n, value) in named.values(std::iter::repeat_n(scalar, count)).enumerate() {
        poke(&mut words, n * scalar.bytes(), value?);
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(count * scalar.bytes());
    Ok((bytes, matches!(named.what, What::Made(..))))
}

fn first(bytes: &[u8], scalar: Scalar) -> Vec<Value> {
    let words: Vec<u64> = bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        })
        .collect();
    (0..(bytes.len() / scalar.bytes()).min(8)).map(|n| peek(&words, n * scalar.bytes(), scalar)).collect()
}

/// The text with kernels that C can name; C++ would add their types to their names. Headers of the host are left out:
/// NVRTC has what they declare for kernels.
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
