//! Kernels of source files: how they are launched, what they are given, and where in their source a finding is.

use std::path::{Path, PathBuf};

use bornite::ir::{Fault, Kernel, Scalar, Value, poke};
use bornite_lang::cuda::{Declared, Module};
use bornite_lang::{Errors, Given, Lowered, Request};
use clap::Args;

use super::source::{Job, Shape, dtype};
use crate::Failure;

/// How a kernel of a file in CUDA C++ or Python syntax is launched.
#[derive(Args, Clone)]
pub struct Launch {
    /// Blocks of a launch, such as 16 or 4x4; of CUDA C++ files
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    grid: Option<Sizes>,
    /// Threads of a block, such as 256 or 16x16; of CUDA C++ files
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    block: Option<Sizes>,
    /// Instances of a launch: of Python syntax in one to four dimensions, such as 1024 or 32x32; of CUDA C++ threads along
    /// x, in blocks of 256 or as --block says, instead of --grid
    #[arg(long, value_name = "SIZES", value_parser = super::source::shape, conflicts_with = "grid")]
    pub dim: Option<Shape>,
    /// Bytes of dynamic shared memory of a block
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    shared: u64,
    /// What a parameter is given: n=1000, a=2.5, v=1,2,3, or for an array x=randn:1024 or x=randn:32x32 (rand, zeros, ones, range)
    #[arg(long = "arg", value_name = "NAME=WHAT", value_parser = given)]
    args: Vec<Named>,
}

/// One to three sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes([u32; 3]);

fn sizes(text: &str) -> Result<Sizes, String> {
    let mut all = [1; 3];
    let parts: Vec<&str> = text.split('x').collect();
    let fits = parts.len() <= 3
        && parts.iter().zip(&mut all).all(|(part, size)| match part.parse() {
            Ok(n) if n > 0 => {
                *size = n;
                true
            }
            _ => false,
        });
    if fits { Ok(Sizes(all)) } else { Err("write one to three sizes with an x between them, such as 16x16".into()) }
}

/// A parameter by name, its type if it is said, and what it is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub name: String,
    /// Only for files that our front end does not take.
    pub dtype: Option<Scalar>,
    pub what: What,
    /// Extents of an array.
    pub shape: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Numbers(Vec<f64>),
    Made(Kind, usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Zeros,
    Ones,
    Range,
    Uniform,
    Normal,
}

fn given(text: &str) -> Result<Named, String> {
    let usage =
        "write NAME=NUMBER, NAME=NUMBER,NUMBER or NAME=KIND:COUNT; the kinds are randn, rand, zeros, ones, range";
    let (name, what) = text.split_once('=').ok_or(usage)?;
    let (name, scalar) = match name.split_once(':') {
        Some((name, scalar)) => (name, Some(dtype(scalar)?)),
        None => (name, None),
    };
    let mut shape = vec![];
    let what = match what.split_once(':') {
        Some((kind, count)) => {
            let kind = match kind {
                "zeros" => Kind::Zeros,
                "ones" => Kind::Ones,
                "range" => Kind::Range,
                "rand" => Kind::Uniform,
                "randn" => Kind::Normal,
                _ => return Err(usage.into()),
            };
            let Shape(sizes) = super::source::shape(count).map_err(|_| usage)?;
            let count = sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
            let count = count.filter(|n| (1..=1 << 30).contains(n)).ok_or(usage)?;
            shape = sizes;
            What::Made(kind, count as usize)
        }
        None => {
            let all: Result<Vec<f64>, _> = what.split(',').map(str::parse).collect();
            let all = all.map_err(|_| usage)?;
            shape.push(all.len() as u64);
            What::Numbers(all)
        }
    };
    Ok(Named { name: name.into(), dtype: scalar, what, shape })
}

impl What {
    pub fn count(&self) -> usize {
        match self {
            What::Numbers(all) => all.len(),
            What::Made(_, count) => *count,
        }
    }

