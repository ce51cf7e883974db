//! GPTs as `transformers` keeps them: which tensor is which. `config.rs` reads and writes `config.json`, `ids.rs` the tokens
//! that begin and end a text.

mod config;
mod ids;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bornite::{DType, Device, Tensor};

use super::config::{GptConfig, MlpKind, NormKind, PositionKind};
use super::gpt::Gpt;
use crate::checkpoint::Tensors;
use crate::checkpoint::huggingface::{Export, Model, Pair, TOKENIZER};
use crate::checkpoint::safetensors::Rules;
use crate::error::located;
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use ids::Ids;

const GENERATION: &str = "generation_config.json";

/// Headers of files are shorter than the format allows: this is more than 100,000 tensors.
const RULES: Rules = Rules { max_header_bytes: 16 << 20, misaligned: false };

/// The kinds of model that are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Gpt2,
    Llama,
}

impl Family {
    /// Prefix of the tensors of all but the head.
    fn prefix(self) -> &'static str {
        match self {
            Family::Gpt2 => "transformer.",
            Family::Llama => "model.",
        }
    }

    /// The embedding of tokens, without the prefix.
    fn embedding(self) -> &'static str {
        match self {
            Family::Gpt2 => "wte.weight",
            Family::Llama => "embed_tokens.weight",
        }
    }

    /// What the number of a layer follows, without the prefix.
    fn layers(self) -> &'static str {
        match self {
            Family::Gpt2 => "h.",
            Family::Llama => "layers.",
        }
    }
}

impl Gpt {
    /// Reads a folder of `config.json` and `model.safetensors`: the model and its parameters in f32, by name.
    #[track_caller]
    pub fn import(folder: impl AsRef<Path>, device: Device) -> Result<(Gpt, Tensors)> {
        located(|| {
            let mut files = Model::open(&folder, &RULES)?;
            let (mut config, family) = config::read(files.config())?;
            if let Some(generation) = files.json(GENERATION)? {
                config::read_generation(&generation, &mut config)?;
            }
            let prefix = prefix(&files, family);
            check_layers(&files, &config, &format!("{prefix}{}", family.layers()))?;
            let gpt = Gpt::new(config)?;
            let table = table(&gpt, family, prefix);
            let mut shapes: BTreeMap<String, Vec<usize>> =
                gpt.parameters().iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
            let parts = split_names(&gpt, family);
            for (whole, parts) in &parts {
                shapes.remove(whole);
                shapes.extend(parts.iter().cloned());
            }
            // The mask of GPT-2 is no parameter; a head that is tied may be there twice.
            let ignored = |name: &str| {
                name.ends_with(".attn.bias")
                    || name.ends_with(".attn.masked_bias")
                    || name.ends_with(".rotary_emb.inv_freq")
                    || name == "lm_head.weight" && gpt.config().tied
            };
            let mut tensors = files.import(&table, &shapes, ignored, device)?;
            for (whole, parts) in &parts {
                let found: Vec<Tensor> = parts.iter().filter_map(|(name, _)| tensors.remove(name)).collect();
                tensors.insert(whole.clone(), Tensor::concat(&found.iter().collect::<Vec<_>>(), 0));
            }
            for tensor in tensors.values_mut() {
                *tensor = tensor.cast(DType::F32).detach();
                tensor.realize()?;
            }
            Ok((gpt, tensors))
        })
    }

    /// Writes such a folder from parameters by name. With a tokenizer it also has `tokenizer.json` and
    /// `tokenizer_config.json`; `generation_config.json` names the tokens that begin and end a text.
    #[track_caller]
    pub fn export(&self, folder: impl AsRef<Path>, parameters: &Tensors, tokenizer: Option<&Tokenizer>) -> Result<()> {
        located(|| {
            let family = family(self.config())?;
            let mut tensors = parameters.clone();
            for (whole, parts) in split_names(self, family) {
                let Some(tensor) = tensors.remove(&whole) else {
                    return Err(Error::config(format!("there is no parameter '{whole}'")));
                };
                let sizes: Vec<usize> = parts.iter().map(|(_, shape)| shape[0]).collect();
                let pieces = tensor.split_sizes(&sizes, 0);
                tensors.extend(parts.into_iter().map(|(name, _)| name).zip(pieces));
            }
            let ids = Ids::new(self.config(), tokenizer);
            let config = config::write(self.config(), family, ids.json());
            let mut files = vec![(GENERATION, ids.generation_config())];
            if let Some(tokenizer) = tokenizer {
                files.push((TOKENIZER, tokenizer.to_json()));
                files.push(("tokenizer_config.json", ids.tokenizer_config(tokenizer, self.config().context)));
            }
            let table = table(self, family, family.prefix());
            let max_file_bytes = 5 << 30; // as `transformers` does
            Export { config: &config, table: &table, tensors: &tensors, files: &files, max_file_bytes }.write(folder)
        })
    }
}

/// Prefix of their names: the checkpoints of the base model, such as GPT-2's on the Hub, have none.
fn prefix(files: &Model, family: Family) -> &'static str {
    let bare = files.tensors().any(|(name, _)| name == family.embedding());
    if bare { "" } else { family.prefix() }
}

