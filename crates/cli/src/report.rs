//! `bornite report`: draws training runs as a self-contained HTML page, several of them on common
//! axes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite_nn::train::{StepMetrics, read_metrics};
use bornite_support::chart::{Chart, ChartAxis, Series, SeriesMark, short_number};
use bornite_support::files::AtomicFile;
use bornite_support::page::{Page, Table, TableCell};

use crate::text_file;
use crate::{Failure, print};

/// Options of `bornite report`.
#[derive(clap::Args)]
pub struct ReportOptions {
    /// Folders of training runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// HTML file to write [default: report.html in the folder of the first run]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A training run, read from its folder.
pub struct Run {
    name: String,
    pub steps: Vec<StepMetrics>,
    /// Settings by key, such as `train.batch`.
    settings: BTreeMap<String, String>,
    /// Device and processor, if known.
    machine: Option<String>,
    /// The end of the generated samples.
    pub samples: String,
}

/// Maximum size of `run.toml` and `environment.json`.
const MAX_SETTINGS_BYTES: u64 = 1 << 20;
/// Bytes of samples that are shown.
const SAMPLE_BYTES: u64 = 4096;
/// Points of a curve, and longest text of a setting: together they bound the page.
const MAX_POINTS: usize = 400;
const MAX_SETTING_CHARS: usize = 200;
/// Runs that are compared, one color each.
const MAX_RUNS: usize = 8;

pub fn run(options: &ReportOptions) -> Result<ExitCode, Failure> {
    let html = page(&read_runs(&options.runs)?).html();
    let path = options.out.clone().unwrap_or_else(|| options.runs[0].join("report.html"));
    let failed = |error| format!("cannot write {}: {error}", path.display());
    let mut file = AtomicFile::create(&path).map_err(failed)?;
    file.write_all(html.as_bytes()).map_err(failed)?;
    file.commit().map_err(failed)?;
    print(&format!("{}\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn read_runs(folders: &[PathBuf]) -> Result<Vec<Run>, Failure> {
    if folders.len() > MAX_RUNS {
        return Err(format!("a report compares up to {MAX_RUNS} runs; found {}", folders.len()).into());
    }
    let distinct: BTreeSet<String> = folders.iter().map(|folder| short_name(folder)).collect();
    let name = |folder: &PathBuf| match distinct.len() == folders.len() {
        true => short_name(folder),
        false => folder.display().to_string(),
    };
    folders.iter().map(|folder| Run::read(folder, name(folder))).collect()
}

/// Name of a folder without those that contain it.
fn short_name(folder: &Path) -> String {
    let full = folder.canonicalize().unwrap_or_else(|_| folder.into());
    full.file_name().unwrap_or(full.as_os_str()).to_string_lossy().into_owned()
}

impl Run {
    /// A run without steps.
    pub fn empty(name: &str) -> Run {
        Run { name: name.into(), steps: vec![], settings: BTreeMap::new(), machine: None, samples: String::new() }
    }

    /// A run that may continue. What cannot be read is left out.
    pub fn resumed(folder: &Path) -> Run {
        let name = short_name(folder);
        Run::read_files(folder, name.clone()).unwrap_or_else(|_| Run::empty(&name))
    }

    /// Adds a step; later ones are those of before the run continued.
    pub fn add(&mut self, metrics: StepMetrics) {
        while self.steps.last().is_some_and(|last| last.step >= metrics.step) {
            self.steps.pop();
        }
        self.steps.push(metrics);
    }

    fn read(folder: &Path, name: String) -> Result<Run, Failure> {
        let run = Run::read_files(folder, name)?;
        match run.steps.is_empty() {
            true => Err(format!("{} has no metrics of training steps (metrics.jsonl)", folder.display()).into()),
            false => Ok(run),
        }
    }

    fn read_files(folder: &Path, name: String) -> Result<Run, Failure> {
        let steps = read_metrics(&folder.join("metrics.jsonl"))?;
        // Runs of other programs have no settings.
        let optional = |name: &str| {
            let path = folder.join(name);
            path.exists().then(|| text_file::read(&path, MAX_SETTINGS_BYTES)).transpose()
        };
        let mut settings = BTreeMap::new();
        if let Some(text) = optional("run.toml")? {
            let failed = |error| format!("{}: {error}", folder.join("run.toml").display());
            flatten("", &toml::Value::Table(text.parse().map_err(failed)?), &mut settings);
        }
        let machine = optional("environment.json")?.and_then(|text| {
            let json: serde_json::Value = serde_json::from_str(&text).ok()?;
            let device = json["device"].as_str()?.to_owned();
            let name = json["gpu"]["name"].as_str().or(json["machine"]["cpu"].as_str());
            Some(name.map_or(device.clone(), |name| format!("{device} ({name})")))
        });
        Ok(Run { name, steps, settings, machine, samples: tail(&folder.join("samples.txt"))? })
    }

    /// Points of a quantity over an axis, averaged to a few hundred.
    fn points(&self, x: fn(&StepMetrics) -> f64, y: impl Fn(&StepMetrics) -> Option<f64>) -> Vec<(f64, f64)> {
        let all: Vec<(f64, f64)> = self.steps.iter().filter_map(|step| Some((x(step), y(step)?))).collect();
        let mean = |chunk: &[(f64, f64)], part: fn(&(f64, f64)) -> f64| {
            chunk.iter().map(part).sum::<f64>() / chunk.len() as f64
        };
        all.chunks(all.len().div_ceil(MAX_POINTS).max(1))
            .map(|chunk| (mean(chunk, |point| point.0), mean(chunk, |point| point.1)))
            .collect()
    }

    fn summary(&self) -> Vec<TableCell> {
        let last = self.steps.iter().max_by_key(|step| step.step);
        let best = self.steps.iter().filter_map(|step| Some((step.step, step.validation_loss?)));
        let best = best.min_by(|a, b| a.1.total_cmp(&b.1));
        let mut rates: Vec<f64> = self.steps.iter().filter_map(throughput).collect();
        rates.sort_by(f64::total_cmp);
        let loss = |value: f64| format!("{value:.4}");
        vec![
            TableCell::text(&self.name),
            TableCell::number(last.map(|step| step.step as f64), |step| format!("{step:.0}")),
            TableCell::number(last.and_then(|step| step.loss), loss),
            TableCell::number(best.map(|(_, loss)| loss), loss),
            TableCell::number(best.map(|(step, _)| step as f64), |step| format!("{step:.0}")),
            TableCell::number(rates.get(rates.len() / 2).copied(), short_number),
            TableCell::number(last.map(|step| step.elapsed_seconds), |seconds| format!("{seconds:.0}")),
            TableCell::number(Some(self.steps.iter().filter(|step| step.skipped).count() as f64), |n| {
                format!("{n:.0}")
            }),
            TableCell::text(self.machine.as_deref().unwrap_or("-")),
        ]
    }
}

/// The end of a text file; empty if there is none.
fn tail(path: &Path) -> Result<String, Failure> {
    let failed = |error| format!("cannot read {}: {error}", path.display());
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => {}
        _ => return Ok(String::new()),
    }
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(SAMPLE_BYTES))).map_err(failed)?;
    let mut bytes = vec![];
    file.take(SAMPLE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(if size > SAMPLE_BYTES { format!("…{}", text.trim_start_matches('\u{fffd}')) } else { text })
}

/// Adds the settings of a table by their full keys.
fn flatten(prefix: &str, value: &toml::Value, settings: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, settings);
            }
        }
        value => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let short: String = text.chars().take(MAX_SETTING_CHARS).collect();
            let text = if short.len() < text.len() { short + "…" } else { text };
            settings.insert(prefix.into(), text);
        }
    }
}

