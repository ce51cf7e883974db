//! What NVRTC makes of texts: its verdict of many at once, or PTX and SASS of each by itself.

use bornite_cuda::{Disassembler, Error, compile_ptx_with, compile_with};
use serde::{Deserialize, Serialize};

use super::compile::{Named, alone, texts_to_ptx};
use crate::Row;

/// What code is made for.
pub const ARCH: &str = "sm_90";

/// As nvcc would: products and sums are contracted.
const OPTIONS: [&str; 1] = ["--std=c++17"];

/// A kernel to be compiled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Text {
    /// The kernel's name.
    pub name: String,
    /// CUDA C++.
    pub cuda: String,
}

impl From<&Row> for Text {
    fn from(row: &Row) -> Text {
        Text { name: row.name.clone(), cuda: row.cuda.clone() }
    }
}

/// What is wanted besides a verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Assembly for GPUs of a generation.
    pub ptx: bool,
    /// The GPU's own instructions.
    pub sass: bool,
}

impl Wanted {
    /// Whether texts are to be compiled one by one.
    pub fn any(self) -> bool {
        self.ptx || self.sass
    }
}

/// What was made of a text; what was not wanted is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Code {
    /// PTX of the kernel alone.
    pub ptx: String,
    /// SASS of the kernel alone.
    pub sass: String,
    /// What kept a compiler or disassembler from its work, though the text is not to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
}

/// Why there is no code of a text that has some.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Missed {
    /// One word for it: `compiler_died`, `disassembler`, …
    pub why: String,
    /// What was seen.
    pub what: String,
}

/// The compiler and what it compiles for, as manifests and cards name them.
pub fn compiler() -> Result<String, Error> {
    let (major, minor) = bornite_cuda::nvrtc_version()?;
    Ok(format!("NVRTC {major}.{minor} for {ARCH}"))
}

/// Compiles texts in this process: the code of each, or what NVRTC says of it.
pub fn compiled(texts: &[Text], wanted: Wanted, arch: &str) -> Result<Vec<Result<Code, String>>, Error> {
    let named: Vec<Named<'_>> = texts.iter().map(|text| (text.name.as_str(), text.cuda.as_str())).collect();
    if !wanted.any() {
        let mut found = vec![Ok(Code::default()); texts.len()];
        texts_to_ptx(&named, arch)?.1.into_iter().for_each(|(n, log)| found[n] = Err(log));
        return Ok(found);
    }
    let disassembler = if wanted.sass { Some(Disassembler::find()?) } else { None };
    named.into_iter().map(|named| one(named, wanted, arch, disassembler.as_ref())).collect()
}

fn one(
    named: Named<'_>,
    wanted: Wanted,
    arch: &str,
    disassembler: Option<&Disassembler>,
) -> Result<Result<Code, String>, Error> {
    let program = alone(named);
    let mut code = Code::default();
    let outcome = (|| {
        if wanted.ptx {
            code.ptx = without_preamble(&compile_ptx_with(named.0, &program, arch, &OPTIONS)?);
        }
        if let Some(disassembler) = disassembler {
            match disassembler.text(&compile_with(named.0, &program, arch, &OPTIONS)?) {
                Ok(text) => code.sass = text,
                Err(why) => code.missed = Some(Missed { why: "disassembler".into(), what: why.to_string() }),
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

/// PTX without the lines on who made it, which are the same in all of a dataset.
fn without_preamble(ptx: &str) -> String {
    let lines = ptx.lines().skip_while(|line| line.trim().is_empty() || line.starts_with("//"));
    lines.flat_map(|line| [line.trim_end(), "\n"]).collect::<String>().trim_end().to_owned() + "\n"
}
