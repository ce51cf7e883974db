//! `bornite kernel judge`: judges candidates against references, one task per line of JSON.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bornite::Device;
use bornite::kernel::{CustomKernel, Launch};
use bornite_bench::{Config, measure};
use bornite_judge::{Judge, JudgeOptions, JudgePool, JudgePoolConfig, TimedLaunch, Verdict};
use bornite_support::JobPart;
use bornite_support::progress::{ProgressDisplay, suspended};
use clap::Args;

use super::run::arguments;
use crate::job_part::job_part;
use crate::signals::{STOPPED, Signals};
use crate::{Failure, note};

/// Maximum bytes of a task.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Options of `bornite kernel judge`.
#[derive(Args)]
pub struct JudgeCommandOptions {
    /// Tasks, one JSON object per line (.jsonl), or a single one (.json) [default: stdin]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Number of worker processes [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Judge part I of N (from 0): line I of the file and every N-th after it [default: the part of
    /// this Slurm array task, Kubernetes pod or MPI rank for a file, else all]
    #[arg(long, value_name = "I/N")]
    part: Option<JobPart>,
    /// Time limit per task, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    timeout: f64,
    /// Memory limit per worker process
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = bornite_support::parse_bytes)]
    memory: u64,
    #[command(flatten)]
    judging: JudgingOptions,
}

/// Options that workers share.
#[derive(Args)]
pub struct JudgingOptions {
    /// Random seed of tasks without their own
    #[arg(long, value_name = "N", default_value_t = JudgeOptions::default().seed)]
    seed: u64,
    /// Maximum number of statements per block before a kernel is aborted
    #[arg(long, value_name = "N", default_value_t = JudgeOptions::default().max_statements)]
    max_statements: u64,
    /// GPU on which right candidates and their references are timed: cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "expected a number of seconds from 0.001 to 86400".into())
}

/// Lines of tasks, each within the size limit.
struct TaskLines<R>(R);

impl<R: BufRead> Iterator for TaskLines<R> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut line = vec![];
        match self.0.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Err(error) => {
                note(&format!("error: cannot read tasks: {error}"));
                return None;
            }
            Ok(0) => return None,
            Ok(_) => {}
        }
        if line.len() as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
            // Reported as invalid JSON; the rest of the line is skipped.
            line.clear();
            line.extend_from_slice(b"{\"id\": \"a line exceeds 16 MiB");
            while let Ok(buffer) = self.0.fill_buf()
                && !buffer.is_empty()
            {
                let end = buffer.iter().position(|byte| *byte == b'\n');
                let consumed = end.map_or(buffer.len(), |end| end + 1);
                self.0.consume(consumed);
                if end.is_some() {
                    break;
                }
            }
        }
        Some(String::from_utf8_lossy(&line).into_owned())
    }
}

pub fn run(options: &JudgeCommandOptions) -> Result<ExitCode, Failure> {
    // Each process has its own stdin.
    let part = match &options.file {
        None => options.part,
        Some(_) => job_part(options.part, "--part")?,
    };
    let lines: Box<dyn Iterator<Item = String> + Send> = match &options.file {
        None => Box::new(TaskLines(BufReader::new(std::io::stdin()))),
        Some(file) if file.extension().is_some_and(|extension| extension == "json") => {
            let text = crate::text_file::read(file, MAX_LINE_BYTES)?;
            Box::new(std::iter::once(text.replace(['\r', '\n'], " ")))
        }
        Some(file) => {
            let opened = std::fs::File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
            Box::new(TaskLines(BufReader::new(opened)))
        }
    };
    // Empty lines are skipped, but counted.
    let in_part = |n: usize| part.is_none_or(|part| n % part.count as usize == part.index as usize);
    let lines = lines.enumerate().map(|(n, line)| if in_part(n) { line } else { String::new() });
    let judging = &options.judging;
    let mut args: Vec<String> = ["kernel", "judge-worker"].map(String::from).into();
    args.extend(["--seed".into(), judging.seed.to_string()]);
    args.extend(["--max-statements".into(), judging.max_statements.to_string()]);
    if let Some(device) = &judging.device {
        if device != "cuda" && !device.starts_with("cuda:") {
            return Err(format!("--device is the GPU that times kernels, cuda or cuda:N; found '{device}'").into());
        }
        match bornite_cuda::device_count() {
            Ok(1..) => args.extend(["--device".into(), device.clone()]),
            _ => note("no NVIDIA GPU found: candidates are judged, but not timed"),
        }
    }
    let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
    let pool = JudgePool::new(JudgePoolConfig {
        program: std::env::current_exe()?,
        args,
        jobs: options.jobs.map_or_else(cores, usize::from),
        timeout: Duration::from_secs_f64(options.timeout),
        max_memory_bytes: options.memory,
    })?;
    let signals = Signals::watch("interrupted".into())?;
    let (started, mut counts) = (Instant::now(), BTreeMap::<String, u64>::new());
    let progress = std::io::stderr().is_terminal().then(|| ProgressDisplay::spinner("judging"));
    let mut failure = None;
    let outcome = pool.judge_lines(lines, &signals.stop, |verdict: Verdict| {
        let Ok(mut line) = serde_json::to_string(&verdict) else { return ControlFlow::Continue(()) };
        line.push('\n');
        let name = serde_json::to_value(verdict.verdict).ok();
        let name = name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        *counts.entry(name).or_default() += 1;
        let mut out = std::io::stdout();
        match suspended(|| out.write_all(line.as_bytes()).and_then(|()| out.flush())) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                // A closed pipe (`| head`) is not an error.
                failure = (error.kind() != std::io::ErrorKind::BrokenPipe).then_some(error);
                ControlFlow::Break(())
            }
        }
    });
    drop(progress);
    outcome?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    let total: u64 = counts.values().sum();
    let rate = total as f64 / started.elapsed().as_secs_f64();
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    note(&format!("{total} judged ({rate:.0} per second): {}", counts.join(", ")));
    let stopped = signals.stop.load(std::sync::atomic::Ordering::Relaxed);
    Ok(if stopped { ExitCode::from(STOPPED) } else { ExitCode::SUCCESS })
}

/// Runs a worker process.
pub fn serve(options: &JudgingOptions) -> Result<ExitCode, Failure> {
    let mut judge = Judge::new(JudgeOptions { seed: options.seed, max_statements: options.max_statements });
    if let Some(device) = &options.device {
        let device: Device = device.parse()?;
        judge = judge.with_timer(Box::new(move |launch| time(launch, device).map_err(|error| error.to_string())));
    }
    // Aborts without exit handlers, which could wait for a kernel that does not end.
    let stdin = BufReader::new(std::io::stdin());
    bornite_judge::serve(stdin, std::io::stdout(), || std::process::abort(), judge)?;
    Ok(ExitCode::SUCCESS)
}

/// Times a launch, in microseconds: the median of several samples.
fn time(launch: &TimedLaunch, device: Device) -> Result<f64, Failure> {
    let args = arguments(&launch.kernel, &launch.values, &launch.memory, device);
    let kernel = CustomKernel::from_ir(launch.kernel.clone())?;
    let prepared = kernel.prepare(Launch { check: true, ..Launch::default() }, &args)?;
    let measured = measure(&Config::quick(), |_| prepared.run(), || device.synchronize())?;
    Ok(1000.0 * measured.median_ms)
}