/// The page of one or several runs.
pub fn page(runs: &[Run]) -> Page {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let title = if runs.len() == 1 { format!("Run {}", names[0]) } else { format!("Runs {}", names.join(", ")) };
    let mut page = Page::new(title);
    let titles = [
        "run",
        "step",
        "loss",
        "best validation",
        "at step",
        "tokens or images/s",
        "seconds",
        "skipped steps",
        "device",
    ];
    page.table(&Table {
        caption: "Summary".into(),
        titles: titles.map(String::from).into(),
        rows: runs.iter().map(Run::summary).collect(),
    });
    page.heading("Curves");
    page.charts(&charts(runs));
    settings(&mut page, runs);
    for run in runs.iter().filter(|run| !run.samples.trim().is_empty()) {
        page.heading(&format!("Samples of {}", run.name));
        page.preformatted(&run.samples);
    }
    page
}

fn charts(runs: &[Run]) -> Vec<Chart> {
    let step: fn(&StepMetrics) -> f64 = |metrics| metrics.step as f64;
    let seconds: fn(&StepMetrics) -> f64 = |metrics| metrics.elapsed_seconds;
    // Training and validation curves of one run have one color; a single run has two.
    let losses = |title: &str, label: &str, x: fn(&StepMetrics) -> f64| {
        let series = runs.iter().enumerate().flat_map(|(n, run)| {
            let name = |what: &str| if runs.len() == 1 { what.into() } else { format!("{} {what}", run.name) };
            let color = |validation: usize| Some(if runs.len() == 1 { validation } else { n });
            let training = Series::new(name("training"), SeriesMark::Line, run.points(x, |metrics| metrics.loss));
            let validation =
                Series::new(name("validation"), SeriesMark::Bold, run.points(x, |metrics| metrics.validation_loss));
            let validation = Some(validation).filter(|series| !series.points.is_empty());
            [Some(Series { color: color(0), ..training }), validation.map(|v| Series { color: color(1), ..v })]
        });
        let series = series.flatten().collect();
        Chart { title: title.into(), x: ChartAxis::linear(label), y: ChartAxis::linear("loss"), series }
    };
    let plain = |title: &str, y: ChartAxis, of: fn(&StepMetrics) -> Option<f64>| {
        let series = runs.iter().map(|run| Series::new(&run.name, SeriesMark::Line, run.points(step, of))).collect();
        Chart { title: title.into(), x: ChartAxis::linear("step"), y, series }
    };
    let mut all = vec![
        losses("Loss", "step", step),
        losses("Loss over time", "seconds of training", seconds),
        plain("Accuracy", ChartAxis::linear("share of the validation images"), |metrics| metrics.validation_accuracy),
        plain("Learning rate", ChartAxis::linear("learning rate"), |metrics| Some(metrics.lr)),
        plain("Gradient norm", ChartAxis::log("norm before clipping"), |metrics| metrics.grad_norm),
        plain("Throughput", ChartAxis::linear("tokens or images per second"), throughput),
        plain("Waiting for data", ChartAxis::linear("milliseconds per step"), |metrics| metrics.data_wait_ms),
    ];
    // Models of text and of images have different metrics.
    all.retain(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    all
}

/// Tokens or images per second.
fn throughput(metrics: &StepMetrics) -> Option<f64> {
    metrics.tokens_per_second.or(metrics.images_per_second)
}

/// The settings that differ; of a single run, all.
fn settings(page: &mut Page, runs: &[Run]) {
    let keys: BTreeSet<&String> = runs.iter().flat_map(|run| run.settings.keys()).collect();
    let of = |run: &Run, key: &String| run.settings.get(key).cloned();
    let differs = |key: &&String| runs.len() == 1 || runs.iter().any(|run| of(run, key) != of(&runs[0], key));
    let rows: Vec<Vec<TableCell>> = (keys.into_iter().filter(differs))
        .map(|key| {
            let values = runs.iter().map(|run| TableCell::text(of(run, key).unwrap_or("-".into())));
            std::iter::once(TableCell::text(key)).chain(values).collect()
        })
        .collect();
    page.heading("Settings");
    if rows.is_empty() {
        page.remark(if runs.len() == 1 {
            "The run has no settings file."
        } else {
            "The settings of all runs are equal."
        });
        return;
    }
    let caption = if runs.len() == 1 { "Settings" } else { "Settings that differ" };
    let titles = std::iter::once("setting".to_owned()).chain(runs.iter().map(|run| run.name.clone())).collect();
    page.table(&Table { caption: caption.into(), titles, rows });
}
