//! GPTs as `transformers` keeps them: which configuration is which, which tensor is which.

use std::collections::BTreeMap;
use std::path::Path;

use bornite::{DType, Device, Tensor};
use serde_json::{Value, json};

use super::config::{GptConfig, MlpKind, NormKind, PositionKind};
use super::gpt::Gpt;
use crate::checkpoint::Tensors;
use crate::checkpoint::huggingface::{Export, Model, Pair};
use crate::checkpoint::safetensors::Rules;
use crate::{Error, Result};

/// The kinds of model that are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Gpt2,
    Llama,
}

impl Gpt {
    /// Reads a folder of `config.json` and `model.safetensors`: the model and its parameters in f32, by name.
    pub fn import(folder: impl AsRef<Path>, device: Device) -> Result<(Gpt, Tensors)> {
        let mut files = Model::open(&folder, &Rules::default())?;
        let config = config_of(files.config())?;
        let family = family(&config)?;
        let gpt = Gpt::new(config)?;
        let table = table(&gpt, family);
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
    }

    /// Writes such a folder from parameters by name, and a tokenizer if there is one.
    pub fn export(&self, folder: impl AsRef<Path>, parameters: &Tensors, tokenizer: Option<&Path>) -> Result<()> {
        let family = family(self.config())?;
        let mut tensors = parameters.clone();
        for (whole, parts) in split_names(self, family) {
            let Some(tensor) = tensors.remove(&whole) else {
                return Err(Error::Config(format!("there is no parameter '{whole}'")));
            };
            let sizes: Vec<usize> = parts.iter().map(|(_, shape)| shape[0]).collect();
            let pieces = tensor.split_sizes(&sizes, 0);
            tensors.extend(parts.into_iter().map(|(name, _)| name).zip(pieces));
        }
        let (config, table) = (config_for(self.config(), family), table(self, family));
        let max_file_bytes = 5 << 30; // as `transformers` does
        Export { config: &config, table: &table, tensors: &tensors, tokenizer, max_file_bytes }.write(folder)
    }
}

/// What `transformers` calls this model.
fn family(config: &GptConfig) -> Result<Family> {
    use {MlpKind::*, NormKind::*, PositionKind::*};
    match (config.norm, config.position, config.mlp, config.bias) {
        (Layer, Learned, Gelu, true) if config.kv_heads == config.heads && config.tied => Ok(Family::Gpt2),
        (Rms, Rope(_), Swiglu, false) => Ok(Family::Llama),
        _ => {
            let what = "this mixture of norms, places and layers is neither GPT-2 nor Llama, which are what there are names for";
            Err(Error::Config(what.into()))
        }
    }
}

/// Parameters that are several of theirs, one below the other: names and shapes of the parts.
fn split_names(gpt: &Gpt, family: Family) -> Vec<(String, Vec<(String, Vec<usize>)>)> {
    if family == Family::Gpt2 {
        return vec![];
    }
    let (config, head) = (gpt.config(), gpt.config().head_width());
    (0..config.layers)
        .map(|n| {
            let part = |name: &str, heads: usize| {
                (format!("blocks.{n}.attention.{name}.weight"), vec![heads * head, config.width])
            };
            let parts = vec![part("q", config.heads), part("k", config.kv_heads), part("v", config.kv_heads)];
            (format!("blocks.{n}.attention.qkv.weight"), parts)
        })
        .collect()
}

fn table(gpt: &Gpt, family: Family) -> Vec<Pair> {
    let config = gpt.config();
    let mut pairs = vec![];
    let mut add = |ours: String, theirs: String, transpose: bool| pairs.push(Pair::new(ours, theirs, transpose));
    match family {
        Family::Gpt2 => {
            add("tokens.weight".into(), "transformer.wte.weight".into(), false);
            add("places.weight".into(), "transformer.wpe.weight".into(), false);
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
                        add(
                            format!("blocks.{n}.{ours}.{part}"),
                            format!("transformer.h.{n}.{theirs}.{part}"),
                            transpose,
                        );
                    }
                }
            }
            for part in ["weight", "bias"] {
                add(format!("norm.{part}"), format!("transformer.ln_f.{part}"), false);
            }
        }
        Family::Llama => {
            add("tokens.weight".into(), "model.embed_tokens.weight".into(), false);
            for n in 0..config.layers {
                let layers = [
                    ("norm1", "input_layernorm"),
                    ("attention.q", "self_attn.q_proj"),
                    ("attention.k", "self_attn.k_proj"),
                    ("attention.v", "self_attn.v_proj"),
                    ("attention.out", "self_attn.o_proj"),
                    ("norm2", "post_attention_layernorm"),
                    ("mlp.up", "mlp.up_proj"),
                    ("mlp.gate", "mlp.gate_proj"),
                    ("mlp.down", "mlp.down_proj"),
                ];
                for (ours, theirs) in layers {
                    add(format!("blocks.{n}.{ours}.weight"), format!("model.layers.{n}.{theirs}.weight"), false);
                }
            }
            add("norm.weight".into(), "model.norm.weight".into(), false);
            if !config.tied {
                add("head.weight".into(), "lm_head.weight".into(), false);
            }
        }
    }
    pairs
}

