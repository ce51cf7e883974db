//! Kernels that people wrote, in Python syntax, as rows.
//!
//! There is no program behind them, so the independent evaluator cannot judge. Instead the source is lowered to IR; CUDA C++
//! is printed from it and must come back as the same kernel; and the kernel runs under the checking interpreter for several
//! launches, over arrays of as many elements as there are instances, forwards and backwards: nothing may be reported, and
//! both orders must give the same memory.

use bornite_codegen::{cpp, cuda};
use bornite_ir::interp::{Options, Order, run_with};
use bornite_ir::{Arg, Kernel, Launch, Scalar, Value, poke};
use bornite_lang::python::{Declared, Module};
use bornite_lang::{Errors, Given, Lowered, Request};

use crate::Random;

/// Instances along the first dimension of each launch; the others are shorter.
const SIZES: [u64; 8] = [1, 2, 31, 32, 33, 127, 129, 251];
/// The launch that texts are made for.
const SHOWN: u64 = 1000;
/// Statements of a launch before a kernel is taken for one that does not end.
const MOST_STATEMENTS: u64 = 20_000_000;

/// A kernel of a file.
#[derive(Clone, Debug)]
pub struct Ingested {
    /// Its name.
    pub name: String,
    /// The line it begins in.
    pub line: u32,
    /// Its texts; or why it is no row.
    pub outcome: Result<Texts, String>,
}

/// What was made of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Texts {
    /// The source it was made from: the whole file, with functions and structs that the kernel needs.
    pub source: String,
    /// CUDA C++.
    pub cuda: String,
    /// C++ for a CPU; empty for kernels that it cannot say.
    pub cpp: String,
    /// Kernel IR.
    pub ir: String,
    /// The first line of the kernel's docstring, if it has one.
    pub description: String,
    /// What the kernel was given, a line a parameter.
    pub inputs: String,
    /// Types of its parameters.
    pub types: Vec<&'static str>,
}

/// All kernels of a source.
pub fn ingest(file: &str, source: &str) -> Result<Vec<Ingested>, Errors> {
    let module = Module::parse(file, source)?;
    let kernels = module.kernels().into_iter().enumerate();
    Ok(kernels
        .map(|(n, kernel)| {
            let outcome = checked(&module, n, &kernel, source);
            Ingested { name: kernel.name, line: kernel.line, outcome }
        })
        .collect())
}

fn checked(module: &Module, n: usize, kernel: &Declared, source: &str) -> Result<Texts, String> {
    let rank = rank(source, kernel.line as usize);
    // Where types are open, the first that fits is taken.
    let types: Vec<(&str, &str)> = kernel.open.iter().map(|name| (name.as_str(), "float32")).collect();
    let made = |size: u64| -> Result<Lowered, String> {
        let dims = dims(size, rank);
        let words = |errors: Errors| errors.all.first().map_or(errors.to_string(), |first| first.message.clone());
        // Ranks of arrays are known once the kernel is made for any launch.
        let open = module.kernel_at(n, &types, &Request::over(&[])).map_err(words)?;
        let mut request = Request::over(&dims);
        for (name, given) in &open.params {
            if let Given::View(view) = given {
                let rank = open.kernel.params[*view as usize].dims.len();
                let extents: Vec<u64> = (0..rank).map(|k| dims.get(k).copied().unwrap_or(dims[0])).collect();
                request = request.shape(name, &extents);
            }
        }
        module.kernel_at(n, &types, &request).map_err(words)
    };
    let shown = made(SHOWN)?;
    let text = cuda::print(&shown.kernel);
    let again = back(&shown.kernel, &text).map_err(|why| format!("its CUDA text is not read back: {why}"))?;
    if cuda::print(&again) != text {
        return Err("its CUDA text comes back as another kernel".into());
    }
    for (number, size) in SIZES.into_iter().enumerate() {
        let lowered = made(size)?;
        let order = |order| ran(&lowered, size, number as u64, order);
        if order(Order::Forward)? != order(Order::Reverse)? {
            return Err(format!("with {size} instances the results depend on the order in which they run"));
        }
    }
    Ok(Texts {
        source: source.to_owned(),
        cuda: text,
        cpp: cpp::print(&shown.kernel).unwrap_or_default(),
        ir: shown.kernel.to_string(),
        description: docstring(source, kernel.line as usize),
        inputs: recipe(&shown, rank),
        types: types_of(&shown.kernel),
    })
}

/// The lines of a kernel after the one it begins in.
fn body(source: &str, line: usize) -> impl Iterator<Item = &str> {
    source.lines().skip(line).take_while(|line| line.is_empty() || line.starts_with([' ', '\t', ')', '#']))
}

fn docstring(source: &str, line: usize) -> String {
    let begin = body(source, line).map(str::trim).find_map(|line| line.strip_prefix("\"\"\""));
    begin.map_or(String::new(), |text| text.trim_end_matches("\"\"\"").trim().to_owned())
}

