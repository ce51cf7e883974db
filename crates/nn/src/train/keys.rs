//! Keys of `run.toml` and `--set`: name, type, default and meaning of every setting.
//!
//! This table defines what a `run.toml` may contain, and docs/training.md is checked against it.
//! `config.rs` holds the typed values.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::checkpoint::{nearest, quoted};
use crate::error::located;
use crate::{Error, Result};

/// Type of a setting's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// An integer, 0 or more.
    Count,
    /// An integer, 1 or more.
    Positive,
    /// A finite number.
    Number,
    /// `true` or `false`.
    Flag,
    /// A string.
    Text,
    /// A path, or a list of paths.
    Paths,
    /// One of these strings.
    OneOf(&'static [&'static str]),
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// Section and name, such as `train.steps`.
    pub name: &'static str,
    /// Type of its value.
    pub kind: ValueKind,
    /// Description of the default value.
    pub default: &'static str,
    /// Meaning of the setting.
    pub about: &'static str,
}

const fn key(name: &'static str, kind: ValueKind, default: &'static str, about: &'static str) -> ConfigKey {
    ConfigKey { name, kind, default, about }
}

/// All settings.
pub const KEYS: &[ConfigKey] = &[
    key(
        "model.name",
        ValueKind::Text,
        "`tiny`",
        "Named size: `tiny`, `small`, `medium`, `gpt2-124m`, `gpt2-355m`, `gpt2-774m`, `gpt2-1558m`; the first three also as `llama-tiny` and so on; `llama-1b`. The other keys of this section override parts of it. Or an image classifier: `resnet18`, `resnet34`, `resnet50`, `vgg16`, `vit-tiny`.",
    ),
    key(
        "model.from",
        ValueKind::Text,
        "none",
        "Folder of a run or of a Hugging Face model whose weights training starts from. It determines the model; only `model.dropout` can be changed. For an image classifier, a safetensors file of a torchvision state dict, or the folder of a run.",
    ),
    key(
        "model.vocabulary",
        ValueKind::Positive,
        "the tokenizer's",
        "Vocabulary size: at least the number of tokens of the tokenizer.",
    ),
    key("model.context", ValueKind::Positive, "by `model.name`", "Context length in tokens."),
    key("model.layers", ValueKind::Positive, "by `model.name`", "Number of transformer blocks."),
    key("model.heads", ValueKind::Positive, "by `model.name`", "Number of attention heads."),
    key(
        "model.kv_heads",
        ValueKind::Positive,
        "by `model.name`",
        "Number of key/value heads; fewer than `model.heads` is grouped-query attention.",
    ),
    key(
        "model.width",
        ValueKind::Positive,
        "by `model.name`",
        "Embedding size; a multiple of `model.heads` unless `model.head_width` is set.",
    ),
    key("model.mlp_hidden", ValueKind::Positive, "by `model.name`", "Hidden size of the MLP."),
    key(
        "model.norm",
        ValueKind::OneOf(&["layer", "rms"]),
        "by `model.name`",
        "LayerNorm (as in GPT-2) or RMSNorm (as in Llama).",
    ),
    key(
        "model.position",
        ValueKind::OneOf(&["learned", "rope"]),
        "by `model.name`",
        "Learned position embeddings (as in GPT-2) or rotary embeddings (as in Llama).",
    ),
    key("model.rope_base", ValueKind::Number, "10000", "Base of the RoPE frequencies."),
    key(
        "model.rope_factor",
        ValueKind::Number,
        "none",
        "Frequency scaling of `rope` as in Llama 3: divisor of low frequencies.",
    ),
    key(
        "model.rope_low_freq_factor",
        ValueKind::Number,
        "1",
        "Wavelengths above `model.rope_original_context` divided by this are low frequencies.",
    ),
    key(
        "model.rope_high_freq_factor",
        ValueKind::Number,
        "4",
        "Wavelengths below `model.rope_original_context` divided by this are high frequencies, which are not scaled.",
    ),
    key("model.rope_original_context", ValueKind::Positive, "8192", "Context length before `model.rope_factor`."),
    key(
        "model.mlp",
        ValueKind::OneOf(&["gelu", "gelu-erf", "swiglu"]),
        "by `model.name`",
        "MLP: GELU as in GPT-2 (`gelu` is the tanh approximation, `gelu-erf` the exact function) or SwiGLU as in Llama.",
    ),
    key("model.bias", ValueKind::Flag, "by `model.name`", "Adds biases to linear layers."),
    key("model.attention_bias", ValueKind::Flag, "`model.bias`", "Adds biases to the linear layers of attention."),
    key("model.head_width", ValueKind::Positive, "`model.width` / `model.heads`", "Size of an attention head."),
    key(
        "model.scale_attention",
        ValueKind::Flag,
        "true",
        "Divides attention scores by the square root of the head size.",
    ),
    key(
        "model.scale_attention_by_layer",
        ValueKind::Flag,
        "false",
        "Divides the attention scores of layer n, counted from 1, by n.",
    ),
    key(
        "model.tied_embeddings",
        ValueKind::Flag,
        "by `model.name`",
        "Shares the token embedding with the output head.",
    ),
    key("model.dropout", ValueKind::Number, "0", "Dropout probability."),
    key("model.eps", ValueKind::Number, "by `model.name`", "Epsilon of the norms."),
    key("data.path", ValueKind::Paths, "none", "Files or folders: text, JSONL, Parquet, or `.bin` shards of tokens."),
    key("data.field", ValueKind::Text, "`text`", "JSONL field or Parquet column that contains the documents."),
    key(
        "data.format",
        ValueKind::OneOf(&["auto", "text", "jsonl", "parquet", "bin", "bin32"]),
        "`auto`: by file extension",
        "Format of the files.",
    ),
    key(
        "data.tokenizer",
        ValueKind::Text,
        "`gpt2` for `gpt2-…` models, else `bytes`; with `model.from`, the tokenizer of that model",
        "`bytes`, `gpt2`, `bpe:N` (N tokens learned from the data) or the path of a `tokenizer.json`.",
    ),
    key(
        "data.validation_fraction",
        ValueKind::Number,
        "0.05",
        "Fraction of the data, at its end, held out for validation.",
    ),
    key("data.cache", ValueKind::Text, "`data` in the run's folder", "Folder for the tokenized data."),
    key(
        "data.image_size",
        ValueKind::Positive,
        "the size of the images, which must then all be equally large squares",
        "Image classifiers: all images are resized to this height and width.",
    ),
    key("data.flip", ValueKind::Flag, "false", "Image classifiers: flips half of the training images horizontally."),
    key(
        "data.crop_padding",
        ValueKind::Count,
        "0",
        "Image classifiers: shifts training images by up to this number of pixels; black pixels fill the border.",
    ),
    key("train.device", ValueKind::Text, "`auto`", "`cpu`, `cpu:N`, `cuda`, `cuda:N`, `interpreter` or `auto`."),
    key("train.steps", ValueKind::Positive, "1000", "Number of optimizer steps."),
    key("train.epochs", ValueKind::Positive, "10", "Image classifiers: number of passes over the training images."),
    key(
        "train.patience",
        ValueKind::Count,
        "0",
        "Image classifiers: ends training after this number of epochs without a lower validation loss; 0 disables it.",
    ),
    key("train.batch", ValueKind::Positive, "8; 32 images", "Sequences or images per batch."),
    key("train.context", ValueKind::Positive, "`model.context`", "Tokens per sequence."),
    key("train.accumulate", ValueKind::Positive, "1", "Gradient accumulation: batches per optimizer step."),
    key(
        "train.precision",
        ValueKind::OneOf(&["f32", "tf32", "bf16", "f16"]),
        "`bf16` on a GPU, else `f32`",
        "Precision of the arithmetic; parameters and optimizer state are always f32.",
    ),
    key("train.seed", ValueKind::Count, "0", "Seed of initialization, data order and dropout."),
    key(
        "train.eval_every",
        ValueKind::Count,
        "100",
        "Steps between evaluations on the validation data, in addition to one at each checkpoint; 0 disables evaluation.",
    ),
    key("train.eval_batches", ValueKind::Positive, "16", "Batches per evaluation."),
    key("train.save_every", ValueKind::Count, "200", "Steps between checkpoints; 0 saves only at the end."),
    key(
        "train.keep_checkpoints",
        ValueKind::Positive,
        "3",
        "Number of latest checkpoints to keep, in addition to the best one.",
    ),
    key(
        "train.tune_seconds",
        ValueKind::Number,
        "4",
        "On a GPU, time in seconds for measuring which implementations are fastest, before the first step of a run; 0 disables it. The choices are stored on disk and in checkpoints.",
    ),
    key(
        "train.activation_checkpointing",
        ValueKind::Flag,
        "false",
        "Recomputes each block in the backward pass instead of storing its activations: less memory, about a third more time.",
    ),
    key(
        "train.shard_optimizer",
        ValueKind::Flag,
        "false",
        "With several ranks, each holds a part of the optimizer state only (ZeRO stage 1).",
    ),
    key(
        "train.rank_timeout",
        ValueKind::Number,
        "60",
        "With several ranks, seconds after which a rank that does not answer counts as dead.",
    ),
    key(
        "train.sample_every",
        ValueKind::Count,
        "0",
        "Steps between generated samples, written to `samples.txt`; 0 disables sampling.",
    ),
    key("train.sample_tokens", ValueKind::Positive, "64", "Tokens per sample."),
    key("train.sample_prompt", ValueKind::Text, "empty: the end-of-text token", "Prompt of the samples."),
    key(
        "optimizer.name",
        ValueKind::OneOf(&["adamw", "adam", "sgd", "rmsprop", "adagrad", "muon"]),
        "`adamw`",
        "Optimizer.",
    ),
    key("optimizer.beta1", ValueKind::Number, "0.9", "Decay rate of the first moment (adamw, adam, muon)."),
    key("optimizer.beta2", ValueKind::Number, "0.95", "Decay rate of the second moment (adamw, adam, muon)."),
    key("optimizer.eps", ValueKind::Number, "1e-8", "Added to the denominator for numerical stability (all but sgd)."),
    key("optimizer.momentum", ValueKind::Number, "0 for sgd, 0.95 for muon", "Momentum factor (sgd, muon)."),
    key("optimizer.nesterov", ValueKind::Flag, "false", "Enables Nesterov momentum (sgd)."),
    key("optimizer.alpha", ValueKind::Number, "0.99", "Decay rate of the mean squared gradient (rmsprop)."),
    key("optimizer.weight_decay", ValueKind::Number, "0.1", "Weight decay, applied to matrices only."),
    key("optimizer.clip_norm", ValueKind::Number, "1", "Maximum global gradient norm; 0 disables clipping."),
    key("schedule.lr", ValueKind::Number, "6e-4", "Peak learning rate."),
    key(
        "schedule.min_lr",
        ValueKind::Number,
        "by `schedule.min_lr_ratio`",
        "Learning rate of the last step. Replaces `schedule.min_lr_ratio`.",
    ),
    key(
        "schedule.min_lr_ratio",
        ValueKind::Number,
        "0.1",
        "Learning rate of the last step as a fraction of `schedule.lr`. Replaces `schedule.min_lr`.",
    ),
    key(
        "schedule.warmup",
        ValueKind::Count,
        "a twentieth of the steps, at most 1000",
        "Number of linear warmup steps.",
    ),
    key(
        "schedule.decay",
        ValueKind::OneOf(&["constant", "linear", "cosine"]),
        "`cosine`",
        "Learning-rate decay after the warmup.",
    ),
];