    /// The number for each of so many components of a parameter; the same at every run, others for other names.
    pub fn numbers(&self, components: usize, name: &str) -> Vec<f64> {
        let mut state = name
            .bytes()
            .fold(0x9e37_79b9_7f4a_7c15u64, |state, byte| (state ^ byte as u64).wrapping_mul(0x0100_0000_01b3));
        let mut unit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let mut make = |n: usize| match self {
            What::Numbers(all) => all[n % all.len()],
            What::Made(Kind::Zeros, _) => 0.0,
            What::Made(Kind::Ones, _) => 1.0,
            What::Made(Kind::Range, _) => n as f64,
            What::Made(Kind::Uniform, _) => unit(),
            What::Made(Kind::Normal, _) => {
                let (radius, turn) = ((-2.0 * unit().ln()).sqrt(), std::f64::consts::TAU * unit());
                radius * turn.cos()
            }
        };
        (0..components).map(&mut make).collect()
    }
}

/// Where a kernel of a source came from.
pub struct Origin {
    pub file: PathBuf,
    text: String,
    lowered: Lowered,
}

impl Origin {
    /// The source line of a fault.
    pub fn line_of(&self, fault: &Fault) -> Option<u32> {
        self.lowered.line_of(fault)
    }

    /// The place of a line, and the line itself.
    pub fn shown(&self, line: u32) -> String {
        let pad = " ".repeat(line.to_string().len());
        format!(
            "{pad}--> {}:{line}\n{pad} |\n{line} | {}",
            self.file.display(),
            self.text.lines().nth(line as usize - 1).unwrap_or_default()
        )
    }
}

/// True for files in CUDA C++.
pub fn is_cuda(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("cu") || ending.eq_ignore_ascii_case("cuh"))
}

pub fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()).into())
}

impl Launch {
    /// The same with so many threads a block, if a number is given.
    pub fn with_block(&self, threads: Option<u32>) -> Launch {
        Launch { block: threads.map(|threads| Sizes([threads, 1, 1])).or(self.block), ..self.clone() }
    }

    pub fn named(&self) -> &[Named] {
        &self.args
    }

    pub fn shared_bytes(&self) -> u64 {
        self.shared
    }

    /// Grid and block.
    pub fn dims(&self, bound: Option<u32>) -> ([u32; 3], [u32; 3]) {
        let block = self.block.map_or([bound.unwrap_or(256).min(1024), 1, 1], |sizes| sizes.0);
        let grid = match (self.grid, self.dim.as_ref().map(|dim| dim.0.iter().product::<u64>())) {
            (Some(sizes), _) => sizes.0,
            (None, Some(threads)) => [threads.div_ceil(block[0] as u64).min(u32::MAX as u64) as u32, 1, 1],
            (None, None) => [1; 3],
        };
        (grid, block)
    }

    fn request(&self, kernel: &Declared) -> Request {
        let (grid, block) = self.dims(kernel.bound);
        let mut request = Request::new(grid, block).shared_bytes(self.shared);
        for named in &self.args {
            request = request.length(&named.name, named.what.count() as u64);
        }
        request
    }

    /// A kernel to be written: arrays may have any length.
    pub fn kernel(&self, file: &Path, name: Option<&str>) -> Result<Kernel, Failure> {
        let module = Module::parse(&file.to_string_lossy(), &read(file)?)?;
        let (chosen, declared) = chosen(&module, file, name)?;
        let mut request = self.request(&declared);
        request.default_length = Some(i32::MAX as u64);
        Ok(module.kernel(&chosen, &request)?.kernel)
    }

    /// A kernel to be run, with what it is given.
    pub fn job(&self, file: &Path, name: Option<&str>) -> Result<Job, Failure> {
        let text = read(file)?;
        let module = Module::parse(&file.to_string_lossy(), &text)?;
        let (chosen, declared) = chosen(&module, file, name)?;
        let lowered = module.kernel(&chosen, &self.request(&declared))?;
        self.filled(file, text, lowered)
    }

