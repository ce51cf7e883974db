//! A report as a self-contained HTML page: machine, roofline, speed-ups, latency against size, and
//! a sortable table.

use std::collections::BTreeMap;

use bornite_support::chart::{Bars, COLORS, Chart, ChartAxis, Series, SeriesMark, short_number};
use bornite_support::page::{Page, Table, TableCell};

use crate::table::{accuracy_text, three_digits, time};
use crate::{BenchReport, BenchRow};

/// Sizes that an operation needs to be drawn as a curve.
const MIN_SIZES: usize = 2;

impl BenchReport {
    /// Returns the report as an HTML page without references to other files.
    pub fn html(&self) -> String {
        let mut page = Page::new("Bornite benchmarks");
        for line in self.machine.to_string().lines() {
            page.paragraph(line);
        }
        page.remark(&format!(
            "Medians of up to {} samples after {} warm-up calls, measured on {}.",
            self.config.samples,
            self.config.warmup,
            date(self.machine.unix_time)
        ));
        self.verdicts(&mut page);
        page.heading("Rates");
        let charts: Vec<Chart> = std::iter::once(self.roofline()).chain(self.latency()).collect();
        page.charts(&charts);
        if self.peak.is_none() && !self.roofline().is_empty() {
            page.remark("The lines of the roofline are the highest rates of this report: peak rates are not known.");
        }
        self.speedups(&mut page);
        page.heading("All rows");
        page.table(&self.table());
        for row in &self.rows {
            if let Some(note) = &row.note {
                page.remark(&format!("{} on {}: {note}", row.name, row.device));
            }
        }
        page.html()
    }

    /// Rows that failed, in words.
    fn verdicts(&self, page: &mut Page) {
        let names = |of: fn(&BenchRow) -> bool| {
            let names: Vec<&str> = self.rows.iter().filter(|row| of(row)).map(|row| row.name.as_str()).collect();
            names.join(", ")
        };
        let failed = names(|row| row.accuracy.is_some_and(|accuracy| !accuracy.passed));
        let slower = names(|row| row.baseline.is_some_and(|baseline| baseline.is_slower));
        if !failed.is_empty() {
            page.paragraph(&format!("Not accurate enough: {failed}."));
        }
        if !slower.is_empty() {
            page.paragraph(&format!("Slower than the baseline: {slower}."));
        }
    }

    /// Flops per second over flops per byte, below the lines of the device.
    fn roofline(&self) -> Chart {
        let placed = |row: &BenchRow| {
            let (bytes, flops) = (row.bytes? as f64, row.flops? as f64);
            let tflops = row.tflop_s?;
            (bytes > 0.0 && flops > 0.0).then(|| (flops / bytes, tflops * 1e12))
        };
        let points: Vec<((f64, f64), String)> = (self.rows.iter())
            .filter_map(|row| {
                let (x, y) = placed(row)?;
                Some(((x, y), format!("{}: {}FLOP/s at {} flop/byte", row.name, short_number(y), short_number(x))))
            })
            .collect();
        let highest = |of: fn(&BenchRow) -> Option<f64>| self.rows.iter().filter_map(of).fold(0.0, f64::max);
        let (bandwidth, flops, tensor) = match self.peak {
            Some(peak) => (peak.bytes_per_second, peak.flops_per_second, Some(peak.tensor_flops_per_second)),
            None => (highest(|row| row.gb_s) * 1e9, highest(|row| row.tflop_s) * 1e12, None),
        };
        let range = |(low, high): (f64, f64), ((x, _), _): &((f64, f64), String)| (low.min(*x), high.max(*x));
        let (low, high) = points.iter().fold((f64::INFINITY, 0.0), range);
        let line = |name: &str, flops: f64| {
            let ridge = flops / bandwidth;
            let xs = [low.min(ridge), ridge, high.max(ridge)];
            Series::new(name, SeriesMark::Dashed, xs.map(|x| (x, flops.min(x * bandwidth))))
        };
        let mut series = vec![];
        if !points.is_empty() && bandwidth > 0.0 && flops > 0.0 {
            series.push(line(if tensor.is_some() { "peak without tensor cores" } else { "highest rates" }, flops));
            series.extend(tensor.map(|tensor| line("peak with tensor cores", tensor)));
        }
        let labels = points.iter().map(|(_, label)| label.clone()).collect();
        let marks = Series::new("operations", SeriesMark::Points, points.iter().map(|(point, _)| *point));
        series.push(Series { labels, ..marks });
        let (x, y) = (ChartAxis::log("flop per byte of memory traffic"), ChartAxis::log("FLOP/s"));
        Chart { title: "Roofline".into(), x, y, series }
    }

