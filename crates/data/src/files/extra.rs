//! Columns that a dataset has on request: texts that follow from others of their row, and from the compiler at hand. They are no
//! part of the dataset's hash.

use bornite_lang::Request;
use bornite_lang::python::Module;

use crate::Row;
use crate::task::MARK;
use crate::verify::code::{Code, Wanted};

/// A column on request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extra {
    /// PTX of the kernel alone.
    Ptx,
    /// SASS of the kernel alone.
    Sass,
    /// The source in the style of Warp's generated code.
    CudaWarp,
    /// Source, mark and CUDA text in one, for a model to learn from.
    Text,
}

impl Extra {
    /// All of them, in the order of columns.
    pub const ALL: [Extra; 4] = [Extra::Ptx, Extra::Sass, Extra::CudaWarp, Extra::Text];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Extra::Ptx => "ptx",
            Extra::Sass => "sass",
            Extra::CudaWarp => "cuda-warp",
            Extra::Text => "text",
        }
    }

    /// The name of the column.
    pub fn column(self) -> &'static str {
        match self {
            Extra::Ptx => "ptx",
            Extra::Sass => "sass",
            Extra::CudaWarp => "cuda_warp",
            Extra::Text => "text",
        }
    }

    /// What it takes of a compiler.
    pub(super) fn wanted(all: &[Extra]) -> Wanted {
        Wanted { ptx: all.contains(&Extra::Ptx), sass: all.contains(&Extra::Sass) }
    }

    /// The text of a row; empty where there is none.
    pub(super) fn text(self, row: &Row, code: &Code) -> String {
        match self {
            Extra::Ptx => code.ptx.clone(),
            Extra::Sass => code.sass.clone(),
            Extra::CudaWarp => warp_style(row).unwrap_or_default(),
            Extra::Text => format!("{}{MARK}{}", row.source, row.cuda),
        }
    }

    /// What is checked of the text of a pair.
    pub(super) fn of_the_kernel(self) -> &'static str {
        match self {
            Extra::Ptx => "its PTX is that of the kernel",
            Extra::Sass => "its SASS is that of the kernel",
            Extra::CudaWarp => "its text in the style of Warp is that of the kernel",
            Extra::Text => "its text to learn from has a mark between source and CUDA text",
        }
    }

    /// Whether a text can be that of a kernel, as far as one sees without a compiler.
    pub(super) fn plausible(self, text: &str, kernel: &str) -> bool {
        match self {
            Extra::Ptx => text.starts_with(".version") && text.contains(&format!(".visible .entry {kernel}(")),
            Extra::Sass => text.contains(kernel) && text.contains("EXIT"),
            Extra::CudaWarp => text.contains(&format!("__global__ void {kernel}_cuda_kernel_forward(")),
            Extra::Text => text.contains(MARK),
        }
    }
}

/// The source of a row in the style of Warp's generated code, for arrays of any shape.
fn warp_style(row: &Row) -> Option<String> {
    let module = Module::parse("kernel.py", &row.source).ok()?;
    let lowered = module.kernel(&row.name, &Request::over(&[])).ok()?;
    let source =
        bornite_codegen::WarpSource { kernel: &lowered.kernel, params: &lowered.params, lines: &lowered.lines };
    Some(bornite_codegen::warp_style(&source, &|line| module.line(line).to_owned()))
}
