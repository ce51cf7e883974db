//! Results of other libraries, read from the output of the scripts in `peers/`.
//!
//! A script prints JSON lines: first `{"machine": {...}}`, which may be absent, then a row
//! `{"op": NAME, "ms": TIME}` per op. Lines that do not begin with `{` are skipped. Only results of
//! the same machine are compared: a peer of another machine is an error.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{BenchReport, BenchRow, Error, Machine, PeerRatio};

/// One peer file.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    name: String,
    machine: PeerMachine,
    rows: BTreeMap<String, PeerRow>,
}

/// The machine of a peer, as far as its file names it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PeerMachine {
    /// The GPU's name, as its driver gives it.
    pub gpu: Option<String>,
    /// The processor's model name.
    pub cpu: Option<String>,
    /// PyTorch's version.
    pub torch: Option<String>,
    /// The version of CUDA it was built for.
    pub cuda: Option<String>,
    /// `cuda` or `cpu`; rows on another kind of device are not compared.
    pub device: Option<String>,
}

/// A peer's time for one op.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PeerRow {
    /// The op's name, the same as our row's.
    pub op: String,
    /// Best time per call, in eager mode or in a CUDA graph.
    pub ms: f64,
    /// Time per call in eager mode, without a CUDA graph, if it was measured.
    pub eager_ms: Option<f64>,
}

impl Peer {
    /// Reads the output of a peer script. Of two rows with one name the faster counts.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|source| Error::ReadPeer { path: path.into(), source })?;
        Self::parse(path, &text)
    }

    /// Name of the peer: PyTorch with its version, or the file name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine it was measured on.
    pub fn machine(&self) -> &PeerMachine {
        &self.machine
    }

    /// Its row for an op.
    pub fn row(&self, op: &str) -> Option<&PeerRow> {
        self.rows.get(op)
    }

    /// Sets the comparison of every row that the peer has, and returns their number. On an error no
    /// row changes.
    pub fn attach(&self, report: &mut BenchReport) -> Result<usize, Error> {
        for row in report.rows.iter().filter(|row| self.compares(row)) {
            self.check_machine(&report.machine, kind(&row.device))?;
        }
        let mut attached = 0;
        for row in report.rows.iter_mut().filter(|row| self.compares(row)) {
            let Some(peer_ms) = self.time_ms(&row.name) else { continue };
            let Some(speedup) = row.per_ms(peer_ms) else { continue };
            row.peer = Some(PeerRatio { name: self.name.clone(), peer_ms, speedup });
            attached += 1;
        }
        Ok(attached)
    }

    /// The time to compare a row with: for `add_eager_f32_1000`, the peer's eager time of
    /// `add_f32_1000`.
    fn time_ms(&self, name: &str) -> Option<f64> {
        match name.split_once("_eager") {
            Some((op, rest)) => self.row(&format!("{op}{rest}"))?.eager_ms,
            None => Some(self.row(name)?.ms),
        }
    }

    fn compares(&self, row: &BenchRow) -> bool {
        self.machine.device.as_deref().is_none_or(|device| kind(device) == kind(&row.device))
    }

    /// Returns an error if the machine is known to differ from the peer's.
    fn check_machine(&self, ours: &Machine, device_kind: &str) -> Result<(), Error> {
        let (theirs, ours) = match device_kind {
            "cuda" => (&self.machine.gpu, ours.gpus.as_slice()),
            "cpu" => (&self.machine.cpu, ours.cpu.as_slice()),
            _ => return Ok(()),
        };
        let Some(theirs) = theirs else { return Ok(()) };
        // A description may follow the name after a comma; "NVIDIA A10" is not "NVIDIA A100".
        if ours.iter().any(|name| name.split(',').next() == Some(theirs)) {
            return Ok(());
        }
        Err(Error::OtherMachine {
            peer: self.name.clone(),
            theirs: theirs.clone(),
            ours: match ours {
                [] => format!("a machine with no known {device_kind} device"),
                names => format!("`{}`", names.join("`, `")),
            },
        })
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let mut machine = None;
        let mut rows = BTreeMap::<String, PeerRow>::new();
        for (index, text) in text.lines().enumerate() {
            let text = text.trim();
            if !text.starts_with('{') {
                continue;
            }
            let line = Line { path, number: index + 1, text };
            let mut value: Value = line.read(serde_json::from_str(text), "a JSON object")?;
            if let Some(value) = value.get_mut("machine") {
                if machine.is_some() || !rows.is_empty() {
                    return Err(line.error("the machine once, before all rows", "another machine"));
                }
                machine = Some(line.parse::<PeerMachine>(value.take(), MACHINE)?);
                continue;
            }
            let row: PeerRow = line.parse(value, ROW)?;
            if row.ms <= 0.0 {
                return Err(line.error(ROW, format!("`ms` of {}", row.ms)));
            }
            if rows.get(&row.op).is_none_or(|other| row.ms < other.ms) {
                rows.insert(row.op.clone(), row);
            }
        }
        if rows.is_empty() {
            return Err(Error::NoPeerRows { path: path.into() });
        }
        let machine = machine.unwrap_or_default();
        let name = match &machine.torch {
            Some(version) => format!("torch {version}"),
            None => path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        };
        Ok(Self { name, machine, rows })
    }
}

const MACHINE: &str = r#"an object of strings or nulls such as {"machine": {"gpu": "NVIDIA H200", "device": "cuda"}}"#;
const ROW: &str = r#"a row with a positive time such as {"op": "add_f32_1000", "ms": 0.0021}"#;

/// `cuda` of `cuda:0`.
fn kind(device: &str) -> &str {
    device.split_once(':').map_or(device, |(kind, _)| kind)
}

/// A line of a peer file, for its errors.
struct Line<'a> {
    path: &'a Path,
    number: usize,
    text: &'a str,
}

impl Line<'_> {
    fn parse<T: DeserializeOwned>(&self, value: Value, expected: &'static str) -> Result<T, Error> {
        self.read(serde_json::from_value(value), expected)
    }

    fn read<T>(&self, read: serde_json::Result<T>, expected: &'static str) -> Result<T, Error> {
        read.map_err(|cause| self.error(expected, format!("`{}` ({cause})", self.text)))
    }

    fn error(&self, expected: &'static str, found: impl Into<String>) -> Error {
        let path = PathBuf::from(self.path);
        Error::PeerLine { path, line: self.number, expected, found: found.into() }
    }
}

#[cfg(test)]
mod tests;
