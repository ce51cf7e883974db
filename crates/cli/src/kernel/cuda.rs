//! Kernels of CUDA C++ files: launch options, arguments, and source lines of findings.

use std::path::{Path, PathBuf};

use bornite::ir::{Fault, FaultKind, Kernel};
use bornite_lang::cuda::{CudaKernelInfo, CudaModule, PreprocessorOptions};
use bornite_lang::{LaunchRequest, LoadError, Lowered, ParamRef};
use clap::Args;

use super::argument::{ArgSpec, parse_arg};
use super::bind::{DefaultArgs, bind};
use super::check::{CheckVerdict, CheckedKernel};
use super::launch_file::LaunchFile;
use super::run::add_missing;
use super::source::{Job, Shape};
use crate::Failure;
use crate::text_file::{self, MAX_SOURCE_BYTES};

/// Launch options of a kernel in a CUDA C++ or Python-syntax file.
#[derive(Args, Clone)]
pub struct LaunchOptions {
    /// Blocks per grid, such as 16 or 4x4 (CUDA C++ files)
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    grid: Option<Dim3>,
    /// Threads per block, such as 256 or 16x16 (CUDA C++ files)
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    block: Option<Dim3>,
    /// Launch dimensions. Python syntax: one to four sizes, such as 1024 or 32x32. CUDA C++: the
    /// number of threads, instead of --grid, in blocks of 256 or of --block
    #[arg(long, value_name = "SIZES", value_parser = super::source::shape, conflicts_with = "grid")]
    pub dim: Option<Shape>,
    /// Dynamic shared memory per block, in bytes [default: 0]
    #[arg(long, value_name = "BYTES")]
    shared: Option<u64>,
    /// Argument of a parameter: n=1000, a=2.5, v=1,2,3; for an array x=[1,2,3], x=@file.npy,
    /// x=@file.bin (raw, little-endian), x=randn:1024 or x=randn:32x32 (also rand, zeros, ones,
    /// range, and randint:LOW:HIGH:1024, HIGH exclusive)
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = parse_arg)]
    args: Vec<ArgSpec>,
    /// Seed of random arguments [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    preprocessor: PreprocessorArgs,
}

/// Extents along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dim3([u32; 3]);

fn sizes(text: &str) -> Result<Dim3, String> {
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
    if fits { Ok(Dim3(all)) } else { Err("write one to three sizes with an x between them, such as 16x16".into()) }
}

/// Macros and include folders of CUDA C++ files.
#[derive(Args, Clone, Default)]
pub struct PreprocessorArgs {
    /// Folder that is searched for headers (CUDA C++ files)
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Defines a macro (CUDA C++ files)
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]", value_parser = define)]
    define: Vec<String>,
}

impl PreprocessorArgs {
    pub fn options(&self) -> PreprocessorOptions {
        PreprocessorOptions { include_dirs: self.include.clone(), defines: self.define.clone() }
    }
}

fn define(text: &str) -> Result<String, String> {
    let name = text.split('=').next().unwrap_or_default();
    let is_name = name
        .bytes()
        .enumerate()
        .all(|(n, byte)| byte == b'_' || byte.is_ascii_alphabetic() || n > 0 && byte.is_ascii_digit());
    match is_name && !name.is_empty() && !text.contains('\n') {
        true => Ok(text.into()),
        false => Err("write NAME or NAME=VALUE, such as -DN=64".into()),
    }
}

/// The source file of a lowered kernel.
pub struct SourceOrigin {
    pub file: PathBuf,
    lines: SourceLines,
    lowered: Lowered,
}

/// The lines that a lowered kernel refers to.
pub enum SourceLines {
    /// Lines of one file.
    Text(String),
    /// Lines of a file and of those that it includes.
    Cuda(Box<CudaModule>),
}

impl SourceOrigin {
    /// The source line of a fault, and of the earlier access of a race.
    pub fn lines_of(&self, fault: &Fault) -> [Option<u32>; 2] {
        [self.lowered.line_of(fault), self.lowered.earlier_line_of(fault)]
    }

    /// The source line of a line of the kernel's text form.
    pub fn line_of_text(&self, line: usize) -> Option<u32> {
        self.lowered.source_line_of(line)
    }

