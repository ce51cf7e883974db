//! Configuration of a run: sections of settings from a file, from `--set` and from flags, merged in
//! this order.
//!
//! `keys.rs` defines names and types, `model.rs` converts the section `[model]`. Nothing here reads
//! data or devices.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::keys;
use super::precision::Precision;
use crate::checkpoint::read_bounded;
use crate::data::{DataSource, SourceFormat};
use crate::error::located;
use crate::model::{GptConfig, MlpKind, NormKind};
use crate::optimizer::{LrDecay, LrSchedule, OptimizerKind};
use crate::{Error, ErrorKind, Result};

/// Maximum size of a `run.toml`.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Settings of a run. `None` stands for the default; [`RunConfig::resolved`] fills in the defaults.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Model architecture.
    pub model: ModelSection,
    /// Training data.
    pub data: DataSection,
    /// Training loop.
    pub train: TrainSection,
    /// Optimizer.
    #[serde(alias = "optimiser")]
    pub optimizer: OptimizerSection,
    /// Learning-rate schedule.
    #[serde(alias = "rate")]
    pub schedule: ScheduleSection,
}

/// Defines a section. A name after `|` is that of earlier releases, which `keys::RETIRED_KEYS`
/// lists as well.
macro_rules! section {
    ($(#[$about:meta])* $name:ident { $($field:ident $(| $retired:literal)?: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[allow(missing_docs)] // `keys::KEYS` documents the fields
        pub struct $name {
            $(
                #[serde(skip_serializing_if = "Option::is_none" $(, alias = $retired)?)]
                pub $field: Option<$type>,
            )*
        }
    };
}

section! {
    /// `[model]`.
    ModelSection {
        name: String,
        from: PathBuf,
        vocabulary: usize,
        context: usize,
        layers: usize,
        heads: usize,
        kv_heads: usize,
        width: usize,
        mlp_hidden | "hidden": usize,
        norm: NormKind,
        position: PositionSetting,
        rope_base: f64,
        mlp: MlpKind,
        bias: bool,
        tied_embeddings | "tied": bool,
        dropout: f64,
        eps: f64,
        head_width: usize,
        attention_bias: bool,
        scale_attention | "scale_by_head": bool,
        scale_attention_by_layer | "scale_by_layer": bool,
        rope_factor: f64,
        rope_low_freq_factor: f64,
        rope_high_freq_factor: f64,
        rope_original_context: usize,
    }
}

section! {
    /// `[data]`.
    DataSection {
        path: Vec<PathBuf>,
        field: String,
        format: SourceFormat,
        tokenizer: String,
        validation_fraction | "validation": f64,
        cache: PathBuf,
        image_size: usize,
        flip: bool,
        crop_padding: usize,
    }
}

section! {
    /// `[train]`.
    TrainSection {
        device: String,
        steps: u64,
        epochs: u64,
        patience: u64,
        batch: usize,
        context: usize,
        accumulate: usize,
        precision: Precision,
        seed: u64,
        eval_every: u64,
        eval_batches: usize,
        save_every: u64,
        keep_checkpoints | "keep": usize,
        tune_seconds: f64,
        activation_checkpointing | "checkpointing": bool,
        shard_optimizer: bool,
        rank_timeout: f64,
        sample_every: u64,
        sample_tokens: usize,
        sample_prompt | "prompt": String,
    }
}

section! {
    /// `[optimizer]`.
    OptimizerSection {
        name | "rule": String,
        beta1: f64,
        beta2: f64,
        eps: f64,
        momentum: f64,
        nesterov: bool,
        alpha: f64,
        weight_decay | "decay": f64,
        clip_norm | "clip": f64,
    }
}

section! {
    /// `[schedule]`.
    ScheduleSection {
        lr | "highest": f64,
        min_lr: f64,
        min_lr_ratio | "lowest": f64,
        warmup: u64,
        decay | "fall": LrDecay,
    }
}

/// Position encoding by name; see [`PositionKind`](crate::model::PositionKind).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PositionSetting {
    /// Learned position embeddings.
    Learned,
    /// Rotary embeddings.
    Rope,
}

/// Settings that may change when a run is resumed.
const CHANGEABLE: [&str; 13] = [
    "train.steps",
    "train.epochs",
    "train.patience",
    "train.device",
    "train.eval_every",
    "train.save_every",
    "train.keep_checkpoints",
    "train.sample_every",
    "train.sample_tokens",
    "train.sample_prompt",
    "train.shard_optimizer",
    "train.rank_timeout",
    "data.cache",
];

