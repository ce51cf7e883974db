//! A benchmark report and its JSON form. The text form is in `table.rs`.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{BenchRow, Config, Error, Machine};

/// Version of the JSON format. It is incremented when a reader of the old format would misread the
/// new one, not for additional optional fields.
pub const FORMAT: u32 = 1;

/// Rows, with the machine and the settings they come from. `Display` is a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct BenchReport {
    /// The version of the JSON form, see [`FORMAT`].
    pub format: u32,
    /// The machine.
    pub machine: Machine,
    /// The measurement settings.
    pub config: Config,
    /// The measured rows, in execution order.
    pub rows: Vec<BenchRow>,
    /// Peak rates of the device, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<PeakRates>,
}

/// Peak rates of a device, for the roofline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakRates {
    /// Memory bandwidth in bytes per second.
    pub bytes_per_second: f64,
    /// Floating-point operations per second without tensor cores.
    pub flops_per_second: f64,
    /// Floating-point operations per second of tensor cores with 16-bit inputs.
    pub tensor_flops_per_second: f64,
}

impl BenchReport {
    /// Creates a report without rows.
    pub fn new(machine: Machine, config: Config) -> Self {
        Self { format: FORMAT, machine, config, rows: vec![], peak: None }
    }

    /// Writes the report as indented JSON with a line end.
    pub fn write_json(&self, mut writer: impl Write) -> Result<(), Error> {
        serde_json::to_writer_pretty(&mut writer, self)
            .map_err(Into::into)
            .and_then(|()| writer.write_all(b"\n"))
            .and_then(|()| writer.flush())
            .map_err(Error::WriteReport)
    }

    /// Parses a report; a newer format is an error.
    pub fn read_json(reader: impl Read) -> Result<Self, Error> {
        let value: Value = serde_json::from_reader(reader).map_err(Error::ReadReport)?;
        value.try_into()
    }
}

impl TryFrom<Value> for BenchReport {
    type Error = Error;

    /// Checks the format version first: a newer report may differ everywhere.
    fn try_from(value: Value) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Fields {
            format: u32,
            machine: Machine,
            config: Config,
            rows: Vec<BenchRow>,
            peak: Option<PeakRates>,
        }

        match value.get("format").and_then(Value::as_u64) {
            Some(found) if found > FORMAT.into() => return Err(Error::NewerFormat { found }),
            _ => {}
        }
        let Fields { format, machine, config, rows, peak } =
            serde_json::from_value(value).map_err(Error::ReadReport)?;
        Ok(Self { format, machine, config, rows, peak })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Measurement, PeerRatio};

    /// A report with every kind of row, on a made-up machine.
    pub(crate) fn sample() -> BenchReport {
        let machine = Machine {
            cpu: Some("AMD EPYC".into()),
            logical_cores: Some(16),
            memory_bytes: Some(128 << 30),
            os: "linux x86_64 6.18".into(),
            cpu_features: Some(vec!["avx2".into(), "fma".into()]),
            bornite: "0.1.0".into(),
            gpus: vec!["NVIDIA H200, sm_90, 139.8 GiB".into()],
            unix_time: 1_700_000_000,
        };
        let measured = |median_ms, spread| Measurement {
            median_ms,
            min_ms: median_ms * 0.5,
            max_ms: median_ms * 2.0,
            spread,
            samples: 31,
            inner: 8,
        };
        let peer = PeerRatio { name: "torch 2.11.0".into(), peer_ms: 0.0025, speedup: 1.25 };
        let mut report = BenchReport::new(machine, Config::default());
        report.rows = vec![
            BenchRow {
                peer: Some(peer),
                ..BenchRow::new("add_f32_1000", "cuda:0", measured(0.002, 0.0125)).with_bytes(12_000)
            },
            BenchRow::new("matmul_f32_8192", "cuda:0", measured(21.5, 0.004)).with_flops(2 * 8192_u64.pow(3)),
            BenchRow::new("mlp_step_f32_96x32", "cpu", measured(0.25, 0.5)).with_note("the machine was busy"),
        ];
        report
    }

    fn json_of(report: &BenchReport) -> Value {
        let mut bytes = vec![];
        report.write_json(&mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn reads_back_what_it_writes() {
        let mut bytes = vec![];
        sample().write_json(&mut bytes).unwrap();
        assert_eq!(BenchReport::read_json(&bytes[..]).unwrap(), sample());
        assert_eq!(serde_json::from_slice::<BenchReport>(&bytes).unwrap(), sample());
    }

    #[test]
    fn a_row_is_flat_and_leaves_out_what_it_lacks() {
        let expected = json!({
            "name": "mlp_step_f32_96x32", "device": "cpu", "median_ms": 0.25, "min_ms": 0.125,
            "max_ms": 0.5, "spread": 0.5, "samples": 31, "inner": 8, "note": "the machine was busy",
        });
        assert_eq!(json_of(&sample())["rows"][2], expected);
    }

    #[test]
    fn unknown_fields_are_no_obstacle() {
        let mut value = json_of(&sample());
        value["machine"]["colour"] = json!("grey");
        value["rows"][0]["joules"] = json!(0.1);
        assert_eq!(BenchReport::try_from(value).unwrap(), sample());
    }

    #[test]
    fn a_newer_format_is_refused_with_a_sentence() {
        let text = r#"{"config": "of another shape", "format": 2, "tables": []}"#;
        let expected = "the bench report has format 2, and this Bornite reads formats up to 1; \
                        read it with a newer Bornite, or run the benchmark again with this one";
        assert_eq!(BenchReport::read_json(text.as_bytes()).unwrap_err().to_string(), expected);
        assert_eq!(serde_json::from_str::<BenchReport>(text).unwrap_err().to_string(), expected);
    }

    #[test]
    fn what_is_no_report_is_refused() {
        for (text, cause) in [
            ("{}", "missing field `format`"),
            (r#"{"format": "1"}"#, "invalid type: string"),
            (r#"{"format": 1}"#, "missing field `machine`"),
            ("[1]", "invalid length 1"),
            ("", "EOF"),
        ] {
            let error = BenchReport::read_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("not a bench report: ") && error.contains(cause), "{error}");
        }
    }
}
