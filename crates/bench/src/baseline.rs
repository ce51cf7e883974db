//! Comparison of a report with an earlier one of the same machine.

use crate::{BaselineRatio, BenchReport, Error, Machine};

/// Compares every row with the one of the same name and device in an earlier report, and returns
/// the number of slower rows.
///
/// A row is slower if its median exceeds the earlier one by more than `max_slowdown` (0.1 allows 10
/// %) and even its fastest sample exceeds the earlier median, which excludes single slow samples.
pub fn compare(report: &mut BenchReport, earlier: &BenchReport, max_slowdown: f64) -> Result<usize, Error> {
    let processors = |machine: &Machine| {
        let names: Vec<&str> = machine.cpu.iter().chain(&machine.gpus).map(String::as_str).collect();
        if names.is_empty() { "an unknown machine".into() } else { names.join(", ") }
    };
    let (theirs, ours) = (processors(&earlier.machine), processors(&report.machine));
    if theirs != ours {
        return Err(Error::OtherBaseline { theirs, ours });
    }
    let mut slower = 0;
    for row in &mut report.rows {
        let same = |other: &&crate::BenchRow| (&other.name, &other.device) == (&row.name, &row.device);
        let Some(median_ms) = earlier.rows.iter().find(same).map(|row| row.measurement.median_ms) else { continue };
        if median_ms <= 0.0 {
            continue;
        }
        let ratio = row.measurement.median_ms / median_ms;
        let is_slower = ratio > 1.0 + max_slowdown && row.measurement.min_ms > median_ms;
        slower += usize::from(is_slower);
        row.baseline = Some(BaselineRatio { median_ms, ratio, is_slower });
    }
    Ok(slower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn slower_rows_are_found() {
        let earlier = sample();
        // (factor on all times, slower); the fastest sample is half the median.
        for (factor, slower) in [(1.0, false), (0.5, false), (1.05, false), (1.9, false), (2.2, true), (10.0, true)] {
            let mut report = sample();
            let row = &mut report.rows[1].measurement;
            for time in [&mut row.median_ms, &mut row.min_ms, &mut row.max_ms] {
                *time *= factor;
            }
            assert_eq!(compare(&mut report, &earlier, 0.1).unwrap(), usize::from(slower), "{factor}");
            let found = report.rows[1].baseline.unwrap();
            assert!(found.is_slower == slower && (found.ratio - factor).abs() < 1e-9);
            assert_eq!(report.rows[0].baseline.unwrap().ratio, 1.0);
        }
    }

    #[test]
    fn unknown_rows_and_other_machines() {
        let (mut report, mut earlier) = (sample(), sample());
        earlier.rows.remove(0);
        earlier.rows[0].device = "cuda:1".into();
        earlier.rows[1].measurement.median_ms = 0.0;
        assert_eq!(compare(&mut report, &earlier, 0.0).unwrap(), 0);
        assert!(report.rows.iter().all(|row| row.baseline.is_none()));
        earlier.machine.gpus.clear();
        let error = compare(&mut report, &earlier, 0.1).unwrap_err().to_string();
        assert!(error.contains("AMD EPYC, NVIDIA H200"), "{error}");
    }
}
