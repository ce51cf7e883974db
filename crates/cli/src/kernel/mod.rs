//! `bornite kernel …`: lists, emits, checks, runs, times and tunes templates, expressions and
//! kernel files.

mod argument;
mod bench;
mod cuda;
mod emit;
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
use source::KernelSelector;

/// Default limit of executed statements, after which a kernel is assumed not to terminate.
const MAX_STATEMENTS: u64 = 10_000_000;

/// `bornite kernel …`.
#[derive(Subcommand)]
pub enum KernelCommand {
    /// List the templates
    List {
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Print a kernel as IR, CUDA C++, C++, PTX, SASS or machine code
    Emit {
        #[command(flatten)]
        source: KernelSelector,
        /// Output format
        #[arg(long, value_enum, default_value = "cuda")]
        target: emit::EmitTarget,
        /// Use CUDA's math functions instead of bit-exact ones
        #[arg(long)]
        native: bool,
        /// GPU architecture for PTX, SASS and cubin
        #[arg(long, default_value = "sm_90a")]
        arch: String,
        /// Write to this file instead of stdout
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check kernels in IR, CUDA C++ and Python syntax: syntax, types, scopes
    Check {
        /// Files in IR text (.bir), CUDA C++ (.cu) or Python syntax (.py), or folders of them
        #[arg(required = true, value_name = "PATH")]
        files: Vec<PathBuf>,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Run a kernel with checks on generated inputs and show its outputs
    Run {
        #[command(flatten)]
        source: KernelSelector,
        /// One of interpreter, cpu, cpu:N, cuda, cuda:N, auto
        #[arg(long, default_value = "interpreter")]
        device: String,
        /// Run threads and blocks in both orders and compare the results (interpreter only)
        #[arg(long)]
        sanitize: bool,
        /// Maximum number of statements per block (per thread on the CPU) before the run is aborted
        #[arg(long, value_name = "N", default_value_t = MAX_STATEMENTS)]
        max_statements: u64,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Time a template or an elementwise operation
    Bench(bench::KernelBenchOptions),
    /// Find the fastest tile size of a template, or kernel or block size of a file, and store it
    Tune(tune::TuneOptions),
}

pub fn run(command: &KernelCommand) -> Result<ExitCode, Failure> {
    match command {
        KernelCommand::List { json } => list(*json),
        KernelCommand::Emit { source, target: target @ emit::EmitTarget::CudaWarp, out, .. }
            if source.python_file().is_some() =>
        {
            emit::write_output(source.warp_text()?.as_bytes(), *target, out.as_deref())
        }
        KernelCommand::Emit { source, target, native, arch, out } => {
            emit::emit(&source.emit_source()?, *target, *native, arch, out.as_deref())
        }
        KernelCommand::Check { files, json } => check(files, *json),
        KernelCommand::Run { source, device, sanitize, max_statements, json } => {
            let device = device.parse()?;
            match source.job() {
                Ok(job) => run::execute(&job, device, *sanitize, *max_statements, *json),
                Err(error) => unchecked::run_unchecked(source, error, device, *json),
            }
        }
        KernelCommand::Bench(options) => bench::run(options),
        KernelCommand::Tune(options) => tune::run(options),
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
        collect_files(path, true, &mut files)?;
        let mut kernels = 0;
        for file in &files {
            let (file_failed, found) = check_file(file, json)?;
            failed |= file_failed;
            kernels += found;
        }
        // No output would look like success; JSON lines describe kernels only.
        if kernels == 0 && !json {
            print(&format!("{}: no kernels\n", path.display()))?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Checks a file's kernels and prints the results; returns whether one failed, and their number.
fn check_file(file: &Path, json: bool) -> Result<(bool, usize), Failure> {
    if cuda::is_cuda(file) || python::is_python(file) {
        let checked = if cuda::is_cuda(file) { cuda::check(file)? } else { python::check(file)? };
        let kernels = checked.len();
        return Ok((report_kernels(file, checked, json)?, kernels));
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
            (Ok(kernel), false) => format!("{}: kernel '{}': no errors found", file.display(), kernel.name),
            (Err(error), false) => error.to_string(),
        };
        print(&format!("{text}\n"))?;
    }
    Ok((failed, kernels))
}

/// Collects a file, or the kernel files of a folder.
fn collect_files(path: &Path, explicit: bool, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut inside = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        inside.sort();
        // A link to a folder could lead back here.
        return inside
            .iter()
            .filter(|path| !(path.is_symlink() && path.is_dir()))
            .try_for_each(|path| collect_files(path, false, files));
    }
    if explicit
        || cuda::is_cuda(path)
        || python::is_python(path)
        || path.extension().is_some_and(|extension| extension == "bir")
    {
        files.push(path.into());
    }
    Ok(())
}

/// Prints the results for the kernels of a source file; returns true if a check failed.
fn report_kernels(file: &Path, checked: Vec<cuda::CheckedKernel>, json: bool) -> Result<bool, Failure> {
    let mut failed = false;
    let lines: Vec<usize> = checked.iter().map(|one| one.line).collect();
    for cuda::CheckedKernel { kernel, instance, line, errors, tried_types } in checked {
        failed |= errors.is_some();
        let name = instance.as_ref().or(kernel.as_ref()).cloned().unwrap_or_default();
        // Several instances of one kernel are told apart by their names.
        let several = lines.iter().filter(|&&other| other == line).count() > 1;
        let text = match (&errors, &tried_types) {
            _ if json => {
                let mut line_json = json!({"file": file, "kernel": kernel, "line": line, "ok": errors.is_none()});
                if let Some(instance) = instance {
                    line_json["instance"] = instance.into();
                }
                if let Some(tried) = &tried_types {
                    (line_json["ok"], line_json["tried"]) = (serde_json::Value::Null, tried.as_str().into());
                }
                if let Some(errors) = &errors {
                    let all = errors.diagnostics.iter().map(|e| {
                        json!({"line": e.line, "column": e.column, "message": e.message, "expected": e.label,
                            "hint": e.hint})
                    });
                    line_json["errors"] = all.collect();
                    if let Some(first) = errors.diagnostics.first() {
                        (line_json["line"], line_json["error"]) = (first.line.into(), first.message.clone().into());
                    }
                }
                line_json.to_string()
            }
            (None, Some(tried)) => format!(
                "{}: kernel '{name}' was not checked: its parameter types are generic, and none of those tried fits \
                 ({tried}); specify them with 'bornite kernel emit --kernel {name}<parameter:type>'",
                file.display()
            ),
            (None, None) => format!("{}: kernel '{name}': no errors found", file.display()),
            (Some(errors), _) if several => format!("{}: kernel '{name}' has errors:\n{errors}", file.display()),
            (Some(errors), _) => errors.to_string(),
        };
        print(&format!("{text}\n"))?;
    }
    Ok(failed)
}