    /// Time over size, of operations with several sizes; a chart has as many as it has colors.
    fn latency(&self) -> Vec<Chart> {
        let mut ops: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
        for row in &self.rows {
            if let Some((op, size)) = row.op_and_size() {
                ops.entry((op, &row.device)).or_default().push((size, row.measurement.median_ms * 1e3));
            }
        }
        let curves: Vec<Series> = (ops.into_iter().filter(|(_, points)| points.len() >= MIN_SIZES))
            .map(|((op, _), mut points)| {
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Series::new(op, SeriesMark::Line, points)
            })
            .collect();
        let charts = curves.len().div_ceil(COLORS);
        let chart = |(n, series): (usize, &[Series])| {
            let part = if charts > 1 { format!(" ({} of {charts})", n + 1) } else { String::new() };
            let (x, y) = (ChartAxis::log("size in the row's name"), ChartAxis::log("µs per call"));
            Chart { title: format!("Latency against size{part}"), x, y, series: series.into() }
        };
        curves.chunks(curves.len().div_ceil(charts.max(1)).max(1)).enumerate().map(chart).collect()
    }

    fn speedups(&self, page: &mut Page) {
        let bars = |title: String, of: fn(&BenchRow) -> Option<f64>| Bars {
            title,
            rows: self.rows.iter().filter_map(|row| Some((row.name.clone(), of(row)?))).collect(),
            reference: 1.0,
            unit: "×",
        };
        let peer = self.rows.iter().find_map(|row| Some(row.peer.as_ref()?.name.clone()));
        if let Some(peer) = peer {
            page.heading("Speed-up over the peer");
            page.bars(&bars(format!("Time of {peer} over ours"), |row| Some(row.peer.as_ref()?.speedup)));
        }
        if self.rows.iter().any(|row| row.naive.is_some()) {
            page.heading("Speed-up over simple loops");
            page.bars(&bars("Time of one CPU core over ours".into(), |row| Some(row.naive?.speedup)));
        }
    }

    fn table(&self) -> Table {
        let has = |of: fn(&BenchRow) -> bool| self.rows.iter().any(of);
        let [accuracy, naive, baseline, peer] = [
            has(|row| row.accuracy.is_some()),
            has(|row| row.naive.is_some()),
            has(|row| row.baseline.is_some()),
            has(|row| row.peer.is_some()),
        ];
        let optional = [(accuracy, "error"), (naive, "vs naive"), (baseline, "vs baseline"), (peer, "vs peer")];
        let titles = ["name", "device", "median", "spread", "GB/s", "TFLOP/s"].into_iter();
        let titles = titles.chain(optional.into_iter().filter(|(shown, _)| *shown).map(|(_, title)| title));
        let ratio = |value: f64| format!("{}×", three_digits(value));
        let cells = |row: &BenchRow| {
            let mut cells = vec![
                TableCell::text(&row.name),
                TableCell::text(&row.device),
                TableCell::number(Some(row.measurement.median_ms), time),
                TableCell::number(Some(row.measurement.spread), |spread| format!("{:.1} %", 100.0 * spread)),
                TableCell::number(row.gb_s, three_digits),
                TableCell::number(row.tflop_s, three_digits),
            ];
            if accuracy {
                let error = row.accuracy.map(|found| found.error.unwrap_or(f64::INFINITY));
                let text = row.accuracy.map(accuracy_text).unwrap_or_default();
                let is_bad = row.accuracy.is_some_and(|accuracy| !accuracy.passed);
                cells.push(TableCell { is_bad, ..TableCell::number(error, |_| text) });
            }
            if naive {
                cells.push(TableCell::number(row.naive.map(|naive| naive.speedup), ratio));
            }
            if baseline {
                let is_bad = row.baseline.is_some_and(|baseline| baseline.is_slower);
                cells.push(TableCell {
                    is_bad,
                    ..TableCell::number(row.baseline.map(|baseline| baseline.ratio), ratio)
                });
            }
            if peer {
                cells.push(TableCell::number(row.peer.as_ref().map(|peer| peer.speedup), ratio));
            }
            cells
        };
        Table {
            caption: "Times per call".into(),
            titles: titles.map(String::from).collect(),
            rows: self.rows.iter().map(cells).collect(),
        }
    }
}

/// The day of a Unix time, in the Gregorian calendar.
fn date(unix_seconds: u64) -> String {
    // Days are counted from 1 March of year 0, so that leap days end a year; 146,097 days are 400 years.
    let days = unix_seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn pages_have_every_row_and_escape_names() {
        let mut report = sample();
        report.rows[1] = report.rows[1].clone().with_bytes(3 << 28);
        report.rows[2].name = "<script>alert(1)</script>".into();
        let second = BenchRow { name: "add_f32_10000".into(), ..report.rows[0].clone() };
        report.rows.push(second);
        let html = report.html();
        for part in ["add_f32_1000", "Roofline", "Latency against size", "torch 2.11.0 over ours", "21.5 ms", "1.25×"]
        {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("<script>alert") && html.contains("&lt;script&gt;alert(1)"));
        assert_eq!(html.matches("<tr>").count(), 1 + report.rows.len());
        // A point for each row with bytes and flops, a curve for each op with several sizes.
        assert_eq!((html.matches("<circle").count(), html.matches("class=\"line\"").count()), (1, 1));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_700_000_000, "2023-11-14"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn empty_reports_are_pages() {
        let mut report = sample();
        report.rows.clear();
        assert!(report.html().contains("AMD EPYC"));
    }
}
