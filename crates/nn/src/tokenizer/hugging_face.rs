//! Reads and writes Hugging Face's `tokenizer.json` of byte-level BPE (GPT-2, Llama 3, Qwen 2
//! without its normalizer).
//!
//! Files are untrusted: sizes and indices are validated before use, and every unsupported feature
//! is an error that names it, since an almost correct tokenizer gives wrong tokens.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use foldhash::fast::RandomState;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::byte_alphabet::ByteAlphabet;
use super::merges::Merges;
use super::{AddedTokens, PreTokenizer, Tokenizer};
use crate::checkpoint::small;
use crate::{Error, Result};

/// Maximum size of a file. The largest in use have about 35 MB; in memory a vocabulary takes up to
/// eight times its text.
const MAX_BYTES: u64 = 48 << 20;

/// Result with an error message, without the file's name.
type ParseResult<T> = std::result::Result<T, String>;

#[derive(Deserialize)]
struct TypeProbe {
    model: ModelType,
}

#[derive(Deserialize)]
struct ModelType {
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
    // Bounded, since the file may grow while it is read.
    file.take(MAX_BYTES + 1).read_to_end(&mut json).map_err(Error::io("read", path))?;
    parse(&json).map_err(|what| Error::file(path, what))
}

pub(super) fn parse(json: &[u8]) -> ParseResult<Tokenizer> {
    if json.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {} MiB, the maximum of a tokenizer.json", MAX_BYTES >> 20));
    }
    let invalid = |error: serde_json::Error| format!("not a tokenizer.json: {error}");
    let probe: TypeProbe = serde_json::from_slice(json).map_err(invalid)?;
    if let Some(kind) = probe.model.r#type.filter(|kind| kind != "BPE") {
        return Err(format!("the model is of type '{}'; only BPE is supported", short(&kind)));
    }
    let file: File = serde_json::from_slice(json).map_err(invalid)?;
    for (part, value) in
        [("truncation", &file.truncation), ("padding", &file.padding), ("normalizer", &file.normalizer)]
    {
        if !value.is_null() {
            return Err(unsupported(part, value));
        }
    }
    check_model(&file.model)?;
    let (pre_tokenizer, add_prefix_space) = pre_tokenizer(&file.pre_tokenizer)?;
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
        return Err(format!("byte 0x{missing:02x} is not a token, so not every text could be encoded"));
    }
    let word_tokens = file.model.ignore_merges.then(|| {
        let mut word_tokens = HashMap::with_capacity_and_hasher(tokens.len(), RandomState::default());
        // Without added tokens: ordinary text must not become a special token.
        let is_added: HashSet<u32> = added.iter().map(|token| token.id).collect();
        word_tokens.extend(tokens.iter().cloned().zip(0..).filter(|(_, id)| !is_added.contains(id)));
        word_tokens
    });
    tokens.shrink_to_fit();
    let mut tokenizer = Tokenizer::without_added_tokens(tokens, merges, pre_tokenizer);
    tokenizer.added = added;
    tokenizer.word_tokens = word_tokens;
    tokenizer.add_prefix_space = add_prefix_space;
    tokenizer.post_processor = Some(file.post_processor).filter(|value| !value.is_null());
    Ok(tokenizer)
}

