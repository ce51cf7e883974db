//! Where a kernel comes from: a file in the text form, a template, or an expression.

use std::path::{Path, PathBuf};

use bornite::ir::templates::{self, Built};
use bornite::ir::{Kernel, Scalar, elementwise};
use clap::Args;

use crate::Failure;

/// Where a kernel comes from.
#[derive(Args)]
pub struct Source {
    #[command(flatten)]
    from: From,
    /// The kernel of that name, where a file has several
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
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct From {
    /// A file in the text form
    #[arg(value_name = "FILE.bir")]
    file: Option<PathBuf>,
    /// A template, at a small size; see `bornite kernel list`
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// An elementwise kernel of an expression, such as "gelu(x) * y"
    #[arg(long, value_name = "TEXT")]
    expr: Option<String>,
}

fn dtype(text: &str) -> Result<Scalar, String> {
    Scalar::ALL.into_iter().find(|scalar| scalar.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Scalar::ALL.iter().map(|scalar| scalar.name()).collect();
        format!("the types are {}", names.join(", "))
    })
}

/// A template at a size that is quick to run.
pub struct Template {
    pub name: &'static str,
    pub doc: &'static str,
    /// Tile side or block size unless one is asked for; 0 where there is none.
    tile: u32,
    build: fn(Scalar, u32) -> Built,
}

/// All templates.
pub const TEMPLATES: [Template; 13] = [
    template("fill", "out[i] = value", 0, |s, _| templates::fill(s, 1000, 1.0)),
    template("axpy", "out[i] = a · x[i] + y[i]", 0, |s, _| templates::axpy(s, 1000, 2.0)),
    template("block_sum", "sums of blocks, in shared memory; twice, it sums anything", 128, |s, t| {
        templates::block_sum(s, 1000, t)
    }),
    template("warp_sum", "sums of warps, by shuffles", 0, |s, _| templates::warp_sum(s, 320)),
    template("transpose", "a transposed matrix, through padded tiles of 32", 0, |s, _| templates::transpose(s, 45, 70)),
    template("matmul", "a matrix product, through tiles", 8, |s, t| templates::matmul(s, 19, 37, 23, t as u64)),
    template("histogram", "counts, by atomics in shared memory", 64, |_, t| templates::histogram(1000, 37, t)),
    template("block_scan", "running sums of blocks", 64, |s, t| templates::block_scan(s, 1000, t)),
    template("stencil", "the mean of four neighbours", 0, |s, _| templates::stencil(s, 17, 40)),
    template("softmax", "softmax of rows, a block a row", 64, |s, t| templates::softmax(s, 4, 100, t)),
    template("layer_norm", "layer norm of rows, a block a row", 64, |s, t| templates::layer_norm(s, 4, 100, t, 1e-5)),
    template("conv2d", "a convolution, one instance an element", 0, |s, _| templates::conv2d(s, 3, 9, 11, 4, 3)),
    template("elementwise", "gelu(x) · y; --expr gives any other", 0, |s, _| {
        elementwise("elementwise", "gelu(x) * y", s, 1000)
            .map_err(|e| bornite::ir::VerifyError { kernel: "elementwise".into(), what: e.to_string() })
    }),
];

const fn template(name: &'static str, doc: &'static str, tile: u32, build: fn(Scalar, u32) -> Built) -> Template {
    Template { name, doc, tile, build }
}

impl Source {
    pub fn kernel(&self) -> Result<Kernel, Failure> {
        if let Some(text) = &self.from.expr {
            return Ok(elementwise("elementwise", text, self.dtype, self.count)?);
        }
        if let Some(name) = &self.from.template {
            let Some(template) = TEMPLATES.iter().find(|template| template.name == name) else {
                let names: Vec<&str> = TEMPLATES.iter().map(|template| template.name).collect();
                return Err(format!("there is no template '{name}'; there are {}", names.join(", ")).into());
            };
            if template.tile == 0 && self.tile.is_some() {
                return Err(format!("the template '{name}' has no tile to set").into());
            }
            return Ok((template.build)(self.dtype, self.tile.unwrap_or(template.tile))?);
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
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
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