impl RunConfig {
    /// Parses the text of a `run.toml`.
    ///
    /// ```
    /// use bornite_nn::train::RunConfig;
    /// let config = RunConfig::parse("[train]\nsteps = 100\n")?;
    /// assert_eq!(config.train.steps, Some(100));
    /// let error = RunConfig::parse("[train]\nstep = 100\n").unwrap_err();
    /// assert_eq!(error.kind().to_string(), "there is no setting 'train.step'; did you mean 'train.steps'?");
    /// # Ok::<(), bornite_nn::Error>(())
    /// ```
    #[track_caller]
    pub fn parse(text: &str) -> Result<RunConfig> {
        located(|| from_table(keys::parse(text)?))
    }

    /// Reads a `run.toml`.
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Result<RunConfig> {
        located(|| {
            let path = path.as_ref();
            let text = read_bounded(path, MAX_CONFIG_BYTES)?;
            let text = str::from_utf8(&text).map_err(|_| Error::file(path, "is not UTF-8 text"))?;
            match RunConfig::parse(text) {
                Err(Error { kind: ErrorKind::Config(what), .. }) => {
                    Err(Error::config(format!("{}: {what}", path.display())))
                }
                result => result,
            }
        })
    }

    /// Sets one setting from text such as `train.steps=100`.
    #[track_caller]
    pub fn set(&mut self, text: &str) -> Result<()> {
        located(|| {
            let mut table = self.table()?;
            keys::assign(&mut table, text)?;
            *self = from_table(table)?;
            Ok(())
        })
    }

    /// Sets one setting whose value is a string.
    #[track_caller]
    pub fn set_text(&mut self, name: &str, value: &str) -> Result<()> {
        located(|| {
            let mut table = self.table()?;
            keys::put(&mut table, name, Value::String(value.into()))?;
            *self = from_table(table)?;
            Ok(())
        })
    }

    fn table(&self) -> Result<Table> {
        Table::try_from(self).map_err(|error| Error::config(format!("cannot serialize the settings: {error}")))
    }

    /// Returns the text of a `run.toml` with these settings.
    #[track_caller]
    pub fn text(&self) -> Result<String> {
        located(|| {
            let table = self.table()?;
            toml::to_string(&table).map_err(|error| Error::config(format!("cannot serialize the settings: {error}")))
        })
    }

    /// Overrides these settings with every setting that `over` has.
    #[track_caller]
    pub fn merge(&mut self, over: &RunConfig) -> Result<()> {
        located(|| {
            let mut table = self.table()?;
            for (section, values) in over.table()? {
                for (name, value) in values.as_table().into_iter().flatten() {
                    keys::put(&mut table, &format!("{section}.{name}"), value.clone())?;
                }
            }
            *self = from_table(table)?;
            Ok(())
        })
    }

    /// Returns these settings with absolute paths, so that the run can be resumed from any working
    /// directory.
    pub(crate) fn absolute(&self) -> Result<RunConfig> {
        let mut all = self.clone();
        let paths = all.data.path.iter_mut().flatten().chain(&mut all.data.cache).chain(&mut all.model.from);
        for path in paths {
            *path = std::path::absolute(&path).map_err(|error| Error::io("find", path)(error))?;
        }
        Ok(all)
    }

