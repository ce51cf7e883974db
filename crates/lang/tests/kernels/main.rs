//! CUDA kernels (`tests/cuda`), textbook ones and, in folders, ones in the styles of public
//! repositories: each gives the right results on the interpreter without a fault, on the CPU
//! compiler if its threads are independent, and on a GPU if there is one. Then a small change of its
//! text introduces a fault, which the interpreter must report with its line.
#![allow(missing_docs)]

mod cpp;
mod discrete;
#[path = "../gpu/mod.rs"]
mod gpu;
mod grids;
mod layers;
mod local;
mod narrow;
mod numeric;
mod parallel;
mod pointers;
mod random;
mod science;
mod structures;
mod warps;

use std::path::Path;

use bornite_codegen::{cpu, cuda};
use bornite_ir::interp::{ExecutionOrder, InterpreterOptions, run_with};
use bornite_ir::{Arg, Fault, FaultKind, Kernel, Scalar, Value, load_scalar, store_scalar};
use bornite_lang::cuda::CudaModule;
use bornite_lang::{LaunchRequest, Lowered, ParamRef};

use random::Random;

/// Argument of a kernel.
#[derive(Clone)]
pub enum Pass {
    /// An array of this many elements.
    Array(usize, Fill),
    /// A value, by its components.
    Value(&'static [f64]),
}

/// Initial contents of an array.
#[derive(Clone, Copy)]
pub enum Fill {
    Zero,
    /// Uniform floats between two bounds.
    Floats(f64, f64),
    /// Uniform integers from the first bound to below the second.
    Ints(i64, i64),
    /// A function of the component's index.
    By(fn(usize) -> f64),
}

/// Arguments of the kernel by name: components of arrays and values, rounded to their type.
pub struct Inputs(Vec<(&'static str, Vec<f64>)>);

impl Inputs {
    pub fn all(&self, name: &str) -> &[f64] {
        let found = self.0.iter().find(|(found, _)| *found == name);
        &found.unwrap_or_else(|| panic!("no argument '{name}'")).1
    }

    pub fn one(&self, name: &str) -> f64 {
        self.all(name)[0]
    }

    pub fn int(&self, name: &str) -> usize {
        self.one(name) as usize
    }
}

/// A kernel, its launch and its expected results.
pub struct Sample {
    /// Path without extension, and the kernel with its template arguments.
    pub file: &'static str,
    pub kernel: &'static str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u64,
    pub args: Vec<(&'static str, Pass)>,
    /// Array to compare.
    pub out: &'static str,
    pub expected: fn(&Inputs) -> Vec<f64>,
    /// Maximum error of a component, relative to max(1, |expected|).
    pub tolerance: f64,
    /// Seeded fault: text to replace, its replacement, the kind of fault, and a part of the
    /// reported line.
    pub seeded: (&'static str, &'static str, &'static str, &'static str),
}

fn samples() -> Vec<Sample> {
    let mut all = parallel::samples();
    all.extend(numeric::samples());
    all.extend(grids::samples());
    all.extend(discrete::samples());
    all.extend(cpp::samples());
    all.extend(layers::samples());
    all.extend(science::samples());
    all.extend(structures::samples());
    all.extend(warps::samples());
    all.extend(narrow::samples());
    all.extend(local::samples());
    all.extend(pointers::samples());
    all
}

fn kind(fault: &Fault) -> &'static str {
    match fault.kind {
        FaultKind::OutOfBounds { .. } => "bounds",
        FaultKind::Misaligned { .. } => "misaligned",
        FaultKind::Uninitialized { .. } => "uninitialised",
        FaultKind::Race { .. } => "race",
        FaultKind::DivergentBarrier { .. } => "barrier",
        FaultKind::PartialWarp { .. } => "warp",
        FaultKind::AssertionFailed { .. } => "claim",
        FaultKind::Division { .. } => "division",
        FaultKind::StatementLimit(_) => "too long",
        FaultKind::InvalidCall(_) => "bad call",
    }
}

fn lowered(sample: &Sample, text: &str) -> Result<(CudaModule, Lowered), String> {
    let file = format!("{}.cu", sample.file);
    let module = CudaModule::parse(&file, text).map_err(|errors| errors.to_string())?;
    let mut request = LaunchRequest::new(sample.grid, sample.block).shared_bytes(sample.shared);
    for (name, pass) in &sample.args {
        if let Pass::Array(length, _) = pass {
            request = request.length(name, *length as u64);
        }
    }
    let lowered = module.kernel(sample.kernel, &request).map_err(|errors| errors.to_string())?;
    Ok((module, lowered))
}

/// Memory and values of a call, and the same as numbers.
struct Call {
    memory: Vec<Vec<u64>>,
    values: Vec<Vec<Value>>,
    inputs: Inputs,
}

/// Byte offset and type of every component of a view.
fn cells(kernel: &Kernel, n: usize) -> Vec<(usize, Scalar)> {
    let param = &kernel.params[n];
    let layout = param.ty.layout(&kernel.structs);
    let elements = kernel.memory_span(&param.dims, &[]).map_or(0, |span| span.elements as usize);
    let each = |element: usize| layout.offsets.iter().map(move |(at, scalar)| (element * layout.bytes + at, *scalar));
    (0..elements).flat_map(each).collect()
}

fn call(sample: &Sample, lowered: &Lowered, seed: u64) -> Call {
    let kernel = &lowered.kernel;
    let mut random = Random(seed);
    let mut call = Call {
        memory: vec![vec![]; kernel.params.len()],
        values: vec![vec![]; kernel.values.len()],
        inputs: Inputs(vec![]),
    };
    for (name, pass) in &sample.args {
        let param = lowered.params.iter().find(|(found, _)| found == name);
        let (_, param) = param.unwrap_or_else(|| panic!("{}: no parameter '{name}'", sample.file));
        let numbers: Vec<f64> = match (param, pass) {
            (ParamRef::View(n), Pass::Array(_, fill)) => {
                let n = *n as usize;
                let bytes = kernel.view_bytes(&kernel.params[n], &[]).unwrap();
                let words = &mut call.memory[n];
                *words = vec![0; bytes.div_ceil(8)];
                let mut numbers = vec![];
                for (k, (byte, scalar)) in cells(kernel, n).into_iter().enumerate() {
                    let value = match fill {
                        Fill::Zero => 0.0,
                        Fill::Floats(low, high) => low + (high - low) * random.unit(),
                        Fill::Ints(low, high) => (low + random.below((high - low) as u64) as i64) as f64,
                        Fill::By(of) => of(k),
                    };
                    let value = Value::from_f64(scalar, value);
                    store_scalar(words, byte, value);
                    numbers.push(value.as_f64());
                }
                numbers
            }
            (ParamRef::Value(n), Pass::Value(components)) => {
                let scalars = kernel.values[*n as usize].ty.components(&kernel.structs);
                assert_eq!(scalars.len(), components.len(), "{}: '{name}'", sample.file);
                let values: Vec<Value> =
                    scalars.iter().zip(*components).map(|(s, x)| Value::from_f64(*s, *x)).collect();
                let numbers = values.iter().map(|value| value.as_f64()).collect();
                call.values[*n as usize] = values;
                numbers
            }
            _ => panic!("{}: '{name}' has another kind of argument", sample.file),
        };
        call.inputs.0.push((name, numbers));
    }
    call
}

fn lend<'a>(kernel: &Kernel, memory: &'a mut [Vec<u64>], values: &'a [Vec<Value>]) -> Vec<Arg<'a>> {
    (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .chain(values.iter().map(|parts| Arg::Value(parts)))
        .collect()
}

fn options(order: ExecutionOrder) -> InterpreterOptions {
    InterpreterOptions { order, max_statements: Some(10_000_000), check_instance_races: true, check_division: true }
}

fn seed() -> u64 {
    let param = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = param.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    seed
}

fn source(sample: &Sample) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda").join(format!("{}.cu", sample.file));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs a sample everywhere and compares its results; returns true if the CPU compiler is among them.
fn compare(sample: &Sample, seed: u64) -> Result<bool, String> {
    let (_, lowered) = lowered(sample, &source(sample))?;
    let kernel = &lowered.kernel;
    assert!(!cuda::print(kernel).is_empty());
    let mut results: Vec<(&str, Vec<Vec<u64>>)> = vec![];
    for (what, order) in [("forward", ExecutionOrder::Forward), ("in reverse", ExecutionOrder::Reverse)] {
        let Call { mut memory, values, .. } = call(sample, &lowered, seed);
        let outcome = run_with(kernel, &mut lend(kernel, &mut memory, &values), options(order));
        outcome.map_err(|fault| format!("{fault}, source line {:?}\n{kernel}", lowered.line_of(&fault)))?;
        results.push((what, memory));
    }
    let compiles = !kernel.is_cooperative();
    if compiles {
        let Call { mut memory, values, .. } = call(sample, &lowered, seed);
        let compiled = cpu::compile(kernel).map_err(|e| e.to_string())?;
        compiled.run(&mut lend(kernel, &mut memory, &values)).map_err(|e| e.to_string())?;
        results.push(("compiled", memory));
    }
    let Call { mut memory, values, inputs } = call(sample, &lowered, seed);
    if let Some(outcome) = gpu::run(kernel, &mut memory, &values) {
        outcome.map_err(|e| format!("on a GPU: {e}"))?;
        results.push(("on a GPU", memory));
    }
    let expected = (sample.expected)(&inputs);
    let Some((_, ParamRef::View(out))) = lowered.params.iter().find(|(found, _)| found == sample.out) else {
        return Err(format!("no array '{}'", sample.out));
    };
    let cells = cells(kernel, *out as usize);
    assert_eq!(cells.len(), expected.len(), "{}: the reference has another length", sample.file);
    for (what, memory) in &results {
        for (n, ((byte, scalar), expected)) in cells.iter().zip(&expected).enumerate() {
            let found = load_scalar(&memory[*out as usize], *byte, *scalar).as_f64();
            let off = (found - expected).abs() / expected.abs().max(1.0);
            if !(found == *expected || off <= sample.tolerance) {
                return Err(format!("{what}: {}[{n}] is {found}, not {expected}\n{kernel}", sample.out));
            }
        }
    }
    Ok(compiles)
}

#[test]
fn kernels_give_expected_results() {
    let (all, seed) = (samples(), seed());
    let (mut compiled_count, mut wrong) = (0, String::new());
    for sample in &all {
        match compare(sample, seed) {
            Ok(compiled) => compiled_count += usize::from(compiled),
            Err(error) => wrong += &format!("{}: {error}\n", sample.file),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(all.len() >= 125, "only {} kernels", all.len());
    assert!(compiled_count >= 40, "only {compiled_count} kernels are compiled");
}

/// Runs a sample with its seeded fault and checks the report.
fn seeded(sample: &Sample, seed: u64) -> Result<(), String> {
    let (from, to, expected, line) = sample.seeded;
    let text = source(sample);
    if text.matches(from).count() != 1 {
        return Err(format!("{from:?} does not occur exactly once"));
    }
    let (module, lowered) = lowered(sample, &text.replace(from, to))?;
    let Call { mut memory, values, .. } = call(sample, &lowered, seed);
    let mut args = lend(&lowered.kernel, &mut memory, &values);
    let Err(fault) = run_with(&lowered.kernel, &mut args, options(ExecutionOrder::Forward)) else {
        return Err("no fault is found".into());
    };
    let at = lowered.line_of(&fault).ok_or_else(|| format!("{fault} has no line"))?;
    if kind(&fault) != expected || !module.line(at).contains(line) {
        return Err(format!("{fault}, line {at}: {}", module.line(at)));
    }
    Ok(())
}

#[test]
fn seeded_faults_are_found() {
    let (all, seed) = (samples(), seed());
    let wrong = all.iter().filter_map(|sample| Some(format!("{}: {}\n", sample.file, seeded(sample, seed).err()?)));
    let wrong: String = wrong.collect();
    assert!(wrong.is_empty(), "{wrong}");
    let count = |kind: &str| all.iter().filter(|sample| sample.seeded.2 == kind).count();
    assert!(count("race") >= 15 && count("bounds") >= 15 && count("uninitialised") >= 2, "faults of too few kinds");
}

/// Every file in the folder is used.
#[test]
fn every_file_is_a_sample() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
    let used: Vec<_> = samples().iter().map(|sample| folder.join(format!("{}.cu", sample.file))).collect();
    let mut paths = vec![folder];
    while let Some(path) = paths.pop() {
        match path.is_dir() {
            true => paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
            false => assert!(used.contains(&path), "{} is not among the samples", path.display()),
        }
    }
}
