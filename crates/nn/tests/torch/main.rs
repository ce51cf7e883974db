//! Comparison with PyTorch: logits, gradients, training losses and generation of small
//! `transformers` models. `scripts/gpt2_goldens.py` writes the goldens.

mod variants;

use std::path::{Path, PathBuf};

use bornite::{Device, Tensor, trace};
use bornite_nn::checkpoint::{Tensors, safetensors::Safetensors};
use bornite_nn::model::Gpt;
use bornite_nn::optimizer::OptimizerKind;
use bornite_nn::train::{Learner, LearnerOptions, Precision};
use bornite_nn::{Context, Result};

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
fn batches(name: &str) -> Vec<(Tensor, Tensor)> {
    let all = golden(name, "tokens");
    (0..STEPS as isize)
        .map(|n| {
            let rows = all.slice(0, n..n + 1).squeeze(0).cast(bornite::DType::I64);
            (rows.slice(1, 0..32), rows.slice(1, 1..33))
        })
        .collect()
}

fn learner(name: &str) -> Result<Learner> {
    let (gpt, tensors) = Gpt::import(folder(name), Device::cpu())?;
    let arena = gpt.parameters().arena(0, Device::cpu())?;
    let named: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (&name[..], tensor)).collect();
    arena.load(&named)?;
    let optimizer = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 };
    let options = LearnerOptions {
        optimizer,
        weight_decay: 0.1,
        clip_norm: Some(1.0),
        precision: Precision::F32,
        accumulate: 1,
        seed: 0,
    };
    Learner::from_parameters(gpt, options, arena)
}

fn largest_difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max(..).item().unwrap()
}

#[test]
fn logits_are_the_same_before_and_after_an_export() {
    for name in MODELS {
        let (x, _) = &batches(name)[0];
        let expected = golden(name, "logits");
        let logits = |folder: &Path| -> (Gpt, Tensors, Tensor) {
            let (gpt, tensors) = Gpt::import(folder, Device::cpu()).unwrap();
            let values = gpt.parameters().iter().map(|p| tensors[&p.name].clone()).collect();
            let logits = gpt.logits(&Context::new(values), x);
            (gpt, tensors, logits)
        };
        let (gpt, tensors, found) = logits(&folder(name));
        assert!(largest_difference(&found, &expected) < 1e-4, "{name}");
        let out = std::env::temp_dir().join(format!("bornite-export-{name}-{}", std::process::id()));
        gpt.export(&out, &tensors, None).unwrap();
        let (.., again) = logits(&out);
        assert_eq!(again.to_vec::<f32>().unwrap(), found.to_vec::<f32>().unwrap(), "{name}");
        std::fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn first_gradients_are_the_same() {
    for name in MODELS {
        let learner = learner(name).unwrap();
        let (x, y) = &batches(name)[0];
        let parameters = learner.parameters().tensors();
        let loss = learner.gpt().loss(&Context::new(parameters.clone()), x, y);
        let gradients: Tensors = (learner.gpt().parameters().iter())
            .map(|p| p.name.clone())
            .zip(loss.grad(&parameters.iter().collect::<Vec<_>>()))
            .collect();
        // Written and read as a model, so that names and transposes are those of `transformers`.
        let out = std::env::temp_dir().join(format!("bornite-gradients-{name}-{}", std::process::id()));
        learner.gpt().export(&out, &gradients, None).unwrap();
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
        let mut learner = learner(name).unwrap();
        for (n, batch) in batches(name).into_iter().enumerate() {
            let result = learner.step(&[batch], 1e-3).unwrap().wait().unwrap();
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
        let learner = learner(name).unwrap();
        let expected = golden(name, "greedy").to_vec::<i32>().unwrap();
        let caches = learner.kv_caches(224).unwrap();
        let (gpt, weights) = (learner.gpt().clone(), learner.weights().clone());
        let step = trace(move |inputs| {
            let (logits, updates) =
                gpt.advance(&Context::new(weights.tensors()), &inputs[0], &inputs[1], &inputs[2], &caches);
            Ok((vec![logits.argmax(-1)], updates))
        });
        let scalar = |n: usize| Tensor::from_slice(&[n as i64], &[], Device::cpu());
        let start = batches(name)[0].0.slice(0, 0..1).slice(1, 0..8);
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
