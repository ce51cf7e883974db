//! `bornite kernel …`: templates and kernels in files, listed, emitted, checked and run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite::ir::interp::{self, Options, Order};
use bornite::ir::templates::{self, Built};
use bornite::ir::{Access, Arg, Kernel, Scalar};
use bornite_codegen::cuda::{self, Spelling};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::{Failure, print, print_json};

/// `bornite kernel …`.
#[derive(Subcommand)]
pub enum Command {
    /// List the templates
    List {
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Write a kernel as text, CUDA C++ or machine code
    Emit {
        #[command(flatten)]
        source: Source,
        /// What to write
        #[arg(long, value_enum, default_value = "cuda")]
        target: Target,
        /// CUDA's own functions instead of exact ones
        #[arg(long)]
        native: bool,
        /// GPU architecture of a cubin
        #[arg(long, default_value = "sm_90")]
        arch: String,
        /// Write to this file instead of stdout
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check kernels in the text form: syntax, types, scopes
    Check {
        /// Files in the text form
        #[arg(required = true, value_name = "FILE.bir")]
        files: Vec<PathBuf>,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Run a kernel on the interpreter over made-up inputs and show what it writes
    Run {
        #[command(flatten)]
        source: Source,
        /// Run in both orders of threads and blocks, and compare
        #[arg(long)]
        sanitize: bool,
        /// Give up after so many statements of a block
        #[arg(long, value_name = "N", default_value_t = 10_000_000)]
        max_statements: u64,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
}

/// Where a kernel comes from.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct Source {
    /// A file in the text form
    #[arg(value_name = "FILE.bir")]
    file: Option<PathBuf>,
    /// A template, at a small size; see `bornite kernel list`
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
}

/// What a kernel is written as.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// The text form, which can be read back
    Ir,
    /// CUDA C++
    Cuda,
    /// GPU machine code, by NVRTC
    Cubin,
}

/// Name, what it does, and the template at a size that is quick to run.
const TEMPLATES: [(&str, &str, fn() -> Built); 11] = [
    ("fill", "out[i] = value", || templates::fill(Scalar::F32, 1000, 1.0)),
    ("axpy", "out[i] = a · x[i] + y[i]", || templates::axpy(Scalar::F32, 1000, 2.0)),
    ("block_sum", "sums of blocks of 128, in shared memory", || templates::block_sum(Scalar::F32, 1000, 128)),
    ("warp_sum", "sums of warps, by shuffles", || templates::warp_sum(Scalar::F32, 320)),
    ("transpose", "a transposed matrix, through padded tiles", || templates::transpose(Scalar::F32, 45, 70)),
    ("matmul", "a matrix product, through tiles", || templates::matmul(Scalar::F32, 19, 37, 23, 8)),
    ("histogram", "counts, by atomics in shared memory", || templates::histogram(1000, 37, 64)),
    ("block_scan", "running sums of blocks of 64", || templates::block_scan(Scalar::F32, 1000, 64)),
    ("stencil", "the mean of four neighbours", || templates::stencil(Scalar::F32, 17, 40)),
    ("softmax", "softmax of rows, a block a row", || templates::softmax(Scalar::F32, 4, 100, 64)),
    ("conv2d", "a convolution, one instance an element", || templates::conv2d(Scalar::F32, 3, 9, 11, 4, 3)),
];

impl Source {
    fn kernel(&self) -> Result<Kernel, Failure> {
        match (&self.file, &self.template) {
            (Some(file), _) => read(file),
            (None, Some(name)) => match TEMPLATES.iter().find(|(template, ..)| template == name) {
                Some((_, _, build)) => Ok(build()?),
                None => {
                    let names: Vec<&str> = TEMPLATES.iter().map(|(name, ..)| *name).collect();
                    Err(format!("there is no template '{name}'; there are {}", names.join(", ")).into())
                }
            },
            (None, None) => Err("name a file or a template".into()),
        }
    }
}

fn read(file: &Path) -> Result<Kernel, Failure> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(text.parse::<Kernel>().map_err(|e| format!("{}: {e}", file.display()))?)
}

pub fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { json } => list(*json),
        Command::Emit { source, target, native, arch, out } => {
            let kernel = source.kernel()?;
            let spelling = if *native { Spelling::Native } else { Spelling::Exact };
            let bytes = match target {
                Target::Ir => kernel.to_string().into_bytes(),
                Target::Cuda => cuda::print_as(&kernel, spelling).into_bytes(),
                Target::Cubin => bornite_cuda::compile(&kernel.name, &cuda::print_as(&kernel, spelling), arch)?.0,
            };
            match out {
                Some(path) => std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))?,
                None if *target == Target::Cubin => {
                    return Err("machine code is not text: name a file with --out".into());
                }
                None => print(&String::from_utf8_lossy(&bytes))?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Check { files, json } => check(files, *json),
        Command::Run { source, sanitize, max_statements, json } => {
            execute(&source.kernel()?, *sanitize, *max_statements, *json)
        }
    }
}

