//! Hugging Face's `tokenizer.json`, of the kind that byte-level BPE has (GPT-2, Llama 3, Qwen 2 without its normaliser).
//!
//! Files come from anywhere. Sizes are checked before anything is made of them, numbers before they index anything, and
//! whatever a file asks for that is not done here is an error that names it: a tokenizer that is nearly right is wrong.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use foldhash::fast::RandomState;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::alphabet::Alphabet;
use super::merges::Merges;
use super::{Added, Split, Tokenizer};
use crate::checkpoint::small;
use crate::{Error, Result};

/// The largest files in use have some 35 MB. In memory a vocabulary takes up to eight times its text.
const MAX_BYTES: u64 = 48 << 20;

/// What is wrong with a file, without its name.
type Wrong = String;
type Checked<T> = std::result::Result<T, Wrong>;

#[derive(Deserialize)]
struct Kind {
    model: ModelKind,
}

#[derive(Deserialize)]
struct ModelKind {
    r#type: Option<String>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default, deserialize_with = "small")]
    truncation: Value,
    #[serde(default, deserialize_with = "small")]
    padding: Value,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default, deserialize_with = "small")]
    normalizer: Value,
    #[serde(default, deserialize_with = "small")]
    pre_tokenizer: Value,
    #[serde(default, deserialize_with = "small")]
    post_processor: Value,
    #[serde(default, deserialize_with = "small")]
    decoder: Value,
    model: Model,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    dropout: Option<f64>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    vocab: HashMap<String, u32>,
    merges: Vec<MergeText>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MergeText {
    Pair([String; 2]),
    Text(String),
}

pub(super) fn read(path: &Path) -> Result<Tokenizer> {
    let (file, _) = crate::files::open(path)?;
    let mut json = vec![];
    // Bounded whatever the folder says of its size: the file may grow.
    file.take(MAX_BYTES + 1).read_to_end(&mut json).map_err(Error::io("read", path))?;
    parse(&json).map_err(|what| Error::file(path, what))
}

pub(super) fn parse(json: &[u8]) -> Checked<Tokenizer> {
    if json.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {} MiB, which no tokenizer.json has", MAX_BYTES >> 20));
    }
    let wrong = |error: serde_json::Error| format!("not a tokenizer.json: {error}");
    let kind: Kind = serde_json::from_slice(json).map_err(wrong)?;
    if let Some(kind) = kind.model.r#type.filter(|kind| kind != "BPE") {
        return Err(format!("the model is of type '{}'; only BPE is supported", short(&kind)));
    }
    let file: File = serde_json::from_slice(json).map_err(wrong)?;
    for (part, value) in
        [("truncation", &file.truncation), ("padding", &file.padding), ("normalizer", &file.normalizer)]
    {
        if !value.is_null() {
            return Err(unsupported(part, value));
        }
    }
    check_model(&file.model)?;
    let (split, space_first) = pre_tokenizer(&file.pre_tokenizer)?;
    if file.decoder.get("type").and_then(Value::as_str) != Some("ByteLevel") {
        return Err(unsupported("decoder", &file.decoder));
    }
    check_post_processor(&file.post_processor)?;

    let (mut tokens, added) = vocabulary(&file)?;
    let merges = merges(&file.model, tokens.len())?;
    let mut bytes = [None; 256];
    for (id, token) in tokens.iter().enumerate() {
        if let [byte] = **token {
            bytes[byte as usize] = Some(id as u32);
        }
    }
    if let Some(missing) = bytes.iter().position(Option::is_none) {
        return Err(format!("byte 0x{missing:02x} is no token, so that not every text could be encoded"));
    }
    let whole = file.model.ignore_merges.then(|| {
        let mut whole = HashMap::with_capacity_and_hasher(tokens.len(), RandomState::default());
        // Not the added ones: text must not become a special token by spelling it.
        let is_added: HashSet<u32> = added.iter().map(|token| token.id).collect();
        whole.extend(tokens.iter().cloned().zip(0..).filter(|(_, id)| !is_added.contains(id)));
        whole
    });
    tokens.shrink_to_fit();
    let mut tokenizer = Tokenizer::plain(tokens, merges, split);
    tokenizer.added = added;
    tokenizer.whole = whole;
    tokenizer.space_first = space_first;
    tokenizer.around = Some(file.post_processor).filter(|value| !value.is_null());
    Ok(tokenizer)
}

