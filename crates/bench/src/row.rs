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
    /// Comparison with a peer, set by [`Peer::attach`](crate::peer::Peer::attach).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerRatio>,
    /// Remarks on how to interpret the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
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
}
