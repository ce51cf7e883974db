//! The settings of a run as people write them: every key with its kind, its default and what it is for.
//!
//! This table decides what a `run.toml` may hold, and docs/training.md shows it. `config.rs` gives the values meaning.

use toml::{Table, Value};

use crate::checkpoint::{nearest, shown};
use crate::error::located;
use crate::{Error, Result};

/// What a value must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number that is not negative.
    Count,
    /// A whole number above 0.
    Positive,
    /// A number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Text.
    Text,
    /// A path, or a list of paths.
    Paths,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Section and name: `train.steps`.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// What it is where nothing is said, in words.
    pub default: &'static str,
    /// What it is for.
    pub about: &'static str,
}

const fn key(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { name, kind, default, about }
}

/// Every setting there is.
pub const KEYS: &[Key] = &[
    key(
        "model.name",
        Kind::Text,
        "`tiny`",
        "A size: `tiny`, `small`, `medium`, `gpt2-124m`, `gpt2-355m`, `gpt2-774m`, `gpt2-1558m`; the first three also as `llama-tiny` and so on. The other keys of this section change parts of it.",
    ),
    key(
        "model.from",
        Kind::Text,
        "none",
        "A run or a Hugging Face folder whose parameters training starts from. It decides all of the model but `model.dropout`.",
    ),
    key(
        "model.vocabulary",
        Kind::Positive,
        "the tokenizer's",
        "Rows of the table of tokens: at least as many as the tokenizer has tokens.",
    ),
    key("model.context", Kind::Positive, "by `model.name`", "Most tokens that the model looks at."),
    key("model.layers", Kind::Positive, "by `model.name`", "Blocks."),
    key("model.heads", Kind::Positive, "by `model.name`", "Heads of attention."),
    key(
        "model.kv_heads",
        Kind::Positive,
        "by `model.name`",
        "Heads of keys and values; fewer than `model.heads` is grouped-query attention.",
    ),
    key(
        "model.width",
        Kind::Positive,
        "by `model.name`",
        "Numbers a token; a multiple of `model.heads` unless `model.head_width` is set.",
    ),
    key("model.hidden", Kind::Positive, "by `model.name`", "Numbers in the middle of an MLP."),
    key("model.norm", Kind::OneOf(&["layer", "rms"]), "by `model.name`", "Norms: as GPT-2 or as Llama."),
    key("model.position", Kind::OneOf(&["learned", "rope"]), "by `model.name`", "Places: as GPT-2 or as Llama."),
    key("model.rope_base", Kind::Number, "10000", "The base of the angles of `rope`."),
    key(
        "model.rope_factor",
        Kind::Number,
        "none",
        "Frequency scaling of `rope` as in Llama 3: divisor of low frequencies.",
    ),
    key(
        "model.rope_low_freq_factor",
        Kind::Number,
        "1",
        "Wavelengths above `model.rope_original_context` divided by this are low frequencies.",
    ),
    key(
        "model.rope_high_freq_factor",
        Kind::Number,
        "4",
        "Wavelengths below `model.rope_original_context` divided by this are high frequencies, which are not scaled.",
    ),
    key("model.rope_original_context", Kind::Positive, "8192", "Context length before `model.rope_factor`."),
    key(
        "model.mlp",
        Kind::OneOf(&["gelu", "gelu-erf", "swiglu"]),
        "by `model.name`",
        "MLPs: as GPT-2 (`gelu` is the tanh approximation, `gelu-erf` the exact function) or as Llama.",
    ),
    key("model.bias", Kind::Flag, "by `model.name`", "Whether linear layers have biases."),
    key("model.attention_bias", Kind::Flag, "`model.bias`", "Whether the linear layers of attention have biases."),
    key("model.head_width", Kind::Positive, "`model.width` / `model.heads`", "Width of an attention head."),
    key(
        "model.scale_by_head",
        Kind::Flag,
        "true",
        "Whether attention scores are divided by the square root of the head width.",
    ),
    key(
        "model.scale_by_layer",
        Kind::Flag,
        "false",
        "Whether attention scores of layer n, counted from 1, are divided by n.",
    ),
    key("model.tied", Kind::Flag, "by `model.name`", "Whether the head is the table of tokens."),
    key("model.dropout", Kind::Number, "0", "Probability that a number is dropped in training."),
    key("model.eps", Kind::Number, "by `model.name`", "What keeps norms finite."),
    key("data.path", Kind::Paths, "none", "Files or folders: text, JSONL, Parquet, or `.bin` shards of tokens."),
    key("data.field", Kind::Text, "`text`", "The JSONL field or Parquet column that holds documents."),
    key(
        "data.format",
        Kind::OneOf(&["auto", "text", "jsonl", "parquet", "bin", "bin32"]),
        "`auto`: as names end",
        "What the files hold.",
    ),
    key(
        "data.tokenizer",
        Kind::Text,
        "`gpt2` for models of that name, else `bytes`; that of `model.from`",
        "`bytes`, `gpt2`, `bpe:N` (N tokens learned from the data) or the path of a `tokenizer.json`.",
    ),
    key("data.validation", Kind::Number, "0.05", "The part of the data, from its end, that is not trained on."),
    key("data.cache", Kind::Text, "`data` in the run's folder", "The folder that tokens are kept in."),
    key("train.device", Kind::Text, "`auto`", "`cpu`, `cpu:N`, `cuda`, `cuda:N`, `interpreter` or `auto`."),
    key("train.steps", Kind::Positive, "1000", "Steps of the optimiser."),
    key("train.batch", Kind::Positive, "8", "Windows in a batch."),
    key("train.context", Kind::Positive, "`model.context`", "Tokens in a window."),
    key("train.accumulate", Kind::Positive, "1", "Batches whose gradients are summed before a step."),
    key(
        "train.precision",
        Kind::OneOf(&["f32", "tf32", "bf16", "f16"]),
        "`bf16` on a GPU, else `f32`",
        "Arithmetic; parameters and moments are f32 always.",
    ),
    key("train.seed", Kind::Count, "0", "What fixes the first parameters, the order of the data and dropout."),
    key(
        "train.eval_every",
        Kind::Count,
        "100",
        "Steps between evaluations on the validation part, beside those at each checkpoint; 0 for none at all.",
    ),
    key("train.eval_batches", Kind::Positive, "16", "Batches of an evaluation."),
    key("train.save_every", Kind::Count, "200", "Steps between checkpoints; 0 for one at the end only."),
    key("train.keep", Kind::Positive, "3", "Checkpoints that are kept, beside the best."),
    key(
        "train.checkpointing",
        Kind::Flag,
        "false",
        "Compute each block again in the gradient instead of keeping what happened in it: less memory, about a third more time.",
    ),
    key(
        "train.sample_every",
        Kind::Count,
        "0",
        "Steps between texts written by the model, into `samples.txt`; 0 for none.",
    ),
    key("train.sample_tokens", Kind::Positive, "64", "Tokens of such a text."),
    key("train.prompt", Kind::Text, "the end of a text", "What such a text starts with."),
    key(
        "optimiser.rule",
        Kind::OneOf(&["adamw", "adam", "sgd", "rmsprop", "adagrad", "muon"]),
        "`adamw`",
        "What moves parameters.",
    ),
    key("optimiser.beta1", Kind::Number, "0.9", "How much of the first moment is kept (adamw, adam, muon)."),
    key("optimiser.beta2", Kind::Number, "0.95", "How much of the second moment is kept (adamw, adam, muon)."),
    key("optimiser.eps", Kind::Number, "1e-8", "What keeps the quotient finite (all but sgd)."),
    key(
        "optimiser.momentum",
        Kind::Number,
        "0 for sgd, 0.95 for muon",
        "How much of the last move is kept (sgd, muon).",
    ),
    key("optimiser.nesterov", Kind::Flag, "false", "Whether to look ahead along it (sgd)."),
    key("optimiser.alpha", Kind::Number, "0.99", "How much of the mean of squares is kept (rmsprop)."),
    key("optimiser.decay", Kind::Number, "0.1", "Weight decay of matrices."),
    key("optimiser.clip", Kind::Number, "1", "The largest norm of all gradients together; 0 for any."),
    key("rate.highest", Kind::Number, "6e-4", "The highest learning rate."),
    key("rate.lowest", Kind::Number, "0.1", "The rate at the last step, as a part of the highest."),
    key("rate.warmup", Kind::Count, "a twentieth of the steps, at most 1000", "Steps until the highest rate."),
    key("rate.fall", Kind::OneOf(&["constant", "linear", "cosine"]), "`cosine`", "How the rate falls after that."),
];

