//! Extra columns of a dataset, selected with `--with`: texts derived from a row's other texts or
//! from the installed compiler. They are excluded from the dataset's hash.

use bornite_lang::Request;
use bornite_lang::python::Module;

use crate::Row;
use crate::task::MARK;
use crate::verify::code::{Code, Wanted};

/// An extra column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extra {
    /// PTX of the kernel.
    Ptx,
    /// SASS of the kernel.
    Sass,
    /// CUDA C++ of the source in the style of Warp's generated code.
    CudaWarp,
    /// Training text: source, separator and CUDA text.
    Text,
}

impl Extra {
    /// All extra columns, in column order.
    pub const ALL: [Extra; 4] = [Extra::Ptx, Extra::Sass, Extra::CudaWarp, Extra::Text];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Extra::Ptx => "ptx",
            Extra::Sass => "sass",
            Extra::CudaWarp => "cuda-warp",
            Extra::Text => "text",
        }
    }

    /// Column name.
    pub fn column(self) -> &'static str {
        match self {
            Extra::Ptx => "ptx",
            Extra::Sass => "sass",
            Extra::CudaWarp => "cuda_warp",
            Extra::Text => "text",
        }
    }

    /// Compiler outputs that these columns need.
    pub(super) fn emit_options(all: &[Extra]) -> Wanted {
        Wanted { ptx: all.contains(&Extra::Ptx), sass: all.contains(&Extra::Sass) }
    }

    /// Text of the column for a row; empty if there is none.
    pub(super) fn text(self, row: &Row, code: &Code) -> String {
        match self {
            Extra::Ptx => code.ptx.clone(),
            Extra::Sass => code.sass.clone(),
            Extra::CudaWarp => warp_style(row).unwrap_or_default(),
            Extra::Text => format!("{}{MARK}{}", row.source, row.cuda),
        }
    }

    /// Description of the structure check of a pair's column.
    pub(super) fn check_description(self) -> &'static str {
        match self {
            Extra::Ptx => "the PTX is of this kernel",
            Extra::Sass => "the SASS is of this kernel",
            Extra::CudaWarp => "the Warp-style CUDA text is of this kernel",
            Extra::Text => "the training text has a separator between source and CUDA text",
        }
    }

    /// True if a text could be this kernel's, judged without a compiler.
    pub(super) fn is_plausible(self, text: &str, kernel: &str) -> bool {
        match self {
            Extra::Ptx => text.starts_with(".version") && text.contains(&format!(".visible .entry {kernel}(")),
            Extra::Sass => text.contains(kernel) && text.contains("EXIT"),
            Extra::CudaWarp => text.contains(&format!("__global__ void {kernel}_cuda_kernel_forward(")),
            Extra::Text => text.contains(MARK),
        }
    }
}

/// Source of a row in the style of Warp's generated code, for arrays of any shape.
fn warp_style(row: &Row) -> Option<String> {
    let module = Module::parse("kernel.py", &row.source).ok()?;
    let lowered = module.kernel(&row.name, &Request::over(&[])).ok()?;
    let source =
        bornite_codegen::WarpSource { kernel: &lowered.kernel, params: &lowered.params, lines: &lowered.lines };
    Some(bornite_codegen::warp_style(&source, &|line| module.line(line).to_owned()))
}
