//! Metrics of each step: a line of `metrics.jsonl`, scalars for TensorBoard, a point of the loss
//! plot.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bornite_support::files::AtomicFile;
use serde::{Deserialize, Serialize};

use super::events::EventWriter;
use super::plot::{Curve, svg};
use crate::error::located;
use crate::{Error, ErrorKind, Result, files};

/// Maximum length of a line of `metrics.jsonl`.
const MAX_LINE_BYTES: u64 = 1 << 16;
const METRICS: &str = "metrics.jsonl";
const PLOT: &str = "loss.svg";

/// Metrics of one step. JSON has no NaN: a loss or norm that is not finite is `null`. Aliases are
/// the names of earlier releases.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Step, counted from 1.
    pub step: u64,
    /// Mean training loss of the step's batches, before the update.
    pub loss: Option<f64>,
    /// Learning rate.
    #[serde(alias = "rate")]
    pub lr: f64,
    /// Global gradient norm before clipping.
    #[serde(alias = "norm")]
    pub grad_norm: Option<f64>,
    /// Tokens per second since the previous step; absent for image models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// Images per second since the previous step; absent for models of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_per_second: Option<f64>,
    /// Training time so far; steps that were discarded by a stop do not count.
    #[serde(alias = "seconds")]
    pub elapsed_seconds: f64,
    /// Host time of the step: without waiting for the device or for data, and without computing on
    /// a CPU device. Absent for image models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ms: Option<f64>,
    /// Time that the step waited for its batches to be read. Absent for image models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_wait_ms: Option<f64>,
    /// Fraction of the time since the previous step in which the GPU had no work, 0 to 1; absent on
    /// a CPU and for the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_idle_share: Option<f64>,
    /// Bytes allocated on the device.
    #[serde(alias = "memory")]
    pub memory_bytes: u64,
    /// True if the step was skipped because gradients were not finite.
    pub skipped: bool,
    /// Validation loss after the step, if it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Fraction of the validation images that are classified correctly, if they were evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_accuracy: Option<f64>,
}

/// Writer of a run's metrics files.
pub(crate) struct Metrics {
    folder: PathBuf,
    file: BufWriter<File>,
    events: EventWriter,
    training: Curve,
    validation: Curve,
    skipped: u64,
}

impl Metrics {
    /// Opens the files of a run that continues after `step`; entries of later steps are removed.
    pub fn open(folder: &Path, step: u64) -> Result<Metrics> {
        let path = folder.join(METRICS);
        let (mut training, mut validation, mut skipped) = (Curve::new(), Curve::new(), 0);
        let previous = read_metrics(&path)?;
        let write = |error| Error::io("write", &path)(error);
        let mut rewritten = BufWriter::new(AtomicFile::create(&path).map_err(write)?);
        for line in previous.into_iter().filter(|line| line.step <= step) {
            plot(&mut training, &mut validation, &line);
            skipped += u64::from(line.skipped);
            writeln!(rewritten, "{}", json(&line)).map_err(write)?;
        }
        rewritten.into_inner().map_err(|error| write(error.into_error()))?.commit().map_err(write)?;
        let file = files::append(&path)?;
        let events = EventWriter::create(folder, step)?;
        Ok(Metrics { folder: folder.into(), file: BufWriter::new(file), events, training, validation, skipped })
    }

    /// The line of a step, or of the last one before it.
    pub fn last_line(folder: &Path, step: u64) -> Result<Option<StepMetrics>> {
        let lines = read_metrics(&folder.join(METRICS))?;
        Ok(lines.into_iter().rfind(|line| line.step <= step))
    }

    /// Number of skipped steps so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Appends the metrics of a step.
    pub fn push(&mut self, line: &StepMetrics) -> Result<()> {
        plot(&mut self.training, &mut self.validation, line);
        self.skipped += u64::from(line.skipped);
        let path = self.folder.join(METRICS);
        writeln!(self.file, "{}", json(line)).map_err(Error::io("write", &path))?;
        let scalars = [
            ("lr", Some(line.lr)),
            ("tokens_per_second", line.tokens_per_second),
            ("images_per_second", line.images_per_second),
            ("host_ms", line.host_ms),
            ("data_wait_ms", line.data_wait_ms),
            ("gpu_idle_share", line.gpu_idle_share),
            ("loss", line.loss),
            ("grad_norm", line.grad_norm),
            ("validation_loss", line.validation_loss),
            ("validation_accuracy", line.validation_accuracy),
        ];
        let scalars: Vec<_> = scalars.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.events.scalars(line.step, &scalars)
    }

    /// Flushes all files, so that other processes see the latest steps.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(Error::io("write", &self.folder.join(METRICS)))?;
        self.events.flush()
    }

    /// Writes the loss plot.
    pub fn write_plot(&mut self) -> Result<()> {
        self.flush()?;
        let title = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files::replace(&self.folder.join(PLOT), svg(&title, &self.training, &self.validation).as_bytes())
    }
}

fn plot(training: &mut Curve, validation: &mut Curve, line: &StepMetrics) {
    line.loss.into_iter().for_each(|loss| training.push(line.step, loss));
    line.validation_loss.into_iter().for_each(|loss| validation.push(line.step, loss));
}

fn json(line: &StepMetrics) -> String {
    serde_json::to_string(line).unwrap_or_default() // numbers and fixed names cannot fail
}

/// Reads a run's `metrics.jsonl`; empty if there is no such file. Incomplete lines, as a killed
/// process may leave at the end, are skipped.
#[track_caller]
pub fn read_metrics(path: &Path) -> Result<Vec<StepMetrics>> {
    located(|| {
        let file = match files::open(path) {
            Err(Error { kind: ErrorKind::Io { cause, .. }, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                return Ok(vec![]);
            }
            file => file?.0,
        };
        let (mut reader, mut line, mut found) = (BufReader::new(file), vec![], vec![]);
        loop {
            line.clear();
            let read =
                reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(Error::io("read", path))?;
            match read as u64 {
                0 => return Ok(found),
                MAX_LINE_BYTES => {
                    return Err(Error::file(path, format!("is damaged: a line has {MAX_LINE_BYTES} bytes or more")));
                }
                _ => found.extend(serde_json::from_slice::<StepMetrics>(&line).ok()),
            }
        }
    })
}
