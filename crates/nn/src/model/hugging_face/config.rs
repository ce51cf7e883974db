//! Reads and writes `config.json` of GPT-2 and Llama.
//!
//! Every key is read, listed as not affecting the logits ([`IGNORED_KEYS`]), or rejected by name:
//! ignoring an unknown key could give a silently wrong model.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Family;
use crate::checkpoint::quoted;
use crate::model::config::{GptConfig, MlpKind, PositionKind, RopeScaling};
use crate::{Error, Result};

/// Keys that do not change the logits: provenance, labels, dropout, initialization, caching,
/// generation and the heads of other tasks. `reorder_and_upcast_attn`, `pretraining_tp` and
/// `chunk_size_feed_forward` change the order of the arithmetic only.
const IGNORED_KEYS: &str = "\
    _attn_implementation _attn_implementation_autoset _commit_hash _from_model_config _name_or_path architectures \
    attention_dropout attn_implementation attn_pdrop bad_words_ids begin_suppress_tokens chunk_size_feed_forward \
    cls_token_id decoder_start_token_id diversity_penalty do_sample dtype early_stopping embd_pdrop \
    encoder_no_repeat_ngram_size exponential_decay_length_penalty finetuning_task forced_bos_token_id \
    forced_eos_token_id gradient_checkpointing id2label initializer_range is_decoder label2id length_penalty \
    max_length min_length n_ctx n_special no_repeat_ngram_size num_beam_groups num_beams num_labels \
    num_return_sequences output_attentions output_hidden_states output_past output_scores pad_token_id \
    predict_special_tokens prefix pretraining_tp problem_type remove_invalid_values reorder_and_upcast_attn \
    repetition_penalty resid_pdrop return_dict return_dict_in_generate sep_token_id summary_activation \
    summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens task_specific_params \
    temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript \
    transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 use_cache";

/// Keys of which only these values are supported, with the reason.
const RESTRICTED_KEYS: &[(&str, &[&str], &str)] = &[
    ("add_cross_attention", &["false"], "cross-attention is not supported"),
    ("is_encoder_decoder", &["false"], "encoder-decoder models are not supported"),
    ("partial_rotary_factor", &["1", "1.0"], "rotary embeddings of a part of the head are not supported"),
    ("pruned_heads", &["{}", "[]"], "pruned heads are not supported"),
    ("quantization_config", &[], "quantized weights are not supported"),
    ("auto_map", &[], "custom model code is not supported"),
];

/// A JSON object whose entries are removed as they are read.
struct Fields {
    remaining: Map<String, Value>,
    /// Name of the object in messages.
    name: &'static str,
}

impl Fields {
    fn new(value: &Value, name: &'static str) -> Result<Fields> {
        match value {
            Value::Object(fields) => Ok(Fields { remaining: fields.clone(), name }),
            other => Err(Error::config(format!("{name} is {}; expected an object", brief(other)))),
        }
    }

    /// Removes and returns the value of a key; `None` if it is missing or null. `expected`
    /// describes its type.
    fn take<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Result<Option<T>> {
        match self.remaining.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match T::deserialize(&value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(self.unexpected(key, &value, &format!("expected {expected}"))),
            },
        }
    }

    fn count(&mut self, key: &str) -> Result<Option<usize>> {
        self.take(key, "an integer, 0 or more")
    }

    fn required(&mut self, key: &str) -> Result<usize> {
        let missing = Error::config(format!("{} has no '{key}'; expected an integer", self.name));
        self.count(key)?.ok_or(missing)
    }

    fn number(&mut self, key: &str) -> Result<Option<f64>> {
        self.take(key, "a number")
    }

    fn flag(&mut self, key: &str, default: bool) -> Result<bool> {
        Ok(self.take(key, "true or false")?.unwrap_or(default))
    }

    fn text(&mut self, key: &str) -> Result<Option<String>> {
        self.take(key, "text")
    }

    fn unexpected(&self, key: &str, value: &Value, why: &str) -> Error {
        Error::config(format!("{} has {key} {}; {why}", self.name, brief(value)))
    }

    /// Rejects keys that were not read and are not in `ignored`.
    fn finish(mut self, ignored: &str) -> Result<()> {
        for (key, values, why) in RESTRICTED_KEYS {
            if let Some(value) = self.remaining.remove(*key).filter(|value| !value.is_null())
                && !values.contains(&&value.to_string()[..])
            {
                return Err(self.unexpected(key, &value, why));
            }
        }
        let known = |key: &str| ignored.split_whitespace().any(|known| known == key);
        let unknown = |(key, value): &(&String, &Value)| !value.is_null() && !known(key);
        match self.remaining.iter().find(unknown) {
            None => Ok(()),
            Some((key, value)) => {
                let why = "this key is not supported; remove it from the file if it does not change the logits";
                Err(self.unexpected(&quoted(key), value, why))
            }
        }
    }
}

