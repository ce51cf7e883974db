//! Kernels in Python syntax against NVIDIA Warp: the interpreter, the CPU backend and a GPU must
//! give the results that Warp gave (`tests/python/goldens`), and programs that Warp rejects
//! (`tests/python/probes`) must be rejected.
#![allow(missing_docs)]

mod builtins;
#[path = "../gpu/mod.rs"]
mod gpu;
mod names;
mod semantics;
mod sizes;

use std::path::PathBuf;

use bornite_codegen::{cpu, cuda};
use bornite_ir::interp::{InterpreterOptions, run_printing};
use bornite_ir::{Access, Arg, Kernel, Scalar, Value, load_scalar, store_scalar};
use bornite_lang::python::PythonModule;
use bornite_lang::{LaunchRequest, Lowered, ParamRef};
use serde_json::Value as Json;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python"))
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn json(name: &str) -> Vec<Json> {
    let text = read(folder().join("goldens").join(format!("{name}.json")));
    let Json::Array(all) = serde_json::from_str(&text).expect("goldens") else { panic!("{name}: expected a list") };
    all
}

fn text<'a>(json: &'a Json, key: &str) -> &'a str {
    json[key].as_str().unwrap_or_default()
}

fn numbers(json: &Json) -> Vec<u64> {
    json.as_array().map(|all| all.iter().filter_map(Json::as_u64).collect()).unwrap_or_default()
}

fn scalar(name: &str) -> Scalar {
    Scalar::ALL.into_iter().find(|scalar| scalar.name() == name).unwrap_or_else(|| panic!("no type {name}"))
}

/// Parses components, which are hexadecimal bits of fixed width.
fn components(parts: &str, text: &str) -> Vec<Value> {
    let parts: Vec<Scalar> = parts.split_whitespace().map(scalar).collect();
    let (mut all, mut at) = (vec![], 0);
    while at < text.len() {
        for part in &parts {
            let end = at + part.bytes() * 2;
            all.push(Value::from_bits(*part, u64::from_str_radix(&text[at..end], 16).expect("bits")));
            at = end;
        }
    }
    all
}

fn request(launch: &Json) -> LaunchRequest {
    let mut request = LaunchRequest::with_dims(&numbers(&launch["dim"]));
    for arg in launch["args"].as_array().into_iter().flatten() {
        if arg.get("shape").is_some() {
            request = request.shape(text(arg, "name"), &numbers(&arg["shape"]));
        }
    }
    request
}

/// The name of a kernel, with the types of its generic parameters.
fn name(launch: &Json) -> String {
    let args = launch["args"].as_array().into_iter().flatten();
    let types: Vec<String> = args
        .filter(|arg| arg.get("type").is_some())
        .map(|arg| format!("{}:{}", text(arg, "name"), text(arg, "type")))
        .collect();
    if types.is_empty() {
        text(launch, "kernel").into()
    } else {
        format!("{}<{}>", text(launch, "kernel"), types.join(", "))
    }
}

/// Byte offset and type of every component of a view.
fn cells(kernel: &Kernel, n: usize) -> Vec<(usize, Scalar)> {
    let param = &kernel.params[n];
    let layout = param.ty.layout(&kernel.structs);
    let elements = kernel.memory_span(&param.dims, &[]).map_or(0, |span| span.elements as usize);
    let each = |index: usize| layout.offsets.iter().map(move |(at, scalar)| (index * layout.bytes + at, *scalar));
    (0..elements).flat_map(each).collect()
}

struct Call {
    memory: Vec<Vec<u64>>,
    values: Vec<Vec<Value>>,
}

fn call(lowered: &Lowered, launch: &Json) -> Call {
    let kernel = &lowered.kernel;
    let mut call = Call { memory: vec![vec![]; kernel.params.len()], values: vec![vec![]; kernel.values.len()] };
    for (name, param) in &lowered.params {
        let arg = launch["args"].as_array().into_iter().flatten().find(|arg| text(arg, "name") == name);
        let arg = arg.unwrap_or_else(|| panic!("no argument '{name}'"));
        let parts = components(text(arg, "parts"), text(arg, "in"));
        match param {
            ParamRef::Value(n) => call.values[*n as usize] = parts,
            ParamRef::View(n) => {
                let n = *n as usize;
                let words = kernel.view_bytes(&kernel.params[n], &[]).unwrap_or(0).div_ceil(8);
                let mut memory = vec![0u64; words.max(1)];
                for ((byte, _), value) in cells(kernel, n).into_iter().zip(parts) {
                    store_scalar(&mut memory, byte, value);
                }
                call.memory[n] = memory;
            }
        }
    }
    call
}

fn args<'a>(kernel: &Kernel, memory: &'a mut [Vec<u64>], values: &'a [Vec<Value>]) -> Vec<Arg<'a>> {
    let views = memory.iter_mut().zip(&kernel.params);
    let views = views.map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) });
    views.chain(values.iter().map(|parts| Arg::Value(parts))).collect()
}

/// The distance between two numbers in units in the last place.
fn ulps(a: Value, b: Value) -> u64 {
    let key = |v: Value| {
        let bits = v.scalar().bytes() * 8;
        let word = v.bits() as i64;
        if word >> (bits - 1) & 1 == 1 { -(word & (i64::MAX >> (64 - bits))) } else { word }
    };
    key(a).abs_diff(key(b))
}

fn agrees(check: &str, found: Value, expected: Value) -> bool {
    if found == expected || !found.scalar().is_float() {
        return found == expected;
    }
    let (x, y) = (found.as_f64(), expected.as_f64());
    if x.is_nan() && y.is_nan() || x == y {
        return true;
    }
    match check.split_once(' ') {
        Some(("ulp", n)) => ulps(found, expected) <= n.parse().expect("a number"),
        Some(("near", n)) => (x - y).abs() <= n.parse::<f64>().expect("a number") * y.abs().max(1.0),
        _ => false,
    }
}

