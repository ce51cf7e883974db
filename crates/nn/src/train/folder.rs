//! What is trained, on the disk: the folder of a run, or one of Hugging Face.
//!
//! A run's folder holds `run.toml`, `environment.json`, `tokenizer.json`, `metrics.jsonl`, `events.out.tfevents.…`,
//! `loss.svg`, `samples.txt`, and `checkpoints/` with `latest` and `best`.

use std::fs;
use std::path::{Path, PathBuf};

use bornite::{DType, Device, Tensor, trace, var::Arena};
use bornite_support::tune::Record;
use serde::{Deserialize, Serialize};

use super::config::RunConfig;
use super::estimate::{available, size};
use super::learner::Learner;
use super::metrics::Line;
use super::precision::{LossScale, Precision};
use crate::checkpoint::{Checkpoint, Contents, Keep, Store, Tensors, load_latest_of};
use crate::data::{Cursor, Dataset, Plan};
use crate::error::located;
use crate::generate::Generator;
use crate::inputs::{LossInputs, unpack_outputs};
use crate::model::{Gpt, GptConfig};
use crate::parameters::Context;
use crate::tokenizer::Tokenizer;
use crate::{Error, Result, files};

pub(crate) const CONFIG: &str = "run.toml";
pub(crate) const TOKENIZER: &str = "tokenizer.json";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const SAMPLES: &str = "samples.txt";
/// The group of a checkpoint that holds what the optimiser keeps.
pub(crate) const MOMENTS: &str = "moments";

/// What a checkpoint of a run knows beside tensors.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// The model, whole.
    pub model: GptConfig,
    /// The settings.
    pub config: RunConfig,
    /// A hash of the tokenizer.
    pub tokenizer: String,
    /// Where in the data the next batch starts; none of a model that was imported.
    pub cursor: Option<Cursor>,
    /// The factor of the loss.
    pub scale: LossScale,
    /// Whether the last step moved parameters, where the factor does not know of it yet.
    pub unapplied: Option<bool>,
    /// Seconds of training.
    pub seconds: f64,
    /// The last step's numbers, if its evaluation or sample was interrupted and is still to be made.
    #[serde(default)]
    pub pending: Option<Line>,
    /// Bytes of `samples.txt`; none of checkpoints that do not know.
    #[serde(default)]
    pub samples: Option<u64>,
    /// Choices of kernels: a resumed run computes with the same.
    pub tuning: Vec<Record>,
}

/// A model with its parameters and tokenizer.
pub struct Trained {
    /// The model.
    pub gpt: Gpt,
    /// Parameters in f32, by name.
    pub parameters: Tensors,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// The arithmetic that it was trained in.
    pub precision: Precision,
    /// Steps it was trained for.
    pub step: u64,
    /// The run's settings, where it is a run.
    pub config: Option<RunConfig>,
    /// What whoever asked should know: that the latest checkpoint is damaged, say.
    pub note: Option<String>,
    device: Device,
}

/// The tokenizer of a name that needs no data: `bytes`, `gpt2`, or the path of a `tokenizer.json`.
#[track_caller]
pub fn named_tokenizer(name: &str) -> Result<Tokenizer> {
    located(|| match name {
        "bytes" => Ok(Tokenizer::bytes()),
        "gpt2" => Ok(Tokenizer::gpt2()),
        _ if name.starts_with("bpe:") => Err(Error::config(format!(
            "'{name}' is learned from data; here it must be bytes, gpt2 or a tokenizer.json"
        ))),
        path if Path::new(path).is_dir() => Tokenizer::read(Path::new(path).join(TOKENIZER)),
        path if !path.contains('/') && !Path::new(path).exists() => Err(Error::config(format!(
            "there is no tokenizer '{path}'; it is one of bytes, gpt2, bpe:N or the path of a tokenizer.json"
        ))),
        path => Tokenizer::read(path),
    })
}

/// The tokenizer of a run's folder.
pub(crate) fn own_tokenizer(folder: &Path) -> Result<Tokenizer> {
    let path = folder.join(TOKENIZER);
    files::check_plain(&path)?;
    Tokenizer::read(&path)
}

/// Refuses a tokenizer that has tokens which a model has no rows for.
pub(crate) fn check_tokenizer(tokenizer: &Tokenizer, model: &GptConfig) -> Result<()> {
    let (tokens, rows) = (tokenizer.vocabulary(), model.vocabulary);
    if tokens <= rows {
        return Ok(());
    }
    Err(Error::tokenizer(format!(
        "it has {tokens} tokens, and the model was made for {rows}; use the tokenizer that the model was trained with"
    )))
}