fn check_model(model: &Model) -> Checked<()> {
    let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let parts = [
        ("dropout", model.dropout.is_some_and(|rate| rate != 0.0)),
        ("continuing_subword_prefix", set(&model.continuing_subword_prefix)),
        ("end_of_word_suffix", set(&model.end_of_word_suffix)),
        ("byte_fallback", model.byte_fallback),
    ];
    match parts.iter().find(|(_, used)| *used) {
        Some((part, _)) => Err(format!("the model uses '{part}', which is not supported")),
        None => Ok(()),
    }
}

/// How to split, and whether a space goes first.
fn pre_tokenizer(value: &Value) -> Checked<(Split, bool)> {
    let flag = |part: &Value, name, default| part.get(name).map_or(Some(default), Value::as_bool);
    let byte_level = |part: &Value| {
        let is = part.get("type").and_then(Value::as_str) == Some("ByteLevel");
        is.then(|| flag(part, "use_regex", true).zip(flag(part, "add_prefix_space", true))).flatten()
    };
    let whole = || unsupported("pre_tokenizer", value);
    if let Some((regex, space)) = byte_level(value) {
        return Ok((if regex { Split::Gpt2 } else { Split::Whole }, space));
    }
    // The other form in use: split by a pattern, then bytes.
    let parts = value.get("pretokenizers").and_then(Value::as_array).ok_or_else(whole)?;
    let [split, last] = &parts[..] else { return Err(whole()) };
    let Some((false, false)) = byte_level(last) else { return Err(whole()) };
    if split.get("type").and_then(Value::as_str) != Some("Split") {
        return Err(unsupported("pre_tokenizer", split));
    }
    // The patterns cover all of a text, so that what they match, apart or kept, is the same.
    let behavior = split.get("behavior").and_then(Value::as_str).unwrap_or_default();
    if !matches!((behavior, flag(split, "invert", false)), ("Isolated", Some(false)) | ("Removed", Some(true))) {
        return Err(unsupported("pre_tokenizer", split));
    }
    let pattern = split.get("pattern").and_then(|pattern| pattern.get("Regex")).and_then(Value::as_str);
    let pattern = pattern.ok_or_else(|| unsupported("pre_tokenizer", split))?;
    let known = Split::from_pattern(pattern);
    let known =
        known.ok_or_else(|| format!("text is split by the pattern '{}', which is not supported", short(pattern)))?;
    Ok((known, false))
}

/// Nothing of a post-processor changes the tokens of a text; some put special tokens around it, which callers do
/// themselves. Those that also do other things are refused.
fn check_post_processor(value: &Value) -> Checked<()> {
    let parts = match value.get("processors").and_then(Value::as_array) {
        Some(parts) => &parts[..],
        None if value.is_null() => &[],
        None => std::slice::from_ref(value),
    };
    let known =
        |part: &&Value| matches!(part.get("type").and_then(Value::as_str), Some("ByteLevel" | "TemplateProcessing"));
    match parts.iter().find(|part| !known(part)) {
        Some(part) => Err(unsupported("post_processor", part)),
        None => Ok(()),
    }
}

/// The bytes of all tokens, which must be numbered without gaps: a number alone must not become an allocation.
fn vocabulary(file: &File) -> Checked<(Vec<Box<[u8]>>, Added)> {
    let alphabet = Alphabet::new();
    let mut found: Vec<Option<Box<[u8]>>> = vec![None; file.model.vocab.len() + file.added_tokens.len()];
    let room = found.len();
    let mut count = 0;
    let mut place = |id: u32, bytes: Box<[u8]>, text: &str| -> Checked<()> {
        let slot = found.get_mut(id as usize);
        let slot =
            slot.ok_or_else(|| format!("token '{}' has the number {id}; there are {room} tokens", short(text)))?;
        match slot.replace(bytes) {
            Some(_) => Err(format!("token '{}' has the number {id}, which another token has too", short(text))),
            None => {
                count += 1;
                Ok(())
            }
        }
    };
    let mut added = Added::default();
    let mut texts = HashSet::new();
    for token in &file.added_tokens {
        let text = &token.content;
        let part = [("single_word", token.single_word), ("lstrip", token.lstrip), ("rstrip", token.rstrip)];
        if let Some((part, _)) = part.iter().find(|(_, used)| *used) {
            return Err(format!("added token '{}' uses '{part}', which is not supported", short(text)));
        }
        if text.is_empty() || !texts.insert(text.as_str()) {
            return Err(format!("added token {} is '{}', which is empty or there twice", token.id, short(text)));
        }
        if let Some(&other) = file.model.vocab.get(text).filter(|other| **other != token.id) {
            return Err(format!("added token '{}' has the numbers {} and {other}", short(text), token.id));
        }
        place(token.id, text.as_bytes().into(), text)?;
    }
    for (text, &id) in &file.model.vocab {
        if !texts.contains(text.as_str()) {
            let bytes = alphabet.bytes(text);
            let bytes =
                bytes.ok_or_else(|| format!("token '{}' has characters that stand for no byte", short(text)))?;
            place(id, bytes.into(), text)?;
        }
    }
    for token in &file.added_tokens {
        added.push(token.content.clone(), token.id, token.special);
    }
    found.truncate(count);
    let missing = found.iter().position(Option::is_none);
    let tokens: Option<Vec<_>> = found.into_iter().collect();
    match tokens {
        Some(tokens) => Ok((tokens, added)),
        None => Err(format!("no token has the number {}, but some have larger ones", missing.unwrap_or_default())),
    }
}

