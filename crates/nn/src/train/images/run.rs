//! Training of an image classifier in a run's folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bornite::{Device, Tensor};

use super::trained::{ImageRun, TrainedImages, normalize, workers};
use super::{ImageEvaluation, write_report};
use crate::checkpoint::{Tensors, newest, safetensors::Safetensors};
use crate::data::{
    DataLoader, Dataset, HostArray, LabeledImages, RandomCrop, RandomFlip, Resize, SameSize, Subset, split,
};
use crate::error::located;
use crate::model::{ImageModel, ImageModelConfig};
use crate::optimizer::LrSchedule;
use crate::parameters::Params;
use crate::train::builder::AnyOptimizer;
use crate::train::config::RunConfig;
use crate::train::fit::{EarlyStopping, Fit, FitEvent, FitReport};
use crate::train::folder::{CHECKPOINTS, CONFIG, claim_run_folder};
use crate::train::metrics::{Metrics, StepMetrics};
use crate::train::observer::{Observer, TrainEvent};
use crate::train::precision::Precision;
use crate::train::prepare::write_environment;
use crate::{Error, ErrorKind, Forward, Module, Result, files, metrics};

/// Report of the last evaluation in the run's folder.
const REPORT: &str = "evaluation.html";

/// Facts about an image run, known before the first step.
#[derive(Clone, Debug)]
pub struct ImageRunInfo {
    /// The model and its classes.
    pub run: ImageRun,
    /// Total steps.
    pub steps: u64,
    /// Epochs.
    pub epochs: u64,
    /// Number of parameters.
    pub parameters: u64,
    /// Training images.
    pub images: u64,
    /// Validation images.
    pub validation_images: u64,
    /// Images per step.
    pub images_per_step: u64,
}

/// Result of an image run.
#[derive(Clone, PartialEq, Debug)]
pub struct ImageRunSummary {
    /// Completed steps.
    pub step: u64,
    /// Epochs, and reasons for the end.
    pub fit: FitReport,
    /// Evaluation of the validation images after the last epoch, if there are any.
    pub evaluation: Option<ImageEvaluation>,
    /// Page with the confusion matrix and the images that were classified wrongly.
    pub report: Option<PathBuf>,
    /// The run's folder.
    pub folder: PathBuf,
}

/// Trains an image classifier in a run's folder. With `resume`, an existing run continues after its
/// latest checkpoint as if it had never stopped.
#[track_caller]
pub fn train_images(
    config: &RunConfig,
    folder: &Path,
    device: Device,
    resume: bool,
    observer: &mut dyn Observer,
) -> Result<ImageRunSummary> {
    located(|| {
        let requested = config.absolute()?;
        let mut config = requested.resolved_for_images()?;
        let checkpoints = folder.join(CHECKPOINTS);
        let resumed = resume && checkpoints.is_dir() && newest(&checkpoints)?.is_some();
        if resumed {
            let saved = RunConfig::read(folder.join(CONFIG))?;
            if saved.image_model().is_none() {
                return Err(Error::file(folder, "is not a run of an image model; resume it without --model"));
            }
            config = saved.clone();
            config.merge(&requested)?;
            config.check_resumed(&saved)?;
            if config.train.epochs != saved.train.epochs {
                let note = "train.epochs changed, and the learning-rate schedule with it";
                observer.on_event(TrainEvent::Note(note));
            }
        }
        let run = prepare(config, device, observer)?;
        if !resumed {
            claim_run_folder(folder)?;
            if resume {
                observer.on_event(TrainEvent::Note("no checkpoint to resume from; starting at step 1"));
            }
            if let Some(from) = &run.config.model.from {
                load_weights(&run, from, observer)?;
            }
        }
        files::replace(&folder.join(CONFIG), run.config.text()?.as_bytes())?;
        write_environment(folder, device)?;
        let fit = train(&run, folder, observer)?;
        let step = fit.epochs.last().map_or(0, |epoch| epoch.steps);
        let mut summary = ImageRunSummary { step, fit, evaluation: None, report: None, folder: folder.into() };
        if let Some(validation) = run.validation.filter(|_| !summary.fit.stopped) {
            let trained = TrainedImages::new(run.run, &run.params, SharedNet(run.net), step)?;
            match trained.evaluate(&validation, run.batch, &|| observer.should_stop()) {
                // Training is complete; `eval` repeats the evaluation.
                Err(Error { kind: ErrorKind::Stopped, .. }) => summary.fit.stopped = true,
                evaluation => {
                    let (evaluation, path) = (evaluation?, folder.join(REPORT));
                    let title = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    write_report(&path, &title, &evaluation, &validation)?;
                    (summary.evaluation, summary.report) = (Some(evaluation), Some(path));
                }
            }
        }
        Ok(summary)
    })
}

