//! One row of a report: an op on a device, its time and derived rates.

use serde::{Deserialize, Serialize};

use crate::Measurement;

/// A measured op. In JSON the fields of the measurement are inlined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// The op with its dtype and size, such as `add_f32_1000`; a peer's row is found by it.
    pub name: String,
    /// Device: `cpu`, `cuda:0`, `interpreter`.
    pub device: String,
    /// Time per call.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// Bytes that one call must read and write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Floating-point operations of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops: Option<u64>,
    /// `bytes` over the median, in 10⁹ per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb_s: Option<f64>,
    /// `flops` over the median, in 10¹² per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tflop_s: Option<f64>,
    /// Figures of a training step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingFigures>,
    /// Difference from the same op in f64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// Comparison with simple loops on one CPU core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naive: Option<NaiveRatio>,
    /// Comparison with an earlier report, set by [`compare`](crate::baseline::compare).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineRatio>,
    /// Comparison with a peer, set by [`Peer::attach`](crate::peer::Peer::attach).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerRatio>,
    /// Remarks on how to interpret the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Difference of a result from a reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Largest difference over the largest magnitude of the reference; `None` if it is not a
    /// number.
    pub error: Option<f64>,
    /// Largest allowed error.
    pub threshold: f64,
    /// True if the error is within the threshold.
    pub passed: bool,
}

impl Accuracy {
    /// Compares results with a reference of the same length. NaNs and infinities must be equal.
    pub fn of(found: &[f64], reference: &[f64], threshold: f64) -> Accuracy {
        let scale = reference.iter().filter(|x| x.is_finite()).fold(0.0, |max: f64, x| max.max(x.abs()));
        let difference = |(a, b): (&f64, &f64)| if a == b || a.is_nan() && b.is_nan() { 0.0 } else { (a - b).abs() };
        // `max` would drop a NaN.
        let largest = (found.iter().zip(reference).map(difference))
            .fold(0.0, |max: f64, x| if x.is_nan() || x > max { x } else { max });
        let error = if found.len() != reference.len() {
            f64::NAN
        } else if largest == 0.0 {
            0.0
        } else {
            largest / scale
        };
        Accuracy { error: Some(error).filter(|error| error.is_finite()), threshold, passed: error <= threshold }
    }
}

/// Comparison with simple loops on one CPU core of the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NaiveRatio {
    /// Time per call of the loops.
    pub naive_ms: f64,
    /// Their time over ours: above 1 we are faster.
    pub speedup: f64,
}

/// Comparison with the row of an earlier report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineRatio {
    /// Median of the earlier report.
    pub median_ms: f64,
    /// Our time over the earlier one: above 1 we are slower.
    pub ratio: f64,
    /// True if the row is slower by more than the limit.
    pub is_slower: bool,
}

/// Comparison with the same op of another library on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerRatio {
    /// The other library and its version.
    pub name: String,
    /// Time per call.
    pub peer_ms: f64,
    /// Its time over ours: above 1 we are faster.
    pub speedup: f64,
}

/// Figures of a training step, besides its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingFigures {
    /// Tokens per second at the median time.
    pub tokens_per_second: f64,
    /// Fraction of the device's peak flops per second (model FLOPs utilization), if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Peak of the memory allocated on the device, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Time of the first step, with compilation and tuning.
    pub first_step_seconds: f64,
    /// Median host time of a step.
    pub host_ms: f64,
    /// Median time that a step waited for its data.
    pub data_wait_ms: f64,
    /// Median fraction of the time in which the GPU had no work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_idle_share: Option<f64>,
    /// Parts of a profiled step, longest first.
    pub parts: Vec<StepPart>,
}

/// Kernels or transfers of one name in a profiled step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepPart {
    /// Name.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Total time.
    pub total_ms: f64,
    /// Fraction of the time of all parts.
    pub share: f64,
}

impl BenchRow {
    /// A row with only its time.
    pub fn new(name: impl Into<String>, device: impl Into<String>, measurement: Measurement) -> Self {
        Self {
            name: name.into(),
            device: device.into(),
            measurement,
            bytes: None,
            flops: None,
            gb_s: None,
            tflop_s: None,
            training: None,
            accuracy: None,
            naive: None,
            baseline: None,
            peer: None,
            note: None,
        }
    }

