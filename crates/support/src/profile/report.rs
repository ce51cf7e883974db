//! Report of a profile: one row per kernel and device, as a table, as JSON, and with the keys that
//! reports of other frameworks use.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Bound, ComputeUnit, MemorySample, ProfileSpan, Roofline, WorkKind, devices};

/// Version of the JSON report.
pub const FORMAT_VERSION: u32 = 3;

/// A compilation of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compilation {
    /// The kernel.
    pub kernel: String,
    /// Target architecture.
    pub arch: String,
    /// Start of the compilation, in milliseconds of the process.
    pub at_ms: f64,
    /// Duration in milliseconds.
    pub duration_ms: f64,
}

/// Work with its times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedSpan {
    /// Kind of work.
    pub kind: WorkKind,
    /// Its name.
    pub name: String,
    /// The device.
    pub device: String,
    /// Start, in milliseconds of the process.
    pub start_ms: f64,
    /// Duration in milliseconds.
    pub duration_ms: f64,
    /// Bytes read and written.
    pub bytes: Option<u64>,
    /// Floating-point operations.
    pub flops: Option<u64>,
    /// Unit that executed them.
    pub unit: ComputeUnit,
    /// Source location in the user's program.
    pub location: Option<String>,
}

/// Totals of all calls with one name on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportRow {
    /// Kind of work.
    pub kind: WorkKind,
    /// Name of the kernel, or of the copied data.
    pub name: String,
    /// The device.
    pub device: String,
    /// Source location in the user's program, if all calls have the same one.
    pub location: Option<String>,
    /// Number of calls.
    pub calls: u64,
    /// Total time.
    pub total_ms: f64,
    /// Mean time per call.
    pub mean_ms: f64,
    /// Time of the fastest call.
    pub min_ms: f64,
    /// Time of the slowest call.
    pub max_ms: f64,
    /// Fraction of the total time of all work on all devices, 0 to 1.
    pub share: f64,
    /// Gigabytes per second, if the bytes are known.
    pub gb_s: Option<f64>,
    /// TFLOP/s, if the number of operations is known.
    pub tflop_s: Option<f64>,
    /// Resource that bounds it, if the device's peak rates are known.
    pub bound: Option<Bound>,
    /// Achieved fraction of the peak rate of `bound`; `None` if a call's data fits the last-level
    /// cache.
    pub roofline_fraction: Option<f64>,
}

/// Report of a scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileReport {
    /// [`FORMAT_VERSION`].
    pub format: u32,
    /// Start of the scope.
    pub start_ms: f64,
    /// Wall-clock time from the start of the scope to the report.
    pub wall_ms: f64,
    /// Totals by name and device, longest first.
    pub rows: Vec<ReportRow>,
    /// All work, in order of time.
    pub spans: Vec<TimedSpan>,
    /// Work that could not be timed, with the reason.
    pub untimed: Vec<String>,
    /// Memory use over time.
    pub memory: Vec<MemorySample>,
    /// Kernels compiled during the scope.
    pub compilations: Vec<Compilation>,
    /// Statistics of the memory pools at the end.
    pub pools: BTreeMap<String, Value>,
}

impl ProfileReport {
    pub(super) fn new(
        start_ms: f64,
        end_ms: f64,
        recorded: &[Arc<ProfileSpan>],
        memory: Vec<MemorySample>,
        compilations: Vec<Compilation>,
        pools: BTreeMap<String, Value>,
        rooflines: &BTreeMap<String, Roofline>,
    ) -> ProfileReport {
        let (mut spans, mut untimed) = (vec![], vec![]);
        for span in recorded {
            let work = &span.work;
            match span.times() {
                Ok(times) => spans.push(TimedSpan {
                    kind: work.kind,
                    name: work.name.clone(),
                    device: span.device.clone(),
                    start_ms: times.start_ms,
                    duration_ms: times.duration_ms,
                    bytes: work.bytes,
                    flops: work.flops,
                    unit: work.unit,
                    location: work.location.clone(),
                }),
                Err(error) => untimed.push(format!("{}: {error}", work.name)),
            }
        }
        spans.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
        let rows = rows(&spans, rooflines);
        let wall_ms = end_ms - start_ms;
        ProfileReport { format: FORMAT_VERSION, start_ms, wall_ms, rows, spans, untimed, memory, compilations, pools }
    }

