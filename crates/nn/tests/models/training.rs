//! Training against PyTorch: losses of 30 steps. `scripts/layer_goldens.py` writes the expected
//! values.

use bornite_nn::prelude::*;

use crate::networks::{batches, below, expected_losses, goldens, models};

const CPU: Device = Device::Cpu(0);

#[test]
fn training_losses_match_pytorch() {
    let all = goldens("training.safetensors", CPU);
    let expected = expected_losses();
    for (name, model) in models() {
        let params = Params::new(CPU, 0);
        let model = model(&params);
        params.load_tensors(&below(&all, &format!("{name}/value/"))).unwrap();
        let adam = AdamW::new(&params).lr(5e-3).weight_decay(0.1).clip_norm(1.0);
        let step = adam.compile(|b: &[Tensor]| model.forward(&b[0]).cross_entropy(&b[1]));
        let batches = batches(&all, name);
        let losses: Vec<f64> = (0..30).map(|n| step.call(&batches[n % 5]).unwrap().loss().unwrap()).collect();
        assert_eq!(expected[name].len(), losses.len());
        for (n, (found, expected)) in losses.iter().zip(&expected[name]).enumerate() {
            assert!((found - expected).abs() < 1e-3, "{name}, step {n}: {found} and {expected}");
        }
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        assert!(mean(&losses[25..]) < mean(&losses[..5]) - 0.05, "{name}: {losses:?}");
    }
}
