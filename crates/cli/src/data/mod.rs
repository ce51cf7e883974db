//! `bornite data …`: datasets of kernels, made, checked, counted and shown.

mod ingest;
mod make;
mod show;
mod stats;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use bornite_data::Level;
use bornite_data::files::{Format, nearest_name};
use bornite_data::verify::{Crew, serve};
use clap::Subcommand;

use crate::Failure;

/// `bornite data …`.
#[derive(Subcommand)]
pub enum DataCommand {
    /// Make a dataset of verified kernels, or go on with one
    Make(Box<make::MakeOptions>),
    /// Check a dataset anew: checksums, every row made and judged again; or the structure of pairs from elsewhere
    Verify {
        /// The dataset's folder, or one of pairs as JSON files
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Check rows at this level: types, compile, run or gpu [default: the one they were made at]
        #[arg(long, value_parser = level)]
        level: Option<Level>,
        /// Threads [default: as many as there are cores]
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Say what is in a dataset
    Stats {
        /// The dataset's folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Show which operations meet which types, as Markdown, with what is missing and why
        #[arg(long, conflicts_with = "json")]
        coverage: bool,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Show a row: its source beside another of its texts
    Show {
        /// The dataset's folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The row's id, its number, or its kernel's name [default: the first row]
        #[arg(long)]
        id: Option<String>,
        /// What to show beside the source
        #[arg(long, value_enum, default_value = "cuda")]
        beside: show::Text,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Compile for a run that asks on stdin: one of its worker processes
    #[command(hide = true)]
    CompileWorker,
    /// Make rows of your own kernels: checked, and with CUDA C++, C++ and IR beside them
    Ingest {
        /// Files in Python syntax, in the dialect of NVIDIA Warp; comments such as '# given: bins = 10' in a kernel say what it
        /// is given
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The dataset's folder [default: say only what would be a row]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: &DataCommand) -> Result<ExitCode, Failure> {
    match command {
        DataCommand::Make(options) => make::run(options),
        DataCommand::Verify { folder, level, jobs, json } => verify::run(folder, *level, threads(*jobs)?, *json),
        DataCommand::Stats { folder, coverage, json } => stats::run(folder, *coverage, *json),
        DataCommand::Show { folder, id, beside, json } => show::run(folder, id.as_deref(), *beside, *json),
        DataCommand::CompileWorker => {
            // At once: what a library does at an orderly end could wait for the compiler that hangs.
            serve(std::io::BufReader::new(std::io::stdin()), std::io::stdout(), || std::process::abort())?;
            Ok(ExitCode::SUCCESS)
        }
        DataCommand::Ingest { files, out, json } => ingest::run(files, out.as_deref(), *json),
    }
}

/// Workers that are this program.
pub fn crew() -> Result<Crew, Failure> {
    Ok(Crew::new(std::env::current_exe()?, &["data", "compile-worker"]))
}

/// A level by name.
fn level(text: &str) -> Result<Level, String> {
    let names = ["types", "compile", "run", "gpu"];
    Level::named(text).ok_or_else(|| unknown("level", text, &names))
}

/// A format by name.
fn format(text: &str) -> Result<Format, String> {
    let names = Format::ALL.map(Format::name);
    Format::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| unknown("format", text, &names))
}

fn unknown(what: &str, text: &str, names: &[&str]) -> String {
    match nearest_name(text, names.iter().copied()) {
        Some(near) => format!("there is no {what} '{text}'; did you mean '{near}'?"),
        None => format!("there is no {what} '{text}'; there are {}", names.join(", ")),
    }
}

/// Threads that are started at most: far more than machines have cores.
const MOST_JOBS: usize = 1024;

/// Threads that were asked for, or one a core.
fn threads(jobs: Option<usize>) -> Result<usize, Failure> {
    match jobs {
        Some(jobs) if !(1..=MOST_JOBS).contains(&jobs) => {
            let why = format!("{jobs} threads were asked for: --jobs takes 1 to {MOST_JOBS}");
            Err(bornite_data::files::Error::Asked(why).into())
        }
        Some(jobs) => Ok(jobs),
        None => Ok(std::thread::available_parallelism().map_or(1, |n| n.get())),
    }
}