    /// The complete report as JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open, with a memory
    /// track per device.
    pub fn to_chrome(&self) -> Value {
        super::chrome::trace(self)
    }

    /// Returns the report with the keys of a classic performance report: `kernel_execution_times`,
    /// `memory_transfer_times` with keys such as `H2D_4096`, `compilation_times`,
    /// `memory_pool_stats`, `device_info`.
    pub fn performance_stats(&self) -> Value {
        let mut kernels: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut transfers: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for span in &self.spans {
            let direction = match span.kind {
                WorkKind::Kernel | WorkKind::Graph => {
                    kernels.entry(span.name.clone()).or_default().push(span.duration_ms);
                    continue;
                }
                WorkKind::Upload => "H2D",
                WorkKind::Download => "D2H",
                WorkKind::Copy => "D2D",
            };
            let key = format!("{direction}_{}", span.bytes.unwrap_or(0));
            transfers.entry(key).or_default().push(span.duration_ms);
        }
        let summary = |times: &[f64], counted: &str| {
            let fold = |start, f: fn(f64, f64) -> f64| times.iter().copied().fold(start, f);
            json!({
                "average_ms": times.iter().sum::<f64>() / times.len() as f64,
                "min_ms": fold(f64::INFINITY, f64::min),
                "max_ms": fold(0.0, f64::max),
                counted: times.len(),
            })
        };
        let all = |groups: &BTreeMap<String, Vec<f64>>, counted: &str| -> Value {
            groups.iter().map(|(name, times)| (name.clone(), summary(times, counted))).collect()
        };
        let gpus = devices();
        let longest = self.rows.first().map(|row| row.device.clone());
        json!({
            "cuda_available": !gpus.is_empty(),
            "devices": gpus.iter().map(|gpu| &gpu.name).collect::<Vec<_>>(),
            "current_device": longest,
            "kernel_execution_times": all(&kernels, "total_executions"),
            "memory_transfer_times": all(&transfers, "total_transfers"),
            "compilation_times":
                self.compilations.iter().map(|c| (c.kernel.clone(), json!(c.duration_ms))).collect::<Value>(),
            "memory_pool_stats": self.pools,
            "device_info": gpus.iter().map(|gpu| &gpu.info).collect::<Vec<_>>(),
        })
    }

    /// Writes [`performance_stats`](ProfileReport::performance_stats) to a file.
    pub fn export(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        std::fs::write(path, format!("{:#}\n", self.performance_stats()))
    }

    /// Writes [`to_chrome`](ProfileReport::to_chrome) to a file.
    pub fn export_trace(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        std::fs::write(path, self.to_chrome().to_string())
    }

    /// Formats a table of the `n` rows with the longest total time.
    pub fn top(&self, n: usize) -> String {
        let mut text = format!(
            "{:<28} {:<8} {:>7} {:>11} {:>10} {:>6} {:>8} {:>8} {:>13}\n",
            "work", "device", "calls", "total ms", "mean ms", "share", "GB/s", "TFLOP/s", "of peak rate"
        );
        let number = |value: Option<f64>, digits: usize| value.map_or("-".into(), |v| format!("{v:.digits$}"));
        for row in self.rows.iter().take(n) {
            let name =
                if row.kind == WorkKind::Kernel { row.name.clone() } else { format!("{} {}", row.kind, row.name) };
            text += &format!(
                "{name:<28} {:<8} {:>7} {:>11.3} {:>10.4} {:>5.1}% {:>8} {:>8} {:>13}\n",
                row.device,
                row.calls,
                row.total_ms,
                row.mean_ms,
                100.0 * row.share,
                number(row.gb_s, 1),
                number(row.tflop_s, 3),
                match (row.bound, row.roofline_fraction) {
                    (Some(bound), Some(fraction)) => format!("{:.1}% {bound}", 100.0 * fraction),
                    (Some(bound), None) => bound.to_string(),
                    (None, _) => "-".into(),
                },
            );
        }
        if self.rows.len() > n {
            text += &format!("… and {} more\n", self.rows.len() - n);
        }
        let busy_ms: f64 = self.rows.iter().map(|row| row.total_ms).sum();
        text += &format!("{busy_ms:.3} ms of work in {:.3} ms\n", self.wall_ms);
        for problem in &self.untimed {
            text += &format!("not timed: {problem}\n");
        }
        text
    }
}

