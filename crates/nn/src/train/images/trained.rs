//! A trained image classifier: loading, predictions, evaluation.

use std::path::Path;

use bornite::{DType, Device, Tensor, trace, trace::Trace};
use serde::{Deserialize, Serialize};

use super::evaluation::{ImageEvaluation, ranked};
use crate::checkpoint::{CheckpointContents, load_latest_of};
use crate::data::{DataLoader, Dataset, HostArray, ImageChannels, Normalize, Resize, read_image};
use crate::error::located;
use crate::inputs::unpack_outputs;
use crate::model::{ImageModelConfig, MEAN, STD};
use crate::parameters::{Params, Weights};
use crate::train::Precision;
use crate::train::folder::CHECKPOINTS;
use crate::{Error, Forward, Result};

/// Description of the model in the checkpoints of an image run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ImageRun {
    /// The model.
    pub image_model: ImageModelConfig,
    /// Names of the classes, in the order of their indices.
    pub classes: Vec<String>,
    /// Precision that it is trained in.
    pub precision: Precision,
}

/// A trained image classifier.
pub struct TrainedImages {
    /// The model and its classes.
    pub run: ImageRun,
    /// Parameters.
    pub params: Params,
    /// Number of training steps.
    pub step: u64,
    /// Warning for the user, for example that the latest checkpoint is damaged.
    pub note: Option<String>,
    weights: Weights,
    probabilities: Trace<'static>,
}

/// State of a checkpoint, as far as it is read here.
#[derive(Deserialize)]
struct State {
    description: Option<ImageRun>,
}

impl TrainedImages {
    /// Prepares a classifier for predictions.
    pub(super) fn new(
        run: ImageRun,
        params: &Params,
        net: impl Forward + Send + Sync + 'static,
        step: u64,
    ) -> Result<TrainedImages> {
        let weights = Weights::new(params, run.precision.dtype())?;
        let forward = weights.clone();
        let probabilities = trace(move |batch| {
            let [images] = batch else { return Err(bornite::Error::op("classify", "expected one batch of images")) };
            let logits = forward.run(|| net.forward(images));
            Ok((vec![logits.cast(DType::F32).softmax(-1)], vec![]))
        });
        Ok(TrainedImages { run, params: params.clone(), step, note: None, weights, probabilities })
    }

    /// Loads the latest checkpoint of a run.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>, device: Device) -> Result<TrainedImages> {
        located(|| {
            let folder = folder.as_ref();
            let loaded = load_latest_of(&folder.join(CHECKPOINTS), device, true, CheckpointContents::Weights)?;
            let state = serde_json::from_value::<State>(loaded.checkpoint.state.clone());
            let Ok(State { description: Some(run) }) = state else {
                return Err(Error::file(folder, "is not a run of an image model; use a run whose model.name is one"));
            };
            if run.classes.len() != run.image_model.classes {
                let (names, classes) = (run.classes.len(), run.image_model.classes);
                return Err(Error::file(folder, format!("is damaged: {names} class names for {classes} classes")));
            }
            let params = Params::new(device, 0);
            let net = run.image_model.build(&params)?;
            params.load_tensors(&loaded.checkpoint.weights)?;
            let trained = TrainedImages::new(run, &params, net, loaded.checkpoint.step)?;
            Ok(TrainedImages { note: loaded.note, ..trained })
        })
    }

    /// Returns the probabilities of the classes for a batch of normalized images.
    #[track_caller]
    pub fn probabilities(&self, images: &Tensor) -> Result<Vec<Vec<f32>>> {
        located(|| {
            self.weights.update()?;
            let results = self.run.precision.within(|| self.probabilities.call(std::slice::from_ref(images)))?;
            let [probabilities] = unpack_outputs("classify", results)?;
            let rows = probabilities.to_vec::<f32>()?;
            Ok(rows.chunks(self.run.classes.len().max(1)).map(<[f32]>::to_vec).collect())
        })
    }

    /// Classifies an image file, which is resized to the size of the model's images. Returns class
    /// indices and probabilities, the most probable first.
    #[track_caller]
    pub fn classify_file(&self, path: impl AsRef<Path>) -> Result<Vec<(usize, f32)>> {
        located(|| {
            let image = read_image(path.as_ref(), ImageChannels::Rgb, DType::F32)?;
            let loader = self.loader(Single(image), 1);
            let Some(batch) = loader.epoch().next() else { return Ok(vec![]) };
            let [images] = &batch?[..] else { return Ok(vec![]) };
            let probabilities = self.probabilities(images)?.into_iter().next().unwrap_or_default();
            Ok(ranked(&probabilities).into_iter().map(|class| (class, probabilities[class])).collect())
        })
    }

    /// Evaluates images with classes, in batches of `batch`. `should_stop` is called before each.
    #[track_caller]
    pub fn evaluate<D: Dataset + Clone + 'static>(
        &self,
        data: &D,
        batch: usize,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<ImageEvaluation> {
        located(|| {
            let (mut found, mut index) = (ImageEvaluation::new(&self.run.classes), 0);
            for batch in self.loader(data.clone(), batch).epoch() {
                if should_stop() {
                    return Err(Error::stopped());
                }
                let batch = batch?;
                let [images, classes] = &batch[..] else {
                    return Err(Error::data("a sample is not an image and its class"));
                };
                for (class, probabilities) in classes.to_vec::<i64>()?.into_iter().zip(self.probabilities(images)?) {
                    found.add(index, class as usize, &probabilities, || data.describe(index));
                    index += 1;
                }
            }
            Ok(found)
        })
    }

    /// Batches in order, resized to the model's images and normalized.
    fn loader(&self, data: impl Dataset + 'static, batch: usize) -> DataLoader {
        let size = self.run.image_model.image_size;
        let loader = DataLoader::new(data).batch(batch).workers(workers()).device(self.params.device());
        loader.transform(0, Resize { height: size, width: size }).transform(0, normalize())
    }

    /// Writes the parameters as a safetensors file of a torchvision state dict.
    #[track_caller]
    pub fn export(&self, path: impl AsRef<Path>) -> Result<()> {
        self.params.save(path)
    }
}

/// One image, as a dataset.
struct Single(HostArray);

impl Dataset for Single {
    fn len(&self) -> usize {
        1
    }

    fn get(&self, _: usize) -> Result<Vec<HostArray>> {
        Ok(vec![self.0.clone()])
    }
}

/// Normalization of torchvision's weights.
pub(super) fn normalize() -> Normalize {
    Normalize { mean: MEAN.to_vec(), std: STD.to_vec() }
}

/// Threads that read images.
pub(super) fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(8))
}
