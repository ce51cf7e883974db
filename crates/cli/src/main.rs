//! The command `bornite`: arguments, progress and reports. The other crates do the work.
//!
//! Results go to stdout (as JSON with `--json`), progress and notes to stderr. Exit codes: 0
//! success, 1 failure, 2 usage error, 75 interrupted by a signal with progress saved.

mod bench;
mod cache;
mod dashboard;
mod data;
mod demo;
mod devices;
mod doctor;
mod eval;
mod generate;
mod images;
mod job_part;
mod kernel;
mod model;
mod parallel;
mod preparation_display;
mod ranks;
mod report;
mod scratch;
mod signals;
mod text_file;
mod train;

use std::io::Write;
use std::process::ExitCode;

use bornite_nn::ErrorKind;
use bornite_support::progress::{print_line, print_line_once, suspended};
use clap::{Parser, Subcommand};

#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bornite: deep learning in Rust, on CPUs and NVIDIA GPUs.
#[derive(Parser)]
#[command(name = "bornite", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A four-minute tour: find a race, generate kernels, train a GPT to write CUDA, check its
    /// output
    Demo(demo::DemoOptions),
    /// List the available devices
    Devices {
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Check libraries, settings and caches, and run a kernel on every device
    Doctor {
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Train a model on text, or resume a run
    Train(Box<train::TrainOptions>),
    /// Generate text with a trained model
    Generate(generate::GenerateOptions),
    /// Evaluate a trained model
    Eval(eval::EvalOptions),
    /// Classify images with a trained image model
    Predict(images::PredictOptions),
    /// Import and export models
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Benchmark tensor operations or training steps, optionally beside another library's results
    Bench(bench::BenchOptions),
    /// Draw training runs, several of them on common axes, as an HTML page
    Report(report::ReportOptions),
    /// Generate, verify and inspect datasets of kernels
    #[command(subcommand)]
    Data(data::DataCommand),
    /// List, print, check, run, analyze, time and tune kernels
    #[command(subcommand)]
    Kernel(kernel::KernelCommand),
    /// Show, clear and warm the caches of compiled kernels and tuning results
    #[command(subcommand)]
    Cache(cache::CacheCommand),
}

/// Minimum address space: below it small allocations can fail, and Rust aborts.
const MIN_ADDRESS_SPACE: u64 = 256 << 20;

/// Any error of a command.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(limit) = bornite_nn::train::address_space_limit().filter(|limit| *limit < MIN_ADDRESS_SPACE) {
        let min = MIN_ADDRESS_SPACE >> 20;
        note(&format!(
            "error: the address space is limited to {} MiB and bornite needs {min} MiB; raise the limit (ulimit -v)",
            limit >> 20
        ));
        return ExitCode::FAILURE;
    }
    // `doctor` lists invalid settings instead of stopping at the first.
    let settings = match &cli.command {
        Command::Doctor { .. } => Ok(()),
        _ => bornite_support::log::init().and_then(|_| bornite_support::profile::check_environment()),
    };
    if let Err(error) = settings {
        note(&format!("error: {error}"));
        return ExitCode::from(2);
    }
    // `doctor` lists them in its report; a worker's parent has reported them.
    let is_quiet = matches!(
        cli.command,
        Command::Doctor { .. }
            | Command::Data(data::DataCommand::CompileWorker)
            | Command::Kernel(kernel::KernelCommand::JudgeWorker(_))
    );
    if !is_quiet {
        for unknown in bornite_support::settings::unknown_variables() {
            bornite_support::log!(Warn, "{unknown}");
        }
    }
    let outcome = match cli.command {
        Command::Demo(options) => demo::run(&options),
        Command::Devices { json } => devices::run(json),
        Command::Doctor { json } => doctor::run(json),
        Command::Train(options) => train::run(&options),
        Command::Generate(options) => generate::run(&options),
        Command::Eval(options) => eval::run(&options),
        Command::Predict(options) => images::predict(&options),
        Command::Model(command) => model::run(&command),
        Command::Bench(options) => bench::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Data(command) => data::run(&command),
        Command::Kernel(command) => kernel::run(&command),
        Command::Cache(command) => cache::run(&command),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            let text = with_causes(&*error);
            // Diagnostics of kernel sources begin with it already.
            note(&if text.starts_with("error: ") { text } else { format!("error: {text}") });
            let usage_error = matches!(error.downcast_ref(), Some(bornite::Error::UnknownDevice(_)))
                || matches!(error.downcast_ref().map(bornite_nn::Error::kind), Some(ErrorKind::Config(_)))
                || matches!(error.downcast_ref(), Some(bornite_data::files::Error::InvalidRequest(_)));
            ExitCode::from(if usage_error { 2 } else { 1 })
        }
    }
}

/// Parses `--device`. For `auto` without a usable GPU, one line says so; `bornite doctor` has the
/// details.
fn parse_device(text: &str) -> Result<bornite::Device, Failure> {
    if text != "auto" {
        return Ok(text.parse()?);
    }
    let (device, why_not_gpu) = bornite::Device::auto_with_reason();
    if let Some(bornite::Error::Cuda(error)) = why_not_gpu {
        print_line_once(error.cpu_fallback_notice());
    }
    Ok(device)
}

/// An error's message without the caller's location, which is a line of this program.
fn message(error: &(dyn std::error::Error + 'static)) -> String {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => bornite_nn::Error::kind(error).to_string(),
        (_, Some(error)) => bornite::Error::message(error),
        _ => error.to_string(),
    }
}

/// An error with its causes, except those that its message already contains.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = message(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let cause_text = message(error);
        if !text.contains(&cause_text) {
            text += &format!(": {cause_text}");
        }
        cause = error.source();
    }
    text
}

/// Writes a result to stdout. A closed pipe (`| head`) is not an error.
fn print(text: &str) -> Result<(), Failure> {
    match suspended(|| std::io::stdout().write_all(text.as_bytes())) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes JSON to stdout.
fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// Writes a note to stderr.
fn note(text: &str) {
    print_line(text);
}
