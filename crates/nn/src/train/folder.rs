//! Trained models on disk: a run's folder or a Hugging Face folder.
//!
//! A run's folder holds `run.toml`, `environment.json`, `tokenizer.json`, `metrics.jsonl`,
//! `events.out.tfevents.…`, `loss.svg`, `samples.txt`, and `checkpoints/` with `latest` and `best`.

use std::fs;
use std::path::{Path, PathBuf};

use bornite::{DType, Device, Tensor, trace};
use bornite_support::tune::TuningRecord;
use serde::{Deserialize, Serialize};

use super::config::RunConfig;
use super::data_parallel::DataParallel;
use super::metrics::StepMetrics;
use super::precision::{LossScale, Precision};
use super::workload::{available_bytes, format_bytes};
use crate::checkpoint::{Checkpoint, CheckpointContents, CheckpointStore, Keep, load_latest_of};
use crate::data::{BatchOptions, DataCursor, TokenDataset};
use crate::error::located;
use crate::generate::TextGenerator;
use crate::inputs::{LossInputs, unpack_outputs};
use crate::model::{Gpt, GptConfig};
use crate::parameters::{Params, Weights};
use crate::tokenizer::Tokenizer;
use crate::{Error, Result, files};

pub(crate) const CONFIG: &str = "run.toml";
pub(crate) const TOKENIZER: &str = "tokenizer.json";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const SAMPLES: &str = "samples.txt";
/// Checkpoint group that contains the optimizer state.
pub(crate) const MOMENTS: &str = "moments";

/// State of a run in a checkpoint, without tensors. Aliases are the names of earlier releases.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// Model architecture.
    pub model: GptConfig,
    /// Settings of the run.
    pub config: RunConfig,
    /// [`Tokenizer::fingerprint`].
    #[serde(alias = "tokenizer")]
    pub tokenizer_fingerprint: String,
    /// Position of the next batch in the data; `None` for an imported model.
    #[serde(alias = "cursor")]
    pub data_cursor: Option<DataCursor>,
    /// Loss scale.
    #[serde(alias = "scale")]
    pub loss_scale: LossScale,
    /// True if the gradients of the last step were finite; set if the loss scale was not updated
    /// for it yet.
    #[serde(alias = "unapplied")]
    pub pending_scale_update: Option<bool>,
    /// Training time.
    #[serde(alias = "seconds")]
    pub elapsed_seconds: f64,
    /// Metrics of the last step, if its evaluation or sample was interrupted and must be repeated.
    #[serde(default, alias = "pending")]
    pub pending_metrics: Option<StepMetrics>,
    /// Size of `samples.txt`; `None` in checkpoints of releases that did not record it.
    #[serde(default, alias = "samples")]
    pub samples_bytes: Option<u64>,
    /// Tuned kernel choices, which a resumed run reuses.
    pub tuning: Vec<TuningRecord>,
}

/// A trained model with its tokenizer.
pub struct TrainedModel {
    /// Model, with its parameters.
    pub gpt: Gpt,
    /// Tokenizer.
    pub tokenizer: Tokenizer,
    /// Precision that the model was trained in.
    pub precision: Precision,
    /// Number of training steps.
    pub step: u64,
    /// Settings of the run; `None` for a Hugging Face folder.
    pub config: Option<RunConfig>,
    /// Warning for the user, for example that the latest checkpoint is damaged.
    pub note: Option<String>,
}

/// Returns the tokenizer `bytes` or `gpt2`, or reads the `tokenizer.json` at a path.
#[track_caller]
pub fn named_tokenizer(name: &str) -> Result<Tokenizer> {
    located(|| match name {
        "bytes" => Ok(Tokenizer::bytes()),
        "gpt2" => Ok(Tokenizer::gpt2()),
        _ if name.starts_with("bpe:") => Err(Error::config(format!(
            "tokenizer '{name}' is trained on data, which is not possible here; use bytes, gpt2 or a tokenizer.json"
        ))),
        path if Path::new(path).is_dir() => Tokenizer::read(Path::new(path).join(TOKENIZER)),
        path if !path.contains('/') && !Path::new(path).exists() => Err(Error::config(format!(
            "there is no tokenizer '{path}'; use bytes, gpt2, bpe:N or the path of a tokenizer.json"
        ))),
        path => Tokenizer::read(path),
    })
}