/// Names that earlier releases used, with the current names. Files and `--set` accept both.
pub const RETIRED_KEYS: &[(&str, &str)] = &[
    ("model.hidden", "model.mlp_hidden"),
    ("model.scale_by_head", "model.scale_attention"),
    ("model.scale_by_layer", "model.scale_attention_by_layer"),
    ("model.tied", "model.tied_embeddings"),
    ("data.validation", "data.validation_fraction"),
    ("train.keep", "train.keep_checkpoints"),
    ("train.checkpointing", "train.activation_checkpointing"),
    ("train.prompt", "train.sample_prompt"),
    ("optimiser.rule", "optimizer.name"),
    ("optimiser.beta1", "optimizer.beta1"),
    ("optimiser.beta2", "optimizer.beta2"),
    ("optimiser.eps", "optimizer.eps"),
    ("optimiser.momentum", "optimizer.momentum"),
    ("optimiser.nesterov", "optimizer.nesterov"),
    ("optimiser.alpha", "optimizer.alpha"),
    ("optimiser.decay", "optimizer.weight_decay"),
    ("optimiser.clip", "optimizer.clip_norm"),
    ("rate.highest", "schedule.lr"),
    ("rate.lowest", "schedule.min_lr_ratio"),
    ("rate.warmup", "schedule.warmup"),
    ("rate.fall", "schedule.decay"),
];