/// The setting of a name. The error suggests the nearest one.
pub fn find(name: &str) -> Result<&'static Key> {
    if let Some(key) = KEYS.iter().find(|key| key.name == name) {
        return Ok(key);
    }
    let all = || KEYS.iter().map(|key| key.name);
    let (section, last) = name.rsplit_once('.').unwrap_or(("", name));
    // A name that is right in the wrong section, then one that is nearly right.
    let moved = all().find(|known| known.ends_with(&format!(".{last}")));
    let within = || all().filter(|known| known.split_once('.').is_some_and(|(of, _)| of == section));
    let short = |known: &'static str| known.split_once('.').map_or(known, |(_, last)| last);
    let near = nearest(last, within().map(short)).and_then(|near| within().find(|known| short(known) == near));
    let said = match moved.or(near).or_else(|| nearest(name, all())) {
        Some(near) => format!("did you mean '{near}'?"),
        None => "the sections are model, data, train, optimiser and rate; docs/training.md lists all settings".into(),
    };
    Err(Error::config(format!("there is no setting {}; {said}", shown(name))))
}

impl Key {
    /// Refuses a value of another kind.
    #[track_caller]
    pub fn check(&self, value: &Value) -> Result<()> {
        located(|| {
            let fits = match (self.kind, value) {
                (Kind::Count, Value::Integer(n)) => *n >= 0,
                (Kind::Positive, Value::Integer(n)) => *n >= 1,
                (Kind::Number, Value::Integer(_)) => true,
                (Kind::Number, Value::Float(x)) => x.is_finite(),
                (Kind::Flag, Value::Boolean(_)) | (Kind::Text | Kind::Paths, Value::String(_)) => true,
                (Kind::Paths, Value::Array(all)) => !all.is_empty() && all.iter().all(Value::is_str),
                (Kind::OneOf(words), Value::String(word)) => words.contains(&&word[..]),
                _ => false,
            };
            if fits {
                return Ok(());
            }
            let wanted = match self.kind {
                Kind::Count => "a whole number, 0 or more".into(),
                Kind::Positive => "a whole number, 1 or more".into(),
                Kind::Number => "a number".into(),
                Kind::Flag => "true or false".into(),
                Kind::Text => "text".into(),
                Kind::Paths => "a path or a list of paths".into(),
                Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            };
            let near = match (self.kind, value) {
                (Kind::OneOf(words), Value::String(word)) => nearest(word, words.iter().copied()),
                _ => None,
            };
            let near = near.map_or(String::new(), |near| format!("; did you mean '{near}'?"));
            let found = match value {
                Value::String(text) => shown(text),
                Value::Table(_) => "a section".into(),
                Value::Array(_) => "a list".into(),
                other => other.to_string(),
            };
            Err(Error::config(format!("{} is {found}; it must be {wanted}{near}", self.name)))
        })
    }
}