/// Formats a value for a message, at most 120 characters.
fn brief(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => other.to_string().chars().take(120).collect(),
    }
}

/// Reads the model that a `config.json` describes.
pub(super) fn read(json: &Value) -> Result<(GptConfig, Family)> {
    let mut fields = Fields::new(json, "config.json")?;
    let kind = fields.text("model_type")?.unwrap_or_default();
    let (mut config, family) = match &kind[..] {
        "gpt2" => (gpt2(&mut fields)?, Family::Gpt2),
        "llama" => (llama(&mut fields)?, Family::Llama),
        other => {
            let what = format!("config.json has model_type {}; expected gpt2 or llama", quoted(other));
            return Err(Error::config(what));
        }
    };
    read_ids(&mut fields, &mut config)?;
    fields.finish(IGNORED_KEYS)?;
    config.check().map_err(|error| Error::config(format!("config.json: {error}")))?;
    Ok((config, family))
}

/// Reads the begin- and end-of-text tokens from `config.json` or `generation_config.json`. An id
/// outside the vocabulary is an unset default and is ignored.
fn read_ids(fields: &mut Fields, config: &mut GptConfig) -> Result<()> {
    let known = |id: &u32| (*id as usize) < config.vocabulary;
    let bos: Option<u32> = fields.take("bos_token_id", "a token id")?;
    let eos: Option<Value> = fields.take("eos_token_id", "a token id or a list of them")?;
    if let Some(bos) = bos.filter(known) {
        config.bos = Some(bos);
    }
    if let Some(eos) = eos {
        let list = if eos.is_array() { eos.clone() } else { Value::Array(vec![eos.clone()]) };
        let Ok(ids) = serde_json::from_value::<Vec<u32>>(list) else {
            return Err(fields.unexpected("eos_token_id", &eos, "expected a token id or a list of them"));
        };
        config.eos = ids.into_iter().filter(known).collect();
    }
    Ok(())
}

/// Reads the begin- and end-of-text tokens of `generation_config.json`, which override those of
/// `config.json`.
pub(super) fn read_generation(json: &Value, config: &mut GptConfig) -> Result<()> {
    read_ids(&mut Fields::new(json, "generation_config.json")?, config)
}

fn gpt2(fields: &mut Fields) -> Result<GptConfig> {
    let mlp = match fields.text("activation_function")?.as_deref() {
        None | Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => MlpKind::Gelu,
        Some("gelu" | "gelu_python") => MlpKind::GeluErf,
        Some(other) => {
            let why = "expected gelu_new, gelu_fast, gelu_pytorch_tanh or gelu";
            return Err(fields.unexpected("activation_function", &other.into(), why));
        }
    };
    let sizes = ["vocab_size", "n_positions", "n_layer", "n_head", "n_embd"];
    let [vocabulary, context, layers, heads, width] = required(fields, sizes)?;
    Ok(GptConfig {
        mlp,
        mlp_hidden: fields.count("n_inner")?.unwrap_or(width.saturating_mul(4)),
        eps: fields.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        tied_embeddings: fields.flag("tie_word_embeddings", true)?,
        scale_attention: fields.flag("scale_attn_weights", true)?,
        scale_attention_by_layer: fields.flag("scale_attn_by_inverse_layer_idx", false)?,
        ..GptConfig::gpt2(vocabulary, context, layers, heads, width)
    })
}

fn llama(fields: &mut Fields) -> Result<GptConfig> {
    if let Some(other) = fields.text("hidden_act")?.filter(|name| !matches!(&name[..], "silu" | "swish")) {
        return Err(fields.unexpected("hidden_act", &other.into(), "expected silu"));
    }
    let sizes = [
        "vocab_size",
        "max_position_embeddings",
        "num_hidden_layers",
        "num_attention_heads",
        "hidden_size",
        "intermediate_size",
    ];
    let [vocabulary, context, layers, heads, width, mlp_hidden] = required(fields, sizes)?;
    let (base, rope_scaling) = rope(fields, context)?;
    let bias = fields.flag("mlp_bias", false)?;
    let (attention_bias, head_width) = (fields.flag("attention_bias", false)?, fields.count("head_dim")?);
    Ok(GptConfig {
        kv_heads: fields.count("num_key_value_heads")?.unwrap_or(heads),
        mlp_hidden,
        position: PositionKind::Rope(base),
        rope_scaling,
        bias,
        attention_bias: Some(attention_bias).filter(|attention| *attention != bias),
        head_width: head_width.filter(|head| head.checked_mul(heads) != Some(width)),
        tied_embeddings: fields.flag("tie_word_embeddings", false)?,
        eps: fields.number("rms_norm_eps")?.unwrap_or(1e-6),
        ..GptConfig::llama(vocabulary, context, layers, heads, width)
    })
}

