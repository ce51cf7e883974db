//! NVRTC compilation of CUDA texts: pass or fail for many at once, or PTX and SASS of each.

use bornite_cuda::{Disassembler, Error, compile_ptx_with, compile_with};
use serde::{Deserialize, Serialize};

use super::compile::{NamedSource, standalone, texts_to_ptx};
use crate::Row;

/// Target architecture of generated code.
pub const ARCH: &str = "sm_90";

/// nvcc's defaults: FMA contraction is on.
const OPTIONS: [&str; 1] = ["--std=c++17"];

/// A kernel to compile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CudaSource {
    /// Kernel name.
    pub name: String,
    /// CUDA C++.
    pub cuda: String,
}

impl From<&Row> for CudaSource {
    fn from(row: &Row) -> CudaSource {
        CudaSource { name: row.name.clone(), cuda: row.cuda.clone() }
    }
}

/// Compiler outputs to produce besides pass or fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EmitOptions {
    /// Emit PTX.
    pub ptx: bool,
    /// Emit SASS.
    pub sass: bool,
}

impl EmitOptions {
    /// True if texts must be compiled one by one.
    pub fn any(self) -> bool {
        self.ptx || self.sass
    }
}

/// Compiler outputs for one text; those not requested are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CompiledCode {
    /// PTX of the kernel.
    pub ptx: String,
    /// SASS of the kernel.
    pub sass: String,
    /// Reason why the compiler or disassembler produced no output for valid source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<CodeFailure>,
}

/// Reason why compilation or disassembly produced no output for valid source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CodeFailure {
    /// Kind of failure: `compiler_crashed`, `disassembler`, …
    pub why: String,
    /// Description of the failure.
    pub what: String,
}

/// Compiler version and target architecture, as in manifests and cards.
pub fn compiler() -> Result<String, Error> {
    let (major, minor) = bornite_cuda::nvrtc_version()?;
    Ok(format!("NVRTC {major}.{minor} for {ARCH}"))
}

/// Compiles texts in this process: the code of each, or NVRTC's log.
pub fn compile_sources(
    texts: &[CudaSource],
    emit: EmitOptions,
    arch: &str,
) -> Result<Vec<Result<CompiledCode, String>>, Error> {
    let named: Vec<NamedSource<'_>> = texts.iter().map(|text| (text.name.as_str(), text.cuda.as_str())).collect();
    if !emit.any() {
        let mut found = vec![Ok(CompiledCode::default()); texts.len()];
        texts_to_ptx(&named, arch)?.1.into_iter().for_each(|(n, log)| found[n] = Err(log));
        return Ok(found);
    }
    let disassembler = if emit.sass { Some(Disassembler::find()?) } else { None };
    named.into_iter().map(|named| compile_one(named, emit, arch, disassembler.as_ref())).collect()
}

fn compile_one(
    named: NamedSource<'_>,
    emit: EmitOptions,
    arch: &str,
    disassembler: Option<&Disassembler>,
) -> Result<Result<CompiledCode, String>, Error> {
    let program = standalone(named);
    let mut code = CompiledCode::default();
    let outcome = (|| {
        if emit.ptx {
            code.ptx = without_preamble(&compile_ptx_with(named.0, &program, arch, &OPTIONS)?);
        }
        if let Some(disassembler) = disassembler {
            match disassembler.text(&compile_with(named.0, &program, arch, &OPTIONS)?) {
                Ok(text) => code.sass = text,
                Err(why) => code.failure = Some(CodeFailure { why: "disassembler".into(), what: why.to_string() }),
            }
        }
        Ok(())
    })();
    match outcome {
        Ok(()) => Ok(Ok(code)),
        Err(Error::Compile { log, .. }) => Ok(Err(log)),
        Err(other) => Err(other),
    }
}

/// PTX without its header comment, which is the same in the complete dataset.
fn without_preamble(ptx: &str) -> String {
    let lines = ptx.lines().skip_while(|line| line.trim().is_empty() || line.starts_with("//"));
    lines.flat_map(|line| [line.trim_end(), "\n"]).collect::<String>().trim_end().to_owned() + "\n"
}