    /// Kind of a fault, with indices as in the source.
    pub fn kind_of(&self, fault: &Fault) -> FaultKind {
        self.lowered.kind_of(fault)
    }

    /// File of a line, and its number in that file.
    pub fn location(&self, line: u32) -> (PathBuf, u32) {
        match &self.lines {
            SourceLines::Text(_) => (self.file.clone(), line),
            SourceLines::Cuda(module) => {
                let (file, line) = module.location(line);
                (file.into(), line)
            }
        }
    }

    /// The source line of a line of the kernel's text form.
    pub fn source_line(&self, line: usize) -> Option<u32> {
        self.lowered.lines.get(line.checked_sub(1)?).copied().filter(|line| *line > 0)
    }

    /// The text of a line.
    pub fn text(&self, line: u32) -> &str {
        match &self.lines {
            SourceLines::Text(text) => text.lines().nth((line as usize).saturating_sub(1)).unwrap_or_default(),
            SourceLines::Cuda(module) => module.line(line),
        }
    }

    /// A line as a compiler shows it: file, number and text.
    pub fn shown(&self, line: u32) -> String {
        let text = self.text(line);
        let (file, line) = self.location(line);
        let pad = " ".repeat(line.to_string().len());
        format!("{pad}--> {}:{line}\n{pad} |\n{line} | {text}", file.display())
    }
}

/// Returns true for CUDA C++ files.
pub fn is_cuda(file: &Path) -> bool {
    is_header(file) || file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("cu"))
}

/// Returns true for headers of CUDA C++.
pub fn is_header(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("cuh"))
}

/// Reads a CUDA C++ file. Bytes that are not UTF-8, as in comments of older files, are replaced.
pub fn read(file: &Path) -> Result<String, Failure> {
    text_file::read_lossy(file, MAX_SOURCE_BYTES)
}

impl LaunchOptions {
    /// The same options with another block size, if one is specified.
    pub fn with_block(&self, threads: Option<u32>) -> LaunchOptions {
        LaunchOptions { block: threads.map(|threads| Dim3([threads, 1, 1])).or(self.block), ..self.clone() }
    }

    pub fn preprocessor(&self) -> &PreprocessorArgs {
        &self.preprocessor
    }

    pub fn args(&self) -> &[ArgSpec] {
        &self.args
    }

    pub fn shared_bytes(&self) -> u64 {
        self.shared.unwrap_or(0)
    }

    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// Reads the files of arguments.
    pub fn loaded(&self) -> Result<LaunchOptions, Failure> {
        let args = self.args.iter().map(ArgSpec::loaded).collect::<Result<_, _>>()?;
        Ok(LaunchOptions { args, ..self.clone() })
    }

    /// Adds the settings of a file for options that are not set.
    pub fn add_missing(&mut self, file: &LaunchFile) -> Result<(), String> {
        let key = |key: &'static str| move |message: String| format!("{key}: {message}");
        let has_dims = self.grid.is_some() || self.dim.is_some();
        if file.grid.is_some() && file.dim.is_some() {
            return Err("grid and dim exclude each other; remove one".into());
        }
        if let (false, Some(text)) = (has_dims, &file.grid) {
            self.grid = Some(sizes(text).map_err(key("grid"))?);
        }
        if let (false, Some(text)) = (has_dims, &file.dim) {
            self.dim = Some(super::source::shape(text).map_err(key("dim"))?);
        }
        if let (None, Some(text)) = (self.block, &file.block) {
            self.block = Some(sizes(text).map_err(key("block"))?);
        }
        self.shared = self.shared.or(file.shared);
        self.seed = self.seed.or(file.seed);
        add_missing(&mut self.args, &file.args);
        Ok(())
    }