    /// Returns the names of the settings that differ in `other`.
    pub(super) fn differences(&self, other: &RunConfig) -> Result<Vec<&'static str>> {
        let (ours, theirs) = (self.table()?, other.table()?);
        let value = |table: &Table, name: &str| {
            let (section, last) = name.split_once('.')?;
            table.get(section)?.get(last).cloned()
        };
        let names = keys::KEYS.iter().map(|key| key.name);
        Ok(names.filter(|name| value(&ours, name) != value(&theirs, name)).collect())
    }

    /// Rejects settings that must not change when a run is resumed.
    pub(crate) fn check_resumed(&self, saved: &RunConfig) -> Result<()> {
        match self.differences(saved)?.into_iter().find(|name| !CHANGEABLE.contains(name)) {
            None => Ok(()),
            Some(name) => Err(Error::config(format!(
                "{name} differs from the value that the run was started with; when a run is resumed, only {} may change. To \
                 train with other settings, start a new run from its weights with model.from",
                CHANGEABLE.join(", ")
            ))),
        }
    }

    /// Rejects settings that contradict the model that the weights are taken from.
    pub(crate) fn check_from(&self, model: &GptConfig) -> Result<()> {
        let mut expected = self.clone();
        expected.set_gpt(model);
        let mut requested = expected.clone();
        requested.merge(self)?;
        match requested.differences(&expected)?.first() {
            None => Ok(()),
            Some(name) => {
                Err(Error::config(format!("{name} differs from the model of model.from; remove {name} or model.from")))
            }
        }
    }

    /// Returns the optimizer with its hyperparameters.
    #[track_caller]
    pub fn optimizer_kind(&self) -> Result<OptimizerKind> {
        located(|| {
            let o = &self.optimizer;
            let name = o.name.as_deref().unwrap_or("adamw");
            let (beta1, beta2, eps) = (o.beta1.unwrap_or(0.9), o.beta2.unwrap_or(0.95), o.eps.unwrap_or(1e-8));
            let (kind, used): (OptimizerKind, &[&str]) = match name {
                "adamw" => (OptimizerKind::AdamW { beta1, beta2, eps }, &["beta1", "beta2", "eps"]),
                "adam" => (OptimizerKind::Adam { beta1, beta2, eps }, &["beta1", "beta2", "eps"]),
                "sgd" => {
                    let momentum = o.momentum.unwrap_or(0.0);
                    (OptimizerKind::Sgd { momentum, nesterov: o.nesterov.unwrap_or(false) }, &["momentum", "nesterov"])
                }
                "rmsprop" => (OptimizerKind::RmsProp { alpha: o.alpha.unwrap_or(0.99), eps }, &["alpha", "eps"]),
                "adagrad" => (OptimizerKind::Adagrad { eps }, &["eps"]),
                "muon" => {
                    let momentum = o.momentum.unwrap_or(0.95);
                    (OptimizerKind::Muon { momentum, beta1, beta2, eps }, &["momentum", "beta1", "beta2", "eps"])
                }
                other => return Err(Error::config(format!("optimizer.name is '{other}'; there is no such optimizer"))),
            };
            let set = [
                ("beta1", o.beta1.is_some()),
                ("beta2", o.beta2.is_some()),
                ("eps", o.eps.is_some()),
                ("momentum", o.momentum.is_some()),
                ("nesterov", o.nesterov.is_some()),
                ("alpha", o.alpha.is_some()),
            ];
            if let Some((unused, _)) = set.iter().find(|(name, is_set)| *is_set && !used.contains(name)) {
                let used = used.join(", ");
                return Err(Error::config(format!(
                    "optimizer.{unused} has no effect: optimizer {name} has only {used}"
                )));
            }
            kind.check()?;
            Ok(kind)
        })
    }

    /// Returns the data sources.
    #[track_caller]
    pub fn sources(&self) -> Result<Vec<DataSource>> {
        located(|| {
            let d = &self.data;
            let Some(paths) = d.path.as_ref().filter(|paths| !paths.is_empty()) else {
                return Err(Error::config("no training data: set data.path (--data) to files or folders"));
            };
            let source = |path: &PathBuf| {
                let source = DataSource::new(path).format(d.format.unwrap_or_default());
                d.field.iter().fold(source, |source, field| source.field(field.clone()))
            };
            Ok(paths.iter().map(source).collect())
        })
    }

    /// Returns these settings with all defaults filled in, except those that depend on model,
    /// tokenizer or device.
    #[track_caller]
    pub fn resolved(&self) -> Result<RunConfig> {
        located(|| {
            self.check_kind()?;
            let mut all = self.clone();
            let RunConfig { model, data, train, .. } = &mut all;
            if model.from.is_none() {
                model.name.get_or_insert("tiny".into());
            }
            if data.tokenizer.is_none() && model.from.is_none() {
                let gpt2 = model.name.as_ref().is_some_and(|name| name.starts_with("gpt2"));
                data.tokenizer = Some(if gpt2 { "gpt2".into() } else { "bytes".into() });
            }
            data.field.get_or_insert("text".into());
            data.format.get_or_insert_default();
            data.validation_fraction.get_or_insert(0.05);
            train.device.get_or_insert("auto".into());
            let steps = *train.steps.get_or_insert(1000);
            train.batch.get_or_insert(8);
            train.accumulate.get_or_insert(1);
            train.seed.get_or_insert(0);
            train.eval_every.get_or_insert(100);
            train.eval_batches.get_or_insert(16);
            train.save_every.get_or_insert(200);
            train.keep_checkpoints.get_or_insert(3);
            let tune_seconds = *train.tune_seconds.get_or_insert(4.0);
            train.activation_checkpointing.get_or_insert(false);
            train.shard_optimizer.get_or_insert(false);
            let rank_timeout = *train.rank_timeout.get_or_insert(60.0);
            train.sample_every.get_or_insert(0);
            train.sample_tokens.get_or_insert(64);
            train.sample_prompt.get_or_insert_default();
            all.check_validation_fraction()?;
            if tune_seconds < 0.0 {
                let what = format!("train.tune_seconds is {tune_seconds}; it must be 0 or more (0 disables tuning)");
                return Err(Error::config(what));
            }
            if rank_timeout.is_nan() || rank_timeout <= 0.0 {
                return Err(Error::config(format!("train.rank_timeout is {rank_timeout}; it must be above 0")));
            }
            all.resolve_optimizer()?;
            all.resolve_schedule(steps)?;
            Ok(all)
        })
    }

    /// Validates `data.validation_fraction`.
    pub(super) fn check_validation_fraction(&self) -> Result<()> {
        match self.data.validation_fraction.filter(|fraction| !(0.0..1.0).contains(fraction)) {
            Some(fraction) => {
                let what = format!("data.validation_fraction is {fraction}; it must be from 0 to below 1");
                Err(Error::config(what))
            }
            None => Ok(()),
        }
    }

    /// Fills in the defaults of `[optimizer]` and of the learning rates.
    pub(super) fn resolve_optimizer(&mut self) -> Result<()> {
        let RunConfig { optimizer, schedule, .. } = self;
        optimizer.name.get_or_insert("adamw".into());
        let weight_decay = *optimizer.weight_decay.get_or_insert(0.1);
        let clip_norm = *optimizer.clip_norm.get_or_insert(1.0);
        if clip_norm < 0.0 {
            return Err(Error::config(format!(
                "optimizer.clip_norm is {clip_norm}; it must be 0 or more (0 disables clipping)"
            )));
        }
        if weight_decay < 0.0 {
            let what = format!("optimizer.weight_decay is {weight_decay}; it must be 0 or more");
            return Err(Error::config(what));
        }
        let default = LrSchedule::default();
        let lr = *schedule.lr.get_or_insert(default.lr);
        match schedule.min_lr {
            Some(_) if schedule.min_lr_ratio.is_some() => {
                let what = "schedule.min_lr and schedule.min_lr_ratio are both set; keep only one of them";
                return Err(Error::config(what));
            }
            Some(min_lr) if !(0.0..=lr).contains(&min_lr) => {
                let what = format!("schedule.min_lr is {min_lr}; it must be from 0 to schedule.lr, {lr}");
                return Err(Error::config(what));
            }
            Some(_) => {}
            None => {
                schedule.min_lr_ratio.get_or_insert(default.min_lr_ratio);
            }
        }
        let kind = self.optimizer_kind()?;
        self.optimizer.set_kind(&kind);
        Ok(())
    }

    /// Fills in the defaults of `[schedule]` that depend on the number of steps, and validates it.
    pub(super) fn resolve_schedule(&mut self, steps: u64) -> Result<()> {
        self.schedule.warmup.get_or_insert((steps / 20).min(1000));
        self.schedule.decay.get_or_insert(LrSchedule::default().decay);
        self.lr_schedule().check()
    }

    /// Returns the learning-rate schedule.
    pub fn lr_schedule(&self) -> LrSchedule {
        let (schedule, default) = (&self.schedule, LrSchedule::default());
        let lr = schedule.lr.unwrap_or(default.lr);
        LrSchedule {
            lr,
            min_lr_ratio: match schedule.min_lr {
                Some(min_lr) => min_lr / lr,
                None => schedule.min_lr_ratio.unwrap_or(default.min_lr_ratio),
            },
            warmup: schedule.warmup.unwrap_or(default.warmup),
            decay: schedule.decay.unwrap_or(default.decay),
        }
    }
}

