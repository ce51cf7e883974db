//! Sources of kernels: files in IR, CUDA C++ or Python syntax, templates, and expressions.

use std::path::{Path, PathBuf};

use bornite::ir::templates::{self, KernelResult};
use bornite::ir::{Kernel, Scalar, Value, VerifyError, elementwise};
use clap::Args;

use super::bind::{BoundArgs, DefaultArgs, bind, ir_params};
use super::cuda::{self, LaunchOptions, SourceOrigin};
use super::launch_file::LaunchFile;
use super::python;
use crate::Failure;
use crate::text_file::{self, MAX_SOURCE_BYTES};

/// A kernel with its arguments.
pub struct Job {
    pub kernel: Kernel,
    pub values: Vec<Vec<Value>>,
    pub memory: Vec<Vec<u64>>,
    /// Source name and extents in elements of each array.
    pub arrays: Vec<(String, Vec<u64>)>,
    /// Source file, for kernels in CUDA C++ or Python syntax.
    pub origin: Option<SourceOrigin>,
}

impl Job {
    pub fn new(kernel: Kernel, bound: BoundArgs, origin: Option<SourceOrigin>) -> Job {
        let BoundArgs { values, memory, arrays } = bound;
        Job { kernel, values, memory, arrays, origin }
    }

    /// A line of the kernel's text form as a compiler shows it: of its source, if it has one.
    pub fn shown_line(&self, line: usize) -> String {
        match self.origin.as_ref().map(|origin| (origin, origin.line_of_text(line))) {
            Some((origin, Some(line))) => origin.shown(line),
            Some((_, None)) => String::new(),
            None => {
                let text = self.kernel.to_string();
                text.lines().nth(line.wrapping_sub(1)).map(|text| format!("{line:4} | {text}")).unwrap_or_default()
            }
        }
    }

    /// File and line of a line of the kernel's text form.
    pub fn source_location(&self, line: usize) -> (Option<PathBuf>, Option<usize>) {
        let Some(origin) = &self.origin else { return (None, Some(line)) };
        match origin.line_of_text(line) {
            Some(line) => {
                let (file, line) = origin.location(line);
                (Some(file), Some(line as usize))
            }
            None => (Some(origin.file.clone()), None),
        }
    }
}

/// A kernel to be emitted.
pub struct EmitSource {
    pub kernel: Kernel,
    /// Comment that precedes the emitted text.
    pub comment: String,
    /// True if arrays may overlap, so that no pointer is `__restrict__`.
    pub may_alias: bool,
}

/// Options that select a kernel.
#[derive(Args, Clone)]
pub struct KernelSelector {
    #[command(flatten)]
    from: KernelInput,
    #[command(flatten)]
    launch: LaunchOptions,
    /// Kernel name, if a file has several; C++ templates with arguments: "scale<float, 4>"
    #[arg(long, value_name = "NAME", conflicts_with_all = ["template", "expr"])]
    kernel: Option<String>,
    /// Element type of a template or expression
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = dtype)]
    dtype: Scalar,
    /// Tile side or block size of a template
    #[arg(long, value_name = "N")]
    tile: Option<u32>,
    /// Number of elements of an expression
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u64,
    /// Sizes of a template, such as 1024x512 [default: small]
    #[arg(long, value_name = "SIZES", value_parser = shape, requires = "template")]
    shape: Option<Shape>,
}

/// Sizes written as `1024x512`.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape(pub Vec<u64>);

pub fn shape(text: &str) -> Result<Shape, String> {
    let sizes: Option<Vec<u64>> = text.split('x').map(|size| size.parse().ok().filter(|size| *size > 0)).collect();
    sizes.map(Shape).ok_or_else(|| "write sizes separated by x, such as 1024x512".into())
}

#[derive(Args, Clone)]
#[group(required = true, multiple = false)]
struct KernelInput {
    /// A file in IR text (.bir), CUDA C++ (.cu) or Python syntax (.py)
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// A template (see `bornite kernel list`)
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// An elementwise expression, such as "gelu(x) * y"
    #[arg(long, value_name = "TEXT")]
    expr: Option<String>,
}

