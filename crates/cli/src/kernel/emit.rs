//! `bornite kernel emit`: prints a kernel as source text or machine code.

use std::path::Path;
use std::process::ExitCode;

use bornite_codegen::cpp;
use bornite_codegen::cuda::{self, MathMode};
use bornite_cuda::Disassembler;
use clap::ValueEnum;

use super::source::EmitSource;
use crate::{Failure, print};

/// Output format.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EmitTarget {
    /// IR text, which can be parsed again
    Ir,
    /// CUDA C++
    Cuda,
    /// CUDA C++ in the style of NVIDIA Warp's generated code (Python-syntax files)
    CudaWarp,
    /// C++ for the CPU, as a loop
    Cpp,
    /// PTX assembly, by NVRTC
    Ptx,
    /// SASS, by NVRTC and a disassembler
    Sass,
    /// GPU machine code, by NVRTC
    Cubin,
}

impl EmitTarget {
    /// Returns true if CUDA C++ files are emitted from their own text, valid for every launch.
    pub fn keeps_source(self) -> bool {
        matches!(self, EmitTarget::Cuda | EmitTarget::Ptx | EmitTarget::Sass | EmitTarget::Cubin)
    }
}

pub fn emit(
    emitted: &EmitSource,
    target: EmitTarget,
    native: bool,
    arch: &str,
    out: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let math_mode = if native { MathMode::Native } else { MathMode::Exact };
    let EmitSource { kernel, comment, may_alias } = emitted;
    let source = || match may_alias {
        true => cuda::print_aliased(kernel, math_mode),
        false => cuda::print_with(kernel, math_mode),
    };
    let commented = |text: String| (comment.clone() + &text).into_bytes();
    let bytes = match target {
        // IR text has no comments; it begins with the launch.
        EmitTarget::Ir => kernel.to_string().into_bytes(),
        EmitTarget::Cuda => commented(source()),
        EmitTarget::CudaWarp => return Err("--target cuda-warp requires a Python-syntax file (.py)".into()),
        EmitTarget::Cpp => commented(if *may_alias { cpp::print_aliased(kernel)? } else { cpp::print(kernel)? }),
        EmitTarget::Ptx => commented(bornite_cuda::compile_ptx(&kernel.name, &source(), arch)?),
        EmitTarget::Cubin => bornite_cuda::compile(&kernel.name, &source(), arch)?.into_bytes(),
        EmitTarget::Sass => {
            let code = bornite_cuda::compile(&kernel.name, &source(), arch)?;
            commented(Disassembler::find()?.text(&code)?)
        }
    };
    write_output(&bytes, target, out)
}

/// Writes the output to a file or to stdout.
pub fn write_output(bytes: &[u8], target: EmitTarget, out: Option<&Path>) -> Result<ExitCode, Failure> {
    match out {
        Some(path) => std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))?,
        None if target == EmitTarget::Cubin => {
            return Err("a cubin is not text; write it to a file with --out FILE".into());
        }
        None => print(&String::from_utf8_lossy(bytes))?,
    }
    Ok(ExitCode::SUCCESS)
}
