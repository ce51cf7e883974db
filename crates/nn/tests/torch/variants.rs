//! Options of `config.json` that change what a model computes: the same as PyTorch, and the same
//! again after an export. The goldens are of `scripts/variant_goldens.py`.

use std::path::{Path, PathBuf};

use bornite::{DType, Device, Tensor, trace};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::tokenizer::Tokenizer;
use bornite_nn::{Forward, Module, Params};
use serde_json::{Value, json};

use crate::{folder, import};

const VARIANTS: [&str; 10] = [
    "gpt2-layer-scaled",
    "gpt2-unscaled",
    "gpt2-layer-scaled-only",
    "gpt2-gelu",
    "gpt2-untied",
    "llama-rope",
    "llama-head-dim",
    "llama-attention-bias",
    "llama-mlp-bias",
    "llama-all",
];
const TOKENS: usize = 40;

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A folder for a test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("bornite-variants-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    /// A copy of a golden folder with some keys of its `config.json` set, or removed where the
    /// value is null.
    fn edited(&self, golden: &str, edits: &Value) -> PathBuf {
        let from = folder(golden);
        let mut config = read(from.join("config.json"));
        for (key, value) in edits.as_object().unwrap() {
            config[key] = value.clone();
        }
        std::fs::write(self.0.join("config.json"), config.to_string()).unwrap();
        std::fs::copy(from.join("model.safetensors"), self.0.join("model.safetensors")).unwrap();
        self.0.clone()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn values(gpt: &Gpt) -> Vec<Tensor> {
    gpt.parameters().iter().map(|p| p.value()).collect()
}

/// Loss, norm of the gradient and last logits of the text that the goldens were made with.
fn measure(gpt: &Gpt) -> (f64, f64, Vec<f32>) {
    let text: Vec<i64> = (0..=TOKENS as i64).map(|n| (7 * n * n + 3 * n) % 24).collect();
    let row = |from: usize| Tensor::from_slice(&text[from..from + TOKENS], &[1, TOKENS], Device::cpu());
    let parameters = values(gpt);
    let loss = gpt.loss(&row(0), &row(1));
    let squares = loss.grad(&parameters.iter().collect::<Vec<_>>()).into_iter().map(|g| g.square().sum(..));
    let norm: f64 = squares.map(|sum| sum.item().unwrap()).sum::<f64>().sqrt();
    let logits = gpt.forward(&row(0)).to_vec::<f32>().unwrap();
    (loss.item().unwrap(), norm, logits[logits.len() - 24..].to_vec())
}

/// The last logits again, token by token through the cache.
fn last_cached(gpt: &Gpt) -> Vec<f32> {
    let caches = gpt.kv_caches(1, TOKENS, DType::F32).unwrap();
    let step = trace(|inputs| {
        let (logits, updates) = gpt.advance(&inputs[0], &inputs[1], &inputs[2], &caches);
        Ok((vec![logits], updates))
    });
    let number = |n: i64, shape: &[usize]| Tensor::from_slice(&[n], shape, Device::cpu());
    let mut last = vec![];
    for n in 0..TOKENS as i64 {
        let inputs = [number((7 * n * n + 3 * n) % 24, &[1, 1]), number(n, &[]), number(1, &[])];
        last = step.call(&inputs).unwrap()[0].to_vec().unwrap();
    }
    last
}

#[test]
fn options_match_transformers_before_and_after_an_export() {
    for name in VARIANTS {
        let from = folder("variants").join(name);
        let expected = read(from.join("expected.json"));
        let gpt = import(&from).unwrap();
        let (loss, norm, logits) = measure(&gpt);
        for (what, found) in [("loss", loss), ("gradient_norm", norm)] {
            let expected = expected[what].as_f64().unwrap();
            assert!((found - expected).abs() < 1e-5 * expected, "{name}: {what} is {found}, not {expected}");
        }
        for (n, (found, cached)) in logits.iter().zip(last_cached(&gpt)).enumerate() {
            let expected = expected["logits"][n].as_f64().unwrap() as f32;
            assert!((found - expected).abs() < 2e-5, "{name}: logit {n} is {found}, not {expected}");
            assert!((cached - expected).abs() < 2e-5, "{name}: logit {n} of the cache is {cached}, not {expected}");
        }
        let scratch = Scratch::new(name);
        let out = scratch.0.join("model");
        gpt.export(&out, None).unwrap();
        let again = import(&out).unwrap();
        assert_eq!(again.config(), gpt.config(), "{name}");
        assert_eq!(measure(&again), (loss, norm, logits), "{name}");
        let text = serde_json::to_string(gpt.config()).unwrap();
        assert_eq!(&serde_json::from_str::<GptConfig>(&text).unwrap(), gpt.config(), "{name}: as a run saves it");
    }
}

/// Each option alone changes the loss: a key that is ignored would pass the test above otherwise.
#[test]
fn every_option_changes_the_loss() {
    let edits = [
        ("gpt2-layer-scaled", json!({"scale_attn_by_inverse_layer_idx": false})),
        ("gpt2-unscaled", json!({"scale_attn_weights": true})),
        ("gpt2-gelu", json!({"activation_function": "gelu_new"})),
        ("llama-rope", json!({"rope_parameters": {"rope_theta": 500.0}})),
        ("llama-rope", json!({"rope_parameters": {"rope_type": "default"}, "rope_theta": 500.0})),
    ];
    for (name, edit) in edits {
        let scratch = Scratch::new("matters");
        let golden = format!("variants/{name}");
        let gpt = import(scratch.edited(&golden, &edit)).unwrap();
        let expected = read(folder(&golden).join("expected.json"))["loss"].as_f64().unwrap();
        let (loss, ..) = measure(&gpt);
        assert!((loss - expected).abs() > 1e-4, "{name}: {edit} makes no difference");
    }
    // Written as releases before transformers 5 did, it is the same model.
    let llama3 = json!({
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    });
    let scratch = Scratch::new("legacy");
    let new = import(folder("variants/llama-rope")).unwrap();
    let old = json!({"rope_parameters": null, "rope_theta": 500.0, "rope_scaling": llama3});
    let old = import(scratch.edited("variants/llama-rope", &old)).unwrap();
    assert_eq!(old.config(), new.config());
}

#[test]
fn config_keys_are_used_ignored_or_rejected_by_name() {
    let ignored = json!({
        "_name_or_path": "x", "torch_dtype": "bfloat16", "dtype": "float16", "transformers_version": "9.0",
        "use_cache": false, "task_specific_params": {"text-generation": {"max_length": 50}}, "summary_type": "mean",
        "architectures": ["Other"], "pretraining_tp": 4, "attention_dropout": 0.1, "resid_pdrop": 0.1, "n_ctx": 9,
        "reorder_and_upcast_attn": true, "id2label": {"0": "a"}, "add_cross_attention": false, "unknown_and_unset": null,
        "quantization_config": null, "pruned_heads": {},
    });
    let rejected = [
        ("gpt2", json!({"layer_scale": 0.5}), "config.json has 'layer_scale' 0.5; this key is not supported"),
        ("llama", json!({"qk_norm": false}), "config.json has 'qk_norm' false; this key is not supported"),
        ("gpt2", json!({"rope_scaling": {"factor": 2.0}}), "'rope_scaling'"),
        ("gpt2", json!({"activation_function": "relu"}), "has activation_function 'relu'; expected gelu_new"),
        ("gpt2", json!({"scale_attn_weights": "no"}), "has scale_attn_weights 'no'; expected true or false"),
        ("gpt2", json!({"n_inner": "wide"}), "has n_inner 'wide'; expected an integer"),
        ("gpt2", json!({"n_layer": 2.5}), "has n_layer 2.5; expected an integer"),
        ("gpt2", json!({"n_layer": null}), "config.json has no 'n_layer'"),
        ("gpt2", json!({"layer_norm_epsilon": -1.0}), "config.json: model.eps is -1"),
        ("gpt2", json!({"add_cross_attention": true}), "cross-attention is not supported"),
        ("gpt2", json!({"eos_token_id": "end"}), "has eos_token_id 'end'; expected a token id"),
        ("gpt2", json!({"model_type": "gpt_neo"}), "has model_type 'gpt_neo'; expected gpt2 or llama"),
        ("llama", json!({"hidden_act": "gelu"}), "has hidden_act 'gelu'; expected silu"),
        ("llama", json!({"quantization_config": {"bits": 4}}), "quantized weights are not supported"),
        ("llama", json!({"auto_map": {"AutoModel": "x.Y"}}), "custom model code is not supported"),
        ("llama", json!({"partial_rotary_factor": 0.5}), "rotary embeddings of a part of the head are not supported"),
        (
            "llama",
            json!({"rope_scaling": {"type": "yarn", "factor": 2.0}}),
            "RoPE scaling of type 'yarn'; expected default or llama3",
        ),
        (
            "llama",
            json!({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}),
            "no 'low_freq_factor', which type llama3",
        ),
        (
            "llama",
            json!({"rope_parameters": {"rope_type": "default", "mscale": 2.0}}),
            "rope_parameters of config.json has 'mscale' 2.0; this key is not supported",
        ),
        ("llama", json!({"rope_scaling": 7}), "rope_scaling of config.json is 7; expected an object"),
        ("llama", json!({"head_dim": 5}), "model.head_width is 5; rotary embeddings need an even width"),
        ("llama", json!({"attention_bias": true}), "lacks 'model.layers.0.self_attn.k_proj.bias'"),
        ("llama", json!({"head_dim": 6}), "has shape [32, 32]"),
    ];
    for name in ["gpt2", "llama"] {
        let scratch = Scratch::new("harmless");
        let gpt = import(scratch.edited(name, &ignored)).unwrap();
        let plain = import(folder(name)).unwrap();
        assert_eq!(gpt.config(), plain.config(), "{name}");
    }
    for (name, edit, said) in rejected {
        let scratch = Scratch::new("refused");
        let error = import(scratch.edited(name, &edit)).map(drop).expect_err(said).kind().to_string();
        assert!(error.contains(said) && error.lines().count() == 1, "{edit}: {error}");
    }
}

/// Checkpoints of the base model, such as GPT-2's on the Hub, have no prefix before the names.
#[test]
fn names_without_a_prefix_are_read() {
    for (name, prefix) in [("gpt2", "transformer."), ("variants/llama-attention-bias", "model.")] {
        let scratch = Scratch::new("bare");
        let path = scratch.edited(name, &json!({})).join("model.safetensors");
        let mut file = bornite_nn::checkpoint::safetensors::Safetensors::open(&path).unwrap();
        let bare = |name: String| name.strip_prefix(prefix).map_or(name.clone(), String::from);
        let tensors = file.tensors(Device::cpu()).unwrap().into_iter().map(|(name, tensor)| (bare(name), tensor));
        bornite_nn::checkpoint::safetensors::write_file(&path, &tensors.collect(), &Default::default()).unwrap();
        let (read, expected) = (import(&scratch.0).unwrap(), import(folder(name)).unwrap());
        for (read, expected) in values(&read).iter().zip(values(&expected)) {
            assert_eq!(read.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap(), "{name}");
        }
    }
}

#[test]
fn exports_contain_the_end_of_text_tokens() {
    let export = |config: GptConfig, tokenizer: Option<&Tokenizer>| -> (Scratch, [Value; 2]) {
        let gpt = Gpt::new(&Params::new(Device::cpu(), 1), config).unwrap();
        let scratch = Scratch::new("ids");
        let out = scratch.0.join("model");
        gpt.export(&out, tokenizer).unwrap();
        let [config, generation] = ["config.json", "generation_config.json"].map(|name| read(out.join(name)));
        for key in ["bos_token_id", "eos_token_id"] {
            assert_eq!(config[key], generation[key], "{key}");
        }
        (scratch, [config["bos_token_id"].clone(), config["eos_token_id"].clone()])
    };
    let bytes = Tokenizer::bytes();
    for config in [GptConfig::gpt2(257, 16, 1, 2, 8), GptConfig::llama(257, 16, 1, 2, 8)] {
        let (scratch, ids) = export(config.clone(), Some(&bytes));
        assert_eq!(ids, [json!(256), json!(256)]);
        let expected = json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 16, "clean_up_tokenization_spaces": false,
            "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
        });
        assert_eq!(read(scratch.0.join("model/tokenizer_config.json")), expected);
        assert_eq!(std::fs::read_to_string(scratch.0.join("model/tokenizer.json")).unwrap(), bytes.to_json());
        // What the model was imported with comes back, with the end that our training marks texts
        // by.
        let (scratch, ids) = export(GptConfig { bos: Some(1), eos: vec![2, 256, 3], ..config.clone() }, Some(&bytes));
        assert_eq!(ids, [json!(1), json!([256, 2, 3])]);
        let again = import(scratch.0.join("model")).unwrap();
        assert_eq!((again.config().bos, &again.config().eos[..]), (Some(1), &[256, 2, 3][..]));
        assert_eq!(export(config, None).1, [Value::Null, Value::Null]);
    }
    // Of a folder of transformers; generation_config.json wins, and ids that no row stands for are
    // nobody's.
    let gpt = import(folder("variants/llama-all")).unwrap();
    assert_eq!((gpt.config().bos, &gpt.config().eos[..]), (Some(0), &[22, 23][..]));
    let scratch = Scratch::new("generation");
    let from = scratch.edited("variants/llama-all", &json!({"bos_token_id": 128_000}));
    std::fs::write(from.join("generation_config.json"), r#"{"eos_token_id": [7, 128001], "top_p": 0.9}"#).unwrap();
    let gpt = import(&from).unwrap();
    assert_eq!((gpt.config().bos, &gpt.config().eos[..]), (None, &[7][..]));
}

/// A configuration alone makes nothing large: neither time nor memory is spent before weights are
/// compared with it.
#[test]
fn sizes_that_do_not_match_the_weights_are_rejected() {
    let keys = [
        ("gpt2", &["n_layer", "n_positions", "n_embd", "n_head", "vocab_size", "n_inner"][..]),
        (
            "llama",
            &[
                "num_hidden_layers",
                "hidden_size",
                "num_attention_heads",
                "num_key_value_heads",
                "vocab_size",
                "head_dim",
            ],
        ),
        ("llama", &["intermediate_size"]),
    ];
    for (name, key) in keys.iter().flat_map(|(name, keys)| keys.iter().map(move |key| (*name, *key))) {
        for size in [0, 3, 1_000_000, 1_000_000_000, i64::MAX as u64, u64::MAX] {
            let scratch = Scratch::new("sizes");
            let before = std::time::Instant::now();
            let error = import(scratch.edited(name, &json!({key: size}))).err();
            let error = error.unwrap_or_else(|| panic!("{key} {size} was accepted")).to_string();
            assert!(error.len() < 2000 && before.elapsed().as_secs() < 5, "{key} {size}: {error}");
        }
    }
    let layers = |layers: u64| {
        let scratch = Scratch::new("layers");
        import(scratch.edited("gpt2", &json!({"n_layer": layers}))).err().unwrap().kind().to_string()
    };
    assert_eq!(layers(9_999), "config.json describes 9999 layers, but the weights have 2; use matching files");
    assert_eq!(layers(1_000_000_000), "config.json: model.layers is 1000000000; at most 10000 are supported");
    // No weight has the length of the context of rotary positions: it is bounded where memory is
    // taken for it.
    let scratch = Scratch::new("context");
    let edit = json!({"max_position_embeddings": i32::MAX});
    let gpt = import(scratch.edited("llama", &edit)).unwrap();
    assert_eq!(
        measure_length(&gpt, usize::MAX).unwrap_err().split(" needs ").next().unwrap(),
        "a key/value cache of 1 × 2147483647 tokens"
    );
    measure_length(&gpt, 64).unwrap();
}

fn measure_length(gpt: &Gpt, length: usize) -> Result<(), String> {
    use bornite_nn::generate::TextGenerator;
    TextGenerator::new(gpt, bornite_nn::train::Precision::F32, length).map(drop).map_err(|error| error.to_string())
}

/// A file of the size of a few weights cannot ask for much: JSON of numbers takes some thirty times
/// its size in memory.
#[test]
fn long_files_are_rejected() {
    let scratch = Scratch::new("long");
    let from = scratch.edited("gpt2", &json!({}));
    let long = format!("[{}0]", "0,".repeat(1 << 20));
    for name in ["config.json", "generation_config.json"] {
        let path: &Path = &from.join(name);
        let before = std::fs::read(path).unwrap_or(b"{}".to_vec());
        std::fs::write(path, &long).unwrap();
        let error = import(&from).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("at most 1048576 are supported"), "{error}");
        std::fs::write(path, before).unwrap();
    }
}