fn merges(model: &Model, vocabulary: usize) -> Checked<Merges> {
    let mut merges = Merges::with_capacity(model.merges.len());
    for (line, merge) in model.merges.iter().enumerate() {
        let (left, right) = match merge {
            MergeText::Pair([left, right]) => (left.as_str(), right.as_str()),
            MergeText::Text(text) => match text.split_once(' ') {
                Some((left, right)) if !right.contains(' ') => (left, right),
                _ => return Err(format!("merge {line}, '{}', is not two tokens with a space between", short(text))),
            },
        };
        let id = |text: &str| {
            let id = model.vocab.get(text).copied().filter(|&id| (id as usize) < vocabulary);
            id.ok_or_else(|| format!("merge {line} names '{}', which is not in the vocabulary", short(text)))
        };
        if left.is_empty() || right.is_empty() {
            return Err(format!("merge {line} names a token without characters"));
        }
        let pair = (id(left)?, id(right)?);
        if !merges.push(pair, id(&format!("{left}{right}"))?) {
            return Err(format!("merge {line}, of '{}' and '{}', is there twice", short(left), short(right)));
        }
    }
    Ok(merges)
}

fn unsupported(part: &str, value: &Value) -> Wrong {
    match value.get("type").and_then(Value::as_str) {
        Some(kind) => format!("the {part} '{}', as the file sets it, is not supported", short(kind)),
        None if value.is_null() => format!("there is no {part}; byte-level BPE needs one of type 'ByteLevel'"),
        None => format!("the {part} of the file is not supported"),
    }
}

/// A text of the file for a message: not all of it, and no control characters.
fn short(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

pub(super) fn write(tokenizer: &Tokenizer) -> String {
    let alphabet = Alphabet::new();
    let mut texts: Vec<String> = tokenizer.tokens.iter().map(|token| alphabet.text(token)).collect();
    for added in tokenizer.added.iter() {
        texts[added.id as usize] = added.text.clone();
    }
    let vocab: Map<String, Value> = texts.iter().cloned().zip((0u32..).map(Value::from)).collect();
    let pairs = tokenizer.merges.in_order().iter();
    let merges: Vec<[&str; 2]> =
        pairs.map(|&(left, right)| [&*texts[left as usize], &*texts[right as usize]]).collect();
    let added = tokenizer.added.iter().map(|token| {
        json!({
            "id": token.id, "content": token.text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": token.special,
        })
    });
    let byte_level = |space: bool, regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": regex });
    let pre_tokenizer = match tokenizer.split {
        Split::Whole => byte_level(tokenizer.space_first, false),
        Split::Gpt2 => byte_level(tokenizer.space_first, true),
        split => json!({ "type": "Sequence", "pretokenizers": [
            {
                "type": "Split", "pattern": { "Regex": split.pattern() },
                "behavior": "Isolated", "invert": false,
            },
            byte_level(false, false),
        ] }),
    };
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": tokenizer.around,
        "decoder": byte_level(true, true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": tokenizer.whole.is_some(), "vocab": vocab, "merges": merges,
        },
    });
    serde_json::to_string(&file).unwrap_or_default()
}