pub fn dtype(text: &str) -> Result<Scalar, String> {
    Scalar::ALL.into_iter().find(|scalar| scalar.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Scalar::ALL.iter().map(|scalar| scalar.name()).collect();
        format!("unknown type '{text}'; the types are {}", names.join(", "))
    })
}

/// A kernel template of the IR crate, with defaults.
pub struct KernelTemplate {
    pub name: &'static str,
    pub doc: &'static str,
    /// Names of its sizes.
    pub axes: &'static str,
    /// Default sizes, quick to run.
    pub small: &'static [u64],
    /// Default tile side or block size; 0 if the template has none.
    pub tile: u32,
    build: fn(Scalar, &[u64], u32) -> KernelResult,
    flops: fn(&[u64]) -> u64,
}

/// All templates.
pub const TEMPLATES: [KernelTemplate; 14] = [
    template("fill", "out[i] = value", "n", &[1000], 0, |s, n, _| templates::fill(s, n[0], 1.0), |_| 0),
    template(
        "axpy",
        "out[i] = a · x[i] + y[i]",
        "n",
        &[1000],
        0,
        |s, n, _| templates::axpy(s, n[0], 2.0),
        |n| 2 * n[0],
    ),
    template(
        "block_sum",
        "sum per block, in shared memory; a second launch adds up the sums",
        "n",
        &[1000],
        128,
        |s, n, t| templates::block_sum(s, n[0], t),
        |n| n[0],
    ),
    template("warp_sum", "sum per warp, by shuffles", "n", &[320], 0, |s, n, _| templates::warp_sum(s, n[0]), |n| n[0]),
    template(
        "transpose",
        "matrix transpose through padded 32x32 tiles",
        "rows x columns",
        &[45, 70],
        0,
        |s, n, _| templates::transpose(s, n[0], n[1]),
        |_| 0,
    ),
    template(
        "matmul",
        "tiled matrix product",
        "m x k x n",
        &[19, 37, 23],
        8,
        |s, n, t| templates::matmul(s, n[0], n[1], n[2], t as u64),
        |n| 2 * n[0] * n[1] * n[2],
    ),
    template(
        "histogram",
        "histogram by shared-memory atomics",
        "n x bins",
        &[1000, 37],
        64,
        |_, n, t| templates::histogram(n[0], n[1], t),
        |_| 0,
    ),
    template(
        "block_scan",
        "inclusive scan per block",
        "n",
        &[1000],
        64,
        |s, n, t| templates::block_scan(s, n[0], t),
        |n| n[0],
    ),
    template(
        "stencil",
        "mean of four neighbours",
        "rows x columns",
        &[17, 40],
        0,
        |s, n, _| templates::stencil(s, n[0], n[1]),
        |n| 4 * n[0] * n[1],
    ),
    template(
        "softmax",
        "softmax of rows, one block per row",
        "rows x columns",
        &[4, 100],
        64,
        |s, n, t| templates::softmax(s, n[0], n[1], t),
        |_| 0,
    ),
    template(
        "layer_norm",
        "layer norm of rows, one block per row",
        "rows x columns",
        &[4, 100],
        64,
        |s, n, t| templates::layer_norm(s, n[0], n[1], t, 1e-5),
        |_| 0,
    ),
    template(
        "conv2d",
        "direct convolution, one thread per output",
        "channels x height x width x filters x size",
        &[3, 9, 11, 4, 3],
        0,
        |s, n, _| templates::conv2d(s, n[0], n[1], n[2], n[3], n[4]),
        |n| 2 * n[0] * n[1].saturating_sub(n[4] - 1) * n[2].saturating_sub(n[4] - 1) * n[3] * n[4] * n[4],
    ),
    template(
        "particles",
        "bouncing particles: structs, vectors, a device function",
        "",
        &[],
        0,
        |_, _, _| templates::particles(),
        |_| 0,
    ),
    template(
        "elementwise",
        "gelu(x) · y; use --expr for other expressions",
        "n",
        &[1000],
        0,
        |s, n, _| {
            elementwise("elementwise", "gelu(x) * y", s, n[0])
                .map_err(|e| VerifyError { kernel: "elementwise".into(), message: e.to_string() })
        },
        |_| 0,
    ),
];