/// Compares all arrays with Warp's results.
fn compare(lowered: &Lowered, launch: &Json, memory: &[Vec<u64>], check: &str) -> Result<(), String> {
    for (name, param) in &lowered.params {
        let ParamRef::View(n) = param else { continue };
        let arg = launch["args"].as_array().into_iter().flatten().find(|arg| text(arg, "name") == name);
        let Some(arg) = arg else { continue };
        let (parts, before) = (text(arg, "parts"), text(arg, "in"));
        let cells = cells(&lowered.kernel, *n as usize);
        let expected = match arg["out"].as_str() {
            Some(out) => components(parts, out),
            None if before.is_empty() => cells.iter().map(|(_, s)| Value::int(*s, 0)).collect(),
            None => components(parts, before),
        };
        if expected.len() != cells.len() {
            return Err(format!("'{name}' has {} components, expected {}", cells.len(), expected.len()));
        }
        for (index, ((byte, scalar), expected)) in cells.into_iter().zip(expected).enumerate() {
            let found = load_scalar(&memory[*n as usize], byte, scalar);
            if !agrees(check, found, expected) {
                return Err(format!("component {index} of '{name}' is {found}, Warp gives {expected} ({check})"));
            }
        }
    }
    Ok(())
}

/// Lowers a kernel, runs it on every backend and compares the results.
fn check_launch(module: &PythonModule, launch: &Json, check: &str) -> Result<(), String> {
    let lowered = module.kernel(&name(launch), &request(launch)).map_err(|errors| errors.to_string())?;
    let before = call(&lowered, launch);
    let kernel = &lowered.kernel;
    let printed = cuda::print(kernel);
    if !printed.contains("__global__") {
        return Err("the generated CUDA source has no kernel".into());
    }
    let mut memory = before.memory.clone();
    let options = InterpreterOptions { check_instance_races: false, ..InterpreterOptions::default() };
    run_printing(kernel, &mut args(kernel, &mut memory, &before.values), options, &mut |_| {})
        .map_err(|fault| format!("{fault} in line {:?}", lowered.line_of(&fault)))?;
    compare(&lowered, launch, &memory, check)?;
    let interpreted = memory;
    let mut memory = before.memory.clone();
    let compiled = cpu::compile(kernel).map_err(|error| format!("cpu: {error}"))?;
    compiled.run(&mut args(kernel, &mut memory, &before.values)).map_err(|fault| format!("cpu: {fault}"))?;
    compare(&lowered, launch, &memory, check).map_err(|what| format!("cpu: {what}"))?;
    if check == "exact" && memory != interpreted {
        return Err("the CPU backend and the interpreter give different bits".into());
    }
    let mut memory = before.memory.clone();
    if let Some(outcome) = gpu::run(kernel, &mut memory, &before.values) {
        outcome.map_err(|error| format!("on a GPU: {error}"))?;
        compare(&lowered, launch, &memory, check).map_err(|what| format!("on a GPU: {what}"))?;
    }
    Ok(())
}

fn report(count: usize, failed: &[String]) {
    println!("{} of {count} agree with Warp", count - failed.len());
    assert!(failed.is_empty(), "{} of {count} differ from Warp:\n\n{}", failed.len(), failed.join("\n\n"));
}

#[test]
fn kernels_agree_with_warp() {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder().join("kernels")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let (mut count, mut failed) = (0, vec![]);
    for path in files {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_none_or(|e| e != "py") || !folder().join("goldens").join(format!("{stem}.json")).exists()
        {
            continue;
        }
        let module = PythonModule::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
        for launch in json(&stem) {
            count += 1;
            if let Err(what) = check_launch(&module, &launch, text(&launch, "check")) {
                failed.push(format!("{stem}.{}: {what}", text(&launch, "name")));
            }
        }
    }
    assert!(count > 0);
    report(count, &failed);
}

#[test]
fn probes_behave_as_recorded() {
    let probes = read(folder().join("probes/probes.txt"));
    let records = json("probes");
    let (mut count, mut failed) = (0, vec![]);
    for (part, record) in probes.split("=== ").skip(1).zip(&records) {
        let (title, rest) = part.split_once('\n').expect("a probe");
        assert_eq!(title, text(record, "title"), "goldens/probes.json does not match probes.txt");
        let (program, outcome) = rest.split_once("\n---\n").expect("an outcome");
        let differs = program.lines().any(|line| line.starts_with("!!!"));
        let program: String =
            program.lines().filter(|line| !line.starts_with("!!!")).map(|l| format!("{l}\n")).collect();
        let program = format!("import warp as wp\n{program}");
        let launches = record["launches"].as_array();
        count += 1;
        let result = match PythonModule::parse("probe.py", &program) {
            Err(errors) => Err(errors.to_string()),
            Ok(module) => match launches {
                Some(launches) => launches.iter().try_for_each(|launch| check_launch(&module, launch, "ulp 1")),
                None => module.kernels().iter().try_for_each(|kernel| {
                    let mut request = LaunchRequest::with_dims(&[1]);
                    request.default_length = Some(64);
                    module.kernel(&kernel.name, &request).map(|_| ()).map_err(|errors| errors.to_string())
                }),
            },
        };
        let is_rejected = outcome.trim_start().starts_with("refused");
        match (result, is_rejected) {
            (Err(_), true) | (Ok(()), false) => {}
            _ if differs => {}
            (Err(what), false) => failed.push(format!("{title}: {what}")),
            (Ok(()), true) => failed.push(format!("{title}: Warp rejects it: {}", outcome.trim())),
        }
    }
    report(count, &failed);
}
