//! What a run is told: sections of settings, from a file, from `--set` and from flags, one over the other.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::keys;
use super::precision::Precision;
use crate::checkpoint::read_bounded;
use crate::data::{Format, Source};
use crate::error::located;
use crate::model::{GptConfig, MlpKind, NormKind};
use crate::optimiser::{Fall, Rate, Rule};
use crate::{Error, ErrorKind, Result};

/// A file of settings is no longer than this.
const LARGEST: u64 = 1 << 20;

/// Settings of a run. `None` is what nobody has said; [`RunConfig::resolved`] says everything.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// What is trained.
    pub model: ModelSection,
    /// On what.
    pub data: DataSection,
    /// For how long and how.
    pub train: TrainSection,
    /// What moves parameters.
    pub optimiser: OptimiserSection,
    /// How fast.
    pub rate: RateSection,
}

macro_rules! section {
    ($(#[$about:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[allow(missing_docs)] // `keys::KEYS` says what each is for
        pub struct $name {
            $(
                #[serde(skip_serializing_if = "Option::is_none")]
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
        hidden: usize,
        norm: NormKind,
        position: Position,
        rope_base: f64,
        mlp: MlpKind,
        bias: bool,
        tied: bool,
        dropout: f64,
        eps: f64,
        head_width: usize,
        attention_bias: bool,
        scale_by_head: bool,
        scale_by_layer: bool,
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
        format: Format,
        tokenizer: String,
        validation: f64,
        cache: PathBuf,
    }
}

section! {
    /// `[train]`.
    TrainSection {
        device: String,
        steps: u64,
        batch: usize,
        context: usize,
        accumulate: usize,
        precision: Precision,
        seed: u64,
        eval_every: u64,
        eval_batches: usize,
        save_every: u64,
        keep: usize,
        checkpointing: bool,
        sample_every: u64,
        sample_tokens: usize,
        prompt: String,
    }
}

section! {
    /// `[optimiser]`.
    OptimiserSection {
        rule: String,
        beta1: f64,
        beta2: f64,
        eps: f64,
        momentum: f64,
        nesterov: bool,
        alpha: f64,
        decay: f64,
        clip: f64,
    }
}

section! {
    /// `[rate]`.
    RateSection {
        highest: f64,
        lowest: f64,
        warmup: u64,
        fall: Fall,
    }
}

/// How a token knows its place; see [`PositionKind`](crate::model::PositionKind).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Position {
    /// A learned row a place.
    Learned,
    /// Queries and keys turned by angles.
    Rope,
}

/// Settings that may change when a run is resumed.
const CHANGEABLE: [&str; 9] = [
    "train.steps",
    "train.device",
    "train.eval_every",
    "train.save_every",
    "train.keep",
    "train.sample_every",
    "train.sample_tokens",
    "train.prompt",
    "data.cache",
];

impl RunConfig {
    /// Settings from the text of a `run.toml`.
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

    /// Settings from a file.
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Result<RunConfig> {
        located(|| {
            let path = path.as_ref();
            let text = read_bounded(path, LARGEST)?;
            let text = str::from_utf8(&text).map_err(|_| Error::file(path, "is not text in UTF-8"))?;
            match RunConfig::parse(text) {
                Err(Error { kind: ErrorKind::Config(what), .. }) => {
                    Err(Error::config(format!("{}: {what}", path.display())))
                }
                result => result,
            }
        })
    }

    /// Takes one setting as `train.steps=100`.
    #[track_caller]
    pub fn set(&mut self, text: &str) -> Result<()> {
        located(|| {
            let mut table = self.table()?;
            keys::assign(&mut table, text)?;
            *self = from_table(table)?;
            Ok(())
        })
    }

    /// Takes one setting whose value is text.
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
        Table::try_from(self).map_err(|error| Error::config(format!("settings cannot be written: {error}")))
    }

    /// The text of a `run.toml` with these settings.
    #[track_caller]
    pub fn text(&self) -> Result<String> {
        located(|| {
            let table = self.table()?;
            toml::to_string(&table).map_err(|error| Error::config(format!("settings cannot be written: {error}")))
        })
    }

    /// Takes every setting that another set has.
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

    /// The same with paths that hold wherever the run is resumed.
    pub(crate) fn absolute(&self) -> Result<RunConfig> {
        let mut all = self.clone();
        let paths = all.data.path.iter_mut().flatten().chain(&mut all.data.cache).chain(&mut all.model.from);
        for path in paths {
            *path = std::path::absolute(&path).map_err(|error| Error::io("find", path)(error))?;
        }
        Ok(all)
    }

    /// The names of settings that have other values in another set.
    fn differences(&self, other: &RunConfig) -> Result<Vec<&'static str>> {
        let (ours, theirs) = (self.table()?, other.table()?);
        let value = |table: &Table, name: &str| {
            let (section, last) = name.split_once('.')?;
            table.get(section)?.get(last).cloned()
        };
        let names = keys::KEYS.iter().map(|key| key.name);
        Ok(names.filter(|name| value(&ours, name) != value(&theirs, name)).collect())
    }

    /// Refuses to resume a run with settings that would make it another run.
    pub(crate) fn check_resumed(&self, saved: &RunConfig) -> Result<()> {
        match self.differences(saved)?.into_iter().find(|name| !CHANGEABLE.contains(name)) {
            None => Ok(()),
            Some(name) => Err(Error::config(format!(
                "{name} is not what the run was begun with, and only {} may change when it is resumed; start another run \
                 from its parameters with model.from",
                CHANGEABLE.join(", ")
            ))),
        }
    }

    /// Refuses to change parts of a model that parameters are taken from.
    pub(crate) fn check_from(&self, model: &GptConfig) -> Result<()> {
        let mut whole = self.clone();
        whole.set_gpt(model);
        let mut asked = whole.clone();
        asked.merge(self)?;
        match asked.differences(&whole)?.first() {
            None => Ok(()),
            Some(name) => Err(Error::config(format!(
                "{name} is not that of the model named by model.from; leave it out, or leave model.from out"
            ))),
        }
    }

    /// The optimiser's rule.
    #[track_caller]
    pub fn rule(&self) -> Result<Rule> {
        located(|| {
            let o = &self.optimiser;
            let name = o.rule.as_deref().unwrap_or("adamw");
            let (beta1, beta2, eps) = (o.beta1.unwrap_or(0.9), o.beta2.unwrap_or(0.95), o.eps.unwrap_or(1e-8));
            let (rule, used): (Rule, &[&str]) = match name {
                "adamw" => (Rule::Adamw { beta1, beta2, eps }, &["beta1", "beta2", "eps"]),
                "adam" => (Rule::Adam { beta1, beta2, eps }, &["beta1", "beta2", "eps"]),
                "sgd" => {
                    let momentum = o.momentum.unwrap_or(0.0);
                    (Rule::Sgd { momentum, nesterov: o.nesterov.unwrap_or(false) }, &["momentum", "nesterov"])
                }
                "rmsprop" => (Rule::Rmsprop { alpha: o.alpha.unwrap_or(0.99), eps }, &["alpha", "eps"]),
                "adagrad" => (Rule::Adagrad { eps }, &["eps"]),
                "muon" => {
                    let momentum = o.momentum.unwrap_or(0.95);
                    (Rule::Muon { momentum, beta1, beta2, eps }, &["momentum", "beta1", "beta2", "eps"])
                }
                other => return Err(Error::config(format!("there is no optimiser.rule '{other}'"))),
            };
            let given = [
                ("beta1", o.beta1.is_some()),
                ("beta2", o.beta2.is_some()),
                ("eps", o.eps.is_some()),
                ("momentum", o.momentum.is_some()),
                ("nesterov", o.nesterov.is_some()),
                ("alpha", o.alpha.is_some()),
            ];
            if let Some((unused, _)) = given.iter().find(|(name, given)| *given && !used.contains(name)) {
                let used = used.join(", ");
                return Err(Error::config(format!(
                    "optimiser.{unused} means nothing to the rule {name}, which has {used}"
                )));
            }
            rule.check()?;
            Ok(rule)
        })
    }

    /// The files of the data.
    #[track_caller]
    pub fn sources(&self) -> Result<Vec<Source>> {
        located(|| {
            let d = &self.data;
            let Some(paths) = d.path.as_ref().filter(|paths| !paths.is_empty()) else {
                return Err(Error::config("there is no data to train on; name files or folders as data.path (--data)"));
            };
            let source = |path: &PathBuf| {
                let source = Source::new(path).format(d.format.unwrap_or_default());
                d.field.iter().fold(source, |source, field| source.field(field.clone()))
            };
            Ok(paths.iter().map(source).collect())
        })
    }

    /// The same settings with everything said that does not depend on model, tokenizer and device.
    #[track_caller]
    pub fn resolved(&self) -> Result<RunConfig> {
        located(|| {
            let mut all = self.clone();
            let RunConfig { model, data, train, optimiser, rate } = &mut all;
            if model.from.is_none() {
                model.name.get_or_insert("tiny".into());
            }
            if data.tokenizer.is_none() && model.from.is_none() {
                let gpt2 = model.name.as_ref().is_some_and(|name| name.starts_with("gpt2"));
                data.tokenizer = Some(if gpt2 { "gpt2".into() } else { "bytes".into() });
            }
            data.field.get_or_insert("text".into());
            data.format.get_or_insert_default();
            let validation = *data.validation.get_or_insert(0.05);
            if !(0.0..1.0).contains(&validation) {
                return Err(Error::config(format!("data.validation is {validation}; it is a part, from 0 to below 1")));
            }
            train.device.get_or_insert("auto".into());
            let steps = *train.steps.get_or_insert(1000);
            train.batch.get_or_insert(8);
            train.accumulate.get_or_insert(1);
            train.seed.get_or_insert(0);
            train.eval_every.get_or_insert(100);
            train.eval_batches.get_or_insert(16);
            train.save_every.get_or_insert(200);
            train.keep.get_or_insert(3);
            train.checkpointing.get_or_insert(false);
            train.sample_every.get_or_insert(0);
            train.sample_tokens.get_or_insert(64);
            train.prompt.get_or_insert_default();
            optimiser.rule.get_or_insert("adamw".into());
            optimiser.decay.get_or_insert(0.1);
            let clip = *optimiser.clip.get_or_insert(1.0);
            if clip < 0.0 {
                return Err(Error::config(format!(
                    "optimiser.clip is {clip}; it must be above 0, or 0 for no clipping"
                )));
            }
            let decay = optimiser.decay.unwrap_or(0.0);
            if decay < 0.0 {
                return Err(Error::config(format!("optimiser.decay is {decay}; it must not be negative")));
            }
            let usual = Rate::default();
            rate.highest.get_or_insert(usual.highest);
            rate.lowest.get_or_insert(usual.lowest);
            rate.warmup.get_or_insert((steps / 20).min(1000));
            rate.fall.get_or_insert(usual.fall);
            let rule = all.rule()?;
            all.optimiser.set_rule(&rule);
            all.rates().check()?;
            Ok(all)
        })
    }

    /// The learning rates.
    pub fn rates(&self) -> Rate {
        let (r, usual) = (&self.rate, Rate::default());
        Rate {
            highest: r.highest.unwrap_or(usual.highest),
            lowest: r.lowest.unwrap_or(usual.lowest),
            warmup: r.warmup.unwrap_or(usual.warmup),
            fall: r.fall.unwrap_or(usual.fall),
        }
    }
}

impl OptimiserSection {
    /// Writes the hyperparameters of a rule, so that none depends on a default.
    fn set_rule(&mut self, rule: &Rule) {
        match *rule {
            Rule::Adamw { beta1, beta2, eps } | Rule::Adam { beta1, beta2, eps } => {
                (self.beta1, self.beta2, self.eps) = (Some(beta1), Some(beta2), Some(eps));
            }
            Rule::Sgd { momentum, nesterov } => (self.momentum, self.nesterov) = (Some(momentum), Some(nesterov)),
            Rule::Rmsprop { alpha, eps } => (self.alpha, self.eps) = (Some(alpha), Some(eps)),
            Rule::Adagrad { eps } => self.eps = Some(eps),
            Rule::Muon { momentum, beta1, beta2, eps } => {
                (self.beta1, self.beta2, self.eps) = (Some(beta1), Some(beta2), Some(eps));
                self.momentum = Some(momentum);
            }
        }
    }
}

fn from_table(table: Table) -> Result<RunConfig> {
    // The table is checked key by key, so this fails only where that table and these types differ.
    table
        .try_into()
        .map_err(|error: toml::de::Error| Error::config(error.message().lines().collect::<Vec<_>>().join(", ")))
}