    /// Sets the bytes of one call, and the bandwidth.
    pub fn with_bytes(self, bytes: u64) -> Self {
        let gb_s = self.per_ms(bytes as f64 / 1e6);
        Self { bytes: Some(bytes), gb_s, ..self }
    }

    /// Sets the floating-point operations of one call, and the rate.
    pub fn with_flops(self, flops: u64) -> Self {
        let tflop_s = self.per_ms(flops as f64 / 1e9);
        Self { flops: Some(flops), tflop_s, ..self }
    }

    /// Sets the time of simple loops.
    pub fn with_naive(self, naive_ms: f64) -> Self {
        let naive = self.per_ms(naive_ms).map(|speedup| NaiveRatio { naive_ms, speedup });
        Self { naive, ..self }
    }

    /// Operation and size of names such as `add_f32_1000`.
    pub fn op_and_size(&self) -> Option<(&str, f64)> {
        let (op, size) = self.name.rsplit_once('_')?;
        // A suffix such as `bf16` is not a size.
        Some((op, size.parse::<u32>().ok()?.into()))
    }

    /// Adds a remark.
    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// `amount` per millisecond of the median; `None` if the median is 0.
    pub(crate) fn per_ms(&self, amount: f64) -> Option<f64> {
        let median_ms = self.measurement.median_ms;
        (median_ms > 0.0).then(|| amount / median_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_the_median() {
        let row = |median_ms| {
            let measurement = Measurement::of_samples(vec![median_ms; 3], 1);
            BenchRow::new("op", "cpu", measurement).with_bytes(12_000_000).with_flops(4_000_000_000)
        };
        assert_eq!((row(2.0).gb_s, row(2.0).tflop_s), (Some(6.0), Some(2.0)));
        assert_eq!((row(0.0).gb_s, row(0.0).tflop_s), (None, None));
        assert_eq!(row(0.0).bytes, Some(12_000_000));
    }

    #[test]
    fn errors_are_relative_to_the_largest_value() {
        let nan = f64::NAN;
        for (found, reference, error, passed) in [
            (vec![1.0, 200.0], vec![1.0, 200.0], Some(0.0), true),
            (vec![1.0, 200.01], vec![1.0, 200.0], Some(0.01 / 200.0), true),
            (vec![1.1, 200.0], vec![1.0, 200.0], Some(0.1 / 200.0), false),
            (vec![nan, 1.0], vec![nan, 1.0], Some(0.0), true),
            (vec![nan, 1.0], vec![1.0, 1.0], None, false),
            (vec![1.0, nan, 1.0], vec![1.0, 1.0, 1.0], None, false),
            (vec![f64::INFINITY], vec![1.0], None, false),
            (vec![1.0], vec![1.0, 2.0], None, false),
            (vec![1.0], vec![0.0], None, false),
            (vec![], vec![], Some(0.0), true),
        ] {
            let accuracy = Accuracy::of(&found, &reference, 1e-4);
            assert_eq!(accuracy.passed, passed, "{found:?}");
            match (accuracy.error, error) {
                (Some(a), Some(b)) => assert!((a - b).abs() < 1e-9, "{found:?}: {a}"),
                (a, b) => assert_eq!(a, b, "{found:?}"),
            }
        }
    }

    #[test]
    fn names_have_an_operation_and_a_size() {
        let row = |name: &str| BenchRow::new(name, "cpu", Measurement::of_samples(vec![2.0; 3], 1));
        assert_eq!(row("add_f32_1000").op_and_size(), Some(("add_f32", 1000.0)));
        for other in ["softmax_f32_4096x4096", "add_bf16", "add", "x_-5", "x_1e3", ""] {
            assert_eq!(row(other).op_and_size(), None, "{other}");
        }
        let naive = row("x").with_naive(10.0).naive.unwrap();
        assert_eq!((naive.naive_ms, naive.speedup), (10.0, 5.0));
    }
}