/// Reads the text of a `run.toml`: a table of sections in which every key is known and every value of its kind.
pub fn parse(text: &str) -> Result<Table> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().map_or(1, |span| 1 + text.get(..span.start).map_or(0, |before| before.matches('\n').count()));
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        Error::config(format!("line {line} is not TOML: {what}"))
    })?;
    let mut checked = Table::new();
    for (section, values) in &table {
        let Value::Table(values) = values else {
            find(section)?;
            continue; // not reached: every name has a section
        };
        for (name, value) in values {
            put(&mut checked, &format!("{section}.{name}"), value.clone())?;
        }
    }
    Ok(checked)
}

/// Takes `train.steps=100`. What is not a value of TOML is text, so that paths need no quotes.
pub fn assign(table: &mut Table, text: &str) -> Result<()> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Error::config(format!("{} does not set anything; write train.steps=100", shown(text))));
    };
    let (name, value) = (name.trim(), value.trim());
    let key = find(name)?;
    let plain = || Value::String(value.into());
    let value = match key.kind {
        Kind::Text | Kind::OneOf(_) if !value.starts_with(['"', '\'']) => plain(),
        _ => {
            let parsed = format!("value = {value}").parse::<Table>().ok();
            // One value, and not the rest of a document that was smuggled in.
            parsed.filter(|t| t.len() == 1).and_then(|mut t| t.remove("value")).unwrap_or_else(plain)
        }
    };
    put(table, name, value)
}

/// Sets a value, checked.
pub fn put(table: &mut Table, name: &str, value: Value) -> Result<()> {
    let key = find(name)?;
    key.check(&value)?;
    let value = match (key.kind, value) {
        (Kind::Paths, Value::String(path)) => Value::Array(vec![Value::String(path)]),
        (Kind::Number, Value::Integer(n)) => Value::Float(n as f64),
        (_, value) => value,
    };
    if let Some((section, name)) = key.name.split_once('.')
        && let Value::Table(values) = table.entry(section).or_insert_with(|| Value::Table(Table::new()))
    {
        values.insert(name.into(), value);
    }
    Ok(())
}
