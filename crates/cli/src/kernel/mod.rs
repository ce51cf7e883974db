//! `bornite kernel …`: lists, emits, checks, runs, analyzes, times and tunes templates, expressions
//! and kernel files.

mod analyze;
mod argument;
mod bench;
mod bind;
mod check;
mod contents;
mod cuda;
mod emit;
mod finding;
mod gradient;
mod judge;
mod launch_file;
mod occupancy;
mod outputs;
mod python;
mod run;
mod source;
mod standalone;
mod tune;
mod unchecked;

pub use bench::filled;
pub use run::values;
pub use source::{KernelTemplate, TEMPLATES};

use std::path::PathBuf;
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
        #[command(flatten)]
        preprocessor: cuda::PreprocessorArgs,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Run a kernel with checks on given or generated inputs and show, save or compare its outputs
    Run(Box<run::RunOptions>),
    /// Print the kernel that computes the gradients of a kernel
    Grad(Box<gradient::GradOptions>),
    /// Compare the gradients of a kernel with finite differences, in f64
    Gradcheck(Box<gradient::GradcheckOptions>),
    /// Analyze memory accesses, bank conflicts, divergence and occupancy of a launch, without a GPU
    Analyze(Box<analyze::AnalyzeOptions>),
    /// Time a template or an elementwise operation
    Bench(bench::KernelBenchOptions),
    /// Find the fastest tile size of a template, or kernel or block size of a file, and store it
    Tune(tune::TuneOptions),
    /// Judge kernels against a reference: faults, results, cheats. One JSON task per line in, one
    /// verdict per line out, in the same order (docs/judging.md)
    Judge(judge::JudgeCommandOptions),
    /// Worker process that judges tasks from stdin
    #[command(hide = true)]
    JudgeWorker(judge::JudgingOptions),
}

pub fn run(command: &KernelCommand) -> Result<ExitCode, Failure> {
    // The only output of --json is JSON.
    if let KernelCommand::Bench(bench::KernelBenchOptions { json: true, .. })
    | KernelCommand::Tune(tune::TuneOptions { json: true, .. }) = command
    {
        bornite::ir::print_to_stderr();
    }
    if matches!(command, KernelCommand::Run(options) if options.json) {
        bornite::ir::print_to_stderr();
    }
    match command {
        KernelCommand::List { json } => list(*json),
        KernelCommand::Emit { source, target: target @ emit::EmitTarget::CudaWarp, out, .. }
            if source.python_file().is_some() =>
        {
            emit::write_output(source.warp_text()?.as_bytes(), *target, out.as_deref())
        }
        KernelCommand::Emit { source, target, native, arch, out }
            if let (Some(file), true) = (source.cuda_file(), target.keeps_source()) =>
        {
            standalone::emit(file, source.kernel_and_launch(), *target, *native, arch, out.as_deref())
        }
        KernelCommand::Emit { source, target, native, arch, out } => {
            emit::emit(&source.emit_source()?, *target, *native, arch, out.as_deref())
        }
        KernelCommand::Check { files, preprocessor, json } => check::check(files, preprocessor, *json),
        KernelCommand::Run(options) => run::run(options),
        KernelCommand::Grad(options) => gradient::grad(options),
        KernelCommand::Gradcheck(options) => gradient::gradcheck(options),
        KernelCommand::Analyze(options) => analyze::run(options),
        KernelCommand::Bench(options) => bench::run(options),
        KernelCommand::Tune(options) => tune::run(options),
        KernelCommand::Judge(options) => judge::run(options),
        KernelCommand::JudgeWorker(options) => judge::serve(options),
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