/// Settings that replace each other: setting one removes the other.
const ALTERNATIVES: [&str; 2] = ["schedule.min_lr", "schedule.min_lr_ratio"];

/// Returns the setting of a current or retired name. The error suggests the most similar name.
pub fn find(name: &str) -> Result<&'static ConfigKey> {
    let current = RETIRED_KEYS.iter().find(|(retired, _)| *retired == name).map_or(name, |(_, current)| current);
    if let Some(key) = KEYS.iter().find(|key| key.name == current) {
        return Ok(key);
    }
    let all = || KEYS.iter().map(|key| key.name);
    let (section, last) = name.rsplit_once('.').unwrap_or(("", name));
    // The same name in another section comes first, then a similar one.
    let same_name = all().find(|known| known.ends_with(&format!(".{last}")));
    let within = || all().filter(|known| known.split_once('.').is_some_and(|(of, _)| of == section));
    let short = |known: &'static str| known.split_once('.').map_or(known, |(_, last)| last);
    let near = nearest(last, within().map(short)).and_then(|near| within().find(|known| short(known) == near));
    let hint = match same_name.or(near).or_else(|| nearest(name, all())) {
        Some(near) => format!("did you mean '{near}'?"),
        None => {
            "the sections are model, data, train, optimizer and schedule; docs/training.md lists all settings".into()
        }
    };
    Err(Error::config(format!("there is no setting {}; {hint}", quoted(name))))
}

