//! `bornite bench`: runs benchmark suites, compares them with f64, simple loops, an earlier report
//! and another library's results from the same machine.

mod gpt2;
mod suite;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite::Device;
use bornite_bench::baseline::compare;
use bornite_bench::peer::Peer;
use bornite_bench::{BenchReport, Config, Machine, PeakRates};
use bornite_nn::ErrorKind;
use bornite_support::files::AtomicFile;

use self::suite::{BenchCase, CaseConfig, Suite};
use crate::devices::{describe, gpus};
use crate::signals::{STOPPED, Signals};
use crate::train::Display;
use crate::{Failure, note, parse_device, print};
pub use suite::cache_bytes;

/// Options of `bornite bench`.
#[derive(clap::Args)]
pub struct BenchOptions {
    /// Suites to run [default: the operations of a training step]
    #[arg(value_enum, value_name = "SUITE")]
    suites: Vec<Suite>,
    /// Smaller sizes and fewer samples; takes seconds
    #[arg(long)]
    quick: bool,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Run only the rows whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Untimed calls before a measurement [default: 5, or 2 with --quick]
    #[arg(long, value_name = "N")]
    warmup: Option<usize>,
    /// Samples per row, as far as the time limit of a row allows [default: 31, or 9 with --quick]
    #[arg(long, value_name = "N")]
    iterations: Option<usize>,
    /// Largest error against f64, relative to the largest value; exit code 1 beyond it [default:
    /// 1e-4 in f32, 2e-3 in f16, 2e-2 in bf16]
    #[arg(long, value_name = "X", value_parser = positive)]
    threshold: Option<f64>,
    /// Only measure times: no errors against f64, no simple loops
    #[arg(long)]
    no_compare: bool,
    /// Results of a script in peers/ from this machine; adds a column of speed ratios
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// An earlier report (JSON) of this machine; marks slower rows, exit code 1 if there are any
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Slowdown in percent from which on a row is slower than the baseline
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = positive, requires = "baseline")]
    max_slowdown: f64,
    /// Also write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the report as an HTML page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    gpt2: gpt2::Gpt2Options,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if x >= 0.0 && f64::is_finite(x) => Ok(x),
        _ => Err("expected a number of at least 0".into()),
    }
}

