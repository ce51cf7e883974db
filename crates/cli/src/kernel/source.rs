//! Where a kernel comes from: a file in the text form, in CUDA C++ or Python syntax, a template, or an expression.

use std::path::{Path, PathBuf};

use bornite::ir::templates::{self, Built};
use bornite::ir::{Kernel, Scalar, Value, VerifyError, elementwise};
use clap::Args;

use super::cuda::{self, Launch, Origin};
use super::{python, run};
use crate::Failure;
use crate::text_file::{self, MAX_SOURCE_BYTES};

/// A kernel with all that it is called with.
pub struct Job {
    pub kernel: Kernel,
    pub values: Vec<Vec<Value>>,
    pub memory: Vec<Vec<u64>>,
    /// Where it came from, if that has lines of its own.
    pub origin: Option<Origin>,
}

/// A kernel to be written as text.
pub struct Emitted {
    pub kernel: Kernel,
    /// Comment that precedes the emitted text.
    pub comment: String,
    /// Whether its source leaves open that arrays overlap.
    pub may_alias: bool,
}

/// Where a kernel comes from.
#[derive(Args)]
pub struct Source {
    #[command(flatten)]
    from: From,
    #[command(flatten)]
    launch: Launch,
    /// The kernel of that name, where a file has several; of a template, with its arguments: "scale<float, 4>"
    #[arg(long, value_name = "NAME", conflicts_with_all = ["template", "expr"])]
    kernel: Option<String>,
    /// Element type of a template or expression
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = dtype)]
    dtype: Scalar,
    /// Side of a template's tile, or threads of its blocks
    #[arg(long, value_name = "N")]
    tile: Option<u32>,
    /// Elements of an expression
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u64,
    /// Sizes of a template, such as 1024x512; small ones otherwise
    #[arg(long, value_name = "SIZES", value_parser = shape, requires = "template")]
    shape: Option<Shape>,
}

/// Sizes, as `1024x512`.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape(pub Vec<u64>);

pub fn shape(text: &str) -> Result<Shape, String> {
    let sizes: Option<Vec<u64>> = text.split('x').map(|size| size.parse().ok().filter(|size| *size > 0)).collect();
    sizes.map(Shape).ok_or_else(|| "write sizes with an x between them, such as 1024x512".into())
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct From {
    /// A file in the text form (.bir), in CUDA C++ (.cu) or in Python syntax (.py)
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// A template, at a small size; see `bornite kernel list`
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// An elementwise kernel of an expression, such as "gelu(x) * y"
    #[arg(long, value_name = "TEXT")]
    expr: Option<String>,
}

pub fn dtype(text: &str) -> Result<Scalar, String> {
    Scalar::ALL.into_iter().find(|scalar| scalar.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Scalar::ALL.iter().map(|scalar| scalar.name()).collect();
        format!("the types are {}", names.join(", "))
    })
}

/// A template.
pub struct Template {
    pub name: &'static str,
    pub doc: &'static str,
    /// What its sizes are.
    pub axes: &'static str,
    /// Sizes that are quick to run.
    pub small: &'static [u64],
    /// Tile side or block size unless one is asked for; 0 where there is none.
    pub tile: u32,
    build: fn(Scalar, &[u64], u32) -> Built,
    flops: fn(&[u64]) -> u64,
}

