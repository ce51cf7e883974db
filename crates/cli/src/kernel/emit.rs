//! `bornite kernel emit`: a kernel as text for people, compilers and GPUs.

use std::path::Path;
use std::process::ExitCode;

use bornite_codegen::cpp;
use bornite_codegen::cuda::{self, Spelling};
use bornite_cuda::Disassembler;
use clap::ValueEnum;

use super::source::Emitted;
use crate::{Failure, print};

/// What a kernel is written as.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// The text form, which can be read back
    Ir,
    /// CUDA C++
    Cuda,
    /// CUDA C++ in the style of NVIDIA Warp's generated code; of files in Python syntax
    CudaWarp,
    /// C++ for a CPU, as a loop
    Cpp,
    /// Assembly for GPUs of a generation, by NVRTC
    Ptx,
    /// The GPU's own instructions, by NVRTC and a disassembler
    Sass,
    /// GPU machine code, by NVRTC
    Cubin,
}

pub fn emit(
    emitted: &Emitted,
    target: Target,
    native: bool,
    arch: &str,
    out: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let spelling = if native { Spelling::Native } else { Spelling::Exact };
    let Emitted { kernel, comment, may_alias } = emitted;
    let source = || match may_alias {
        true => cuda::print_aliased(kernel, spelling),
        false => cuda::print_as(kernel, spelling),
    };
    let commented = |text: String| (comment.clone() + &text).into_bytes();
    let bytes = match target {
        // It begins with the launch, and has no comments.
        Target::Ir => kernel.to_string().into_bytes(),
        Target::Cuda => commented(source()),
        Target::CudaWarp => return Err("cuda-warp is for kernels of files in Python syntax".into()),
        Target::Cpp => commented(if *may_alias { cpp::print_aliased(kernel)? } else { cpp::print(kernel)? }),
        Target::Ptx => commented(bornite_cuda::compile_ptx(&kernel.name, &source(), arch)?),
        Target::Cubin => bornite_cuda::compile(&kernel.name, &source(), arch)?.into_bytes(),
        Target::Sass => {
            let code = bornite_cuda::compile(&kernel.name, &source(), arch)?;
            commented(Disassembler::find()?.text(&code)?)
        }
    };
    written(&bytes, target, out)
}

/// Writes to a file or to stdout.
pub fn written(bytes: &[u8], target: Target, out: Option<&Path>) -> Result<ExitCode, Failure> {
    match out {
        Some(path) => std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))?,
        None if target == Target::Cubin => return Err("machine code is not text: name a file with --out".into()),
        None => print(&String::from_utf8_lossy(bytes))?,
    }
    Ok(ExitCode::SUCCESS)
}
