//! Extra columns of a dataset, selected with `--with`: texts derived from a row's other texts or
//! from the installed compiler. They are excluded from the dataset's hash.

use bornite_lang::LaunchRequest;
use bornite_lang::python::PythonModule;

use crate::Row;
use crate::task::SEPARATOR;
use crate::verify::code::{CompiledCode, EmitOptions};

/// An extra column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ExtraColumn {
    /// PTX of the kernel.
    Ptx,
    /// SASS of the kernel.
    Sass,
    /// CUDA C++ of the source in the style of Warp's generated code.
    CudaWarp,
    /// Training text: source, separator and CUDA text.
    Text,
}

impl ExtraColumn {
    /// All extra columns, in column order.
    pub const ALL: [ExtraColumn; 4] = [ExtraColumn::Ptx, ExtraColumn::Sass, ExtraColumn::CudaWarp, ExtraColumn::Text];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExtraColumn::Ptx => "ptx",
            ExtraColumn::Sass => "sass",
            ExtraColumn::CudaWarp => "cuda-warp",
            ExtraColumn::Text => "text",
        }
    }

    /// Column name.
    pub fn column(self) -> &'static str {
        match self {
            ExtraColumn::Ptx => "ptx",
            ExtraColumn::Sass => "sass",
            ExtraColumn::CudaWarp => "cuda_warp",
            ExtraColumn::Text => "text",
        }
    }

    /// Compiler outputs that these columns need.
    pub(super) fn emit_options(all: &[ExtraColumn]) -> EmitOptions {
        EmitOptions { ptx: all.contains(&ExtraColumn::Ptx), sass: all.contains(&ExtraColumn::Sass) }
    }

    /// Text of the column for a row; empty if there is none.
    pub(super) fn text(self, row: &Row, code: &CompiledCode) -> String {
        match self {
            ExtraColumn::Ptx => code.ptx.clone(),
            ExtraColumn::Sass => code.sass.clone(),
            ExtraColumn::CudaWarp => warp_style(row).unwrap_or_default(),
            ExtraColumn::Text => format!("{}{SEPARATOR}{}", row.source, row.cuda),
        }
    }

    /// Description of the structure check of a pair's column.
    pub(super) fn check_description(self) -> &'static str {
        match self {
            ExtraColumn::Ptx => "the PTX is of this kernel",
            ExtraColumn::Sass => "the SASS is of this kernel",
            ExtraColumn::CudaWarp => "the Warp-style CUDA text is of this kernel",
            ExtraColumn::Text => "the training text has a separator between source and CUDA text",
        }
    }

    /// True if a text could be this kernel's, judged without a compiler.
    pub(super) fn is_plausible(self, text: &str, kernel: &str) -> bool {
        match self {
            ExtraColumn::Ptx => text.starts_with(".version") && text.contains(&format!(".visible .entry {kernel}(")),
            ExtraColumn::Sass => text.contains(kernel) && text.contains("EXIT"),
            ExtraColumn::CudaWarp => text.contains(&format!("__global__ void {kernel}_cuda_kernel_forward(")),
            ExtraColumn::Text => text.contains(SEPARATOR),
        }
    }
}

/// Source of a row in the style of Warp's generated code, for arrays of any shape.
fn warp_style(row: &Row) -> Option<String> {
    let module = PythonModule::parse("kernel.py", &row.source).ok()?;
    let lowered = module.kernel(&row.name, &LaunchRequest::with_dims(&[])).ok()?;
    let source =
        bornite_codegen::WarpSource { kernel: &lowered.kernel, params: &lowered.params, lines: &lowered.lines };
    Some(bornite_codegen::warp_style(&source, &|line| module.line(line).to_owned()))
}
