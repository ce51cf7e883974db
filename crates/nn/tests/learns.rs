//! Every optimizer lowers the loss of a small GPT, Llama models learn, and activation checkpointing
//! and key/value caches give the same results.

use bornite::{DType, Device, Tensor, trace};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::{AnyOptimizer, OptimizerKind};
use bornite_nn::{Forward, Params, Result};

/// A text with an irregular period.
fn tokens(batch: usize, count: usize, device: Device) -> (Tensor, Tensor) {
    let all: Vec<i64> = (0..batch * (count + 1)).map(|n| (n * n % 17 + n % 5) as i64).collect();
    let rows =
        |from: usize| -> Vec<i64> { all.chunks(count + 1).flat_map(|row| row[from..from + count].to_vec()).collect() };
    let tensor = |data: Vec<i64>| Tensor::from_slice(&data, &[batch, count], device);
    (tensor(rows(0)), tensor(rows(1)))
}

fn losses(config: GptConfig, kind: OptimizerKind, lr: f64, steps: u64, checkpointing: bool) -> Result<Vec<f64>> {
    let device = Device::cpu();
    let params = Params::new(device, 3);
    let gpt = Gpt::new(&params, config)?.activation_checkpointing(checkpointing);
    let optimizer = AnyOptimizer::of_kind(&params, kind).lr(lr).weight_decay(0.01).clip_norm(1.0);
    let step = optimizer.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
    let (x, y) = tokens(4, 24, device);
    (0..steps).map(|_| step.call(&[x.clone(), y.clone()])?.loss()).collect()
}

fn small() -> GptConfig {
    GptConfig::gpt2(32, 24, 2, 2, 32)
}

#[test]
fn every_optimizer_lowers_the_loss() {
    let adam = (0.9, 0.99, 1e-8);
    let optimizers = [
        (OptimizerKind::AdamW { beta1: adam.0, beta2: adam.1, eps: adam.2 }, 3e-3),
        (OptimizerKind::Adam { beta1: adam.0, beta2: adam.1, eps: adam.2 }, 3e-3),
        (OptimizerKind::Sgd { momentum: 0.0, nesterov: false }, 0.5),
        (OptimizerKind::Sgd { momentum: 0.9, nesterov: true }, 0.1),
        (OptimizerKind::RmsProp { alpha: 0.99, eps: 1e-8 }, 1e-3),
        (OptimizerKind::Adagrad { eps: 1e-8 }, 2e-2),
        (OptimizerKind::Muon { momentum: 0.95, beta1: adam.0, beta2: adam.1, eps: adam.2 }, 3e-3),
    ];
    for (kind, lr) in optimizers {
        let losses = losses(small(), kind, lr, 40, false).unwrap();
        assert!((losses[0] - 32f64.ln()).abs() < 0.2, "{kind:?} starts at {}", losses[0]);
        assert!(losses[39] < losses[0] - 0.4, "{kind:?}: {} to {}", losses[0], losses[39]);
    }
}

#[test]
fn llama_learns_and_activation_checkpointing_gives_the_same_losses() {
    let llama = GptConfig { dropout: 0.1, ..GptConfig::llama(32, 24, 2, 4, 32) };
    let with_dropout = losses(llama.clone(), OptimizerKind::ADAMW, 3e-3, 30, false).unwrap();
    assert!(with_dropout[29] < with_dropout[0] - 0.5, "{} to {}", with_dropout[0], with_dropout[29]);
    let recomputed = losses(GptConfig { dropout: 0.0, ..llama.clone() }, OptimizerKind::ADAMW, 3e-3, 10, true).unwrap();
    let stored = losses(GptConfig { dropout: 0.0, ..llama }, OptimizerKind::ADAMW, 3e-3, 10, false).unwrap();
    for (a, b) in recomputed.iter().zip(&stored) {
        assert!((a - b).abs() < 1e-5 * b, "{a} recomputed, {b} stored");
    }
}

#[test]
fn decoding_with_kv_caches_matches_the_full_forward_pass() {
    let device = Device::cpu();
    for config in [small(), GptConfig::llama(32, 24, 2, 4, 32)] {
        let gpt = Gpt::new(&Params::new(device, 5), config).unwrap();
        let (x, _) = tokens(1, 24, device);
        let full = gpt.forward(&x).to_vec::<f32>().unwrap();
        let caches = gpt.kv_caches(1, 24, DType::F32).unwrap();
        let step = trace(|inputs| {
            let (logits, updates) = gpt.advance(&inputs[0], &inputs[1], &inputs[2], &caches);
            Ok((vec![logits], updates))
        });
        let text = x.to_vec::<i64>().unwrap();
        // 7 tokens, of which 2 are padding, then one by one.
        let scalar = |n: i64| Tensor::from_slice(&[n], &[], device);
        let first = Tensor::from_slice(&text[..7], &[1, 7], device);
        let mut found = vec![step.call(&[first, scalar(0), scalar(5)]).unwrap().remove(0).to_vec::<f32>().unwrap()];
        for position in 5..24 {
            let token = Tensor::from_slice(&text[position..position + 1], &[1, 1], device);
            let logits = step.call(&[token, scalar(position as i64), scalar(1)]).unwrap().remove(0);
            found.push(logits.to_vec::<f32>().unwrap());
        }
        for (n, found) in found.iter().enumerate() {
            let expected = &full[(n + 4) * 32..(n + 5) * 32];
            let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-4, "token {} is off by {off}", n + 4);
        }
    }
}