const fn template(
    name: &'static str,
    doc: &'static str,
    axes: &'static str,
    small: &'static [u64],
    tile: u32,
    build: fn(Scalar, &[u64], u32) -> KernelResult,
    flops: fn(&[u64]) -> u64,
) -> KernelTemplate {
    KernelTemplate { name, doc, axes, small, tile, build, flops }
}

impl KernelTemplate {
    /// Looks up a template by name.
    pub fn find(name: &str) -> Result<&'static KernelTemplate, Failure> {
        TEMPLATES.iter().find(|template| template.name == name).ok_or_else(|| {
            let names: Vec<&str> = TEMPLATES.iter().map(|template| template.name).collect();
            format!("unknown template '{name}'; the templates are {}", names.join(", ")).into()
        })
    }

    /// Instantiates the template for these sizes and tile, or for its defaults.
    pub fn kernel(&self, dtype: Scalar, shape: Option<&[u64]>, tile: Option<u32>) -> Result<Kernel, Failure> {
        let name = self.name;
        if self.tile == 0 && tile.is_some() {
            return Err(format!("template '{name}' has no tile size; remove --tile").into());
        }
        if let Some(tile) = tile
            && !(1..=1024).contains(&tile)
        {
            return Err(format!("--tile must be from 1 to 1024; found {tile}").into());
        }
        let shape = shape.unwrap_or(self.small);
        if shape.len() != self.small.len() {
            let small: Vec<String> = self.small.iter().map(u64::to_string).collect();
            let small = small.join("x");
            return Err(
                format!("template '{name}' has the sizes {}; write for example --shape {small}", self.axes).into()
            );
        }
        let tile = tile.unwrap_or(self.tile);
        match self.precondition_error(shape, tile) {
            Some(reason) => Err(format!("template '{name}' cannot be instantiated: {reason}").into()),
            None => Ok((self.build)(dtype, shape, tile)?),
        }
    }

    /// Checks the preconditions under which templates index within their views.
    fn precondition_error(&self, shape: &[u64], tile: u32) -> Option<String> {
        // The largest view: of a product, each pair of its sizes.
        let view = |sizes: &[u64]| sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
        let largest = match (self.name, shape) {
            ("matmul", &[m, k, n]) => [[m, k], [k, n], [m, n]].iter().filter_map(|pair| view(pair)).max(),
            _ => view(shape),
        };
        if largest.is_none_or(|n| n > i32::MAX as u64) {
            return Some("an array has more than 2147483647 elements; use a smaller --shape".into());
        }
        match self.name {
            "warp_sum" if !shape[0].is_multiple_of(32) => Some(format!("n is {}, not a multiple of 32", shape[0])),
            "histogram" if shape[1] < 7 => Some(format!("it has {} bins; the minimum is 7", shape[1])),
            "conv2d" if shape[4] > shape[1].min(shape[2]) => Some("the filter is larger than the image".into()),
            "matmul" if tile > 32 => {
                Some(format!("a tile of {tile} needs {} threads per block; the largest tile is 32", tile * tile))
            }
            _ => None,
        }
    }

    /// Floating-point operations at these sizes, for compute-bound templates.
    pub fn flops(&self, shape: &[u64]) -> Option<u64> {
        Some((self.flops)(shape)).filter(|flops| *flops > 0)
    }
}

impl KernelSelector {
    /// The file, if it is CUDA C++.
    pub fn cuda_file(&self) -> Option<&Path> {
        self.from.file.as_deref().filter(|file| cuda::is_cuda(file))
    }

    /// The file, if it is in Python syntax.
    pub fn python_file(&self) -> Option<&Path> {
        self.from.file.as_deref().filter(|file| python::is_python(file))
    }

    /// Prints the kernel in the style of Warp's generated code.
    pub fn warp_text(&self) -> Result<String, Failure> {
        match self.python_file() {
            Some(file) => python::warp_text(&self.launch, file, self.kernel.as_deref()),
            None => Err("--target cuda-warp requires a Python-syntax file (.py)".into()),
        }
    }

    /// The kernel name and the launch options.
    pub fn kernel_and_launch(&self) -> (Option<&str>, &LaunchOptions) {
        (self.kernel.as_deref(), &self.launch)
    }