    /// Shapes of the array arguments, in elements; `prototype` lowers the kernel for arrays of any
    /// size, to find their types where shapes depend on them.
    pub fn shapes(
        &self,
        prototype: impl FnOnce() -> Result<Lowered, Failure>,
    ) -> Result<Vec<(&str, Vec<u64>)>, Failure> {
        let prototype = self.args.iter().any(ArgSpec::depends_on_type).then(prototype).transpose()?;
        let layout = |name: &str| {
            let lowered = prototype.as_ref()?;
            match lowered.params.iter().find(|(param, _)| param == name)? {
                (_, ParamRef::View(n)) => Some(lowered.kernel.params[*n as usize].ty.layout(&lowered.kernel.structs)),
                (_, ParamRef::Value(_)) => None,
            }
        };
        let shape = |arg: &ArgSpec| match layout(&arg.name) {
            Some(layout) => arg.element_shape(&layout),
            None => Ok(arg.shape.clone()),
        };
        self.args.iter().map(|arg| Ok((arg.name.as_str(), shape(arg)?))).collect()
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

    /// The launch of a kernel, with the lengths of its array arguments.
    fn request(&self, module: &CudaModule, name: &str, kernel: &CudaKernelInfo) -> Result<LaunchRequest, Failure> {
        let (grid, block) = self.dims(kernel.max_threads);
        let mut request = LaunchRequest::new(grid, block).shared_bytes(self.shared_bytes());
        let prototype = LaunchRequest { default_length: Some(i32::MAX as u64), ..request.clone() };
        for (name, shape) in self.shapes(|| Ok(module.kernel(name, &prototype)?))? {
            request = request.length(name, shape.iter().product());
        }
        Ok(request)
    }

    /// Lowers a kernel to be emitted; the second result is a comment that lists what it is
    /// specialized for. Arrays may have any length.
    pub fn kernel(&self, file: &Path, name: Option<&str>) -> Result<(Kernel, String), Failure> {
        let module = self.module(file)?;
        let (kernel_name, declared) = select_kernel(&module, file, name)?;
        let launch = self.loaded()?;
        let mut request = launch.request(&module, &kernel_name, &declared)?;
        if self.grid.is_none() && self.dim.is_none() {
            return Err(format!(
                "emit: '{kernel_name}' is specialized for one launch, whose grid is not specified: add --grid BLOCKS, such as \
                 --grid 16 or --grid 4x4, or --dim THREADS (blocks have {} threads; --block changes that)",
                request.block.iter().product::<u32>()
            )
            .into());
        }
        request.default_length = Some(i32::MAX as u64);
        let lowered = module.kernel(&kernel_name, &request)?;
        let specialized = launch.specialized(file, &kernel_name, &request, &lowered);
        Ok((lowered.kernel, specialized))
    }

    /// A comment that lists what the text of a kernel is specialized for.
    fn specialized(&self, file: &Path, name: &str, request: &LaunchRequest, lowered: &Lowered) -> String {
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
        let length = |array: &str| {
            let (_, dims) = request.views.iter().find(|(name, _)| name == array)?;
            dims[0].extent.known()
        };
        let lengths = arrays.map(|(array, _)| match length(array) {
            Some(1) => format!("{array}: 1 element"),
            Some(count) => format!("{array}: {count} elements"),
            None => format!("{array}: at most {} elements", i32::MAX),
        });
        lines.push(lengths.collect::<Vec<_>>().join(", "));
        lines.push("Arrays may overlap: no pointer is __restrict__.".into());
        lines.iter().filter(|line| !line.is_empty()).map(|line| format!("// {line}\n")).collect()
    }

    /// Lowers a kernel and builds its arguments.
    pub fn job(&self, file: &Path, name: Option<&str>) -> Result<Job, Failure> {
        let module = self.module(file)?;
        let (kernel_name, declared) = select_kernel(&module, file, name)?;
        let launch = self.loaded()?;
        let request = launch.request(&module, &kernel_name, &declared)?;
        let lowered = module.kernel(&kernel_name, &request)?;
        launch.filled(file, SourceLines::Cuda(Box::new(module)), lowered)
    }

    /// Parses a file with the headers that it includes.
    fn module(&self, file: &Path) -> Result<CudaModule, Failure> {
        CudaModule::load(file, &self.preprocessor.options()).map_err(|error| match error {
            LoadError::Invalid(errors) => errors.into(),
            LoadError::Read(path, error) => format!("cannot read {}: {error}", path.display()).into(),
        })
    }

    /// Builds the arguments of a lowered kernel.
    pub fn filled(&self, file: &Path, lines: SourceLines, lowered: Lowered) -> Result<Job, Failure> {
        let kernel = lowered.kernel.clone();
        let bound = bind(&kernel, &lowered.params, &self.args, self.seed(), DefaultArgs::Sizes(self))?;
        let origin = Some(SourceOrigin { file: file.into(), lines, lowered });
        Ok(Job::new(kernel, bound, origin))
    }

    /// Value of a size parameter without an argument, by the name that `kernel emit` gives it:
    /// `x_shape0` and `x_stride0` of an array argument, `launch_count` and `launch_dim0` of the
    /// launch. The options that run a Python-syntax kernel therefore also run its emitted text.
    /// `arrays` are the shapes of the array arguments.
    pub fn size(&self, name: &str, arrays: &[(&str, Vec<u64>)]) -> Option<i64> {
        let (of, what) = name.rsplit_once('_')?;
        let (sizes, what) = match of {
            "launch" => (&self.dim.as_ref()?.0, what),
            array => (&arrays.iter().find(|(name, _)| *name == array)?.1, what),
        };
        let number = |prefix: &str| what.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
        let product = |sizes: &[u64]| sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
        let size = match number("shape").or_else(|| number("dim")) {
            Some(n) => *sizes.get(n)?,
            None if what == "count" => product(sizes)?,
            None => product(sizes.get(number("stride")?..)?.get(1..)?)?,
        };
        // Emitted text declares them as `int`.
        i32::try_from(size).ok().map(i64::from)
    }

    /// Returns true if any of the options of a launch is set.
    pub fn sets_launch(&self) -> bool {
        self.grid.is_some() || self.block.is_some() || self.dim.is_some() || self.shared.is_some()
    }
}

/// The kernel of that name, or the only one of the file.
fn select_kernel(module: &CudaModule, file: &Path, name: Option<&str>) -> Result<(String, CudaKernelInfo), Failure> {
    let mut all = module.kernels();
    let names: Vec<String> = all.iter().map(|kernel| kernel.name.clone()).collect();
    let names = if names.is_empty() { "no kernels".into() } else { names.join(", ") };
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
        _ => Err(format!("{} has several kernels; choose one with --kernel: {names}", file.display()).into()),
    }
}

