//! `bornite kernel analyze`: performance analysis of a launch without a GPU, as text and as JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use bornite::ir::interp::{AccessKind, InterpreterOptions};
use bornite::ir::{Kernel, LaunchMode, Value};
use bornite::kernel::{AccessStats, KernelAnalysis, MemorySpace, Stride};
use clap::Args;
use serde_json::{Map, Value as Json, json};

use super::finding::RunFinding;
use super::launch_file::LaunchFile;
use super::occupancy::{ArchResources, DEFAULT_ARCHITECTURES, limits, resources};
use super::run::with_args;
use super::source::{Job, KernelSelector};
use crate::{Failure, print, print_json};

/// Threads per block with which kernels without blocks are launched.
const DEFAULT_THREADS: u64 = 256;
/// Findings that are shown.
const MAX_FINDINGS: usize = 3;

/// Options of `bornite kernel analyze`.
#[derive(Args)]
pub struct AnalyzeOptions {
    #[command(flatten)]
    source: KernelSelector,
    /// Settings of the launch in a TOML file; flags take precedence
    #[arg(long = "launch", value_name = "FILE")]
    launch_file: Option<PathBuf>,
    /// GPU architectures for registers and occupancy [default: the main ones from sm_75 to sm_120]
    #[arg(long, value_name = "SM", value_delimiter = ',')]
    arch: Vec<String>,
    /// Maximum number of statements per block before the run is aborted
    #[arg(long, value_name = "N", default_value_t = super::MAX_STATEMENTS)]
    max_statements: u64,
    /// Write JSON to stdout
    #[arg(long)]
    pub json: bool,
}