/// Dimensions of the launch: as many as the kernel takes from `wp.tid()`.
fn rank(source: &str, line: usize) -> usize {
    let unpacked = body(source, line).filter_map(|line| line.split_once("wp.tid()"));
    let unpacked = unpacked.map(|(names, _)| names.matches(',').count() + 1);
    unpacked.max().unwrap_or(1).min(4)
}

fn dims(size: u64, rank: usize) -> Vec<u64> {
    let short = |k: usize| (size / (4 << k)).clamp(1, 16);
    (0..rank).map(|k| if k == 0 { size } else { short(k) }).collect()
}

/// The kernel that our front end makes of a kernel's text.
fn back(kernel: &Kernel, text: &str) -> Result<Kernel, String> {
    let words = |errors: Errors| errors.all.first().map_or(errors.to_string(), |first| first.message.clone());
    let module = bornite_lang::cuda::Module::parse("kernel.cu", text).map_err(words)?;
    let (grid, block) = match kernel.launch {
        Launch::ParallelFor { .. } => ([1; 3], [1; 3]),
        Launch::Blocks { grid, block } => (grid, block),
    };
    let mut request = Request::new(grid, block);
    (request.index, request.printed) = (Some(kernel.index), true);
    request.views = kernel.params.iter().map(|p| (p.name.clone(), p.dims.clone())).collect();
    module.kernel(&cuda::symbol(kernel), &request).map(|lowered| lowered.kernel).map_err(words)
}

/// The memory after a launch.
fn ran(lowered: &Lowered, size: u64, number: u64, order: Order) -> Result<Vec<Vec<u64>>, String> {
    let kernel = &lowered.kernel;
    let mut random = Random::of(&[0x1e57, number]);
    let mut drawn = |scalar: Scalar| match scalar {
        scalar if scalar.is_float() => Value::from_f64(scalar, random.below(4096) as f64 / 1024.0 - 1.0),
        Scalar::Bool => Value::int(scalar, random.below(2) as i64),
        // An integer may be an index.
        scalar => Value::int(scalar, random.below(size as usize) as i64),
    };
    let mut memory: Vec<Vec<u64>> = vec![];
    for param in &kernel.params {
        let bytes = kernel.view_bytes(param, &[]).ok_or("an array has a size that the launch leaves open")?;
        let layout = param.ty.layout(&kernel.structs);
        let mut words = vec![0u64; bytes.div_ceil(8)];
        for element in 0..bytes / layout.bytes.max(1) {
            for (offset, scalar) in &layout.offsets {
                poke(&mut words, element * layout.bytes + offset, drawn(*scalar));
            }
        }
        memory.push(words);
    }
    let values: Vec<Vec<Value>> = (kernel.values.iter())
        .map(|value| {
            let scalars = value.ty.components(&kernel.structs);
            // A number of its own is most often a length.
            let length = |scalar: &Scalar| !scalar.is_float() && *scalar != Scalar::Bool;
            let one = scalars.len() == 1;
            scalars.iter().map(|s| if one && length(s) { Value::int(*s, size as i64) } else { drawn(*s) }).collect()
        })
        .collect();
    let mut args: Vec<Arg<'_>> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
        .collect();
    args.extend(values.iter().map(|parts| Arg::Value(parts)));
    let options = Options { order, max_statements: Some(MOST_STATEMENTS), instances: true, divisions: true };
    run_with(kernel, &mut args, options).map_err(|fault| {
        let line = lowered.line_of(&fault).map_or(String::new(), |line| format!("line {line}: "));
        format!("{line}with {size} instances: {}", fault.kind)
    })?;
    Ok(memory)
}

fn recipe(lowered: &Lowered, rank: usize) -> String {
    let kernel = &lowered.kernel;
    let named = |ty: bornite_ir::Type| {
        let names: Vec<&str> = ty.components(&kernel.structs).into_iter().map(Scalar::name).collect();
        names.join(", ")
    };
    let mut text = String::new();
    for (name, given) in &lowered.params {
        text += &match given {
            Given::View(n) => {
                let param = &kernel.params[*n as usize];
                format!("{name}: {} in {} dimensions, as long as the launch\n", named(param.ty), param.dims.len())
            }
            Given::Value(n) => format!("{name}: {}\n", named(kernel.values[*n as usize].ty)),
        };
    }
    text + &format!("launch: {rank} dimensions\n")
}

fn types_of(kernel: &Kernel) -> Vec<&'static str> {
    let params = kernel.params.iter().map(|p| p.ty).chain(kernel.values.iter().map(|v| v.ty));
    let mut names: Vec<&str> = params.flat_map(|ty| ty.components(&kernel.structs)).map(Scalar::name).collect();
    names.sort_unstable();
    names.dedup();
    names
}