/// All templates.
pub const TEMPLATES: [Template; 14] = [
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
        "sums of blocks, in shared memory; twice, it sums anything",
        "n",
        &[1000],
        128,
        |s, n, t| templates::block_sum(s, n[0], t),
        |n| n[0],
    ),
    template(
        "warp_sum",
        "sums of warps, by shuffles",
        "n",
        &[320],
        0,
        |s, n, _| templates::warp_sum(s, n[0]),
        |n| n[0],
    ),
    template(
        "transpose",
        "a transposed matrix, through padded tiles of 32",
        "rows x columns",
        &[45, 70],
        0,
        |s, n, _| templates::transpose(s, n[0], n[1]),
        |_| 0,
    ),
    template(
        "matmul",
        "a matrix product, through tiles",
        "m x k x n",
        &[19, 37, 23],
        8,
        |s, n, t| templates::matmul(s, n[0], n[1], n[2], t as u64),
        |n| 2 * n[0] * n[1] * n[2],
    ),
    template(
        "histogram",
        "counts, by atomics in shared memory",
        "n x bins",
        &[1000, 37],
        64,
        |_, n, t| templates::histogram(n[0], n[1], t),
        |_| 0,
    ),
    template(
        "block_scan",
        "running sums of blocks",
        "n",
        &[1000],
        64,
        |s, n, t| templates::block_scan(s, n[0], t),
        |n| n[0],
    ),
    template(
        "stencil",
        "the mean of four neighbours",
        "rows x columns",
        &[17, 40],
        0,
        |s, n, _| templates::stencil(s, n[0], n[1]),
        |n| 4 * n[0] * n[1],
    ),
    template(
        "softmax",
        "softmax of rows, a block a row",
        "rows x columns",
        &[4, 100],
        64,
        |s, n, t| templates::softmax(s, n[0], n[1], t),
        |_| 0,
    ),
    template(
        "layer_norm",
        "layer norm of rows, a block a row",
        "rows x columns",
        &[4, 100],
        64,
        |s, n, t| templates::layer_norm(s, n[0], n[1], t, 1e-5),
        |_| 0,
    ),
    template(
        "conv2d",
        "a convolution, one instance an element",
        "channels x height x width x filters x size",
        &[3, 9, 11, 4, 3],
        0,
        |s, n, _| templates::conv2d(s, n[0], n[1], n[2], n[3], n[4]),
        |n| 2 * n[0] * n[1].saturating_sub(n[4] - 1) * n[2].saturating_sub(n[4] - 1) * n[3] * n[4] * n[4],
    ),
    template(
        "particles",
        "falling, bouncing particles: structs, vectors, a function",
        "",
        &[],
        0,
        |_, _, _| templates::particles(),
        |_| 0,
    ),
    template(
        "elementwise",
        "gelu(x) · y; --expr gives any other",
        "n",
        &[1000],
        0,
        |s, n, _| {
            elementwise("elementwise", "gelu(x) * y", s, n[0])
                .map_err(|e| VerifyError { kernel: "elementwise".into(), what: e.to_string() })
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
    build: fn(Scalar, &[u64], u32) -> Built,
    flops: fn(&[u64]) -> u64,
) -> Template {
    Template { name, doc, axes, small, tile, build, flops }
}

impl Template {
    /// The template of that name.
    pub fn named(name: &str) -> Result<&'static Template, Failure> {
        TEMPLATES.iter().find(|template| template.name == name).ok_or_else(|| {
            let names: Vec<&str> = TEMPLATES.iter().map(|template| template.name).collect();
            format!("there is no template '{name}'; there are {}", names.join(", ")).into()
        })
    }

    /// The kernel for these sizes and tile, or for small and usual ones.
    pub fn kernel(&self, dtype: Scalar, shape: Option<&[u64]>, tile: Option<u32>) -> Result<Kernel, Failure> {
        let name = self.name;
        if self.tile == 0 && tile.is_some() {
            return Err(format!("the template '{name}' has no tile to set").into());
        }
        if let Some(tile) = tile
            && !(1..=1024).contains(&tile)
        {
            return Err(format!("a tile of {tile} is not one of 1 to 1024").into());
        }
        let shape = shape.unwrap_or(self.small);
        if shape.len() != self.small.len() {
            let small: Vec<String> = self.small.iter().map(u64::to_string).collect();
            let small = small.join("x");
            return Err(format!("the sizes of '{name}' are {}, such as --shape {small}", self.axes).into());
        }
        let tile = tile.unwrap_or(self.tile);
        match self.unfit(shape, tile) {
            Some(reason) => Err(format!("the template '{name}' cannot be made: {reason}").into()),
            None => Ok((self.build)(dtype, shape, tile)?),
        }
    }

    /// What these templates take for granted: with it, they index within their views.
    fn unfit(&self, shape: &[u64], tile: u32) -> Option<String> {
        // The largest view: of a product, each pair of its sizes.
        let view = |sizes: &[u64]| sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
        let largest = match (self.name, shape) {
            ("matmul", &[m, k, n]) => [[m, k], [k, n], [m, n]].iter().filter_map(|pair| view(pair)).max(),
            _ => view(shape),
        };
        if largest.is_none_or(|n| n > i32::MAX as u64) {
            return Some("a view has more elements than 32-bit indices reach".into());
        }
        match self.name {
            "warp_sum" if !shape[0].is_multiple_of(32) => Some(format!("n is {}, not a multiple of 32", shape[0])),
            "histogram" if shape[1] < 7 => Some("it needs at least 7 bins".into()),
            "conv2d" if shape[4] > shape[1].min(shape[2]) => Some("the filter is larger than the image".into()),
            "matmul" if tile > 32 => Some(format!("a tile of {tile} needs {} threads; 32 is the most", tile * tile)),
            _ => None,
        }
    }

    /// Floating-point operations at these sizes, where they are what counts.
    pub fn flops(&self, shape: &[u64]) -> Option<u64> {
        Some((self.flops)(shape)).filter(|flops| *flops > 0)
    }
}