    /// The kernel with its arguments; generated inputs where none are specified.
    pub fn job(&self) -> Result<Job, Failure> {
        if let Some(file) = self.cuda_file() {
            return self.launch.job(file, self.kernel.as_deref());
        }
        if let Some(file) = self.python_file() {
            return python::job(&self.launch, file, self.kernel.as_deref());
        }
        let (kernel, launch) = (self.ir_kernel()?, self.launch.loaded()?);
        let bound = bind(&kernel, &ir_params(&kernel), launch.args(), launch.seed(), DefaultArgs::Generated)?;
        Ok(Job::new(kernel, bound, None))
    }

    /// Adds the settings of a launch file for options that are not set.
    pub fn add_missing(&mut self, file: LaunchFile) -> Result<(), String> {
        if self.from.file.is_none() && file.kernel.is_some() {
            return Err("kernel selects a kernel of a file; remove it".into());
        }
        self.kernel = self.kernel.take().or(file.kernel.clone());
        self.launch.add_missing(&file)
    }

    /// The kernel to emit.
    pub fn emit_source(&self) -> Result<EmitSource, Failure> {
        if let Some(file) = self.cuda_file() {
            let (kernel, comment) = self.launch.kernel(file, self.kernel.as_deref())?;
            return Ok(EmitSource { kernel, comment, may_alias: true });
        }
        Ok(EmitSource { kernel: self.kernel()?, comment: String::new(), may_alias: self.python_file().is_some() })
    }

    /// The kernel of a source that is not CUDA C++.
    fn kernel(&self) -> Result<Kernel, Failure> {
        if let Some(file) = self.python_file() {
            return python::kernel(&self.launch, file, self.kernel.as_deref());
        }
        if !self.launch.args().is_empty() {
            return Err("--arg requires a CUDA C++ or Python-syntax file, or 'kernel run'".into());
        }
        self.ir_kernel()
    }

    /// The kernel of an IR file, a template or an expression.
    fn ir_kernel(&self) -> Result<Kernel, Failure> {
        if self.launch.sets_launch() {
            return Err("--grid, --block, --dim and --shared require a CUDA C++ or Python-syntax file".into());
        }
        if let Some(text) = &self.from.expr {
            return Ok(elementwise("elementwise", text, self.dtype, self.count)?);
        }
        if let Some(name) = &self.from.template {
            let shape = self.shape.as_ref().map(|shape| &shape.0[..]);
            return KernelTemplate::find(name)?.kernel(self.dtype, shape, self.tile);
        }
        let Some(file) = &self.from.file else { return Err("specify a file, --template or --expr".into()) };
        let mut kernels = Vec::new();
        for (_, kernel) in read(file)? {
            kernels.push(kernel?);
        }
        let names: Vec<String> = kernels.iter().map(|kernel| kernel.name.clone()).collect();
        let names = names.join(", ");
        match &self.kernel {
            Some(name) => (kernels.into_iter().find(|kernel| kernel.name == *name))
                .ok_or_else(|| format!("{} has no kernel '{name}'; it has {names}", file.display()).into()),
            None if kernels.len() > 1 => {
                Err(format!("{} has several kernels; choose one with --kernel: {names}", file.display()).into())
            }
            None => kernels.pop().ok_or_else(|| format!("{} has no kernel", file.display()).into()),
        }
    }
}

/// First line of a kernel in a file, and the kernel or its parse error.
pub type ParsedKernel = (usize, Result<Kernel, Failure>);

/// Parses the kernels of an IR file; each begins with a line `bornite-ir VERSION`.
pub fn read(file: &Path) -> Result<Vec<ParsedKernel>, Failure> {
    let text = text_file::read(file, MAX_SOURCE_BYTES)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut starts: Vec<usize> =
        (0..lines.len()).filter(|&n| lines[n].trim_start().starts_with("bornite-ir")).collect();
    if starts.is_empty() || lines[..starts[0]].iter().any(|line| !line.trim().is_empty()) {
        starts.insert(0, 0); // the parser reports the error
    }
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([lines.len()]);
    Ok((starts.iter().zip(ends))
        .map(|(&start, end)| {
            let part = lines[start..end].join("\n");
            let kernel = part.parse::<Kernel>().map_err(|mut error| {
                error.line += start;
                format!("{}: {error}", file.display()).into()
            });
            (start + 1, kernel)
        })
        .collect())
}