/// Analyzes a launch and prints the report, or the finding of the checks.
pub fn run(options: &AnalyzeOptions) -> Result<ExitCode, Failure> {
    let mut source = options.source.clone();
    if let Some(path) = &options.launch_file {
        source.add_missing(LaunchFile::read(path)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let job = source.job()?;
    let interpreter = InterpreterOptions {
        max_statements: Some(options.max_statements),
        check_instance_races: true,
        ..InterpreterOptions::default()
    };
    let line_of = |line: usize| match &job.origin {
        Some(origin) => origin.source_line(line),
        None => u32::try_from(line).ok(),
    };
    let is_cuda = source.cuda_file().is_some();
    let (_, outcome) =
        with_args(&job, |kernel, args| KernelAnalysis::run(kernel, args, interpreter, line_of, is_cuda))?;
    let analysis = match outcome {
        Ok(analysis) => analysis,
        Err(fault) => {
            let found = RunFinding::of_fault(&job, &fault);
            if options.json {
                print_json(&RunFinding::json(Some(&found), &job).into())?;
            } else {
                print(&found.text(&job))?;
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let defaults = DEFAULT_ARCHITECTURES.map(String::from);
    let architectures = if options.arch.is_empty() { &defaults[..] } else { &options.arch };
    let limits = limits(architectures)?;
    let (resources, unknown) = match resources(&source, &job.kernel, threads_per_block(&job.kernel), &limits) {
        Ok(resources) => (resources, None),
        Err(error) => (vec![], Some(error.to_string())),
    };
    let report = Report { job: &job, analysis: &analysis, resources: &resources, unknown };
    match options.json {
        true => print_json(&report.json())?,
        false => print(&report.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn threads_per_block(kernel: &Kernel) -> u64 {
    match kernel.launch {
        LaunchMode::ParallelFor { .. } => DEFAULT_THREADS,
        LaunchMode::Blocks { block, .. } => block.iter().map(|&n| u64::from(n)).product(),
    }
}

struct Report<'a> {
    job: &'a Job,
    analysis: &'a KernelAnalysis,
    resources: &'a [ArchResources],
    /// Reason for missing resources.
    unknown: Option<String>,
}

fn space_name(space: MemorySpace) -> &'static str {
    match space {
        MemorySpace::Global => "global",
        MemorySpace::Shared => "shared",
    }
}

fn kind_name(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Load => "load",
        AccessKind::Store => "store",
        AccessKind::Atomic => "atomic",
    }
}

impl Report<'_> {
    /// Text of a line.
    fn line_text(&self, line: u32) -> String {
        match &self.job.origin {
            Some(origin) => origin.text(line).trim().into(),
            None => {
                let text = self.job.kernel.to_string();
                text.lines().nth((line as usize).saturating_sub(1)).unwrap_or_default().trim().into()
            }
        }
    }

    /// Members `file` and `line`.
    fn location(&self, line: Option<u32>) -> Map<String, Json> {
        let (file, line) = match (&self.job.origin, line) {
            (Some(origin), Some(line)) => {
                let (file, line) = origin.location(line);
                (Some(file), Some(line))
            }
            (origin, line) => (origin.as_ref().map(|origin| origin.file.clone()), line),
        };
        Map::from_iter([("file".into(), json!(file)), ("line".into(), json!(line))])
    }

    /// `file:line`, or the line of the IR text.
    fn location_text(&self, line: Option<u32>) -> String {
        match (&self.job.origin, line) {
            (Some(origin), Some(line)) => {
                let (file, line) = origin.location(line);
                format!("{}:{line}", file.display())
            }
            (None, Some(line)) => format!("line {line} of the IR text"),
            (_, None) => "unknown line".into(),
        }
    }

    fn line_number(&self, line: Option<u32>) -> String {
        let number = match (&self.job.origin, line) {
            (Some(origin), Some(line)) => Some(origin.location(line).1),
            (_, line) => line,
        };
        number.map_or("-".into(), |line| line.to_string())
    }

    fn launch_text(&self) -> String {
        let sizes = |[x, y, z]: [u32; 3]| match (y, z) {
            (1, 1) => x.to_string(),
            (_, 1) => format!("{x}x{y}"),
            _ => format!("{x}x{y}x{z}"),
        };
        match self.job.kernel.launch {
            LaunchMode::Blocks { grid, block } => format!("grid {}, block {}", sizes(grid), sizes(block)),
            LaunchMode::ParallelFor { .. } => {
                let firsts: Vec<Value> =
                    self.job.values.iter().filter_map(|components| components.first().copied()).collect();
                format!("{} instances", self.job.kernel.launch.count(&firsts))
            }
        }
    }

    fn text(&self) -> String {
        let KernelAnalysis { kernel, accesses, branches, .. } = self.analysis;
        let file = self.job.origin.as_ref().map_or(String::new(), |origin| format!(" of {}", origin.file.display()));
        let mut text = format!("kernel '{kernel}'{file}, {}\n", self.launch_text());
        for (space, unit) in [(MemorySpace::Global, "sectors"), (MemorySpace::Shared, "wavefronts")] {
            let rows: Vec<Vec<String>> =
                accesses.iter().filter(|access| access.space == space).map(|access| self.access_row(access)).collect();
            let titles = ["line", "array", "access", "requests", unit, "per request", "minimum", "efficiency"];
            text += &table(&format!("{} memory", space_name(space)), &titles, rows);
        }
        let rows = branches.iter().map(|branch| {
            let share = 100.0 * branch.divergent as f64 / branch.executions.max(1) as f64;
            let line = self.line_number(branch.line);
            vec![line, branch.executions.to_string(), branch.divergent.to_string(), format!("{share:.0}%")]
        });
        text += &table("branches", &["line", "warps", "divergent", "share"], rows.collect());
        text += &self.arithmetic_text();
        text += &self.resources_text();
        text += "\n";
        if self.analysis.findings.is_empty() {
            text += "no line wastes transactions or time by divergence\n";
        }
        for (n, finding) in self.analysis.findings.iter().take(MAX_FINDINGS).enumerate() {
            let line = finding.line.map_or(String::new(), |line| format!("   | {}\n", self.line_text(line)));
            text += &format!(
                "{}. {}: {}\n{line}   = {}\n",
                n + 1,
                self.location_text(finding.line),
                finding.problem,
                finding.suggestion
            );
        }
        text
    }

    fn access_row(&self, access: &AccessStats) -> Vec<String> {
        vec![
            self.line_number(access.line),
            access.array.clone(),
            kind_name(access.kind).into(),
            access.requests.to_string(),
            access.transactions.to_string(),
            format!("{:.1}", access.per_request()),
            format!("{:.1}", access.min_transactions as f64 / access.requests.max(1) as f64),
            format!("{:.0}%", 100.0 * access.efficiency()),
        ]
    }

    fn arithmetic_text(&self) -> String {
        let KernelAnalysis { flops, min_bytes, sector_bytes, active_threads, .. } = *self.analysis;
        let per = |bytes: u64| match bytes {
            0 => String::new(),
            bytes => format!(", {:.3} flop/byte", flops as f64 / bytes as f64),
        };
        format!(
            "\narithmetic\n  {flops} flops\n  {min_bytes} bytes of global memory if each sector moves once{}\n  {sector_bytes} \
             bytes of sectors in all requests{}\n  {active_threads:.1} of 32 threads active per executed statement\n",
            per(min_bytes),
            per(sector_bytes)
        )
    }

    fn resources_text(&self) -> String {
        if let Some(reason) = &self.unknown {
            return format!("\nresources\n  unknown: {reason}\n");
        }
        let rows = self.resources.iter().map(ArchResources::row).collect();
        let titles = ["arch", "registers", "local bytes", "shared bytes", "blocks", "warps", "occupancy", "limited by"];
        table("resources", &titles, rows)
    }

    fn json(&self) -> Json {
        let KernelAnalysis { kernel, accesses, branches, findings, flops, .. } = self.analysis;
        let accesses: Vec<Json> = accesses.iter().map(|access| self.access_json(access)).collect();
        let located = |line: Option<u32>, members: Json| {
            let mut all = self.location(line);
            if let Json::Object(members) = members {
                all.extend(members);
            }
            Json::Object(all)
        };
        let branches: Vec<Json> = (branches.iter())
            .map(|b| located(b.line, json!({"warps": b.executions, "divergent": b.divergent})))
            .collect();
        let worst: Vec<Json> = (findings.iter().take(MAX_FINDINGS))
            .map(|finding| {
                let members = json!({
                    "source": finding.line.map(|line| self.line_text(line)), "array": finding.array,
                    "problem": finding.problem, "suggestion": finding.suggestion, "lost_cycles": finding.lost_cycles,
                });
                located(finding.line, members)
            })
            .collect();
        json!({
            "kernel": kernel, "file": self.job.origin.as_ref().map(|origin| &origin.file), "launch": self.launch_text(),
            "accesses": accesses, "branches": branches, "worst": worst, "flops": flops,
            "requested_bytes": self.analysis.requested_bytes, "sector_bytes": self.analysis.sector_bytes,
            "min_bytes": self.analysis.min_bytes, "flops_per_byte": self.analysis.intensity(),
            "active_threads_per_warp": self.analysis.active_threads,
            "resources": self.resources.iter().map(ArchResources::json).collect::<Vec<_>>(),
            "resources_unknown": self.unknown,
        })
    }

    fn access_json(&self, access: &AccessStats) -> Json {
        let [unit, min_unit] = match access.space {
            MemorySpace::Global => ["sectors", "min_sectors"],
            MemorySpace::Shared => ["wavefronts", "min_wavefronts"],
        };
        let stride = match access.stride {
            Stride::Constant(bytes) => json!(bytes),
            Stride::Irregular => json!("irregular"),
            Stride::Unknown => Json::Null,
        };
        let mut all = self.location(access.line);
        let members = json!({
            "array": access.array, "memory": space_name(access.space), "access": kind_name(access.kind),
            "requests": access.requests, "threads": access.threads, "requested_bytes": access.requested_bytes,
            unit: access.transactions, min_unit: access.min_transactions, "per_request": access.per_request(),
            "efficiency": access.efficiency(), "stride_bytes": stride,
        });
        if let Json::Object(members) = members {
            all.extend(members);
        }
        if access.kind == AccessKind::Atomic {
            all.insert("serial_updates".into(), json!(access.serial_updates));
        }
        Json::Object(all)
    }
}

/// An aligned table below its title; empty without rows.
fn table(title: &str, titles: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let titles: Vec<String> = titles.iter().map(|title| (*title).into()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&titles).chain(&rows).collect();
    let width = |n: usize| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let is_number = |n: usize| rows.iter().all(|row| row[n].starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    let flush_right: Vec<bool> = (0..titles.len()).map(is_number).collect();
    let mut text = format!("\n{title}\n");
    for line in lines {
        let cells = line.iter().zip(&widths).zip(&flush_right).map(|((cell, &width), &right)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        text += &format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}