fn required<const N: usize>(fields: &mut Fields, keys: [&str; N]) -> Result<[usize; N]> {
    let mut values = [0; N];
    for (value, key) in values.iter_mut().zip(keys) {
        *value = fields.required(key)?;
    }
    Ok(values)
}

/// Reads base and scaling of the rotary embeddings. As in `transformers`, `rope_scaling` overrides
/// `rope_parameters`, and a base in either of them overrides the top-level `rope_theta`.
fn rope(fields: &mut Fields, context: usize) -> Result<(f64, Option<RopeScaling>)> {
    let outer = fields.number("rope_theta")?;
    let [scaling, parameters] = ["rope_scaling", "rope_parameters"].map(|key| fields.remaining.remove(key));
    let set = |value: &Value| !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty());
    let found = scaling.filter(set).map(|value| (value, "rope_scaling of config.json"));
    let found = found.or(parameters.filter(set).map(|value| (value, "rope_parameters of config.json")));
    let Some((value, name)) = found else { return Ok((outer.unwrap_or(10_000.0), None)) };
    let mut inner = Fields::new(&value, name)?;
    let base = inner.number("rope_theta")?.or(outer).unwrap_or(10_000.0);
    let old = inner.text("type")?;
    let kind = inner.text("rope_type")?.or(old).unwrap_or("default".into());
    let scaling = match &kind[..] {
        "default" => None,
        "llama3" => {
            let mut factor = |key: &str| {
                let missing = Error::config(format!("{name} has no '{key}', which type llama3 needs"));
                inner.number(key)?.ok_or(missing)
            };
            Some(RopeScaling {
                factor: factor("factor")?,
                low_freq_factor: factor("low_freq_factor")?,
                high_freq_factor: factor("high_freq_factor")?,
                original_context: inner.count("original_max_position_embeddings")?.unwrap_or(context),
            })
        }
        other => {
            return Err(Error::config(format!(
                "config.json has RoPE scaling of type {}; expected default or llama3",
                quoted(other)
            )));
        }
    };
    // Without scaling these have no effect.
    inner.finish("factor low_freq_factor high_freq_factor original_max_position_embeddings")?;
    Ok((base, scaling))
}

/// Returns the `config.json` of a model; [`read`] returns the same model.
pub(super) fn write(config: &GptConfig, family: Family, [bos, eos]: [Value; 2]) -> Value {
    let common = json!({
        "vocab_size": config.vocabulary, "tie_word_embeddings": config.tied_embeddings, "dtype": "float32", "bos_token_id": bos,
        "eos_token_id": eos,
    });
    let mut json = match family {
        Family::Gpt2 => json!({
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
            "activation_function": if config.mlp == MlpKind::GeluErf { "gelu" } else { "gelu_new" },
            "n_positions": config.context, "n_ctx": config.context, "n_embd": config.width, "n_layer": config.layers,
            "n_head": config.heads, "n_inner": config.mlp_hidden, "layer_norm_epsilon": config.eps,
            "scale_attn_weights": config.scale_attention, "scale_attn_by_inverse_layer_idx": config.scale_attention_by_layer,
            "resid_pdrop": config.dropout, "embd_pdrop": config.dropout, "attn_pdrop": 0.0,
        }),
        Family::Llama => {
            let base = if let PositionKind::Rope(base) = config.position { base } else { 10_000.0 };
            let scaling = config.rope_scaling.map(|scaling| {
                json!({
                    "rope_type": "llama3", "factor": scaling.factor, "low_freq_factor": scaling.low_freq_factor,
                    "high_freq_factor": scaling.high_freq_factor,
                    "original_max_position_embeddings": scaling.original_context,
                })
            });
            json!({
                "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
                "max_position_embeddings": config.context, "hidden_size": config.width,
                "intermediate_size": config.mlp_hidden, "num_hidden_layers": config.layers,
                "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads,
                "head_dim": config.head_width(), "rms_norm_eps": config.eps, "rope_theta": base,
                "rope_scaling": scaling, "attention_bias": config.attention_bias(), "mlp_bias": config.bias,
            })
        }
    };
    if let (Value::Object(json), Value::Object(common)) = (&mut json, common) {
        json.extend(common);
    }
    json
}
