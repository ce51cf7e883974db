//! Import and export of GPTs in the format of `transformers`: names and layouts of tensors.
//! `config.rs` reads and writes `config.json`, `ids.rs` the begin- and end-of-text tokens;
//! `checkpoint::hugging_face` handles the files.

mod config;
mod ids;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bornite::{DType, Tensor};

use super::config::{GptConfig, MlpKind, NormKind, PositionKind};
use super::gpt::Gpt;
use crate::checkpoint::hugging_face::{HuggingFaceModel, ModelExport, TOKENIZER, TensorMapping};
use crate::checkpoint::safetensors::ReadOptions;
use crate::error::located;
use crate::parameters::Params;
use crate::tokenizer::Tokenizer;
use crate::{Error, Module, Result};
use ids::SpecialTokenIds;

const GENERATION: &str = "generation_config.json";

/// A stricter header limit than the format's, enough for more than 100,000 tensors.
const READ_OPTIONS: ReadOptions = ReadOptions { max_header_bytes: 16 << 20, allow_misaligned: false };

/// Supported architectures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Gpt2,
    Llama,
}

impl Family {
    /// Prefix of all tensor names but the head's.
    fn prefix(self) -> &'static str {
        match self {
            Family::Gpt2 => "transformer.",
            Family::Llama => "model.",
        }
    }

    /// Name of the token embedding, without the prefix.
    fn embedding(self) -> &'static str {
        match self {
            Family::Gpt2 => "wte.weight",
            Family::Llama => "embed_tokens.weight",
        }
    }

    /// Prefix of layer numbers, without the model's prefix.
    fn layers(self) -> &'static str {
        match self {
            Family::Gpt2 => "h.",
            Family::Llama => "layers.",
        }
    }
}

impl Gpt {
    /// Declares the model of a folder with `config.json` and `model.safetensors`, and loads its
    /// parameters, converted to f32. After an error, nothing has been declared.
    ///
    /// ```no_run
    /// use bornite_nn::{model::Gpt, prelude::*};
    /// # fn main() -> Result<()> {
    /// let params = Params::new(Device::auto(), 42);
    /// let gpt = Gpt::import(&params.at("gpt"), "gpt2")?;
    /// let adam = AdamW::new(&params).lr(1e-5);
    /// let step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
    /// # let _ = step;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn import(params: &Params, folder: impl AsRef<Path>) -> Result<Gpt> {
        located(|| {
            let mut files = HuggingFaceModel::open(&folder, &READ_OPTIONS)?;
            let (mut config, family) = config::read(files.config())?;
            if let Some(generation) = files.json(GENERATION)? {
                config::read_generation(&generation, &mut config)?;
            }
            let prefix = prefix(&files, family);
            check_layers(&files, &config, &format!("{prefix}{}", family.layers()))?;
            let device = params.device();
            let declared = Params::new(device, 0);
            Gpt::new(&declared, config.clone())?;
            let mappings = tensor_mappings(&config, family, prefix);
            let mut shapes: BTreeMap<String, Vec<usize>> =
                declared.list().into_iter().map(|p| (p.name, p.shape)).collect();
            let split = split_parameters(&config, family);
            for (name, parts) in &split {
                shapes.remove(name);
                shapes.extend(parts.iter().cloned());
            }
            // Causal masks and frequencies are buffers; a tied head may be stored twice.
            let ignored = |name: &str| {
                name.ends_with(".attn.bias")
                    || name.ends_with(".attn.masked_bias")
                    || name.ends_with(".rotary_emb.inv_freq")
                    || name == "lm_head.weight" && config.tied_embeddings
            };
            let mut tensors = files.import(&mappings, &shapes, ignored, device)?;
            for (name, parts) in &split {
                let found: Vec<Tensor> = parts.iter().filter_map(|(name, _)| tensors.remove(name)).collect();
                tensors.insert(name.clone(), Tensor::concat(&found.iter().collect::<Vec<_>>(), 0));
            }
            for tensor in tensors.values_mut() {
                *tensor = tensor.cast(DType::F32).detach();
                tensor.realize()?;
            }
            let gpt = Gpt::new(params, config)?;
            params.load_tensors(&tensors)?;
            Ok(gpt)
        })
    }

    /// Writes a folder that `transformers` loads. With a tokenizer it also contains
    /// `tokenizer.json` and `tokenizer_config.json`; `generation_config.json` contains the begin-
    /// and end-of-text tokens.
    #[track_caller]
    pub fn export(&self, folder: impl AsRef<Path>, tokenizer: Option<&Tokenizer>) -> Result<()> {
        located(|| {
            let family = family(self.config())?;
            let mut tensors = self.params().tensors()?;
            let own: BTreeSet<String> = self.parameters().iter().map(|p| p.name().to_owned()).collect();
            tensors.retain(|name, _| own.contains(&self.params().name_of(name)));
            for (name, parts) in split_parameters(self.config(), family) {
                let Some(tensor) = tensors.remove(&name) else {
                    return Err(Error::config(format!("export: there is no parameter '{name}'")));
                };
                let sizes: Vec<usize> = parts.iter().map(|(_, shape)| shape[0]).collect();
                let pieces = tensor.split_sizes(&sizes, 0);
                tensors.extend(parts.into_iter().map(|(name, _)| name).zip(pieces));
            }
            let ids = SpecialTokenIds::new(self.config(), tokenizer);
            let config = config::write(self.config(), family, ids.json());
            let mut files = vec![(GENERATION, ids.generation_config())];
            if let Some(tokenizer) = tokenizer {
                files.push((TOKENIZER, tokenizer.to_json()));
                files.push(("tokenizer_config.json", ids.tokenizer_config(tokenizer, self.config().context)));
            }
            let mappings = tensor_mappings(self.config(), family, family.prefix());
            let max_file_bytes = 5 << 30; // as `transformers` does
            ModelExport { config: &config, mappings: &mappings, tensors: &tensors, files: &files, max_file_bytes }
                .write(folder)
        })
    }
}