impl Trained {
    /// What a learner has become.
    pub fn of(learner: &Learner, tokenizer: Tokenizer, precision: Precision) -> Trained {
        let [parameters, _] = learner.tensors();
        let (gpt, step, device) = (learner.gpt().clone(), learner.steps(), learner.device());
        Trained { gpt, parameters, tokenizer, precision, step, config: None, note: None, device }
    }

    /// Loads the latest checkpoint of a run, or a folder of Hugging Face. `tokenizer` replaces the folder's own.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>, tokenizer: Option<&str>, device: Device) -> Result<Trained> {
        located(|| {
            let folder = folder.as_ref();
            let checkpoints = folder.join(CHECKPOINTS);
            let trained = if checkpoints.is_dir() {
                Trained::open_run(folder, tokenizer, device)?
            } else if folder.join("config.json").is_file() {
                Trained::open_hugging_face(folder, tokenizer, device)?
            } else {
                fs::metadata(folder).map_err(Error::io("open", folder))?;
                let what =
                    "is neither a run (it has no folder 'checkpoints') nor a Hugging Face model (no 'config.json')";
                return Err(Error::file(folder, what));
            };
            check_tokenizer(&trained.tokenizer, trained.gpt.config())?;
            Ok(trained)
        })
    }

    fn open_run(folder: &Path, tokenizer: Option<&str>, device: Device) -> Result<Trained> {
        let loaded = load_latest_of(&folder.join(CHECKPOINTS), device, true, Contents::Weights)?;
        let state: State = loaded.checkpoint.state_as()?;
        let tokenizer = match tokenizer {
            Some(name) => named_tokenizer(name)?,
            None => own_tokenizer(folder)?,
        };
        state.model.check()?;
        Ok(Trained {
            gpt: Gpt::new(state.model)?,
            parameters: loaded.checkpoint.weights,
            tokenizer,
            precision: state.config.train.precision.unwrap_or_default(),
            step: loaded.checkpoint.step,
            config: Some(state.config),
            note: loaded.note,
            device,
        })
    }

    fn open_hugging_face(folder: &Path, tokenizer: Option<&str>, device: Device) -> Result<Trained> {
        let (gpt, parameters) = Gpt::import(folder, device)?;
        let own = Some(folder.join(TOKENIZER)).filter(|path| path.is_file());
        let tokenizer = match (tokenizer, own) {
            (Some(name), _) => named_tokenizer(name)?,
            (None, Some(path)) => Tokenizer::read(path)?,
            (None, None) if gpt.config().vocabulary == 50_257 => Tokenizer::gpt2(),
            (None, None) => {
                return Err(Error::file(folder, "has no tokenizer.json; name one with --tokenizer"));
            }
        };
        let (precision, config) = (Precision::F32, None);
        Ok(Trained { gpt, parameters, tokenizer, precision, step: 0, config, note: None, device })
    }

    /// The parameters in the arithmetic that the model runs in.
    #[track_caller]
    pub fn weights(&self) -> Result<Arena> {
        located(|| {
            let mut named = vec![];
            for p in self.gpt.parameters().iter() {
                let Some(tensor) = self.parameters.get(&p.name) else {
                    return Err(Error::config(format!("the checkpoint has no '{}'", p.name)));
                };
                if tensor.shape()? != p.shape {
                    let found = tensor.shape()?;
                    return Err(Error::config(format!("'{}' is {found:?}, and the model needs {:?}", p.name, p.shape)));
                }
                named.push((&p.name[..], tensor.cast(self.precision.dtype())));
            }
            let named: Vec<(&str, &Tensor)> = named.iter().map(|(name, tensor)| (*name, tensor)).collect();
            Ok(Arena::grouped(&named, |_, shape| usize::from(shape.len() < 2))?)
        })
    }

    /// The model, ready to write texts of up to `length` tokens with their prompts, or of the context if that is less.
    #[track_caller]
    pub fn generator(&self, length: usize) -> Result<Generator> {
        located(|| Generator::new(&self.gpt, &self.weights()?, self.precision, length))
    }

    /// The mean loss over data, in order, on at most so many batches; with the number of batches.
    #[track_caller]
    pub fn loss(&self, data: &Dataset, batch: usize, context: usize, most: u64) -> Result<(f64, u64)> {
        located(|| {
            let windows = data.len().saturating_sub(1) / context.max(1) as u64;
            self.check_logits(batch.min(windows as usize), context)?;
            let (gpt, weights) = (self.gpt.clone(), self.weights()?);
            let loss = trace(move |inputs| {
                let LossInputs { tokens, targets } = LossInputs::from_list(inputs)?;
                let loss = gpt.loss(&Context::new(weights.tensors()), tokens, targets);
                Ok((vec![loss.cast(DType::F32)], vec![]))
            });
            let of = |x: &Tensor, y: &Tensor| -> Result<f64> {
                let inputs = LossInputs { tokens: x.clone(), targets: y.clone() }.into_list();
                let [loss] = unpack_outputs("loss", self.precision.within(|| loss.call(&inputs))?)?;
                Ok(loss.item()?)
            };
            mean_loss(data, batch, context, most, self.device, &of)
        })
    }

    /// Refuses a batch whose logits alone do not fit into memory: the context of a rotary model is bounded by nothing else.
    fn check_logits(&self, batch: usize, context: usize) -> Result<()> {
        let sizes = [batch, context, self.gpt.config().vocabulary, 4];
        let bytes = sizes.iter().fold(1u128, |product, n| product.saturating_mul(*n as u128));
        match available(self.device).filter(|available| bytes > u128::from(*available)) {
            None => Ok(()),
            Some(available) => Err(Error::config(format!(
                "the logits of a batch of {batch} × {context} tokens need {}, and {} has {}; lower the batch or the context",
                size(bytes),
                self.device,
                size(available.into())
            ))),
        }
    }

    /// Writes a Hugging Face folder.
    #[track_caller]
    pub fn export(&self, folder: impl AsRef<Path>) -> Result<()> {
        self.gpt.export(folder, &self.parameters, Some(&self.tokenizer))
    }

    /// Makes the folder of a run with this model as its checkpoint of step 0.
    #[track_caller]
    pub fn save_as_run(&self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        located(|| {
            let folder = folder.as_ref();
            let checkpoints = folder.join(CHECKPOINTS);
            claim(folder)?;
            let mut store = Store::open(&checkpoints, Keep { last: 1, best: false })?;
            let mut config = RunConfig::default();
            config.set_gpt(self.gpt.config());
            config.train.precision = Some(self.precision);
            files::replace(&folder.join(CONFIG), config.text()?.as_bytes())?;
            files::replace(&folder.join(TOKENIZER), self.tokenizer.to_json().as_bytes())?;
            let state = State {
                model: self.gpt.config().clone(),
                config,
                tokenizer: self.tokenizer.fingerprint().into(),
                cursor: None,
                scale: LossScale::new(self.precision),
                unapplied: None,
                seconds: 0.0,
                pending: None,
                samples: None,
                tuning: vec![],
            };
            let checkpoint = Checkpoint::new(0, self.parameters.clone(), state_json(&state)?);
            Ok(store.save(&checkpoint, None)?.path)
        })
    }
}