/// Reads the tokenizer of a run's folder.
pub(crate) fn run_tokenizer(folder: &Path) -> Result<Tokenizer> {
    let path = folder.join(TOKENIZER);
    files::check_plain(&path)?;
    Tokenizer::read(&path)
}

/// Rejects a tokenizer with more tokens than the model's vocabulary.
pub(crate) fn check_tokenizer(tokenizer: &Tokenizer, model: &GptConfig) -> Result<()> {
    let (tokens, vocabulary) = (tokenizer.vocabulary(), model.vocabulary);
    if tokens <= vocabulary {
        return Ok(());
    }
    Err(Error::tokenizer(format!(
        "it has {tokens} tokens, but the model's vocabulary has {vocabulary}; use the tokenizer that the model was trained with"
    )))
}

impl TrainedModel {
    /// Creates a trained model from a model after `step` training steps in `precision`.
    pub fn new(gpt: Gpt, tokenizer: Tokenizer, precision: Precision, step: u64) -> TrainedModel {
        TrainedModel { gpt, tokenizer, precision, step, config: None, note: None }
    }

    /// Loads the latest checkpoint of a run, or a Hugging Face folder. `tokenizer` overrides the
    /// folder's tokenizer.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>, tokenizer: Option<&str>, device: Device) -> Result<TrainedModel> {
        located(|| {
            let folder = folder.as_ref();
            let checkpoints = folder.join(CHECKPOINTS);
            let trained = if checkpoints.is_dir() {
                TrainedModel::open_run(folder, tokenizer, device)?
            } else if folder.join("config.json").is_file() {
                TrainedModel::open_hugging_face(folder, tokenizer, device)?
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

    fn open_run(folder: &Path, tokenizer: Option<&str>, device: Device) -> Result<TrainedModel> {
        let loaded = load_latest_of(&folder.join(CHECKPOINTS), device, true, CheckpointContents::Weights)?;
        let mut checkpoint = loaded.checkpoint;
        rename_retired_tensors(&mut checkpoint);
        check_text_run(folder, &checkpoint)?;
        let state: State = checkpoint.state_as()?;
        let tokenizer = match tokenizer {
            Some(name) => named_tokenizer(name)?,
            None => run_tokenizer(folder)?,
        };
        let params = Params::new(device, 0);
        let gpt = Gpt::new(&params, state.model)?;
        params.load_tensors(&checkpoint.weights)?;
        Ok(TrainedModel {
            gpt,
            tokenizer,
            precision: state.config.train.precision.unwrap_or_default(),
            step: checkpoint.step,
            config: Some(state.config),
            note: loaded.note,
        })
    }

    fn open_hugging_face(folder: &Path, tokenizer: Option<&str>, device: Device) -> Result<TrainedModel> {
        let gpt = Gpt::import(&Params::new(device, 0), folder)?;
        let file = Some(folder.join(TOKENIZER)).filter(|path| path.is_file());
        let tokenizer = match (tokenizer, file) {
            (Some(name), _) => named_tokenizer(name)?,
            (None, Some(path)) => Tokenizer::read(path)?,
            (None, None) if gpt.config().vocabulary == 50_257 => Tokenizer::gpt2(),
            (None, None) => {
                return Err(Error::file(folder, "has no tokenizer.json; specify a tokenizer with --tokenizer"));
            }
        };
        Ok(TrainedModel::new(gpt, tokenizer, Precision::F32, 0))
    }

    fn device(&self) -> Device {
        self.gpt.params().device()
    }

    /// Returns a generator with a key/value cache for `length` tokens, prompt included, at most the
    /// context length.
    #[track_caller]
    pub fn generator(&self, length: usize) -> Result<TextGenerator> {
        located(|| TextGenerator::new(&self.gpt, self.precision, length))
    }

    /// Returns the mean loss over the first `max_batches` batches of `data`, in order, and the
    /// number of batches.
    #[track_caller]
    pub fn loss(&self, data: &TokenDataset, batch: usize, context: usize, max_batches: u64) -> Result<(f64, u64)> {
        located(|| {
            let sequences = data.len().saturating_sub(1) / context.max(1) as u64;
            self.check_logits(batch.min(sequences as usize), context)?;
            let (gpt, weights) = (self.gpt.clone(), Weights::new(self.gpt.params(), self.precision.dtype())?);
            weights.update()?;
            let loss = trace(move |inputs| {
                let LossInputs { tokens, targets } = LossInputs::from_list(inputs)?;
                let loss = weights.run(|| gpt.loss(tokens, targets));
                Ok((vec![loss.cast(DType::F32)], vec![]))
            });
            let batch_loss = |batch: &[Tensor]| -> Result<f64> {
                let [loss] = unpack_outputs("loss", self.precision.within(|| loss.call(batch))?)?;
                Ok(loss.item()?)
            };
            mean_loss(data, [batch, context], 1, max_batches, self.device(), None, &batch_loss)
        })
    }

    /// Rejects a batch whose logits alone do not fit into memory: nothing else bounds the context
    /// of a RoPE model.
    fn check_logits(&self, batch: usize, context: usize) -> Result<()> {
        let sizes = [batch, context, self.gpt.config().vocabulary, 4];
        let bytes = sizes.iter().fold(1u128, |product, n| product.saturating_mul(*n as u128));
        match available_bytes(self.device()).filter(|available| bytes > u128::from(*available)) {
            None => Ok(()),
            Some(available) => Err(Error::config(format!(
                "the logits of a batch of {batch} × {context} tokens need {}, but {} has {}; lower the batch size or the context",
                format_bytes(bytes),
                self.device(),
                format_bytes(available.into())
            ))),
        }
    }

    /// Writes the model and its tokenizer as a folder that Hugging Face `transformers` loads.
    #[track_caller]
    pub fn export(&self, folder: impl AsRef<Path>) -> Result<()> {
        self.gpt.export(folder, Some(&self.tokenizer))
    }

    /// Creates a run's folder with this model as the checkpoint of step 0.
    #[track_caller]
    pub fn save_as_run(&self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        located(|| {
            let folder = folder.as_ref();
            let checkpoints = folder.join(CHECKPOINTS);
            claim_run_folder(folder)?;
            let mut store = CheckpointStore::open(&checkpoints, Keep { last: 1, best: false })?;
            let mut config = RunConfig::default();
            config.set_gpt(self.gpt.config());
            config.train.precision = Some(self.precision);
            files::replace(&folder.join(CONFIG), config.text()?.as_bytes())?;
            files::replace(&folder.join(TOKENIZER), self.tokenizer.to_json().as_bytes())?;
            let state = State {
                model: self.gpt.config().clone(),
                config,
                tokenizer_fingerprint: self.tokenizer.fingerprint().into(),
                data_cursor: None,
                loss_scale: LossScale::new(self.precision),
                pending_scale_update: None,
                elapsed_seconds: 0.0,
                pending_metrics: None,
                samples_bytes: None,
                tuning: vec![],
            };
            let checkpoint = Checkpoint::new(0, self.gpt.params().tensors()?, state_json(&state)?);
            Ok(store.save(&checkpoint, None)?.path)
        })
    }
}

/// Rejects a checkpoint of an image run.
pub(crate) fn check_text_run(folder: &Path, checkpoint: &Checkpoint) -> Result<()> {
    match checkpoint.state.pointer("/description/image_model/name") {
        Some(name) => {
            let name = name.as_str().unwrap_or_default();
            let what = format!("is a run of the image model {name}; expected a model of text");
            Err(Error::file(folder, what))
        }
        None => Ok(()),
    }
}

/// Suffixes of tensor names in checkpoints of earlier releases, with the current ones.
const RETIRED_TENSORS: [(&str, &str); 2] =
    [("tokens.weight", "token_embedding.weight"), ("places.weight", "position_embedding.weight")];

/// Gives the tensors of a checkpoint of an earlier release their current names.
pub(crate) fn rename_retired_tensors(checkpoint: &mut Checkpoint) {
    for tensors in std::iter::once(&mut checkpoint.weights).chain(checkpoint.groups.values_mut()) {
        for (retired, current) in RETIRED_TENSORS {
            // Optimizer state has a prefix, such as `moment0.`.
            let is_retired = |name: &String| {
                name.strip_suffix(retired).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
            };
            for name in tensors.keys().filter(|name| is_retired(name)).cloned().collect::<Vec<_>>() {
                if let Some(tensor) = tensors.remove(&name) {
                    tensors.insert(format!("{}{current}", name.trim_end_matches(retired)), tensor);
                }
            }
        }
    }
}

/// Returns the mean of `loss` over at most `max_batches` batches of `data`, in order, and the
/// number of batches. Ranks share the batches, each of which is computed in `split` pieces if its
/// size allows it.
pub(crate) fn mean_loss(
    data: &TokenDataset,
    [batch, context]: [usize; 2],
    split: usize,
    max_batches: u64,
    device: Device,
    ranks: Option<&DataParallel>,
    loss: &dyn Fn(&[Tensor]) -> Result<f64>,
) -> Result<(f64, u64)> {
    if max_batches == 0 {
        return Err(Error::config("the loss over 0 batches is undefined; request at least one batch"));
    }
    // No sequence is used twice, which would weight it more than others.
    let sequences = data.len().saturating_sub(1) / context.max(1) as u64;
    let batch = batch.min(sequences.max(1) as usize);
    let count = (sequences / batch as u64).min(max_batches).max(1);
    let split = if batch.is_multiple_of(split) { split } else { 1 };
    let (batch, pieces) = (batch / split, count * split as u64);
    let batches = data.batches(&BatchOptions { batch, context, seed: 0, shuffle: false, prefetch: 2 })?;
    let (rank, size) = ranks.map_or((0, 1), |ranks| (ranks.rank(), ranks.size()));
    let mut losses = vec![0.0; pieces as usize];
    for (slot, next) in losses.iter_mut().skip(rank).step_by(size).zip(batches.of_rank(rank, size)) {
        let next = next?;
        let tensor = |tokens: &[i32]| Tensor::from_slice(tokens, &[batch, context], device);
        *slot = loss(&LossInputs { tokens: tensor(&next.inputs), targets: tensor(&next.targets) }.into_list())?;
    }
    if let Some(ranks) = ranks {
        ranks.all_reduce(&mut losses)?;
    }
    Ok((losses.iter().sum::<f64>() / pieces as f64, count))
}

/// Creates a run's folder. A folder that already contains a checkpoint is an error.
pub(crate) fn claim_run_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io("create folder", folder))?;
    match crate::checkpoint::newest(folder.join(CHECKPOINTS)) {
        Ok(None) => Ok(()),
        Ok(Some(latest)) => {
            let name = latest.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let what =
                format!("already contains a run, up to {name}; continue it with --resume or choose another folder");
            Err(Error::file(folder, what))
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn state_json(state: &State) -> Result<serde_json::Value> {
    serde_json::to_value(state).map_err(|error| Error::config(format!("cannot serialize the run's state: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_earlier_releases_is_read() {
        let model = GptConfig::gpt2(257, 8, 1, 1, 8);
        let line = r#"{"step":3,"loss":1.5,"rate":0.1,"norm":2.5,"tokens_per_second":4.0,"seconds":0.5,"memory":7,"skipped":true}"#;
        let old = format!(
            r#"{{"model":{},"config":{{"rate":{{"highest":0.2}}}},"tokenizer":"ab","seconds":1.25,"unapplied":false,"samples":9,
            "cursor":{{"seed":1,"epoch":2,"position":3,"windows":4,"data":5}},"scale":{{"factor":8.0,"good":6}},
            "pending":{line},"tuning":[]}}"#,
            serde_json::to_string(&model).unwrap().replace("mlp_hidden", "hidden").replace("tied_embeddings", "tied"),
        );
        let state: State = serde_json::from_str(&old).unwrap();
        assert_eq!((state.model.mlp_hidden, state.config.schedule.lr), (32, Some(0.2)));
        assert_eq!((&state.tokenizer_fingerprint[..], state.elapsed_seconds), ("ab", 1.25));
        assert_eq!((state.pending_scale_update, state.samples_bytes), (Some(false), Some(9)));
        let cursor = DataCursor { seed: 1, epoch: 2, position: 3, sequences: 4, fingerprint: 5 };
        assert_eq!(state.data_cursor, Some(cursor));
        assert_eq!(state.loss_scale, LossScale { scale: 8.0, good_steps: 6 });
        let metrics = state.pending_metrics.unwrap();
        assert_eq!((metrics.lr, metrics.grad_norm, metrics.memory_bytes), (0.1, Some(2.5), 7));
        let written = serde_json::to_string(&state).unwrap();
        for retired in ["rate", "unapplied", "windows", "factor", "cursor", "pending", "tokenizer", "seconds"] {
            assert!(!written.contains(&format!("\"{retired}\":")), "{retired}: {written}");
        }
    }
}
