//! Kernels of source files: how they are launched, what they are given, and where in their source a finding is.

use std::path::{Path, PathBuf};

use bornite::ir::{Fault, Kernel, Value, poke};
use bornite_lang::cuda::{Declared, Module};
use bornite_lang::{Errors, Lowered, ParamRef, Request};
use clap::Args;

use super::given::{Named, What, given};
use super::run::{cells, zeros};
use super::source::{Job, Shape};
use crate::Failure;
use crate::text_file::{self, MAX_SOURCE_BYTES};

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
    text_file::read(file, MAX_SOURCE_BYTES)
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

    /// A kernel to be written as text, and what the text is specialized for. Arrays may have any length.
    pub fn kernel(&self, file: &Path, name: Option<&str>) -> Result<(Kernel, String), Failure> {
        let module = Module::parse(&file.to_string_lossy(), &read(file)?)?;
        let (chosen, declared) = chosen(&module, file, name)?;
        let mut request = self.request(&declared);
        if self.grid.is_none() && self.dim.is_none() {
            return Err(format!(
                "emit: '{chosen}' is written for one launch, and its grid is not specified: add --grid BLOCKS, such as \
                 --grid 16 or --grid 4x4, or --dim THREADS (blocks have {} threads; --block changes that)",
                request.block.iter().product::<u32>()
            )
            .into());
        }
        request.default_length = Some(i32::MAX as u64);
        let lowered = module.kernel(&chosen, &request)?;
        let specialized = self.specialized(file, &chosen, &request, &lowered);
        Ok((lowered.kernel, specialized))
    }

    /// A comment that lists all that the text of a kernel is specialized for.
    fn specialized(&self, file: &Path, name: &str, request: &Request, lowered: &Lowered) -> String {
        let sizes = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
        let mut lines = vec![
            format!("Kernel '{name}' of {}, specialized by 'bornite kernel emit' for one launch:", file.display()),
            format!("grid {}, block {}", sizes(request.grid), sizes(request.block)),
        ];
        if request.shared_bytes > 0 {
            lines.push(format!("{} bytes of dynamic shared memory per block", request.shared_bytes));
        }
        if let Some((_, arguments)) = name.split_once('<') {
            lines.push(format!("template arguments <{arguments}"));
        }
        let arrays = lowered.params.iter().filter(|(_, param)| matches!(param, ParamRef::View(_)));
        let lengths = arrays.map(|(array, _)| match self.args.iter().find(|named| named.name == *array) {
            Some(named) if named.what.count() == 1 => format!("{array}: 1 element"),
            Some(named) => format!("{array}: {} elements", named.what.count()),
            None => format!("{array}: at most {} elements", i32::MAX),
        });
        lines.push(lengths.collect::<Vec<_>>().join(", "));
        lines.push("Arrays may overlap: no pointer is __restrict__.".into());
        lines.iter().filter(|line| !line.is_empty()).map(|line| format!("// {line}\n")).collect()
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
            let mut all = self.args.iter().filter(|named| named.name == *name);
            let Some(named) = all.next() else {
                let scalar = |n: &u32| kernel.values[*n as usize].ty.as_scalar().filter(|scalar| !scalar.is_float());
                match (param, self.size(name)) {
                    (ParamRef::Value(n), Some(size)) if let Some(scalar) = scalar(n) => {
                        values[*n as usize] = vec![Value::int(scalar, size)];
                        continue;
                    }
                    _ => return Err(format!("'{name}' is given nothing: add --arg {name}=…").into()),
                }
            };
            if all.next().is_some() {
                return Err(format!("'{name}' is given twice: leave one --arg {name}=… out").into());
            }
            match param {
                ParamRef::Value(n) => {
                    let scalars = kernel.values[*n as usize].ty.components(&kernel.structs);
                    let (found, wanted) = (named.what.count(), scalars.len());
                    if matches!(named.what, What::Made(..)) {
                        let how = if wanted == 1 { "a number" } else { "numbers with commas between them" };
                        return Err(format!("'{name}' is a value and no array: give it {how}, --arg {name}=1").into());
                    }
                    if found != wanted {
                        return Err(format!("'{name}' is a value of {wanted} numbers, {found} are given").into());
                    }
                    values[*n as usize] = named.values(scalars.into_iter()).collect::<Result<_, _>>()?;
                }
                ParamRef::View(n) => {
                    let view = &kernel.params[*n as usize];
                    let cells = || cells(&kernel, view, &[]);
                    let mut made = zeros(kernel.view_bytes(view, &[]).unwrap_or(0).div_ceil(8))?;
                    for ((byte, _), value) in cells().zip(named.values(cells().map(|(_, scalar)| scalar))) {
                        poke(&mut made, byte, value?);
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

    /// A size that is not given, by the name that our printer has for it: `x_shape0` and `x_stride0` of an array that is
    /// given, and `launch_count` and `launch_dim0` of the launch. So what runs a kernel in Python syntax runs its text.
    fn size(&self, name: &str) -> Option<i64> {
        let (of, what) = name.rsplit_once('_')?;
        let (sizes, what) = match of {
            "launch" => (&self.dim.as_ref()?.0, what),
            array => (&self.args.iter().find(|named| named.name == array)?.shape, what),
        };
        let number = |prefix: &str| what.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
        let product = |sizes: &[u64]| sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
        let size = match number("shape").or_else(|| number("dim")) {
            Some(n) => *sizes.get(n)?,
            None if what == "count" => product(sizes)?,
            None => product(sizes.get(number("stride")?..)?.get(1..)?)?,
        };
        // They are `int` in such texts.
        i32::try_from(size).ok().map(i64::from)
    }

    /// True if a flag for source files was given.
    pub fn is_given(&self) -> bool {
        self.grid.is_some() || self.block.is_some() || self.dim.is_some() || self.shared > 0 || !self.args.is_empty()
    }
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
    /// The name it is written by.
    pub kernel: Option<String>,
    /// The name it can be asked for by, where that is another.
    pub instance: Option<String>,
    pub line: usize,
    pub errors: Option<Errors>,
    /// Types that were tried in vain where the source leaves them open: then nothing is known.
    pub untold: Option<String>,
}

/// Checks all kernels of a file, as if launched with arrays of any length.
pub fn check(file: &Path) -> Result<Vec<Checked>, Failure> {
    let module = match Module::parse(&file.to_string_lossy(), &read(file)?) {
        Ok(module) => module,
        Err(errors) => {
            let line = errors.all.first().map_or(1, |found| found.line as usize);
            return Ok(vec![Checked { kernel: None, instance: None, line, errors: Some(errors), untold: None }]);
        }
    };
    let check = |kernel: Declared| {
        let mut request =
            Request::new([1; 3], [kernel.bound.unwrap_or(128).clamp(1, 1024), 1, 1]).shared_bytes(16 << 10);
        request.default_length = Some(i32::MAX as u64);
        let errors = module.kernel(&module.example(&kernel.name), &request).err();
        Checked { kernel: Some(kernel.name), instance: None, line: kernel.line as usize, errors, untold: None }
    };
    Ok(module.kernels().into_iter().map(check).collect())
}