pub fn run(options: &BenchOptions) -> Result<ExitCode, Failure> {
    let device = parse_device(&options.device)?;
    if options.gpt2.is_set() && !options.suites.contains(&Suite::Gpt2) {
        return Err("options of the suite gpt2 have no effect on other suites; add gpt2 or remove them".into());
    }
    // All files are opened before minutes are spent measuring. Existing reports are replaced only by complete ones.
    let peer = options.peer.as_ref().map(Peer::load).transpose()?;
    let named = |path: &Path, error| format!("{}: {error}", path.display());
    let baseline = options.baseline.as_ref().map(|path| read_baseline(path)).transpose()?;
    let create = |path: &PathBuf| AtomicFile::create(path).map_err(|error| named(path, error));
    let out = options.out.as_ref().map(create).transpose()?;
    let html = options.html.as_ref().map(create).transpose()?;

    let config = if options.quick { Config::quick() } else { Config::default() };
    let config = Config {
        warmup: options.warmup.unwrap_or(config.warmup),
        samples: options.iterations.unwrap_or(config.samples),
        ..config
    };
    let gpus = gpus().unwrap_or_default().iter().map(describe).collect();
    let mut report = BenchReport::new(Machine::detect(gpus), config);
    report.peak = peak(device);
    if let Some(code) = measure(options, device, &mut report)? {
        return Ok(code);
    }
    // Results are shown even if a comparison fails.
    let compared = peer.map_or(Ok(0), |peer| peer.attach(&mut report));
    let slower = baseline.map_or(Ok(0), |earlier| compare(&mut report, &earlier, options.max_slowdown / 100.0));
    if let (Some(mut out), Some(path)) = (out, &options.out) {
        report.write_json(&mut out)?;
        out.commit().map_err(|error| named(path, error))?;
    }
    if let (Some(mut html), Some(path)) = (html, &options.html) {
        html.write_all(report.html().as_bytes()).map_err(|error| named(path, error))?;
        html.commit().map_err(|error| named(path, error))?;
    }
    if options.json {
        let mut json = vec![];
        report.write_json(&mut json)?;
        print(&String::from_utf8(json)?)?;
    } else {
        print(&report.to_string())?;
    }
    compared?;
    let slower = slower?;
    let failed = report.rows.iter().filter(|row| row.accuracy.is_some_and(|accuracy| !accuracy.passed)).count();
    let rows = |count: usize| if count == 1 { "1 row".into() } else { format!("{count} rows") };
    if failed > 0 {
        note(&format!("error: the results of {} differ from f64 by more than the threshold", rows(failed)));
    }
    if slower > 0 {
        let limit = options.max_slowdown;
        note(&format!("error: {} took over {limit} % longer than in the baseline", rows(slower)));
    }
    Ok(if failed + slower > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures all suites; an exit code if a signal ended the measurement.
fn measure(options: &BenchOptions, device: Device, report: &mut BenchReport) -> Result<Option<ExitCode>, Failure> {
    let suites: Vec<Option<Suite>> = match &options.suites[..] {
        [] => vec![None],
        suites => suites.iter().copied().map(Some).collect(),
    };
    let mut cases: Vec<(BenchCase, Device)> = vec![];
    for suite in &suites {
        let (rows, device) = suite::cases(*suite, device, options.quick);
        for case in rows {
            // Suites share some rows.
            if !cases.iter().any(|(other, on)| other.name == case.name && *on == device) {
                cases.push((case, device));
            }
        }
    }
    operations(cases, options, report)?;
    if suites.contains(&Some(Suite::Gpt2)) {
        let mut display = Display::new(false, Signals::watch("stopped".into())?);
        match gpt2::measure(&options.gpt2, options.quick, device, &mut display) {
            Err(error) if is_stopped(&error) => return Ok(Some(ExitCode::from(STOPPED))),
            row => report.rows.push(row?),
        }
    }
    Ok(None)
}

/// Measures the rows whose name contains the filter.
fn operations(
    mut cases: Vec<(BenchCase, Device)>,
    options: &BenchOptions,
    report: &mut BenchReport,
) -> Result<(), Failure> {
    let filter = &options.filter;
    if !cases.is_empty() && !cases.iter().any(|(case, _)| case.name.contains(filter)) {
        let names: Vec<String> = cases.into_iter().map(|(case, _)| case.name).collect();
        return Err(format!("no row's name contains '{filter}'; there are {}", names.join(", ")).into());
    }
    cases.retain(|(case, _)| case.name.contains(filter));
    let config = CaseConfig { config: report.config, threshold: options.threshold, compare: !options.no_compare };
    for (n, (case, device)) in cases.iter().enumerate() {
        note(&format!("[{}/{}] {} on {device}", n + 1, cases.len(), case.name));
        report.rows.push(case.measure(*device, &config)?);
    }
    Ok(())
}

fn read_baseline(path: &Path) -> Result<BenchReport, Failure> {
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(BenchReport::read_json(std::io::BufReader::new(file)).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// Peak rates of a GPU.
fn peak(device: Device) -> Option<PeakRates> {
    let rates = bornite_cuda::roofline(&bornite_cuda::DeviceInfo::query(device.cuda_ordinal()?).ok()?);
    Some(PeakRates {
        bytes_per_second: rates.bytes_per_second,
        flops_per_second: rates.flops_per_second,
        tensor_flops_per_second: rates.tensor_flops_per_second,
    })
}

/// True if a signal ended the measurement.
fn is_stopped(error: &Failure) -> bool {
    error.downcast_ref::<bornite_nn::Error>().is_some_and(|error| matches!(error.kind(), ErrorKind::Stopped))
}
