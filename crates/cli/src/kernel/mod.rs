//! `bornite kernel …`: templates, expressions and kernels in files, listed, emitted, checked, run, timed and tuned.

mod bench;
mod cuda;
mod emit;
mod given;
mod python;
mod run;
mod source;
mod tune;
mod unchecked;

pub use source::TEMPLATES;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use crate::{Failure, print, print_json};
use source::Source;

/// Statements after which a kernel is taken for endless.
const MAX_STATEMENTS: u64 = 10_000_000;

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
    /// Check kernels in the text form, in CUDA C++ and in Python syntax: syntax, types, scopes
    Check {
        /// Files in the text form (.bir), in CUDA C++ (.cu) or Python syntax (.py), and folders of such files
        #[arg(required = true, value_name = "PATH")]
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
        /// Most statements of a block (on the CPU, of a thread; for a GPU, before the launch) before it is given up
        #[arg(long, value_name = "N", default_value_t = MAX_STATEMENTS)]
        max_statements: u64,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Time a template, or an operation of the op table over one axis
    Bench(bench::Options),
    /// Find the fastest tile of a template, or kernel or block size of a file, and remember it
    Tune(tune::Options),
}

pub fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { json } => list(*json),
        Command::Emit { source, target: target @ emit::Target::CudaWarp, out, .. }
            if source.python_file().is_some() =>
        {
            emit::written(source.warp_text()?.as_bytes(), *target, out.as_deref())
        }
        Command::Emit { source, target, native, arch, out } => {
            emit::emit(&source.emitted()?, *target, *native, arch, out.as_deref())
        }
        Command::Check { files, json } => check(files, *json),
        Command::Run { source, device, sanitize, max_statements, json } => {
            let device = device.parse()?;
            match source.job() {
                Ok(job) => run::execute(&job, device, *sanitize, *max_statements, *json),
                Err(error) => unchecked::instead(source, error, device, *json),
            }
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

fn check(paths: &[PathBuf], json: bool) -> Result<ExitCode, Failure> {
    let mut failed = false;
    for path in paths {
        let mut files = vec![];
        gather(path, true, &mut files)?;
        let mut kernels = 0;
        for file in &files {
            let (wrong, found) = check_file(file, json)?;
            failed |= wrong;
            kernels += found;
        }
        // Silence would look like praise; lines of JSON are of kernels alone.
        if kernels == 0 && !json {
            print(&format!("{}: no kernels\n", path.display()))?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Tells what was found in a file; whether something is wrong, and how many kernels it has.
fn check_file(file: &Path, json: bool) -> Result<(bool, usize), Failure> {
    if cuda::is_cuda(file) || python::is_python(file) {
        let checked = if cuda::is_cuda(file) { cuda::check(file)? } else { python::check(file)? };
        let kernels = checked.len();
        return Ok((told(file, checked, json)?, kernels));
    }
    let found = match source::read(file) {
        Ok(found) => found,
        Err(error) => vec![(1, Err(error))],
    };
    let (mut failed, kernels) = (false, found.len());
    for (line, result) in found {
        failed |= result.is_err();
        let text = match (&result, json) {
            (Ok(kernel), true) => json!({"file": file, "kernel": kernel.name, "line": line, "ok": true}).to_string(),
            (Err(error), true) => {
                json!({"file": file, "line": line, "ok": false, "error": error.to_string()}).to_string()
            }
            (Ok(kernel), false) => format!("{}: kernel '{}' is valid", file.display(), kernel.name),
            (Err(error), false) => error.to_string(),
        };
        print(&format!("{text}\n"))?;
    }
    Ok((failed, kernels))
}

/// The files of a path: itself, or those of a folder that hold kernels.
fn gather(path: &Path, asked: bool, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut inside = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        inside.sort();
        // A link to a folder could lead back here.
        return inside
            .iter()
            .filter(|path| !(path.is_symlink() && path.is_dir()))
            .try_for_each(|path| gather(path, false, files));
    }
    if asked || cuda::is_cuda(path) || python::is_python(path) || path.extension().is_some_and(|ending| ending == "bir")
    {
        files.push(path.into());
    }
    Ok(())
}

/// Tells what was found in the kernels of a source file; whether something is wrong.
fn told(file: &Path, checked: Vec<cuda::Checked>, json: bool) -> Result<bool, Failure> {
    let mut failed = false;
    let lines: Vec<usize> = checked.iter().map(|one| one.line).collect();
    for cuda::Checked { kernel, instance, line, errors, untold } in checked {
        failed |= errors.is_some();
        let name = instance.as_ref().or(kernel.as_ref()).cloned().unwrap_or_default();
        // Of several of one text, which one.
        let several = lines.iter().filter(|&&other| other == line).count() > 1;
        let text = match (&errors, &untold) {
            _ if json => {
                let mut told = json!({"file": file, "kernel": kernel, "line": line, "ok": errors.is_none()});
                if let Some(instance) = instance {
                    told["instance"] = instance.into();
                }
                if let Some(tried) = &untold {
                    (told["ok"], told["tried"]) = (serde_json::Value::Null, tried.as_str().into());
                }
                if let Some(errors) = &errors {
                    let all = errors.all.iter().map(|e| {
                        json!({"line": e.line, "column": e.column, "message": e.message, "expected": e.label,
                            "hint": e.hint})
                    });
                    told["errors"] = all.collect();
                    if let Some(first) = errors.all.first() {
                        (told["line"], told["error"]) = (first.line.into(), first.message.clone().into());
                    }
                }
                told.to_string()
            }
            (None, Some(tried)) => format!(
                "{}: kernel '{name}' was not checked: its types are open, and none that was tried fits ({tried}); \
                 'bornite kernel emit' takes them: --kernel '{name}<name:type>'",
                file.display()
            ),
            (None, None) => format!("{}: kernel '{name}' is valid", file.display()),
            (Some(errors), _) if several => format!("{}: kernel '{name}' is wrong:\n{errors}", file.display()),
            (Some(errors), _) => errors.to_string(),
        };
        print(&format!("{text}\n"))?;
    }
    Ok(failed)
}
