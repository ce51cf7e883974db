//! The command `bornite`: arguments, progress and reports. What it does is done by the other crates.
//!
//! Results go to stdout (as JSON with `--json`), progress and notes to stderr. Exit 0: done; 1: failed; 2: misused;
//! 75: stopped by a signal, saved, to be resumed.

mod bench;
mod cache;
mod data;
mod demo;
mod devices;
mod doctor;
mod eval;
mod generate;
mod kernel;
mod model;
mod parallel;
mod preparation;
mod signals;
mod suite;
mod text_file;
mod train;

use std::io::Write;
use std::process::ExitCode;

use bornite_nn::ErrorKind;
use bornite_support::progress::{print_line, suspended};
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
    /// See it all in four minutes: a race found, kernels made, a GPT trained to write CUDA
    Demo(demo::DemoOptions),
    /// List the devices that tensors can live on
    Devices {
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Check this machine: libraries, devices, and a real kernel on each
    Doctor {
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Train a model on your text, from a first step or from where a run stopped
    Train(Box<train::Options>),
    /// Write text with a trained model
    Generate(generate::GenerateOptions),
    /// Measure a trained model on data
    Eval(eval::EvalOptions),
    /// Bring models in from Hugging Face folders and out to them
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Measure tensor operations, beside a peer's figures if given
    Bench(bench::BenchOptions),
    /// Make, check, count and show datasets of verified kernels
    #[command(subcommand)]
    Data(data::DataCommand),
    /// List, write, check, run, time and tune kernels
    #[command(subcommand)]
    Kernel(kernel::KernelCommand),
    /// Show, clear and fill the caches of compiled kernels and tuning results
    #[command(subcommand)]
    Cache(cache::CacheCommand),
}

/// Below this limit, small allocations of the program itself can fail, which Rust answers by aborting.
const LEAST_ADDRESS_SPACE: u64 = 256 << 20;

/// An error with its whole message.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(limit) = bornite_nn::train::address_space().filter(|limit| *limit < LEAST_ADDRESS_SPACE) {
        let least = LEAST_ADDRESS_SPACE >> 20;
        note(&format!(
            "error: the address space is limited to {} MiB and bornite needs {least} MiB; raise the limit (ulimit -v)",
            limit >> 20
        ));
        return ExitCode::FAILURE;
    }
    // The doctor lists bad settings instead of stopping at the first.
    let settings = match &cli.command {
        Command::Doctor { .. } => Ok(()),
        _ => bornite_support::log::init().and_then(|_| bornite_support::profile::check_environment()),
    };
    if let Err(error) = settings {
        note(&format!("error: {error}"));
        return ExitCode::from(2);
    }
    // The doctor's report lists them; a worker's parent has told of them.
    if !matches!(cli.command, Command::Doctor { .. } | Command::Data(data::DataCommand::CompileWorker)) {
        for unknown in bornite_support::settings::unknown() {
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
        Command::Model(command) => model::run(&command),
        Command::Bench(options) => bench::run(&options),
        Command::Data(command) => data::run(&command),
        Command::Kernel(command) => kernel::run(&command),
        Command::Cache(command) => cache::run(&command),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            let words = with_causes(&*error);
            // Those of sources say it themselves, of each that there is.
            note(&if words.starts_with("error: ") { words } else { format!("error: {words}") });
            let misused = matches!(error.downcast_ref(), Some(bornite::Error::UnknownDevice(_)))
                || matches!(error.downcast_ref().map(bornite_nn::Error::kind), Some(ErrorKind::Config(_)))
                || matches!(error.downcast_ref(), Some(bornite_data::files::Error::Asked(_)));
            ExitCode::from(if misused { 2 } else { 1 })
        }
    }
}

/// The device of a flag; for `auto`, a note says why it is not a GPU.
fn chosen_device(text: &str) -> Result<bornite::Device, Failure> {
    if text != "auto" {
        return Ok(text.parse()?);
    }
    let (device, why) = bornite::Device::auto_or_why();
    if let Some(why) = why {
        note(&format!("running on the CPU: {why}"));
    }
    Ok(device)
}

/// An error's message without the line of Rust that called a library: that is a line of this program.
fn message(error: &(dyn std::error::Error + 'static)) -> String {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => bornite_nn::Error::kind(error).to_string(),
        (_, Some(error)) => bornite::Error::message(error),
        _ => error.to_string(),
    }
}

/// An error and what lies behind it, where that is not said already.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = message(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = message(error);
        if !text.contains(&words) {
            text += &format!(": {words}");
        }
        cause = error.source();
    }
    text
}

/// Writes a result to stdout. A reader that went away (`| head`) is no error.
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