impl ConfigKey {
    /// Validates the type of a value.
    #[track_caller]
    pub fn check(&self, value: &Value) -> Result<()> {
        located(|| {
            let fits = match (self.kind, value) {
                (ValueKind::Count, Value::Integer(n)) => *n >= 0,
                (ValueKind::Positive, Value::Integer(n)) => *n >= 1,
                (ValueKind::Number, Value::Integer(_)) => true,
                (ValueKind::Number, Value::Float(x)) => x.is_finite(),
                (ValueKind::Flag, Value::Boolean(_)) | (ValueKind::Text | ValueKind::Paths, Value::String(_)) => true,
                (ValueKind::Paths, Value::Array(all)) => !all.is_empty() && all.iter().all(Value::is_str),
                (ValueKind::OneOf(words), Value::String(word)) => words.contains(&&word[..]),
                _ => false,
            };
            if fits {
                return Ok(());
            }
            let expected = match self.kind {
                ValueKind::Count => "an integer, 0 or more".into(),
                ValueKind::Positive => "an integer, 1 or more".into(),
                ValueKind::Number => "a number".into(),
                ValueKind::Flag => "true or false".into(),
                ValueKind::Text => "a string".into(),
                ValueKind::Paths => "a path or a list of paths".into(),
                ValueKind::OneOf(words) => format!("one of {}", words.join(", ")),
            };
            let near = match (self.kind, value) {
                (ValueKind::OneOf(words), Value::String(word)) => nearest(word, words.iter().copied()),
                _ => None,
            };
            let near = near.map_or(String::new(), |near| format!("; did you mean '{near}'?"));
            let found = match value {
                Value::String(text) => quoted(text),
                Value::Table(_) => "a section".into(),
                Value::Array(_) => "a list".into(),
                other => other.to_string(),
            };
            Err(Error::config(format!("{} is {found}; it must be {expected}{near}", self.name)))
        })
    }
}

