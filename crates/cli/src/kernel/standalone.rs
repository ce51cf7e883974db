//! `bornite kernel emit` of CUDA C++ files as CUDA C++, PTX, SASS and cubin: the text of the file's
//! kernels, valid for every launch, and what NVRTC compiles from it.

use std::path::Path;
use std::process::ExitCode;

use bornite_cuda::{Cubin, Disassembler};
use bornite_lang::cuda::CudaModule;

use super::check::CheckVerdict;
use super::cuda::{self, LaunchOptions};
use super::emit::{EmitTarget, write_output};
use crate::Failure;

/// Options of NVRTC: its defaults, which contract as nvcc does.
const OPTIONS: &[&str] = &["--std=c++17"];

/// Emits a kernel of a CUDA C++ file, or all of them.
pub fn emit(
    file: &Path,
    (kernel, launch): (Option<&str>, &LaunchOptions),
    target: EmitTarget,
    native: bool,
    arch: &str,
    out: Option<&Path>,
) -> Result<ExitCode, Failure> {
    if launch.sets_launch() || !launch.args().is_empty() || native {
        return Err("--grid, --block, --dim, --shared, --arg and --native have no effect on --target cuda, ptx, sass \
                    and cubin of a CUDA C++ file, which are valid for every launch: remove them, or specialize the \
                    kernel with --target ir and emit that file"
            .into());
    }
    let options = launch.preprocessor();
    let body =
        CudaModule::standalone(&file.to_string_lossy(), &cuda::read(file)?, Some(file), &options.options(), kernel)?;
    let text = comment(file, kernel, launch)? + &body;
    let name = file.file_stem().map_or("kernel".into(), |stem| stem.to_string_lossy());
    let bytes = match target {
        EmitTarget::Ptx => bornite_cuda::compile_ptx_with(&name, &text, arch, OPTIONS)?.into_bytes(),
        EmitTarget::Cubin => bornite_cuda::compile_with(&name, &text, arch, OPTIONS)?.into_bytes(),
        EmitTarget::Sass => {
            let code = bornite_cuda::compile_with(&name, &text, arch, OPTIONS)?;
            Disassembler::find()?.text(&code)?.into_bytes()
        }
        _ => text.into_bytes(),
    };
    write_output(&bytes, target, out)
}

/// Compiles a kernel of a CUDA C++ file, as it would be without this program.
pub fn compile(file: &Path, kernel: Option<&str>, launch: &LaunchOptions, arch: &str) -> Result<Cubin, Failure> {
    let options = launch.preprocessor().options();
    let text = CudaModule::standalone(&file.to_string_lossy(), &cuda::read(file)?, Some(file), &options, kernel)?;
    Ok(bornite_cuda::compile_with("kernel", &text, arch, OPTIONS)?)
}

/// A comment that names the source, what is fixed, and what was not checked.
fn comment(file: &Path, kernel: Option<&str>, launch: &LaunchOptions) -> Result<String, Failure> {
    let what = kernel.map_or("Kernels".to_owned(), |kernel| format!("Kernel '{kernel}'"));
    let mut lines = vec![format!(
        "{what} of {}, copied by 'bornite kernel emit' with the declarations that {}.",
        file.display(),
        if kernel.is_some() { "it needs" } else { "they need" },
    )];
    lines.push("Grid, block, shared memory and arguments are those of the launch.".into());
    if let Some((_, args)) = kernel.and_then(|kernel| kernel.split_once('<')) {
        lines.push(format!("Fixed: template arguments <{args}."));
    }
    let plain = |name: &str| name.split(['<', '(']).next().unwrap_or_default().trim().to_owned();
    for checked in cuda::check(file, launch.preprocessor(), &mut vec![])? {
        let name = checked.kernel.unwrap_or_default();
        if kernel.is_some_and(|kernel| plain(kernel) != plain(&name)) {
            continue;
        }
        match checked.outcome {
            CheckVerdict::NotInstantiated(example) if kernel.is_none_or(|kernel| !kernel.contains('<')) => {
                lines.push(format!("Not instantiated: template '{name}', for example '{example}'."));
            }
            CheckVerdict::Errors(errors) => {
                let reason = errors.diagnostics.first().map(|first| format!("{} (line {})", first.message, first.line));
                lines.push(format!("Not checked: '{name}': {}.", reason.unwrap_or_default()));
            }
            _ => {}
        }
    }
    Ok(lines.iter().map(|line| format!("// {}\n", line.replace('\n', " "))).collect())
}