fn check_model(model: &Model) -> ParseResult<()> {
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

/// Parses the pre-tokenizer and `add_prefix_space`.
fn pre_tokenizer(value: &Value) -> ParseResult<(PreTokenizer, bool)> {
    let flag = |part: &Value, name, default| part.get(name).map_or(Some(default), Value::as_bool);
    let byte_level = |part: &Value| {
        let is = part.get("type").and_then(Value::as_str) == Some("ByteLevel");
        is.then(|| flag(part, "use_regex", true).zip(flag(part, "add_prefix_space", true))).flatten()
    };
    let error = || unsupported("pre_tokenizer", value);
    if let Some((regex, space)) = byte_level(value) {
        return Ok((if regex { PreTokenizer::Gpt2 } else { PreTokenizer::None }, space));
    }
    // The other form in use: a `Split` by a pattern, then `ByteLevel`.
    let parts = value.get("pretokenizers").and_then(Value::as_array).ok_or_else(error)?;
    let [split, last] = &parts[..] else { return Err(error()) };
    let Some((false, false)) = byte_level(last) else { return Err(error()) };
    if split.get("type").and_then(Value::as_str) != Some("Split") {
        return Err(unsupported("pre_tokenizer", split));
    }
    // The patterns match all of a text, so both forms are equivalent.
    let behavior = split.get("behavior").and_then(Value::as_str).unwrap_or_default();
    if !matches!((behavior, flag(split, "invert", false)), ("Isolated", Some(false)) | ("Removed", Some(true))) {
        return Err(unsupported("pre_tokenizer", split));
    }
    let pattern = split.get("pattern").and_then(|pattern| pattern.get("Regex")).and_then(Value::as_str);
    let pattern = pattern.ok_or_else(|| unsupported("pre_tokenizer", split))?;
    let known = PreTokenizer::from_pattern(pattern);
    let known =
        known.ok_or_else(|| format!("text is split by the pattern '{}', which is not supported", short(pattern)))?;
    Ok((known, false))
}

/// Validates the post-processor. Supported ones do not change the tokens of a text; some add
/// special tokens around it, which is left to the caller.
fn check_post_processor(value: &Value) -> ParseResult<()> {
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

/// Returns the bytes of all tokens. Ids must have no gaps, so that a large id cannot cause a large
/// allocation.
fn vocabulary(file: &File) -> ParseResult<(Vec<Box<[u8]>>, AddedTokens)> {
    let alphabet = ByteAlphabet::new();
    let mut found: Vec<Option<Box<[u8]>>> = vec![None; file.model.vocab.len() + file.added_tokens.len()];
    let capacity = found.len();
    let mut count = 0;
    let mut insert = |id: u32, bytes: Box<[u8]>, text: &str| -> ParseResult<()> {
        let slot = found.get_mut(id as usize);
        let slot =
            slot.ok_or_else(|| format!("token '{}' has id {id}, but there are {capacity} tokens", short(text)))?;
        match slot.replace(bytes) {
            Some(_) => Err(format!("token '{}' has id {id}, which another token also has", short(text))),
            None => {
                count += 1;
                Ok(())
            }
        }
    };
    let mut added = AddedTokens::default();
    let mut texts = HashSet::new();
    for token in &file.added_tokens {
        let text = &token.content;
        let part = [("single_word", token.single_word), ("lstrip", token.lstrip), ("rstrip", token.rstrip)];
        if let Some((part, _)) = part.iter().find(|(_, used)| *used) {
            return Err(format!("added token '{}' uses '{part}', which is not supported", short(text)));
        }
        if text.is_empty() || !texts.insert(text.as_str()) {
            return Err(format!("added token {} is '{}', which is empty or a duplicate", token.id, short(text)));
        }
        if let Some(&other) = file.model.vocab.get(text).filter(|other| **other != token.id) {
            return Err(format!("added token '{}' has the ids {} and {other}", short(text), token.id));
        }
        insert(token.id, text.as_bytes().into(), text)?;
    }
    for (text, &id) in &file.model.vocab {
        if !texts.contains(text.as_str()) {
            let bytes = alphabet.bytes(text);
            let bytes =
                bytes.ok_or_else(|| format!("token '{}' has characters outside the byte alphabet", short(text)))?;
            insert(id, bytes.into(), text)?;
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
        None => Err(format!("no token has id {}, but some have larger ids", missing.unwrap_or_default())),
    }
}

fn merges(model: &Model, vocabulary: usize) -> ParseResult<Merges> {
    let mut merges = Merges::with_capacity(model.merges.len());
    for (line, merge) in model.merges.iter().enumerate() {
        let (left, right) = match merge {
            MergeText::Pair([left, right]) => (left.as_str(), right.as_str()),
            MergeText::Text(text) => match text.split_once(' ') {
                Some((left, right)) if !right.contains(' ') => (left, right),
                _ => return Err(format!("merge {line}, '{}', is not two tokens separated by a space", short(text))),
            },
        };
        let id = |text: &str| {
            let id = model.vocab.get(text).copied().filter(|&id| (id as usize) < vocabulary);
            id.ok_or_else(|| format!("merge {line} contains '{}', which is not in the vocabulary", short(text)))
        };
        if left.is_empty() || right.is_empty() {
            return Err(format!("merge {line} contains an empty token"));
        }
        let pair = (id(left)?, id(right)?);
        if !merges.push(pair, id(&format!("{left}{right}"))?) {
            return Err(format!("merge {line}, of '{}' and '{}', is a duplicate", short(left), short(right)));
        }
    }
    Ok(merges)
}

fn unsupported(part: &str, value: &Value) -> String {
    match value.get("type").and_then(Value::as_str) {
        Some(kind) => format!("the {part} '{}' with these options is not supported", short(kind)),
        None if value.is_null() => format!("there is no {part}; byte-level BPE needs one of type 'ByteLevel'"),
        None => format!("the {part} of the file is not supported"),
    }
}

/// Shortens and escapes a text of the file for a message.
fn short(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

pub(super) fn write(tokenizer: &Tokenizer) -> String {
    let alphabet = ByteAlphabet::new();
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
    let pre_tokenizer = match tokenizer.pre_tokenizer {
        PreTokenizer::None => byte_level(tokenizer.add_prefix_space, false),
        PreTokenizer::Gpt2 => byte_level(tokenizer.add_prefix_space, true),
        pre_tokenizer => json!({ "type": "Sequence", "pretokenizers": [
            {
                "type": "Split", "pattern": { "Regex": pre_tokenizer.pattern() },
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
        "post_processor": tokenizer.post_processor,
        "decoder": byte_level(true, true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": tokenizer.word_tokens.is_some(), "vocab": vocab, "merges": merges,
        },
    });
    serde_json::to_string(&file).unwrap_or_default()
}
