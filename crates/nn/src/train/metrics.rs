//! What is known of each step: a line of `metrics.jsonl`, scalars for TensorBoard, a point of the plot.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bornite_support::files::Replacement;
use serde::{Deserialize, Serialize};

use super::events::Events;
use super::plot::{Curve, svg};
use crate::error::located;
use crate::{Error, ErrorKind, Result, files};

/// Longest line of `metrics.jsonl`: twenty numbers.
const LONGEST_LINE: u64 = 1 << 16;
const LINES: &str = "metrics.jsonl";
const PLOT: &str = "loss.svg";

/// Numbers about one step. JSON has no NaN: where a loss or a norm was none, `null` is written.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The step, from 1.
    pub step: u64,
    /// The mean loss of its batches, before the step.
    pub loss: Option<f64>,
    /// The learning rate.
    pub rate: f64,
    /// The norm of the gradients before clipping.
    pub norm: Option<f64>,
    /// Tokens a second since the step before.
    pub tokens_per_second: f64,
    /// Seconds of training so far, without those that were lost to a stop.
    pub seconds: f64,
    /// Milliseconds of the step that the host was busy itself: not those in which it waited for the device or, on a CPU,
    /// computed.
    #[serde(default)]
    pub host_ms: f64,
    /// Bytes that the device holds.
    pub memory: u64,
    /// Whether the step was left out: gradients were not finite.
    pub skipped: bool,
    /// The loss on the validation part after the step, where it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
}

/// The files that lines go to.
pub(crate) struct Metrics {
    folder: PathBuf,
    file: BufWriter<File>,
    events: Events,
    training: Curve,
    validation: Curve,
    skipped: u64,
}

impl Metrics {
    /// Opens the files of a run that stands after `step`: what they say of later steps is removed.
    pub fn open(folder: &Path, step: u64) -> Result<Metrics> {
        let path = folder.join(LINES);
        let (mut training, mut validation, mut skipped) = (Curve::new(), Curve::new(), 0);
        let known = lines(&path)?;
        let write = |error| Error::io("write", &path)(error);
        let mut kept = BufWriter::new(Replacement::create(&path).map_err(write)?);
        for line in known.into_iter().filter(|line| line.step <= step) {
            plot(&mut training, &mut validation, &line);
            skipped += u64::from(line.skipped);
            writeln!(kept, "{}", json(&line)).map_err(write)?;
        }
        kept.into_inner().map_err(|error| write(error.into_error()))?.commit().map_err(write)?;
        let file = files::append(&path)?;
        let events = Events::create(folder, step)?;
        Ok(Metrics { folder: folder.into(), file: BufWriter::new(file), events, training, validation, skipped })
    }

    /// Steps that were left out, of all.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Takes the numbers of a step.
    pub fn push(&mut self, line: &Line) -> Result<()> {
        plot(&mut self.training, &mut self.validation, line);
        self.skipped += u64::from(line.skipped);
        let path = self.folder.join(LINES);
        writeln!(self.file, "{}", json(line)).map_err(Error::io("write", &path))?;
        let mut scalars =
            vec![("rate", line.rate), ("tokens_per_second", line.tokens_per_second), ("host_ms", line.host_ms)];
        scalars.extend(line.loss.map(|loss| ("loss", loss)));
        scalars.extend(line.norm.map(|norm| ("norm", norm)));
        scalars.extend(line.validation_loss.map(|loss| ("validation_loss", loss)));
        self.events.scalars(line.step, &scalars)
    }

    /// Hands everything to the system, for those who watch.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(Error::io("write", &self.folder.join(LINES)))?;
        self.events.flush()
    }

    /// Draws the losses so far.
    pub fn draw(&mut self) -> Result<()> {
        self.flush()?;
        let title = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files::replace(&self.folder.join(PLOT), svg(&title, &self.training, &self.validation).as_bytes())
    }
}

fn plot(training: &mut Curve, validation: &mut Curve, line: &Line) {
    line.loss.into_iter().for_each(|loss| training.push(line.step, loss));
    line.validation_loss.into_iter().for_each(|loss| validation.push(line.step, loss));
}

fn json(line: &Line) -> String {
    serde_json::to_string(line).unwrap_or_default() // numbers and names: these cannot fail
}

/// The lines of a run's `metrics.jsonl`; none where there is no such file. A process that died may have left half a line at
/// the end, which is left out.
#[track_caller]
pub fn lines(path: &Path) -> Result<Vec<Line>> {
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
                reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(Error::io("read", path))?;
            match read as u64 {
                0 => return Ok(found),
                LONGEST_LINE => {
                    return Err(Error::file(path, format!("is damaged: a line has {LONGEST_LINE} bytes or more")));
                }
                _ => found.extend(serde_json::from_slice::<Line>(&line).ok()),
            }
        }
    })
}
