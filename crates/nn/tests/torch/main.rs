//! Comparison with PyTorch: logits, gradients, training losses and generation of small
//! `transformers` models. `scripts/gpt2_goldens.py` writes the goldens.

mod variants;

use std::path::{Path, PathBuf};

use bornite::{DType, Device, Tensor, trace};
use bornite_nn::checkpoint::{Tensors, safetensors::Safetensors};
use bornite_nn::model::Gpt;
use bornite_nn::optimizer::AdamW;
use bornite_nn::{Forward, Module, Params, Result};

const MODELS: [&str; 2] = ["gpt2", "llama"];
const STEPS: usize = 50;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

fn golden(name: &str, tensor: &str) -> Tensor {
    let mut file = Safetensors::open(folder(name).join("seen.safetensors")).unwrap();
    file.tensor(tensor, Device::cpu()).unwrap()
}

/// The batches: tokens, and those that follow.
fn batches(name: &str) -> Vec<[Tensor; 2]> {
    let all = golden(name, "tokens");
    (0..STEPS as isize)
        .map(|n| {
            let rows = all.slice(0, n..n + 1).squeeze(0).cast(DType::I64);
            [rows.slice(1, 0..32), rows.slice(1, 1..33)]
        })
        .collect()
}

fn import(folder: impl AsRef<Path>) -> Result<Gpt> {
    Gpt::import(&Params::new(Device::cpu(), 0), folder)
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max(..).item().unwrap()
}

#[test]
fn logits_are_the_same_before_and_after_an_export() {
    for name in MODELS {
        let [x, _] = &batches(name)[0];
        let expected = golden(name, "logits");
        let gpt = import(folder(name)).unwrap();
        let found = gpt.forward(x);
        assert!(largest_difference(&found, &expected) < 1e-4, "{name}");
        let out = std::env::temp_dir().join(format!("bornite-export-{name}-{}", std::process::id()));
        gpt.export(&out, None).unwrap();
        let again = import(&out).unwrap().forward(x);
        assert_eq!(again.to_vec::<f32>().unwrap(), found.to_vec::<f32>().unwrap(), "{name}");
        std::fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn first_gradients_are_the_same() {
    for name in MODELS {
        let gpt = import(folder(name)).unwrap();
        let [x, y] = &batches(name)[0];
        let parameters = gpt.parameters();
        let values: Vec<Tensor> = parameters.iter().map(|p| p.value()).collect();
        let gradients = gpt.loss(x, y).grad(&values.iter().collect::<Vec<_>>());
        let gradients: Tensors = parameters.iter().map(|p| p.name().to_owned()).zip(gradients).collect();
        // Written and read as a model, so that names and transposes are those of `transformers`.
        let out = std::env::temp_dir().join(format!("bornite-gradients-{name}-{}", std::process::id()));
        let other = Gpt::new(&Params::new(Device::cpu(), 0), gpt.config().clone()).unwrap();
        other.params().load_tensors(&gradients).unwrap();
        other.export(&out, None).unwrap();
        let mut file = Safetensors::open(out.join("model.safetensors")).unwrap();
        let names: Vec<String> = file.header().tensors.keys().cloned().collect();
        assert_eq!(names.len(), if name == "gpt2" { 28 } else { 21 }, "{names:?}");
        for key in names {
            let found = file.tensor(&key, Device::cpu()).unwrap();
            let expected = golden(name, &format!("gradient.{key}"));
            let off = (&found - &expected).norm(2.0, ..).item().unwrap() / expected.norm(2.0, ..).item().unwrap();
            assert!(off < 1e-4, "{name} {key}: {off:e}");
        }
        std::fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn fifty_steps_have_the_same_losses() {
    for name in MODELS {
        let text = std::fs::read_to_string(folder(name).join("losses.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let gpt = import(folder(name)).unwrap();
        let adam = AdamW::new(gpt.params()).lr(1e-3).betas(0.9, 0.95).weight_decay(0.1).clip_norm(1.0);
        let step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
        for (n, batch) in batches(name).into_iter().enumerate() {
            let result = step.call(&batch).unwrap().wait().unwrap();
            for (what, found) in [("losses", result.loss), ("norms", result.grad_norm)] {
                let expected = json[what][n].as_f64().unwrap();
                assert!((found - expected).abs() <= 1e-3 * expected, "{name} step {n}: {what} {found}, not {expected}");
            }
        }
    }
}

#[test]
fn greedy_decoding_gives_the_same_tokens() {
    for name in MODELS {
        let gpt = import(folder(name)).unwrap();
        let expected = golden(name, "greedy").to_vec::<i32>().unwrap();
        let caches = gpt.kv_caches(1, 224, DType::F32).unwrap();
        let step = trace(move |inputs| {
            let (logits, updates) = gpt.advance(&inputs[0], &inputs[1], &inputs[2], &caches);
            Ok((vec![logits.argmax(-1)], updates))
        });
        let scalar = |n: usize| Tensor::from_slice(&[n as i64], &[], Device::cpu());
        let start = batches(name)[0][0].slice(0, 0..1).slice(1, 0..8);
        start.realize().unwrap();
        let mut next = step.call(&[start, scalar(0), scalar(8)]).unwrap().remove(0);
        let mut found = vec![];
        for position in 8..8 + expected.len() {
            let token = next.to_vec::<i64>().unwrap()[0];
            found.push(token as i32);
            let token = Tensor::from_slice(&[token], &[1, 1], Device::cpu());
            next = step.call(&[token, scalar(position), scalar(1)]).unwrap().remove(0);
        }
        assert_eq!(found, expected, "{name}");
    }
}
