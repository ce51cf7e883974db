//! `bornite data …`: generates, verifies and inspects datasets of kernels.

mod ingest;
mod make;
mod show;
mod stats;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use bornite_data::Level;
use bornite_data::files::{DatasetFormat, nearest_name};
use bornite_data::verify::{WorkerConfig, serve};
use clap::Subcommand;

use crate::Failure;

/// `bornite data …`.
#[derive(Subcommand)]
pub enum DataCommand {
    /// Generate a dataset of verified kernels, or resume one
    Make(Box<make::DataMakeOptions>),
    /// Verify a dataset: checksums, and every row generated and checked again; or the structure of
    /// third-party pairs
    Verify {
        /// Folder of a dataset, or of pairs as JSON files
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Verification level: types, compile, run or gpu [default: that of the dataset]
        #[arg(long, value_parser = level)]
        level: Option<Level>,
        /// Number of threads [default: one per core]
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Show statistics of a dataset
    Stats {
        /// Folder of a dataset
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Print a Markdown table of operations by operand type, with explanations of missing ones
        #[arg(long, conflicts_with = "json")]
        coverage: bool,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Show a row: its Python source beside another text
    Show {
        /// Folder of a dataset
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Row id, row number or kernel name [default: the first row]
        #[arg(long)]
        id: Option<String>,
        /// Text to show beside the source
        #[arg(long, value_enum, default_value = "cuda")]
        beside: show::RowText,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Worker process that compiles requests from stdin
    #[command(hide = true)]
    CompileWorker,
    /// Check your own kernels and create dataset rows from them, with CUDA C++, C++ and IR
    Ingest {
        /// Python-syntax files in the dialect of NVIDIA Warp; comments such as '# given: bins = 10'
        /// in a kernel specify its arguments
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Folder of the dataset to write [default: report only]
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
            // Aborts without exit handlers, which could wait for a compiler that hangs.
            serve(std::io::BufReader::new(std::io::stdin()), std::io::stdout(), || std::process::abort())?;
            Ok(ExitCode::SUCCESS)
        }
        DataCommand::Ingest { files, out, json } => ingest::run(files, out.as_deref(), *json),
    }
}

/// Worker processes that run this program.
pub fn worker_config() -> Result<WorkerConfig, Failure> {
    Ok(WorkerConfig::new(std::env::current_exe()?, &["data", "compile-worker"]))
}

/// Parses a level.
fn level(text: &str) -> Result<Level, String> {
    let names = ["types", "compile", "run", "gpu"];
    Level::from_name(text).ok_or_else(|| unknown("level", text, &names))
}

/// Parses a format.
fn format(text: &str) -> Result<DatasetFormat, String> {
    let names = DatasetFormat::ALL.map(DatasetFormat::name);
    DatasetFormat::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| unknown("format", text, &names))
}

fn unknown(what: &str, text: &str, names: &[&str]) -> String {
    match nearest_name(text, names.iter().copied()) {
        Some(near) => format!("unknown {what} '{text}'; did you mean '{near}'?"),
        None => format!("unknown {what} '{text}'; expected one of {}", names.join(", ")),
    }
}

/// Maximum number of threads.
const MAX_JOBS: usize = 1024;

/// Number of threads requested, or one per core.
fn threads(jobs: Option<usize>) -> Result<usize, Failure> {
    match jobs {
        Some(jobs) if !(1..=MAX_JOBS).contains(&jobs) => {
            let why = format!("--jobs must be from 1 to {MAX_JOBS}; found {jobs}");
            Err(bornite_data::files::Error::InvalidRequest(why).into())
        }
        Some(jobs) => Ok(jobs),
        None => Ok(std::thread::available_parallelism().map_or(1, |n| n.get())),
    }
}