type Net = Arc<dyn Forward + Send + Sync>;

/// The model of a run, shared with its training step.
struct SharedNet(Net);

impl Module for SharedNet {
    fn visit(&self, visitor: &mut crate::Visitor<'_>) {
        self.0.visit(visitor);
    }
}

impl Forward for SharedNet {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.0.forward(x)
    }
}

/// Validation images.
#[derive(Clone)]
enum Validation {
    Split(Subset<LabeledImages>),
    Test(LabeledImages),
}

impl Validation {
    fn dataset(&self) -> &dyn Dataset {
        match self {
            Validation::Split(part) => part,
            Validation::Test(images) => images,
        }
    }
}

impl Dataset for Validation {
    fn len(&self) -> usize {
        self.dataset().len()
    }

    fn get(&self, index: usize) -> Result<Vec<HostArray>> {
        self.dataset().get(index)
    }

    fn describe(&self, index: usize) -> String {
        self.dataset().describe(index)
    }

    fn fingerprint(&self) -> u64 {
        self.dataset().fingerprint()
    }
}

/// A run before its first step.
struct Prepared {
    config: RunConfig,
    run: ImageRun,
    params: Params,
    net: Net,
    optimizer: AnyOptimizer,
    training: DataLoader,
    validation_loader: Option<DataLoader>,
    validation: Option<Validation>,
    batch: usize,
    info: ImageRunInfo,
}

/// Opens the data and builds the model; completes the settings.
fn prepare(mut config: RunConfig, device: Device, observer: &mut dyn Observer) -> Result<Prepared> {
    let name = match &config.model.name {
        Some(name) => ImageModel::named(name)?,
        None => return Err(Error::config("model.name (--model) is not set")),
    };
    let path = match config.data.path.as_deref() {
        Some([path]) => path.clone(),
        None | Some([]) => {
            let what = "no training data: set data.path (--data) to a folder with a folder of images per class";
            return Err(Error::config(what));
        }
        Some(paths) => {
            let what = format!("data.path names {} folders; image models are trained on one folder", paths.len());
            return Err(Error::config(what));
        }
    };
    let all = LabeledImages::open(&path)?;
    let classes = all.classes().to_vec();
    if classes.len() < 2 {
        return Err(Error::file(&path, "contains one class; a classifier needs at least two"));
    }
    // Also a check of the first file before anything is allocated.
    let first = all.get(0)?;
    let first = first.first().map(|image| image.shape().to_vec()).unwrap_or_default();
    let (resizes, image_size) = match (config.data.image_size, &first[..]) {
        (Some(size), _) => (true, size),
        (None, [_, height, width]) if height == width => (false, *height),
        (None, shape) => {
            let (height, width) = if let [_, height, width] = shape { (*height, *width) } else { (0, 0) };
            return Err(Error::data(format!(
                "{} has {width} × {height} pixels, which is not a square; set data.image_size (--image-size N) to resize all \
                 images to N × N",
                all.describe(0)
            )));
        }
    };
    let seed = config.train.seed.unwrap_or(0);
    let (training, validation) = match LabeledImages::open_test(&path, &classes)? {
        Some(test) => {
            let (all, _) = split(all.clone(), 0.0, seed)?;
            (all, Some(Validation::Test(test)))
        }
        None => {
            let (training, validation) = split(all.clone(), config.data.validation_fraction.unwrap_or(0.0), seed)?;
            (training, Some(validation).filter(|part| !part.is_empty()).map(Validation::Split))
        }
    };
    if training.is_empty() {
        return Err(Error::config("data.validation_fraction leaves no images to train on; lower it"));
    }
    if validation.is_none() {
        observer.on_event(TrainEvent::Note("there are no validation images: accuracy is not measured"));
    }
    let batch = config.train.batch.unwrap_or(32);
    let check = |loader: DataLoader| match resizes {
        true => loader.transform(0, Resize { height: image_size, width: image_size }),
        false => loader.transform(0, SameSize { shape: first.clone(), first: all.describe(0) }),
    };
    // A batch norm has no variance of a single image of one pixel.
    let drops_last = training.len() > 1 && training.len() % batch == 1;
    let images = (training.len() as u64, validation.as_ref().map_or(0, |part| part.len() as u64));
    let loader = DataLoader::new(training).batch(batch).shuffle(seed).drop_last(drops_last);
    let mut loader = check(loader.workers(workers()).device(device));
    if let Some(padding) = config.data.crop_padding.filter(|padding| *padding > 0) {
        loader = loader.transform(0, RandomCrop { height: image_size, width: image_size, padding });
    }
    if config.data.flip == Some(true) {
        loader = loader.transform(0, RandomFlip { horizontal: 0.5, vertical: 0.0 });
    }
    let loader = loader.transform(0, normalize());
    let validation_loader = validation.clone().map(|part| {
        check(DataLoader::new(part).batch(batch).workers(workers()).device(device)).transform(0, normalize())
    });
    let accumulate = config.train.accumulate.unwrap_or(1);
    let epochs = config.train.epochs.unwrap_or(1);
    let steps = epochs.saturating_mul(loader.batches() as u64) / accumulate as u64;
    if steps == 0 {
        let what =
            format!("train.accumulate is {accumulate}, more than the {} batches of all epochs", loader.batches());
        return Err(Error::config(what));
    }
    let default = if device.is_cuda() { Precision::Bf16 } else { Precision::F32 };
    let precision = *config.train.precision.get_or_insert(default);
    config.resolve_schedule(steps)?;
    let image_model = ImageModelConfig { name, classes: classes.len(), image_size };
    let params = Params::new(device, seed);
    let net: Net = Arc::from(image_model.build(&params)?);
    let optimizer = optimizer(&config, &params, precision, steps)?;
    let run = ImageRun { image_model, classes, precision };
    let info = ImageRunInfo {
        run: run.clone(),
        steps,
        epochs,
        parameters: net.parameter_count() as u64,
        images: images.0,
        validation_images: images.1,
        images_per_step: batch.saturating_mul(accumulate) as u64,
    };
    Ok(Prepared { config, run, params, net, optimizer, training: loader, validation_loader, validation, batch, info })
}

