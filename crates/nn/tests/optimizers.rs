//! Optimizers match PyTorch's; scripts/optimiser_goldens.py writes the expected values.

use bornite::{Device, Tensor};
use bornite_nn::optimizer::{AnyOptimizer, OptimizerKind};
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
        let [matrix, vector] =
            [("matrix", &[3, 4][..]), ("vector", &[5])].map(|(name, shape)| params.parameter(name, shape, Init::Zeros));
        let pair = |of: &Value| {
            let tensor = |n: usize, shape: &[usize]| Tensor::from_slice(&numbers(&of[n]), shape, device);
            [tensor(0, &[3, 4]), tensor(1, &[5])]
        };
        let [start_matrix, start_vector] = pair(&goldens["start"]);
        params.load_tensors(&[("matrix".into(), start_matrix), ("vector".into(), start_vector)].into()).unwrap();
        let optimizer = AnyOptimizer::of_kind(&params, kind).lr(lr).weight_decay(weight_decay);
        // A loss whose gradients are the inputs.
        let step =
            optimizer.compile(|b: &[Tensor]| (matrix.value() * &b[0]).sum(..) + (vector.value() * &b[1]).sum(..));
        for gradients in goldens["slopes"].as_array().unwrap() {
            step.call(&pair(gradients)).unwrap();
        }
        for (parameter, expected) in [&matrix, &vector].iter().zip(goldens["found"][name].as_array().unwrap()) {
            let (found, expected) = (parameter.value().to_vec::<f32>().unwrap(), numbers(expected));
            let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 2e-6, "{name} is off by {off}: {found:?} and {expected:?}");
        }
    }
}