/// Parses a `run.toml` into a table of sections with current names. Every key must exist and every
/// value must have its type; two names of one setting are an error.
pub fn parse(text: &str) -> Result<Table> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().map_or(1, |span| 1 + text.get(..span.start).map_or(0, |before| before.matches('\n').count()));
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        Error::config(format!("line {line} is not TOML: {what}"))
    })?;
    let (mut checked, mut seen) = (Table::new(), BTreeMap::new());
    for (section, values) in &table {
        let Value::Table(values) = values else {
            find(section)?;
            continue; // not reached: every name has a section
        };
        for (name, value) in values {
            let name = format!("{section}.{name}");
            let current = find(&name)?.name;
            if let Some(other) = seen.insert(current, name.clone()) {
                return Err(Error::config(format!(
                    "{other} and {name} are two names of one setting; keep only {current}"
                )));
            }
            if ALTERNATIVES.iter().all(|name| seen.contains_key(name)) {
                let [one, other] = ALTERNATIVES.map(|name| &seen[name]);
                return Err(Error::config(format!("{one} and {other} are both set; keep only one of them")));
            }
            put(&mut checked, &name, value.clone())?;
        }
    }
    Ok(checked)
}

/// Parses and sets `train.steps=100`. A value that is not valid TOML is a string, so paths need no
/// quotes.
pub fn assign(table: &mut Table, text: &str) -> Result<()> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Error::config(format!("{} has no value; write KEY=VALUE, such as train.steps=100", quoted(text))));
    };
    let (name, value) = (name.trim(), value.trim());
    let key = find(name)?;
    let string = || Value::String(value.into());
    let value = match key.kind {
        ValueKind::Text | ValueKind::OneOf(_) if !value.starts_with(['"', '\'']) => string(),
        _ => {
            let parsed = format!("value = {value}").parse::<Table>().ok();
            // Exactly one value: the text may contain further lines.
            parsed.filter(|t| t.len() == 1).and_then(|mut t| t.remove("value")).unwrap_or_else(string)
        }
    };
    put(table, name, value)
}

/// Validates a value and sets it under its current name.
pub fn put(table: &mut Table, name: &str, value: Value) -> Result<()> {
    let key = find(name)?;
    key.check(&value)?;
    let value = match (key.kind, value) {
        (ValueKind::Paths, Value::String(path)) => Value::Array(vec![Value::String(path)]),
        (ValueKind::Number, Value::Integer(n)) => Value::Float(n as f64),
        (_, value) => value,
    };
    if let Some((section, name)) = key.name.split_once('.')
        && let Value::Table(values) = table.entry(section).or_insert_with(|| Value::Table(Table::new()))
    {
        if ALTERNATIVES.contains(&key.name) {
            ALTERNATIVES.iter().filter_map(|name| name.split_once('.')).for_each(|(_, name)| drop(values.remove(name)));
        }
        values.insert(name.into(), value);
    }
    Ok(())
}