impl Source {
    /// The file, if it is one in CUDA C++.
    pub fn cuda_file(&self) -> Option<&Path> {
        self.from.file.as_deref().filter(|file| cuda::is_cuda(file))
    }

    /// The file, if it is one in Python syntax.
    pub fn python_file(&self) -> Option<&Path> {
        self.from.file.as_deref().filter(|file| python::is_python(file))
    }

    /// The kernel in the style of Warp's generated code.
    pub fn warp_text(&self) -> Result<String, Failure> {
        match self.python_file() {
            Some(file) => python::warp_text(&self.launch, file, self.kernel.as_deref()),
            None => Err("this is for files in Python syntax".into()),
        }
    }

    /// The kernel's name, and how it is launched.
    pub fn named(&self) -> (Option<&str>, &Launch) {
        (self.kernel.as_deref(), &self.launch)
    }

    /// The kernel with what it is called with: made-up numbers where nothing is said.
    pub fn job(&self) -> Result<Job, Failure> {
        if let Some(file) = self.cuda_file() {
            return self.launch.job(file, self.kernel.as_deref());
        }
        if let Some(file) = self.python_file() {
            return python::job(&self.launch, file, self.kernel.as_deref());
        }
        let kernel = self.kernel()?;
        let values = run::values(&kernel);
        let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
        let memory = run::memory(&kernel, &firsts)?;
        Ok(Job { kernel, values, memory, origin: None })
    }

    /// The kernel as it is to be written.
    pub fn emitted(&self) -> Result<Emitted, Failure> {
        if let Some(file) = self.cuda_file() {
            let (kernel, comment) = self.launch.kernel(file, self.kernel.as_deref())?;
            return Ok(Emitted { kernel, comment, may_alias: true });
        }
        Ok(Emitted { kernel: self.kernel()?, comment: String::new(), may_alias: self.python_file().is_some() })
    }

    /// The kernel of what is no file in CUDA C++.
    fn kernel(&self) -> Result<Kernel, Failure> {
        if let Some(file) = self.python_file() {
            return python::kernel(&self.launch, file, self.kernel.as_deref());
        }
        if self.launch.is_given() {
            return Err("--grid, --block, --dim, --shared and --arg are for files in CUDA C++ or Python syntax".into());
        }
        if let Some(text) = &self.from.expr {
            return Ok(elementwise("elementwise", text, self.dtype, self.count)?);
        }
        if let Some(name) = &self.from.template {
            let shape = self.shape.as_ref().map(|shape| &shape.0[..]);
            return Template::named(name)?.kernel(self.dtype, shape, self.tile);
        }
        let Some(file) = &self.from.file else { return Err("name a file, a template or an expression".into()) };
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
                Err(format!("{} has several kernels: choose one with --kernel: {names}", file.display()).into())
            }
            None => kernels.pop().ok_or_else(|| format!("{} has no kernel", file.display()).into()),
        }
    }
}

/// A kernel of a file, and the line it begins in; or why it is none.
pub type Found = (usize, Result<Kernel, Failure>);

/// The kernels of a file; each begins with a line `bornite-ir VERSION`.
pub fn read(file: &Path) -> Result<Vec<Found>, Failure> {
    let text = text_file::read(file, MAX_SOURCE_BYTES)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut starts: Vec<usize> =
        (0..lines.len()).filter(|&n| lines[n].trim_start().starts_with("bornite-ir")).collect();
    if starts.is_empty() || lines[..starts[0]].iter().any(|line| !line.trim().is_empty()) {
        starts.insert(0, 0); // let the parser say what is wrong
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