/// The mean of the losses of batches of data, in order: all windows, or so many batches.
pub(crate) fn mean_loss(
    data: &Dataset,
    batch: usize,
    context: usize,
    most: u64,
    device: Device,
    loss: &dyn Fn(&Tensor, &Tensor) -> Result<f64>,
) -> Result<(f64, u64)> {
    if most == 0 {
        return Err(Error::config("a loss over 0 batches has no value; ask for at least one batch"));
    }
    // No batch has a window twice: one would count more than others.
    let windows = data.len().saturating_sub(1) / context.max(1) as u64;
    let batch = batch.min(windows.max(1) as usize);
    let mut batches = data.batches(&Plan { batch, context, seed: 0, shuffle: false, prefetch: 2 })?;
    let count = (windows / batch as u64).min(most).max(1);
    let mut sum = 0.0;
    for _ in 0..count {
        let Some(next) = batches.next() else { break };
        let next = next?;
        let tensor = |tokens: &[i32]| Tensor::from_slice(tokens, &[batch, context], device);
        sum += loss(&tensor(&next.inputs), &tensor(&next.targets))?;
    }
    Ok((sum / count as f64, count))
}

/// Makes a folder for a run, and refuses one in which a run has saved something.
pub(crate) fn claim(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io("make folder", folder))?;
    match crate::checkpoint::newest(folder.join(CHECKPOINTS)) {
        Ok(None) => Ok(()),
        Ok(Some(latest)) => {
            let name = latest.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let what = format!("holds a run already, up to {name}; go on with --resume or choose another folder");
            Err(Error::file(folder, what))
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn state_json(state: &State) -> Result<serde_json::Value> {
    serde_json::to_value(state).map_err(|error| Error::config(format!("the run's state cannot be written: {error}")))
}