/// Compares the layers of a configuration with those in the files, before anything is made for each of them.
fn check_layers(files: &Model, config: &GptConfig, prefix: &str) -> Result<()> {
    let number = |name: &str| name.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok();
    let found: BTreeSet<usize> = files.tensors().filter_map(|(name, _)| number(name)).collect();
    // Names that are all different are listed by the comparison of names.
    if found.is_empty() || found.len() == config.layers {
        return Ok(());
    }
    let (layers, found) = (config.layers, found.len());
    Err(Error::config(format!(
        "config.json describes {layers} layers, but the weights have {found}; use matching files"
    )))
}

/// What `transformers` calls this model.
fn family(config: &GptConfig) -> Result<Family> {
    use {MlpKind::*, NormKind::*, PositionKind::*};
    let biases = config.bias && config.attention_bias();
    let plain_heads = config.kv_heads == config.heads && config.heads_width() == config.width;
    let plain_scores = config.scale_by_head && !config.scale_by_layer;
    match (config.norm, config.position, config.mlp) {
        (Layer, Learned, Gelu | GeluErf) if biases && plain_heads => Ok(Family::Gpt2),
        (Rms, Rope(_), Swiglu) if plain_scores => Ok(Family::Llama),
        _ => Err(Error::config(
            "transformers has no architecture for this model: GPT-2 has model.norm=layer, model.position=learned, a GELU, \
             biases, as many kv_heads as heads and no head_width; Llama has model.norm=rms, model.position=rope, \
             model.mlp=swiglu and the usual scale of attention scores",
        )),
    }
}

/// Parameters that are several of theirs, one below the other: names and shapes of the parts.
fn split_names(gpt: &Gpt, family: Family) -> Vec<(String, Vec<(String, Vec<usize>)>)> {
    if family == Family::Gpt2 {
        return vec![];
    }
    let (config, head) = (gpt.config(), gpt.config().head_width());
    let kinds: &[&str] = if config.attention_bias() { &["weight", "bias"] } else { &["weight"] };
    let split = |n: usize, kind: &str| {
        let columns = (kind == "weight").then_some(config.width);
        let part = |name: &str, heads: usize| {
            (format!("blocks.{n}.attention.{name}.{kind}"), [heads * head].into_iter().chain(columns).collect())
        };
        let parts = vec![part("q", config.heads), part("k", config.kv_heads), part("v", config.kv_heads)];
        (format!("blocks.{n}.attention.qkv.{kind}"), parts)
    };
    (0..config.layers).flat_map(|n| kinds.iter().map(move |kind| (n, kind))).map(|(n, kind)| split(n, kind)).collect()
}

/// Our names and theirs, which begin with `prefix`.
fn table(gpt: &Gpt, family: Family, prefix: &str) -> Vec<Pair> {
    let config = gpt.config();
    let mut pairs = vec![];
    let mut add =
        |ours: &str, theirs: &str, transpose: bool| pairs.push(Pair::new(ours, format!("{prefix}{theirs}"), transpose));
    add("tokens.weight", family.embedding(), false);
    match family {
        Family::Gpt2 => {
            add("places.weight", "wpe.weight", false);
            for n in 0..config.layers {
                let layers = [
                    ("norm1", "ln_1", false),
                    ("attention.qkv", "attn.c_attn", true),
                    ("attention.out", "attn.c_proj", true),
                    ("norm2", "ln_2", false),
                    ("mlp.up", "mlp.c_fc", true),
                    ("mlp.down", "mlp.c_proj", true),
                ];
                for (ours, theirs, transpose) in layers {
                    for (part, transpose) in [("weight", transpose), ("bias", false)] {
                        add(&format!("blocks.{n}.{ours}.{part}"), &format!("h.{n}.{theirs}.{part}"), transpose);
                    }
                }
            }
            for part in ["weight", "bias"] {
                add(&format!("norm.{part}"), &format!("ln_f.{part}"), false);
            }
        }
        Family::Llama => {
            let (attention, mlp) = (config.attention_bias(), config.bias);
            for n in 0..config.layers {
                let layers = [
                    ("norm1", "input_layernorm", false),
                    ("attention.q", "self_attn.q_proj", attention),
                    ("attention.k", "self_attn.k_proj", attention),
                    ("attention.v", "self_attn.v_proj", attention),
                    ("attention.out", "self_attn.o_proj", attention),
                    ("norm2", "post_attention_layernorm", false),
                    ("mlp.up", "mlp.up_proj", mlp),
                    ("mlp.gate", "mlp.gate_proj", mlp),
                    ("mlp.down", "mlp.down_proj", mlp),
                ];
                for (ours, theirs, bias) in layers {
                    for part in ["weight", "bias"].into_iter().take(1 + usize::from(bias)) {
                        add(&format!("blocks.{n}.{ours}.{part}"), &format!("layers.{n}.{theirs}.{part}"), false);
                    }
                }
            }
            add("norm.weight", "norm.weight", false);
        }
    }
    if !config.tied {
        pairs.push(Pair::new("head.weight", "lm_head.weight", false));
    }
    pairs
}