    /// A kernel that was made, with what it is given.
    pub fn filled(&self, file: &Path, text: String, lowered: Lowered) -> Result<Job, Failure> {
        let kernel = lowered.kernel.clone();
        let (mut values, mut memory) = (vec![vec![]; kernel.values.len()], vec![vec![]; kernel.params.len()]);
        for (name, param) in &lowered.params {
            let Some(named) = self.args.iter().find(|named| named.name == *name) else {
                return Err(format!("'{name}' is given nothing: add --arg {name}=…").into());
            };
            match param {
                Given::Value(n) => {
                    let ty = kernel.values[*n as usize].ty;
                    let scalars = ty.components(&kernel.structs);
                    if named.what.count() != scalars.len() || matches!(named.what, What::Made(..)) {
                        let (found, wanted) = (named.what.count(), scalars.len());
                        return Err(format!("'{name}' is a value of {wanted} numbers, {found} are given").into());
                    }
                    let numbers = named.what.numbers(scalars.len(), name);
                    values[*n as usize] = scalars.iter().zip(numbers).map(|(s, x)| exactly(*s, x)).collect();
                }
                Given::View(n) => {
                    let view = &kernel.params[*n as usize];
                    let cells = super::run::cells(&kernel, view, &[], usize::MAX);
                    let words = kernel.view_bytes(view, &[]).unwrap_or(0).div_ceil(8);
                    let mut made = vec![0u64; words];
                    for ((byte, scalar), x) in cells.iter().zip(named.what.numbers(cells.len(), name)) {
                        poke(&mut made, *byte, exactly(*scalar, x));
                    }
                    memory[*n as usize] = made;
                }
            }
        }
        if let Some(other) = self.args.iter().find(|named| lowered.params.iter().all(|(name, _)| *name != named.name)) {
            let names: Vec<&str> = lowered.params.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!("there is no parameter '{}'; there are {}", other.name, names.join(", ")).into());
        }
        let origin = Some(Origin { file: file.into(), text, lowered });
        Ok(Job { kernel, values, memory, origin })
    }

    /// True if a flag for source files was given.
    pub fn is_given(&self) -> bool {
        self.grid.is_some() || self.block.is_some() || self.dim.is_some() || self.shared > 0 || !self.args.is_empty()
    }
}

/// A number in a type; large integers as they are.
fn exactly(scalar: Scalar, x: f64) -> Value {
    Value::from_f64(scalar, x)
}

/// The kernel of a name, or the only one.
fn chosen(module: &Module, file: &Path, name: Option<&str>) -> Result<(String, Declared), Failure> {
    let mut all = module.kernels();
    let names: Vec<String> = all.iter().map(|kernel| kernel.name.clone()).collect();
    let names = names.join(", ");
    if let Some(name) = name {
        let plain = |text: &str| text.split('<').next().unwrap_or(text).trim().to_owned();
        let found = all.iter().position(|k| k.name == name).or(all.iter().position(|k| plain(&k.name) == plain(name)));
        let Some(n) = found else {
            return Err(format!("{} has no kernel '{name}'; it has {names}", file.display()).into());
        };
        return Ok((name.to_owned(), all.swap_remove(n)));
    }
    match all.len() {
        0 => Err(format!("{} has no kernel", file.display()).into()),
        1 => Ok((all[0].name.clone(), all.swap_remove(0))),
        _ => Err(format!("{} has several kernels: choose one with --kernel: {names}", file.display()).into()),
    }
}

/// A kernel of a file that was checked: its name, its line, and what is wrong.
pub struct Checked {
    pub kernel: Option<String>,
    pub line: usize,
    pub errors: Option<Errors>,
}

/// Checks all kernels of a file, as if launched with arrays of any length.
pub fn check(file: &Path) -> Result<Vec<Checked>, Failure> {
    let module = match Module::parse(&file.to_string_lossy(), &read(file)?) {
        Ok(module) => module,
        Err(errors) => {
            let line = errors.all.first().map_or(1, |found| found.line as usize);
            return Ok(vec![Checked { kernel: None, line, errors: Some(errors) }]);
        }
    };
    let check = |kernel: Declared| {
        let mut request =
            Request::new([1; 3], [kernel.bound.unwrap_or(128).clamp(1, 1024), 1, 1]).shared_bytes(16 << 10);
        request.default_length = Some(i32::MAX as u64);
        let errors = module.kernel(&module.example(&kernel.name), &request).err();
        Checked { kernel: Some(kernel.name), line: kernel.line as usize, errors }
    };
    Ok(module.kernels().into_iter().map(check).collect())
}