fn optimizer(config: &RunConfig, params: &Params, precision: Precision, steps: u64) -> Result<AnyOptimizer> {
    let schedule: LrSchedule = config.lr_schedule();
    let optimizer = AnyOptimizer::of_kind(params, config.optimizer_kind()?)
        .schedule(schedule, steps)
        .weight_decay(config.optimizer.weight_decay.unwrap_or(0.0))
        .precision(precision)
        .accumulate(config.train.accumulate.unwrap_or(1));
    Ok(match config.optimizer.clip_norm.filter(|clip_norm| *clip_norm > 0.0) {
        Some(clip_norm) => optimizer.clip_norm(clip_norm),
        None => optimizer,
    })
}

/// Loads pretrained weights: a safetensors file of a torchvision state dict, or another run. The
/// last layer keeps its initial values if it has another number of classes.
fn load_weights(run: &Prepared, from: &Path, observer: &mut dyn Observer) -> Result<()> {
    let device = run.params.device();
    let mut tensors: Tensors = match from.is_dir() {
        true => TrainedImages::open(from, device)?.params.tensors()?,
        false => Safetensors::open(from)?.tensors(device)?,
    };
    let own = run.params.tensors()?;
    let head = run.run.image_model.name.head();
    let shape = |tensor: Option<&Tensor>| tensor.and_then(|tensor| tensor.shape().ok().map(<[usize]>::to_vec));
    if head.iter().any(|name| shape(tensors.get(*name)) != shape(own.get(*name))) {
        let initial = |name: &&str| Some((name.to_string(), own.get(*name)?.clone()));
        tensors.extend(head.iter().filter_map(initial));
        let classes = run.run.classes.len();
        observer.on_event(TrainEvent::Note(&format!(
            "the weights are of another number of classes; the last layer, for {classes}, starts from initial values"
        )));
    }
    run.params.load_tensors(&tensors).map_err(|error| match error.kind {
        ErrorKind::Config(what) => {
            Error::file(from, format!("{what}; it must be of {}", run.run.image_model.name.name()))
        }
        _ => error,
    })
}

/// Writes metrics and forwards events.
struct Recorder<'o> {
    folder: PathBuf,
    observer: &'o mut dyn Observer,
    metrics: Option<Metrics>,
    /// Metrics of the last step, until the next one or the evaluation of the epoch.
    pending: Option<StepMetrics>,
    images_per_step: u64,
    elapsed_seconds: f64,
    /// Time of the batches since the last step, if gradients are accumulated.
    step_seconds: f64,
    /// Step of the last line that was written, and of the last checkpoint.
    last_step: u64,
    saved_step: u64,
    device: Device,
    /// First error of a metrics file.
    error: Option<Error>,
}

