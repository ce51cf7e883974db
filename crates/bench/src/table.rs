//! A report as text: the machine, an aligned table, and the notes.

use std::fmt;

use crate::{Accuracy, BenchReport, BenchRow, StepPart, TrainingFigures};

/// A column: title, alignment, and the cell of a row.
struct Column {
    title: &'static str,
    flush_left: bool,
    cell: fn(&BenchRow) -> Option<String>,
}

const COLUMNS: [Column; 6] = [
    Column { title: "name", flush_left: true, cell: |row| Some(row.name.clone()) },
    Column { title: "device", flush_left: true, cell: |row| Some(row.device.clone()) },
    Column { title: "median", flush_left: false, cell: |row| Some(time(row.measurement.median_ms)) },
    Column { title: "spread", flush_left: false, cell: |row| Some(format!("{:.1}%", 100.0 * row.measurement.spread)) },
    Column { title: "GB/s", flush_left: false, cell: |row| row.gb_s.map(three_digits) },
    Column { title: "TFLOP/s", flush_left: false, cell: |row| row.tflop_s.map(three_digits) },
];

const ERROR: Column = Column { title: "error", flush_left: false, cell: |row| row.accuracy.map(accuracy_text) };

const VS_NAIVE: Column = Column {
    title: "vs naive",
    flush_left: false,
    cell: |row| row.naive.map(|naive| format!("{}x", three_digits(naive.speedup))),
};

const VS_BASELINE: Column = Column {
    title: "vs baseline",
    flush_left: false,
    cell: |row| {
        let baseline = row.baseline?;
        Some(format!("{}x{}", three_digits(baseline.ratio), if baseline.is_slower { " SLOWER" } else { "" }))
    },
};

const VS_PEER: Column = Column {
    title: "vs peer",
    flush_left: false,
    cell: |row| row.peer.as_ref().map(|peer| format!("{}x", three_digits(peer.speedup))),
};

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        let mut peers: Vec<&str> = self.rows.iter().filter_map(|row| Some(row.peer.as_ref()?.name.as_str())).collect();
        peers.sort_unstable();
        peers.dedup();

        let has = |of: fn(&BenchRow) -> bool| self.rows.iter().any(of);
        let optional = [
            (has(|row| row.accuracy.is_some()), &ERROR),
            (has(|row| row.naive.is_some()), &VS_NAIVE),
            (has(|row| row.baseline.is_some()), &VS_BASELINE),
            (!peers.is_empty(), &VS_PEER),
        ];
        let shown = optional.into_iter().filter(|(shown, _)| *shown).map(|(_, column)| column);
        let columns: Vec<&Column> = COLUMNS.iter().chain(shown).collect();
        let titles = columns.iter().map(|column| column.title.to_string()).collect();
        let cells_of = |row| {
            let cell = |column: &&Column| (column.cell)(row).unwrap_or_else(|| "-".into());
            columns.iter().map(cell).collect()
        };
        let lines: Vec<Vec<String>> = std::iter::once(titles).chain(self.rows.iter().map(cells_of)).collect();
        write_aligned(f, &columns, &lines)?;

        if !peers.is_empty() {
            let names = peers.join(", ");
            writeln!(f, "\nvs peer: time of {names} over ours; above 1 we are faster")?;
        }
        if has(|row| row.accuracy.is_some()) {
            writeln!(f, "\nerror: largest difference from f64 over the largest magnitude")?;
        }
        if has(|row| row.naive.is_some()) {
            writeln!(f, "vs naive: time of simple loops on one CPU core over ours")?;
        }
        if has(|row| row.baseline.is_some()) {
            writeln!(f, "vs baseline: our time over that of the earlier report; above 1 we are slower")?;
        }
        for row in &self.rows {
            if let Some(figures) = &row.training {
                write_training(f, row, figures)?;
            }
            if let Some(note) = &row.note {
                writeln!(f, "\n{} on {}: {note}", row.name, row.device)?;
            }
        }
        Ok(())
    }
}

/// Parts of a step that are listed.
const MAX_PARTS: usize = 16;

fn write_training(f: &mut fmt::Formatter, row: &BenchRow, figures: &TrainingFigures) -> fmt::Result {
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let mut parts = vec![format!("{:.0} tokens/s", figures.tokens_per_second)];
    parts.extend(figures.utilization.map(|share| format!("{} of peak flops", percent(share))));
    parts.extend(figures.peak_bytes.map(|bytes| format!("{:.2} GiB at peak", bytes as f64 / (1u64 << 30) as f64)));
    parts.push(format!("first step {:.1} s", figures.first_step_seconds));
    parts.push(format!("host {}", time(figures.host_ms)));
    parts.push(format!("data wait {}", time(figures.data_wait_ms)));
    parts.extend(figures.gpu_idle_share.map(|share| format!("GPU idle {}", percent(share))));
    writeln!(f, "\n{} on {}: {}", row.name, row.device, parts.join(", "))?;
    for StepPart { name, calls, total_ms, share } in figures.parts.iter().take(MAX_PARTS) {
        writeln!(f, "  {:>6} {:>9} {calls:>5}x {name}", percent(*share), time(*total_ms))?;
    }
    let others = figures.parts.get(MAX_PARTS..).unwrap_or_default();
    if !others.is_empty() {
        let (total_ms, share): (f64, f64) =
            others.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.total_ms, sum.1 + part.share));
        writeln!(f, "  {:>6} {:>9}        {} others", percent(share), time(total_ms), others.len())?;
    }
    Ok(())
}