impl fmt::Display for ProfileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.top(20))
    }
}

/// Totals of one row.
#[derive(Default)]
struct Sum {
    times_ms: Vec<f64>,
    /// Totals, `None` if a call does not specify its amount.
    bytes: Option<u64>,
    flops: Option<u64>,
    location: Option<String>,
}

fn rows(spans: &[TimedSpan], rooflines: &BTreeMap<String, Roofline>) -> Vec<ReportRow> {
    let mut sums: BTreeMap<(WorkKind, &str, &str, ComputeUnit), Sum> = BTreeMap::new();
    for span in spans {
        let key = (span.kind, span.name.as_str(), span.device.as_str(), span.unit);
        match sums.get_mut(&key) {
            None => {
                let times_ms = vec![span.duration_ms];
                sums.insert(
                    key,
                    Sum { times_ms, bytes: span.bytes, flops: span.flops, location: span.location.clone() },
                );
            }
            Some(sum) => {
                sum.times_ms.push(span.duration_ms);
                sum.bytes = sum.bytes.zip(span.bytes).map(|(a, b)| a + b);
                sum.flops = sum.flops.zip(span.flops).map(|(a, b)| a + b);
                if sum.location != span.location {
                    sum.location = None;
                }
            }
        }
    }
    let all_ms: f64 = spans.iter().map(|span| span.duration_ms).sum();
    let mut rows: Vec<ReportRow> = (sums.into_iter())
        .map(|((kind, name, device, unit), sum)| {
            let calls = sum.times_ms.len() as u64;
            let total_ms: f64 = sum.times_ms.iter().sum();
            let seconds = total_ms / 1e3;
            let rate = |amount: Option<u64>| amount.filter(|_| seconds > 0.0).map(|n| n as f64 / seconds);
            // Transfers to and from the host are bounded by the bus, which the roofline does not
            // describe.
            let within = matches!(kind, WorkKind::Kernel | WorkKind::Graph | WorkKind::Copy);
            let per_call = |amount: Option<u64>| amount.map(|n| n as f64 / calls as f64);
            let bound = rooflines.get(device).filter(|_| within).and_then(|roofline| {
                roofline.bound(per_call(sum.bytes), per_call(sum.flops), unit, seconds / calls as f64)
            });
            ReportRow {
                kind,
                name: name.into(),
                device: device.into(),
                location: sum.location,
                calls,
                total_ms,
                mean_ms: total_ms / calls as f64,
                min_ms: sum.times_ms.iter().copied().fold(f64::INFINITY, f64::min),
                max_ms: sum.times_ms.iter().copied().fold(0.0, f64::max),
                share: if all_ms > 0.0 { total_ms / all_ms } else { 0.0 },
                gb_s: rate(sum.bytes).map(|rate| rate / 1e9),
                tflop_s: rate(sum.flops).map(|rate| rate / 1e12),
                bound: bound.map(|(bound, _)| bound),
                roofline_fraction: bound.and_then(|(_, fraction)| fraction),
            }
        })
        .collect();
    rows.sort_by(|a, b| b.total_ms.total_cmp(&a.total_ms));
    rows
}