impl Recorder<'_> {
    /// Opens the metrics of a run that continues after `step`.
    fn open(&mut self, step: u64) -> Result<&mut Metrics> {
        match &mut self.metrics {
            Some(metrics) => Ok(metrics),
            none => Ok(none.insert(Metrics::open(&self.folder, step)?)),
        }
    }

    /// Continues after a step: its line is written again, in case its evaluation was interrupted.
    fn resume(&mut self, step: u64) -> Result<()> {
        let last = Metrics::last_line(&self.folder, step)?;
        self.elapsed_seconds = last.map_or(0.0, |line| line.elapsed_seconds);
        self.pending = last.filter(|line| line.step == step);
        (self.last_step, self.saved_step) = (step, step);
        self.open(step - u64::from(self.pending.is_some()).min(step))?;
        Ok(())
    }

    fn flush_pending(&mut self) -> Result<()> {
        let Some(line) = self.pending.take() else { return Ok(()) };
        self.last_step = line.step;
        self.open(0)?.push(&line)?;
        self.observer.on_event(TrainEvent::Step(&line));
        Ok(())
    }

    fn on_event(&mut self, event: FitEvent<'_>) -> Result<()> {
        match event {
            FitEvent::Resumed(step) => self.resume(step)?,
            FitEvent::Batch { loss, step, lr, grad_norm, finite, seconds, .. } => {
                self.elapsed_seconds += seconds;
                self.step_seconds += seconds;
                // Without a step, gradients were accumulated only.
                if self.pending.as_ref().is_some_and(|line| line.step == step) || step == 0 {
                    return Ok(());
                }
                self.flush_pending()?;
                let seconds = std::mem::take(&mut self.step_seconds).max(1e-9);
                self.pending = Some(StepMetrics {
                    step,
                    loss: Some(loss).filter(|loss| loss.is_finite()),
                    lr,
                    grad_norm: Some(grad_norm).filter(|norm| norm.is_finite()),
                    tokens_per_second: None,
                    images_per_second: Some(self.images_per_step as f64 / seconds),
                    elapsed_seconds: self.elapsed_seconds,
                    host_ms: None,
                    data_wait_ms: None,
                    gpu_idle_share: None,
                    memory_bytes: self.device.allocated_bytes().unwrap_or(0) as u64,
                    skipped: !finite,
                    validation_loss: None,
                    validation_accuracy: None,
                });
                self.observer.on_unsaved_steps(step.saturating_sub(self.saved_step));
            }
            FitEvent::Epoch(report) => {
                if let Some(line) = &mut self.pending {
                    line.validation_loss = report.validation_loss;
                    line.validation_accuracy = report.metrics.first().map(|(_, value)| *value);
                }
                self.flush_pending()?;
                self.observer.on_event(TrainEvent::Epoch(report));
            }
            FitEvent::Saved { path, best } => {
                // If the evaluation of the step was interrupted, a resumed run writes its line again.
                self.flush_pending()?;
                self.open(0)?.write_plot()?;
                self.saved_step = self.last_step;
                self.observer.on_unsaved_steps(0);
                self.observer.on_event(TrainEvent::Saved { step: self.saved_step, path, best });
            }
        }
        Ok(())
    }
}

fn train(run: &Prepared, folder: &Path, observer: &mut dyn Observer) -> Result<FitReport> {
    observer.on_event(TrainEvent::BeginImages(&run.info));
    let (train, stop) = (&run.config.train, observer.interrupt_flag());
    let net = &run.net;
    let loss = |batch: &[Tensor]| match batch {
        [images, classes] => net.forward(images).cross_entropy(classes),
        _ => Tensor::failed("loss", "expected images and classes"),
    };
    let description = serde_json::to_value(&run.run).map_err(|error| Error::config(error.to_string()))?;
    let mut recorder = Recorder {
        folder: folder.into(),
        observer,
        metrics: None,
        pending: None,
        images_per_step: run.info.images_per_step,
        elapsed_seconds: 0.0,
        step_seconds: 0.0,
        last_step: 0,
        saved_step: 0,
        device: run.params.device(),
        error: None,
    };
    let mut fit = Fit::new(&run.optimizer, loss)
        .epochs(train.epochs.unwrap_or(1))
        .checkpoints(folder.join(CHECKPOINTS))
        .keep_checkpoints(train.keep_checkpoints.unwrap_or(3))
        .description(description)
        .on_event(|event| {
            if let Err(error) = recorder.on_event(event) {
                recorder.error.get_or_insert(error);
            }
        });
    if let Some(validation) = &run.validation_loader {
        fit = fit.validation(validation).metric("accuracy", |batch| match batch {
            [images, classes] => metrics::accuracy(&net.forward(images), classes),
            _ => Tensor::failed("accuracy", "expected images and classes"),
        });
    }
    if let Some(steps) = train.save_every.filter(|steps| *steps > 0) {
        fit = fit.save_every(steps);
    }
    if let Some(patience) = train.patience.filter(|patience| *patience > 0) {
        fit = fit.early_stopping(EarlyStopping { patience, min_delta: 0.0 });
    }
    if let Some(stop) = stop {
        fit = fit.stop_flag(stop);
    }
    let report = fit.run(&run.training)?;
    match recorder.error {
        Some(error) => Err(error),
        None => Ok(report),
    }
}