/// Checks all kernels of a file, as if launched with arrays of any length; adds the files that it
/// includes to `included`.
pub fn check(
    file: &Path,
    options: &PreprocessorArgs,
    included: &mut Vec<PathBuf>,
) -> Result<Vec<CheckedKernel>, Failure> {
    let text = read(file)?;
    let module = CudaModule::read(&file.to_string_lossy(), &text, Some(file), &options.options());
    included.extend(module.included_files().iter().filter_map(|path| path.canonicalize().ok()));
    let kernels = module.kernels();
    if let (Some(errors), true) = (module.errors(), kernels.is_empty()) {
        return Ok(vec![CheckedKernel::of_file(errors)]);
    }
    if let (true, Some(at)) = (kernels.is_empty(), text.find("__global__")) {
        let line = 1 + text[..at].matches('\n').count();
        let outcome = CheckVerdict::NoKernels;
        return Ok(vec![CheckedKernel { kernel: None, instance: None, defined_in: None, line, outcome }]);
    }
    let check = |kernel: CudaKernelInfo| {
        let mut request =
            LaunchRequest::new([1; 3], [kernel.max_threads.unwrap_or(128).clamp(1, 1024), 1, 1]).shared_bytes(16 << 10);
        request.default_length = Some(i32::MAX as u64);
        let outcome = match (kernel.is_template, module.errors()) {
            (true, None) => CheckVerdict::NotInstantiated(module.example_instance(&kernel.name)),
            _ => module.kernel(&kernel.name, &request).map_or_else(CheckVerdict::Errors, |_| CheckVerdict::NoErrors),
        };
        let defined_in = Some(kernel.file).filter(|defined_in| defined_in != module.file());
        CheckedKernel { kernel: Some(kernel.name), instance: None, defined_in, line: kernel.line as usize, outcome }
    };
    Ok(kernels.into_iter().map(check).collect())
}