/// Prefix of the tensor names in these files. Checkpoints of the base model, such as GPT-2's on the
/// Hub, have none.
fn prefix(files: &HuggingFaceModel, family: Family) -> &'static str {
    let bare = files.tensors().any(|(name, _)| name == family.embedding());
    if bare { "" } else { family.prefix() }
}

/// Compares the number of layers in `config.json` with the files, before anything is allocated per
/// layer.
fn check_layers(files: &HuggingFaceModel, config: &GptConfig, prefix: &str) -> Result<()> {
    let number = |name: &str| name.strip_prefix(prefix)?.split('.').next()?.parse::<usize>().ok();
    let found: BTreeSet<usize> = files.tensors().filter_map(|(name, _)| number(name)).collect();
    // If no name matches, the comparison of names reports it.
    if found.is_empty() || found.len() == config.layers {
        return Ok(());
    }
    let (layers, found) = (config.layers, found.len());
    Err(Error::config(format!(
        "config.json describes {layers} layers, but the weights have {found}; use matching files"
    )))
}

/// Returns the architecture of `transformers` that matches a model.
fn family(config: &GptConfig) -> Result<Family> {
    use {MlpKind::*, NormKind::*, PositionKind::*};
    let biases = config.bias && config.attention_bias();
    let standard_heads = config.kv_heads == config.heads && config.heads_width() == config.width;
    let standard_scale = config.scale_attention && !config.scale_attention_by_layer;
    match (config.norm, config.position, config.mlp) {
        (Layer, Learned, Gelu | GeluErf) if biases && standard_heads => Ok(Family::Gpt2),
        (Rms, Rope(_), Swiglu) if standard_scale => Ok(Family::Llama),
        _ => Err(Error::config(
            "transformers has no architecture for this model: GPT-2 needs model.norm=layer, model.position=learned, a GELU, \
             biases, as many kv_heads as heads and no head_width; Llama needs model.norm=rms, model.position=rope, \
             model.mlp=swiglu and the default scaling of attention scores",
        )),
    }
}

/// Parameters that are several tensors in `transformers`, stacked along axis 0: name, and names and
/// shapes of the parts.
fn split_parameters(config: &GptConfig, family: Family) -> Vec<(String, Vec<(String, Vec<usize>)>)> {
    if family == Family::Gpt2 {
        return vec![];
    }
    let head = config.head_width();
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

/// Mapping of our tensor names to theirs, which begin with `prefix`.
fn tensor_mappings(config: &GptConfig, family: Family, prefix: &str) -> Vec<TensorMapping> {
    let mut mappings = vec![];
    let mut add = |ours: &str, theirs: &str, transpose: bool| {
        mappings.push(TensorMapping::new(ours, format!("{prefix}{theirs}"), transpose))
    };
    add("token_embedding.weight", family.embedding(), false);
    match family {
        Family::Gpt2 => {
            add("position_embedding.weight", "wpe.weight", false);
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
    if !config.tied_embeddings {
        mappings.push(TensorMapping::new("head.weight", "lm_head.weight", false));
    }
    mappings
}
