//! Optimizers match PyTorch's; scripts/optimiser_goldens.py writes the expected values.

use bornite::{Device, Tensor, trace};
use bornite_nn::optimizer::{Optimizer, OptimizerKind};
use bornite_nn::{Init, Params};
use serde_json::Value;

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as f32).collect()
}

#[test]
fn optimizers_match_pytorch() {
    let goldens: Value = serde_json::from_str(include_str!("goldens/optimisers.json")).unwrap();
    let optimizers = [
        ("adamw", OptimizerKind::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 }),
        ("adam", OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 }),
        ("sgd", OptimizerKind::Sgd { momentum: 0.0, nesterov: false }),
        ("momentum", OptimizerKind::Sgd { momentum: 0.9, nesterov: false }),
        ("nesterov", OptimizerKind::Sgd { momentum: 0.9, nesterov: true }),
        ("rmsprop", OptimizerKind::RmsProp { alpha: 0.99, eps: 1e-8 }),
        ("adagrad", OptimizerKind::Adagrad { eps: 1e-10 }),
    ];
    assert_eq!(goldens["found"].as_object().unwrap().len(), optimizers.len());
    let (device, weight_decay, lr) =
        (Device::cpu(), goldens["decay"].as_f64().unwrap(), goldens["rate"].as_f64().unwrap());
    for (name, kind) in optimizers {
        let params = Params::new(device, 0);
        params.parameter("matrix", &[3, 4], Init::Zeros);
        params.parameter("vector", &[5], Init::Zeros);
        let parameters = params.list();
        let arena = parameters.arena(0, device).unwrap();
        let pair = |of: &Value| {
            let tensor = |n: usize, shape: &[usize]| Tensor::from_slice(&numbers(&of[n]), shape, device);
            [tensor(0, &[3, 4]), tensor(1, &[5])]
        };
        let [matrix, vector] = pair(&goldens["start"]);
        arena.load(&[("matrix", &matrix), ("vector", &vector)]).unwrap();
        let optimizer = Optimizer::new(kind, weight_decay, None, &parameters, &arena).unwrap();
        let step = trace(|inputs| {
            // A loss whose gradients are the inputs.
            let [by_matrix, by_vector, scalars] = inputs else { panic!("{} inputs", inputs.len()) };
            let [matrix, vector] = &arena.tensors()[..] else { return Ok((vec![], vec![])) };
            let loss = (matrix * by_matrix).sum(..) + (vector * by_vector).sum(..);
            let step = optimizer.step(&arena, &arena.gradient(&loss), None, scalars);
            Ok((vec![loss], step.updates))
        });
        for (n, gradients) in goldens["slopes"].as_array().unwrap().iter().enumerate() {
            let [matrix, vector] = pair(gradients);
            let scalars = optimizer.scalars(lr, n as u64 + 1).tensor(device);
            step.call(&[matrix, vector, scalars]).unwrap();
        }
        for (tensor, expected) in arena.tensors().iter().zip(goldens["found"][name].as_array().unwrap()) {
            let (found, expected) = (tensor.to_vec::<f32>().unwrap(), numbers(expected));
            let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 2e-6, "{name} is off by {off}: {found:?} and {expected:?}");
        }
    }
}
