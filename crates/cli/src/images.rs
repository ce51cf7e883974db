//! Image classifiers: training, `bornite eval`, `bornite predict` and export.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite::Device;
use bornite_collective::LauncherRank;
use bornite_nn::data::LabeledImages;
use bornite_nn::train::{ImageEvaluation, ImageRunSummary, RunConfig, TrainedImages, train_images, write_report};
use serde_json::{Value, json};

use crate::eval::EvalOptions;
use crate::signals::STOPPED;
use crate::train::{Display, TrainOptions};
use crate::{Failure, note, parse_device, print, print_json};

/// True if a folder is the run of an image model.
pub fn is_image_run(folder: &Path) -> bool {
    RunConfig::read(folder.join("run.toml")).is_ok_and(|config| config.image_model().is_some())
}

/// Trains an image classifier.
pub fn train(config: &RunConfig, options: &TrainOptions, mut display: Display) -> Result<ExitCode, Failure> {
    let launcher = LauncherRank::from_environment()?.filter(|launcher| launcher.size > 1);
    if launcher.is_some() || !options.devices.is_empty() {
        let what = "image models are trained by one process on one device; use --device, without a launcher";
        return Err(bornite_nn::Error::config(what).into());
    }
    let device = parse_device(config.train.device.as_deref().unwrap_or("auto"))?;
    let summary = train_images(config, &options.out, device, options.resume, &mut display)?;
    drop(display);
    let ImageRunSummary { step, fit, evaluation, report, folder } = &summary;
    if options.json {
        let event = json!({
            "event": "end", "step": step, "epochs": fit.epochs.len(), "stopped": fit.stopped,
            "stopped_early": fit.stopped_early, "folder": folder, "report": report,
            "evaluation": evaluation.as_ref().map(summarized),
        });
        print(&format!("{event}\n"))?;
    } else if let Some(evaluation) = evaluation {
        print(&formatted(evaluation))?;
    }
    if let Some(report) = report {
        note(&format!("confusion matrix and wrongly classified images: {}", report.display()));
    }
    let epochs = match fit.epochs.len() {
        1 => "1 epoch".into(),
        count => format!("{count} epochs"),
    };
    let status = match (fit.stopped, fit.stopped_early) {
        (true, _) => "stopped and saved",
        (false, true) => "done: the validation loss did not improve further",
        (false, false) => "done",
    };
    note(&format!("{status} after {epochs}: {}", folder.display()));
    if fit.stopped {
        note("continue with --resume");
        return Ok(ExitCode::from(STOPPED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Evaluates an image classifier.
pub fn evaluate(options: &EvalOptions, device: Device) -> Result<ExitCode, Failure> {
    let [data] = &options.data[..] else {
        let what = "--data must name one folder with a folder of images per class, or with MNIST's IDX files";
        return Err(bornite_nn::Error::config(what).into());
    };
    let trained = open(&options.from, device)?;
    let images = LabeledImages::open_with_classes(data, &trained.run.classes)?;
    let evaluation = trained.evaluate(&images, options.batch.max(1), &|| false)?;
    if let Some(path) = &options.report {
        write_report(path, &options.from.display().to_string(), &evaluation, &images)?;
    }
    if options.json {
        let mut value = summarized(&evaluation);
        value["step"] = trained.step.into();
        value["wrong"] = json!(evaluation.wrong);
        print_json(&value)?;
    } else {
        print(&formatted(&evaluation))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Options of `bornite predict`.
#[derive(clap::Args)]
pub struct PredictOptions {
    /// Folder of a run of an image model
    #[arg(value_name = "RUN")]
    from: PathBuf,
    /// Image files: PNG, JPEG or BMP
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,
    /// Number of classes to show
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Write JSON to stdout, one object per line
    #[arg(long)]
    json: bool,
}

/// Classifies images.
pub fn predict(options: &PredictOptions) -> Result<ExitCode, Failure> {
    let trained = open(&options.from, parse_device(&options.device)?)?;
    for path in &options.images {
        let classes = trained.classify_file(path)?;
        let top = || classes.iter().take(options.top as usize);
        let name = |class: usize| &trained.run.classes[class][..];
        if options.json {
            let classes: Vec<Value> =
                top().map(|(class, probability)| json!({"class": name(*class), "probability": probability})).collect();
            print(&format!("{}\n", json!({"image": path, "classes": classes})))?;
        } else {
            let classes: Vec<String> =
                top().map(|(class, probability)| format!("{} {:.1}%", name(*class), 100.0 * probability)).collect();
            print(&format!("{}: {}\n", path.display(), classes.join(", ")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Exports a run as a safetensors file.
pub fn export(from: &Path, out: &Path, json: bool) -> Result<ExitCode, Failure> {
    let trained = open(from, Device::cpu())?;
    trained.export(out)?;
    let count: usize = trained.params.list().iter().map(|parameter| parameter.shape.iter().product::<usize>()).sum();
    if json {
        print_json(&json!({"out": out, "parameters": count, "step": trained.step}))?;
    } else {
        print(&format!("wrote {count} parameters of step {} to {}\n", trained.step, out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a run and shows its note.
fn open(folder: &Path, device: Device) -> Result<TrainedImages, Failure> {
    let trained = TrainedImages::open(folder, device)?;
    trained.note.iter().for_each(|text| note(text));
    Ok(trained)
}

fn summarized(evaluation: &ImageEvaluation) -> Value {
    json!({
        "images": evaluation.images, "accuracy": evaluation.accuracy(), "loss": evaluation.loss,
        "classes": evaluation.classes, "confusion": evaluation.confusion,
    })
}

fn formatted(evaluation: &ImageEvaluation) -> String {
    let (accuracy, images) = (100.0 * evaluation.accuracy(), evaluation.images);
    let wrong = match evaluation.wrong.len() {
        1 => "1 is wrong".into(),
        count => format!("{count} are wrong"),
    };
    let matrix = evaluation.confusion_text();
    let heading = if matrix.is_empty() { "" } else { "classes (rows) and predictions (columns):\n" };
    format!("accuracy {accuracy:.2}%, loss {:.4}: of {images} images, {wrong}\n{heading}{matrix}", evaluation.loss)
}
