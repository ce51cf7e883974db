//! `bornite kernel emit`: a kernel as text for people, compilers and GPUs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use bornite::ir::Kernel;
use bornite_codegen::cpp;
use bornite_codegen::cuda::{self, Spelling};
use clap::ValueEnum;

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
    kernel: &Kernel,
    target: Target,
    native: bool,
    arch: &str,
    out: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let spelling = if native { Spelling::Native } else { Spelling::Exact };
    let source = || cuda::print_as(kernel, spelling);
    let bytes = match target {
        Target::Ir => kernel.to_string().into_bytes(),
        Target::Cuda => source().into_bytes(),
        Target::CudaWarp => return Err("cuda-warp is for kernels of files in Python syntax".into()),
        Target::Cpp => cpp::print(kernel)?.into_bytes(),
        Target::Ptx => bornite_cuda::compile_ptx(&kernel.name, &source(), arch)?.into_bytes(),
        Target::Cubin => bornite_cuda::compile(&kernel.name, &source(), arch)?.0,
        Target::Sass => disassembled(&bornite_cuda::compile(&kernel.name, &source(), arch)?.0)?,
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

/// What `nvdisasm` or `cuobjdump` makes of machine code.
fn disassembled(cubin: &[u8]) -> Result<Vec<u8>, Failure> {
    let (program, flags): (PathBuf, &[&str]) = match (found("nvdisasm"), found("cuobjdump")) {
        (Some(program), _) => (program, &["--print-code"]),
        (None, Some(program)) => (program, &["--dump-sass"]),
        (None, None) => {
            let what =
                "no disassembler: put 'nvdisasm' or 'cuobjdump' of the CUDA toolkit on PATH, or emit ptx instead";
            return Err(what.into());
        }
    };
    let file = std::env::temp_dir().join(format!("bornite-{}.cubin", std::process::id()));
    std::fs::write(&file, cubin).map_err(|e| format!("{}: {e}", file.display()))?;
    let output = Command::new(&program).args(flags).arg(&file).output();
    let _ = std::fs::remove_file(&file);
    let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed: {}", program.display(), words.trim()).into());
    }
    Ok(output.stdout)
}

/// A program on PATH, or where the CUDA toolkit usually is.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = PathBuf::from("/usr/local/cuda/bin");
    std::env::split_paths(&path).chain([usual]).map(|folder| folder.join(name)).find(|file| file.is_file())
}