fn write_aligned(f: &mut fmt::Formatter, columns: &[&Column], lines: &[Vec<String>]) -> fmt::Result {
    let width = |i: usize| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for line in lines {
        let cells = line.iter().zip(columns).zip(&widths).map(|((cell, column), &width)| {
            if column.flush_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Formats an error; one past the threshold is marked.
pub(crate) fn accuracy_text(accuracy: Accuracy) -> String {
    let error = accuracy.error.map_or("not a number".into(), |error| format!("{error:.1e}"));
    if accuracy.passed { error } else { format!("{error} FAILED") }
}

/// Formats a time in the unit that gives one to three integer digits.
pub(crate) fn time(ms: f64) -> String {
    // Compared with what prints as 1000, so that 999.7 ns becomes 1.00 µs.
    let (value, unit) = match ms {
        ms if ms < 999.5e-6 => (ms * 1e6, "ns"),
        ms if ms < 999.5e-3 => (ms * 1e3, "µs"),
        ms if ms < 999.5 => (ms, "ms"),
        ms => (ms / 1e3, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Formats with three significant digits; three decimals below one.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn golden() {
        let expected = "\
bornite 0.1.0, AMD EPYC (avx2 fma), 16 logical cores, 128.0 GiB, linux x86_64 6.18
NVIDIA H200, sm_90, 139.8 GiB

name                device   median  spread  GB/s  TFLOP/s  vs peer
add_f32_1000        cuda:0  2.00 µs    1.2%  6.00        -    1.25x
matmul_f32_8192     cuda:0  21.5 ms    0.4%     -     51.1        -
mlp_step_f32_96x32  cpu      250 µs   50.0%     -        -        -

vs peer: time of torch 2.11.0 over ours; above 1 we are faster

mlp_step_f32_96x32 on cpu: the machine was busy
";
        assert_eq!(sample().to_string(), expected);
    }

    #[test]
    fn training_steps_are_described_below_the_table() {
        let mut report = sample();
        report.rows.truncate(1);
        let part = |n: u64| StepPart { name: format!("kernel_{n}"), calls: n, total_ms: 1.0, share: 0.05 };
        report.rows[0].training = Some(TrainingFigures {
            tokens_per_second: 512_345.6,
            utilization: Some(0.4321),
            peak_bytes: Some(3 << 30),
            first_step_seconds: 7.25,
            host_ms: 0.25,
            data_wait_ms: 0.001,
            gpu_idle_share: Some(0.002),
            parts: (1..=20).map(part).collect(),
        });
        let shown = report.to_string();
        let lines: Vec<&str> = shown.lines().skip(8).collect();
        let head = "add_f32_1000 on cuda:0: 512346 tokens/s, 43.2% of peak flops, 3.00 GiB at peak, first step 7.2 s, \
                    host 250 µs, data wait 1.00 µs, GPU idle 0.2%";
        assert_eq!(lines[0], head);
        assert_eq!(lines[1], "    5.0%   1.00 ms     1x kernel_1");
        assert_eq!((lines[17], lines.len()), ("   20.0%   4.00 ms        4 others", 18));
        let mut json = vec![];
        report.write_json(&mut json).unwrap();
        assert_eq!(BenchReport::read_json(&json[..]).unwrap(), report);
    }

    #[test]
    fn without_peers_there_is_no_peer_column() {
        let mut report = sample();
        report.rows.truncate(1);
        report.rows[0].peer = None;
        let shown = report.to_string();
        let table: Vec<&str> = shown.lines().skip(3).collect();
        let expected = [
            "name          device   median  spread  GB/s  TFLOP/s",
            "add_f32_1000  cuda:0  2.00 µs    1.2%  6.00        -",
        ];
        assert_eq!(table, expected);
    }

    #[test]
    fn errors_and_slower_rows_are_marked() {
        let mut report = sample();
        report.rows.truncate(2);
        report.rows[0].peer = None;
        report.rows[0].accuracy = Some(Accuracy::of(&[1.0], &[1.0], 1e-4));
        report.rows[1].accuracy = Some(Accuracy::of(&[1.5], &[1.0], 1e-4));
        report.rows[0] = report.rows[0].clone().with_naive(0.02);
        let mut earlier = report.clone();
        earlier.rows[1].measurement.median_ms = 4.0;
        assert_eq!(crate::baseline::compare(&mut report, &earlier, 0.1).unwrap(), 1);
        let shown = report.to_string();
        let table: Vec<&str> = shown.lines().skip(3).take(3).collect();
        let expected = [
            "name             device   median  spread  GB/s  TFLOP/s          error  vs naive   vs baseline",
            "add_f32_1000     cuda:0  2.00 µs    1.2%  6.00        -          0.0e0     10.0x         1.00x",
            "matmul_f32_8192  cuda:0  21.5 ms    0.4%     -     51.1  5.0e-1 FAILED         -  5.38x SLOWER",
        ];
        assert_eq!(table, expected);
    }

    #[test]
    fn times_have_readable_units() {
        for (ms, expected) in [
            (0.0, "0.000 ns"),
            (3.2e-6, "3.20 ns"),
            (999.4e-6, "999 ns"),
            (999.7e-6, "1.00 µs"),
            (0.0123456, "12.3 µs"),
            (0.99951, "1.00 ms"),
            (99.96, "100 ms"),
            (61_000.0, "61.0 s"),
            (4_000_000.0, "4000 s"),
        ] {
            assert_eq!(time(ms), expected);
        }
    }
}
