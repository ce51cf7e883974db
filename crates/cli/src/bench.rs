//! `bornite bench`: runs the benchmark suite and compares it with another library's results from
//! the same machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite_bench::peer::Peer;
use bornite_bench::{BenchReport, Config, Machine};
use bornite_support::files::AtomicFile;

use crate::devices::{describe, gpus};
use crate::{Failure, note, parse_device, print, suite};

/// Options of `bornite bench`.
#[derive(clap::Args)]
pub struct BenchOptions {
    /// Smaller sizes and fewer samples; takes seconds
    #[arg(long)]
    quick: bool,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Run only the rows whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Results of a script in peers/ from this machine; adds a column of speed ratios
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// Also write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
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
    let cases = suite::cases(device, options.quick, &options.filter);
    if cases.is_empty() {
        let names: Vec<String> = suite::cases(device, options.quick, "").into_iter().map(|case| case.name).collect();
        return Err(format!("no row's name contains '{}'; there are {}", options.filter, names.join(", ")).into());
    }
    for (n, case) in cases.iter().enumerate() {
        note(&format!("[{}/{}] {} on {device}", n + 1, cases.len(), case.name));
        report.rows.push(case.measure(device, &config)?);
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
