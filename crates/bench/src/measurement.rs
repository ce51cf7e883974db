//! Statistics of an op's samples.

use serde::{Deserialize, Serialize};

/// Time per call of an op: the median, and its variation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Median over the samples.
    pub median_ms: f64,
    /// Fastest sample.
    pub min_ms: f64,
    /// Slowest sample.
    pub max_ms: f64,
    /// Interquartile range over the median: 0.01 means that half of the samples lie within 1 %.
    pub spread: f64,
    /// Number of samples.
    pub samples: usize,
    /// Calls per sample.
    pub inner: usize,
}

impl Measurement {
    /// Summarizes times per call, each the mean of a sample of `inner` calls.
    pub fn of_samples(mut call_ms: Vec<f64>, inner: usize) -> Self {
        call_ms.sort_by(f64::total_cmp);
        let median_ms = quantile(&call_ms, 0.5);
        let range_ms = quantile(&call_ms, 0.75) - quantile(&call_ms, 0.25);
        Self {
            median_ms,
            min_ms: quantile(&call_ms, 0.0),
            max_ms: quantile(&call_ms, 1.0),
            spread: if median_ms > 0.0 { range_ms / median_ms } else { 0.0 },
            samples: call_ms.len(),
            inner,
        }
    }
}

/// The quantile `q` in 0..=1 by linear interpolation between neighbours, as NumPy and R define it
/// by default; 0 of no values.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * sorted.len().saturating_sub(1) as f64;
    let at = |i: f64| sorted.get(i as usize).copied().unwrap_or(0.0);
    let (low, high) = (at(position.floor()), at(position.ceil()));
    low + (high - low) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_known_vectors() {
        // (samples, median, interquartile range), the last two from numpy.percentile
        let cases: [(&[f64], f64, f64); 5] = [
            (&[3.0, 1.0, 2.0], 2.0, 1.0),
            (&[4.0, 1.0, 3.0, 2.0], 2.5, 1.5),
            (&[7.0, 15.0, 36.0, 39.0, 40.0, 41.0], 37.5, 19.5),
            (&[9.0, 1.0, 5.0, 7.0, 3.0], 5.0, 4.0),
            (&[2.0, 2.0, 2.0, 200.0], 2.0, 49.5),
        ];
        for (samples, median_ms, range_ms) in cases {
            let got = Measurement::of_samples(samples.to_vec(), 8);
            assert_eq!(got.median_ms, median_ms, "{samples:?}");
            assert_eq!(got.spread, range_ms / median_ms, "{samples:?}");
            assert_eq!((got.samples, got.inner), (samples.len(), 8));
        }
    }

    #[test]
    fn extremes_and_degenerate_samples() {
        let got = Measurement::of_samples(vec![2.0, 8.0, 4.0], 1);
        assert_eq!((got.min_ms, got.max_ms), (2.0, 8.0));
        let zeros = Measurement::of_samples(vec![0.0; 3], 1);
        assert_eq!((zeros.median_ms, zeros.spread), (0.0, 0.0));
        assert_eq!(Measurement::of_samples(vec![], 1).median_ms, 0.0);
    }
}