fn list(json: bool) -> Result<ExitCode, Failure> {
    if json {
        print_json(&TEMPLATES.iter().map(|(name, doc, _)| json!({"name": name, "description": doc})).collect())?;
    } else {
        let lines: Vec<String> = TEMPLATES.iter().map(|(name, doc, _)| format!("{name:<12} {doc}\n")).collect();
        print(&lines.concat())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(files: &[PathBuf], json: bool) -> Result<ExitCode, Failure> {
    let mut failed = false;
    for file in files {
        let result = read(file);
        failed |= result.is_err();
        if json {
            let line = match &result {
                Ok(kernel) => json!({"file": file, "kernel": kernel.name, "ok": true}),
                Err(error) => json!({"file": file, "ok": false, "error": error.to_string()}),
            };
            print(&format!("{line}\n"))?;
        } else {
            print(&match &result {
                Ok(kernel) => format!("{}: kernel '{}' is valid\n", file.display(), kernel.name),
                Err(error) => format!("{error}\n"),
            })?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Memory for every parameter: 0, 1, 2, … modulo 7 where the kernel reads it.
fn memory(kernel: &Kernel) -> Result<Vec<Vec<u64>>, Failure> {
    let bytes: u128 = kernel.params.iter().map(|p| p.len as u128 * p.scalar.bytes() as u128).sum();
    if bytes > 1 << 30 {
        return Err(format!("the kernel's views have {bytes} bytes; the interpreter is for less than a GiB").into());
    }
    let made = |scalar: Scalar, len: u64| {
        let mut words = vec![0u64; (len as usize * scalar.bytes()).div_ceil(8)];
        let each = scalar.bytes() * 8;
        for n in 0..len as usize {
            let bits = bornite::ir::Value::from_f64(scalar, (n % 7) as f64).bits();
            words[n * each / 64] |= bits << (n * each % 64);
        }
        words
    };
    let zeros = |scalar: Scalar, len: u64| vec![0u64; (len as usize * scalar.bytes()).div_ceil(8)];
    let of = |p: &bornite::ir::Param| if p.access.reads() { made(p.scalar, p.len) } else { zeros(p.scalar, p.len) };
    Ok(kernel.params.iter().map(of).collect())
}

fn interpret(kernel: &Kernel, options: Options) -> Result<Result<Vec<Vec<u64>>, bornite::ir::Fault>, Failure> {
    let mut memory = memory(kernel)?;
    let mut args: Vec<Arg> = (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
        .collect();
    let outcome = interp::run_with(kernel, &mut args, options);
    Ok(outcome.map(|()| memory))
}

fn execute(kernel: &Kernel, sanitize: bool, max_statements: u64, json: bool) -> Result<ExitCode, Failure> {
    let options = |order| Options { order, max_statements: Some(max_statements) };
    let outcome = interpret(kernel, options(Order::Forward))?;
    let mut finding = outcome.as_ref().err().map(|fault| (fault.to_string(), fault.line));
    if let (true, Ok(forward)) = (sanitize, &outcome) {
        finding = match interpret(kernel, options(Order::Reverse))? {
            Err(fault) => Some((fault.to_string(), fault.line)),
            Ok(reverse) if reverse != *forward => {
                Some((format!("kernel '{}': its results depend on the order of threads", kernel.name), None))
            }
            Ok(_) => None,
        };
    }
    let written: Vec<(&str, Scalar, Vec<f64>)> = (kernel.params.iter().enumerate())
        .filter(|(_, p)| p.access.writes())
        .map(|(n, p)| {
            let words = outcome.as_ref().map_or(&[][..], |memory| &memory[n]);
            let each = p.scalar.bytes() * 8;
            let value =
                |i: usize| bornite::ir::Value::from_bits(p.scalar, words[i * each / 64] >> (i * each % 64)).as_f64();
            (p.name.as_str(), p.scalar, (0..(p.len as usize).min(words.len() * 64 / each).min(8)).map(value).collect())
        })
        .collect();
    if json {
        let outputs: Vec<_> = (written.iter())
            .map(|(name, scalar, first)| json!({"view": name, "type": scalar.name(), "first": first}))
            .collect();
        let (error, line) = finding.clone().map_or((None, None), |(error, line)| (Some(error), line));
        print_json(&json!({
            "kernel": kernel.name, "ok": finding.is_none(), "error": error, "line": line, "outputs": outputs,
        }))?;
    } else if let Some((error, line)) = &finding {
        let text = kernel.to_string();
        let shown =
            line.and_then(|n| text.lines().nth(n - 1).map(|line| format!("\n{n:4} | {line}"))).unwrap_or_default();
        print(&format!("{error}{shown}\n"))?;
    } else {
        let lines: Vec<String> =
            written.iter().map(|(name, scalar, first)| format!("{name}: {scalar}, first {first:?}\n")).collect();
        print(&(lines.concat() + if sanitize { "no finding, in either order of threads\n" } else { "" }))?;
    }
    Ok(if finding.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
