//! `bornite kernel …`: templates, expressions and kernels in files, listed, emitted, checked, run, timed and tuned.

mod bench;
mod emit;
mod run;
mod source;
mod tune;

pub use source::TEMPLATES;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use crate::{Failure, print, print_json};
use source::Source;

/// `bornite kernel …`.
#[derive(Subcommand)]
pub enum Command {
    /// List the templates
    List {
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Write a kernel as text, CUDA C++, C++, PTX or machine code
    Emit {
        #[command(flatten)]
        source: Source,
        /// What to write
        #[arg(long, value_enum, default_value = "cuda")]
        target: emit::Target,
        /// CUDA's own functions instead of exact ones
        #[arg(long)]
        native: bool,
        /// GPU architecture of PTX, SASS or a cubin
        #[arg(long, default_value = "sm_90a")]
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
    /// Run a kernel over made-up inputs and show what it writes
    Run {
        #[command(flatten)]
        source: Source,
        /// One of interpreter, cpu, cpu:N, cuda, cuda:N, auto
        #[arg(long, default_value = "interpreter")]
        device: String,
        /// Run in both orders of threads and blocks, and compare; on the interpreter only
        #[arg(long)]
        sanitize: bool,
        /// Give up after so many statements of a block; on the interpreter only
        #[arg(long, value_name = "N", default_value_t = 10_000_000)]
        max_statements: u64,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Time a template, or an operation of the op table over one axis
    Bench(bench::Options),
    /// Find the fastest tile of a template and remember it
    Tune(tune::Options),
}

pub fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { json } => list(*json),
        Command::Emit { source, target, native, arch, out } => {
            emit::emit(&source.kernel()?, *target, *native, arch, out.as_deref())
        }
        Command::Check { files, json } => check(files, *json),
        Command::Run { source, device, sanitize, max_statements, json } => {
            run::execute(&source.kernel()?, device.parse()?, *sanitize, *max_statements, *json)
        }
        Command::Bench(options) => bench::run(options),
        Command::Tune(options) => tune::run(options),
    }
}

fn list(json: bool) -> Result<ExitCode, Failure> {
    if json {
        print_json(
            &TEMPLATES.iter().map(|t| json!({"name": t.name, "description": t.doc, "sizes": t.axes})).collect(),
        )?;
    } else {
        let lines: Vec<String> = TEMPLATES.iter().map(|t| format!("{:<12} {}\n", t.name, t.doc)).collect();
        print(&lines.concat())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(files: &[PathBuf], json: bool) -> Result<ExitCode, Failure> {
    let mut failed = false;
    for file in files {
        let found = match source::read(file) {
            Ok(found) => found,
            Err(error) => vec![(1, Err(error))],
        };
        for (line, result) in found {
            failed |= result.is_err();
            let text = match (&result, json) {
                (Ok(kernel), true) => {
                    json!({"file": file, "kernel": kernel.name, "line": line, "ok": true}).to_string()
                }
                (Err(error), true) => {
                    json!({"file": file, "line": line, "ok": false, "error": error.to_string()}).to_string()
                }
                (Ok(kernel), false) => format!("{}: kernel '{}' is valid", file.display(), kernel.name),
                (Err(error), false) => error.to_string(),
            };
            print(&format!("{text}\n"))?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
