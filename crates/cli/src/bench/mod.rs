//! `bornite bench`: runs the benchmark suite or times training steps, and compares them with
//! another library's results from the same machine.

mod gpt2;
pub mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite::Device;
use bornite_bench::peer::Peer;
use bornite_bench::{BenchReport, Config, Machine};
use bornite_nn::ErrorKind;
use bornite_support::files::AtomicFile;

use self::suite::BenchCase;
use crate::devices::{describe, gpus};
use crate::signals::{STOPPED, Signals};
use crate::train::Display;
use crate::{Failure, note, parse_device, print};

/// Options of `bornite bench`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchOptions {
    #[command(subcommand)]
    suite: Option<Suite>,
    /// Smaller sizes and fewer samples; takes seconds
    #[arg(long, global = true)]
    quick: bool,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, global = true, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    #[command(flatten)]
    rows: RowOptions,
    /// Results of a script in peers/ from this machine; adds a column of speed ratios
    #[arg(long, global = true, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// Also write the report as JSON to this file
    #[arg(long, global = true, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write JSON to stdout
    #[arg(long, global = true)]
    json: bool,
}

/// Selection of rows.
#[derive(clap::Args)]
struct RowOptions {
    /// Run only the rows whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
}

#[derive(clap::Subcommand)]
enum Suite {
    /// Times scaled dot-product attention in bf16, forward and forward with backward
    Attention(RowOptions),
    /// Times training steps of a GPT as `bornite train` runs them, data included
    Gpt2(gpt2::Gpt2Options),
}

pub fn run(options: &BenchOptions) -> Result<ExitCode, Failure> {
    let device = parse_device(&options.device)?;
    // Both files are opened before minutes are spent measuring. An existing report is replaced only by a complete one.
    let peer = options.peer.as_ref().map(Peer::load).transpose()?;
    let named = |path: &Path, error| format!("{}: {error}", path.display());
    let create = |path: &PathBuf| AtomicFile::create(path).map_err(|error| named(path, error));
    let out = options.out.as_ref().map(create).transpose()?;

    let config = if options.quick { Config::quick() } else { Config::default() };
    let gpus = gpus().unwrap_or_default().iter().map(describe).collect();
    let mut report = BenchReport::new(Machine::detect(gpus), config);
    match &options.suite {
        None => operations(suite::cases(device, options.quick), &options.rows, device, &mut report)?,
        Some(Suite::Attention(rows)) => {
            operations(suite::attention::cases(device, options.quick), rows, device, &mut report)?;
        }
        Some(Suite::Gpt2(gpt2)) => {
            let mut display = Display::new(false, Signals::watch("stopped".into())?);
            let row = match gpt2::measure(gpt2, options.quick, device, &mut display) {
                Err(error) if is_stopped(&error) => return Ok(ExitCode::from(STOPPED)),
                row => row?,
            };
            report.rows.push(row);
        }
    }
    // Results are shown even if the comparison fails.
    let compared = peer.map_or(Ok(0), |peer| peer.attach(&mut report));
    if let (Some(mut out), Some(path)) = (out, &options.out) {
        report.write_json(&mut out)?;
        out.commit().map_err(|error| named(path, error))?;
    }
    if options.json {
        let mut json = vec![];
        report.write_json(&mut json)?;
        print(&String::from_utf8(json)?)?;
    } else {
        print(&report.to_string())?;
    }
    compared?;
    Ok(ExitCode::SUCCESS)
}

/// Measures the selected rows of a suite.
fn operations(
    mut cases: Vec<BenchCase>,
    RowOptions { filter }: &RowOptions,
    device: Device,
    report: &mut BenchReport,
) -> Result<(), Failure> {
    if !cases.iter().any(|case| case.name.contains(filter)) {
        let names: Vec<String> = cases.into_iter().map(|case| case.name).collect();
        return Err(format!("no row's name contains '{filter}'; there are {}", names.join(", ")).into());
    }
    cases.retain(|case| case.name.contains(filter));
    for (n, case) in cases.iter().enumerate() {
        note(&format!("[{}/{}] {} on {device}", n + 1, cases.len(), case.name));
        report.rows.push(case.measure(device, &report.config)?);
    }
    Ok(())
}

/// True if a signal ended the measurement.
fn is_stopped(error: &Failure) -> bool {
    error.downcast_ref::<bornite_nn::Error>().is_some_and(|error| matches!(error.kind(), ErrorKind::Stopped))
}