impl OptimizerSection {
    /// Sets all hyperparameters, so that none depends on a default.
    fn set_kind(&mut self, kind: &OptimizerKind) {
        match *kind {
            OptimizerKind::AdamW { beta1, beta2, eps } | OptimizerKind::Adam { beta1, beta2, eps } => {
                (self.beta1, self.beta2, self.eps) = (Some(beta1), Some(beta2), Some(eps));
            }
            OptimizerKind::Sgd { momentum, nesterov } => {
                (self.momentum, self.nesterov) = (Some(momentum), Some(nesterov))
            }
            OptimizerKind::RmsProp { alpha, eps } => (self.alpha, self.eps) = (Some(alpha), Some(eps)),
            OptimizerKind::Adagrad { eps } => self.eps = Some(eps),
            OptimizerKind::Muon { momentum, beta1, beta2, eps } => {
                (self.beta1, self.beta2, self.eps) = (Some(beta1), Some(beta2), Some(eps));
                self.momentum = Some(momentum);
            }
        }
    }
}

fn from_table(table: Table) -> Result<RunConfig> {
    // `keys.rs` has checked every key, so this fails only if `KEYS` and the sections disagree.
    table
        .try_into()
        .map_err(|error: toml::de::Error| Error::config(error.message().lines().collect::<Vec<_>>().join(", ")))
}