/// What a `config.json` says of a model.
fn config_of(json: &Value) -> Result<GptConfig> {
    let kind = json["model_type"].as_str().unwrap_or("");
    let count = |name: &str| match json[name].as_u64().and_then(|n| usize::try_from(n).ok()) {
        Some(n) => Ok(n),
        None => Err(Error::Config(format!("config.json has no number '{name}', which a model of type '{kind}' needs"))),
    };
    let number = |value: &Value, otherwise: f64| value.as_f64().unwrap_or(otherwise);
    let text = |name: &str, wanted: &[&str]| match json[name].as_str() {
        Some(found) if !wanted.contains(&found) => {
            Err(Error::Config(format!("config.json has {name} '{found}'; known are {}", wanted.join(", "))))
        }
        _ => Ok(()),
    };
    let config = match kind {
        "gpt2" => {
            text("activation_function", &["gelu_new", "gelu_pytorch_tanh"])?;
            let config = GptConfig::gpt2(
                count("vocab_size")?,
                count("n_positions")?,
                count("n_layer")?,
                count("n_head")?,
                count("n_embd")?,
            );
            let hidden = json["n_inner"].as_u64().map_or(config.hidden, |n| n as usize);
            GptConfig { hidden, eps: number(&json["layer_norm_epsilon"], 1e-5), ..config }
        }
        "llama" => {
            text("hidden_act", &["silu"])?;
            let [layers, heads, width] =
                [count("num_hidden_layers")?, count("num_attention_heads")?, count("hidden_size")?];
            let config =
                GptConfig::llama(count("vocab_size")?, count("max_position_embeddings")?, layers, heads, width);
            let scaled = !json["rope_scaling"].is_null()
                || json["rope_parameters"]["rope_type"].as_str().is_some_and(|kind| kind != "default");
            let wide = json["head_dim"].as_u64().is_some_and(|n| heads > 0 && n as usize * heads != width);
            if scaled || wide || json["attention_bias"] == true || json["mlp_bias"] == true {
                let what = "config.json asks for scaled angles, biases or wide heads, which are not known here";
                return Err(Error::Config(what.into()));
            }
            let theta = json.get("rope_theta").unwrap_or(&json["rope_parameters"]["rope_theta"]);
            GptConfig {
                kv_heads: json["num_key_value_heads"].as_u64().map_or(heads, |n| n as usize),
                hidden: count("intermediate_size")?,
                position: PositionKind::Rope(number(theta, 10_000.0)),
                tied: json["tie_word_embeddings"].as_bool().unwrap_or(false),
                eps: number(&json["rms_norm_eps"], 1e-6),
                ..config
            }
        }
        other => {
            return Err(Error::Config(format!("config.json says model_type '{other}'; known are gpt2 and llama")));
        }
    };
    config.check()?;
    Ok(config)
}

/// The `config.json` of a model.
fn config_for(config: &GptConfig, family: Family) -> Value {
    let common = json!({"vocab_size": config.vocabulary, "tie_word_embeddings": config.tied, "dtype": "float32"});
    let mut of = match family {
        Family::Gpt2 => json!({
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
            "n_positions": config.context, "n_ctx": config.context, "n_embd": config.width, "n_layer": config.layers,
            "n_head": config.heads, "n_inner": config.hidden, "layer_norm_epsilon": config.eps,
            "resid_pdrop": config.dropout, "embd_pdrop": config.dropout, "attn_pdrop": 0.0,
        }),
        Family::Llama => {
            let base = if let PositionKind::Rope(base) = config.position { base } else { 10_000.0 };
            json!({
                "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
                "max_position_embeddings": config.context, "hidden_size": config.width,
                "intermediate_size": config.hidden, "num_hidden_layers": config.layers,
                "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads,
                "rms_norm_eps": config.eps, "rope_theta": base, "attention_bias": false, "mlp_bias": false,
            })
        }
    };
    if let (Value::Object(of), Value::Object(common)) = (&mut of, common) {
        of.extend(common);
    }
    of
}
