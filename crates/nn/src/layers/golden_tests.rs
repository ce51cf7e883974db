//! Layers against PyTorch and finite differences: outputs, gradients, running statistics.
//! `scripts/layer_goldens.py` writes the expected values.

use bornite::Generator;

use crate::networks::{Constructor, below, goldens};
use crate::parameters::Context;
use crate::prelude::*;

const CPU: Device = Device::Cpu(0);

#[track_caller]
fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.shape().unwrap(), expected.shape().unwrap(), "{what}");
    let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    let scale = expected.iter().fold(1.0f32, |max, x| max.max(x.abs()));
    let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off <= 2e-5 * scale, "{what} is off by {off}: {found:?} and {expected:?}");
}

/// Every layer, by the name of its goldens.
fn layers() -> Vec<(&'static str, Constructor)> {
    vec![
        ("linear", |p| Box::new(Linear::new(p, 5, 7))),
        ("linear_no_bias", |p| Box::new(Linear::new(p, 5, 7).bias(false))),
        ("embedding", |p| Box::new(Embedding::new(p, 11, 6))),
        ("conv1d", |p| Box::new(Conv1d::new(p, 4, 6, 3).stride(2).padding(1))),
        ("conv2d", |p| Box::new(Conv2d::new(p, 4, 6, 3).stride(2).padding(1))),
        ("conv2d_grouped", |p| Box::new(Conv2d::grouped(p, 4, 6, [3, 2], 2).dilation(2).bias(false))),
        ("conv_transpose2d", |p| {
            Box::new(ConvTranspose2d::grouped(p, 4, 6, [3, 3], 2).stride(2).padding(1).output_padding(1))
        }),
        ("adaptive_avg_pool2d", |_| Box::new(AdaptiveAvgPool2d { size: [3, 2] })),
        ("adaptive_max_pool2d", |_| Box::new(AdaptiveMaxPool2d { size: [3, 2] })),
        ("global_avg_pool", |_| Box::new(GlobalAvgPool)),
        ("global_max_pool", |_| Box::new(GlobalMaxPool)),
        ("group_norm", |p| Box::new(GroupNorm::new(p, 2, 6))),
        ("upsample_nearest", |_| Box::new(Upsample::nearest(2))),
        ("upsample_bilinear", |_| Box::new(Upsample::bilinear(3))),
        ("max_pool1d", |_| Box::new(MaxPool1d::new(3).stride(2))),
        ("max_pool2d", |_| Box::new(MaxPool2d::new(2))),
        ("avg_pool1d", |_| Box::new(AvgPool1d::new(3).stride(2))),
        ("avg_pool2d", |_| Box::new(AvgPool2d::new(3).stride(2))),
        ("batch_norm_rows", |p| Box::new(BatchNorm::new(p, 5))),
        ("batch_norm_series", |p| Box::new(BatchNorm::new(p, 5))),
        ("batch_norm_images", |p| Box::new(BatchNorm::new(p, 4).momentum(0.3))),
        ("batch_norm_eval", |p| Box::new(BatchNorm::new(p, 4))),
        ("layer_norm", |p| Box::new(LayerNorm::new(p, 8))),
        ("rms_norm", |p| Box::new(RmsNorm::new(p, 8))),
        ("attention", |p| Box::new(MultiHeadAttention::new(p, 8, 2))),
        ("attention_causal", |p| Box::new(MultiHeadAttention::new(p, 8, 4).causal(true))),
        ("transformer", |p| Box::new(TransformerBlock::new(p, 8, 2).causal(true))),
        ("lstm", |p| Box::new(Lstm::new(p, 3, 6))),
        ("gru", |p| Box::new(Gru::new(p, 3, 6))),
        ("relu", |_| Box::new(Relu)),
        ("sigmoid", |_| Box::new(Sigmoid)),
        ("tanh", |_| Box::new(Tanh)),
        ("leaky_relu", |_| Box::new(LeakyRelu::default())),
        ("elu", |_| Box::new(Elu::default())),
        ("silu", |_| Box::new(Silu)),
        ("gelu", |_| Box::new(Gelu)),
        ("gelu_erf", |_| Box::new(GeluErf)),
        ("softmax", |_| Box::new(Softmax { axis: -1 })),
        ("flatten", |_| Box::new(Flatten)),
    ]
}

/// Every exported layer is one of [`layers`].
#[test]
fn every_layer_has_goldens() {
    let exported = include_str!("mod.rs").split("\npub use ").skip(1).filter_map(|text| text.split(';').next());
    let names = exported.flat_map(|list| list.split(|c: char| !c.is_alphanumeric())).filter(|name| !name.is_empty());
    let names: Vec<&str> = names.filter(|name| name.starts_with(|c: char| c.is_uppercase())).collect();
    assert!(names.len() > 30, "{names:?}");
    // Dropout is random; the others only pass on what their layers compute.
    let tested = |name: &&str| {
        let uses = [format!("new({name}"), format!("{name}::")];
        ["Dropout", "Norm", "Sequential"].contains(name)
            || uses.iter().any(|text| include_str!("golden_tests.rs").contains(text))
    };
    let missing: Vec<&str> = names.into_iter().filter(|name| !tested(name)).collect();
    assert!(missing.is_empty(), "no goldens for {missing:?}");
}

/// Parameters of a layer, with one more if it has none, since a model has at least one.
fn declare(layer: Constructor) -> (Params, Box<dyn Forward + Send + Sync>) {
    let params = Params::new(CPU, 0);
    let layer = layer(&params);
    if params.list().is_empty() {
        params.parameter("unused", &[1], Init::Zeros);
    }
    (params, layer)
}

#[test]
fn layers_match_pytorch() {
    let all = goldens("layers.safetensors", CPU);
    let known: std::collections::BTreeSet<&str> = all.keys().filter_map(|name| name.split('/').next()).collect();
    assert_eq!(known, layers().iter().map(|(name, _)| *name).collect());
    for (name, layer) in layers() {
        let golden = below(&all, &format!("{name}/"));
        let (params, layer) = declare(layer);
        let mut values = below(&golden, "value/");
        if params.list().iter().any(|p| p.name == "unused") {
            values.insert("unused".into(), Tensor::zeros(&[1], DType::F32, CPU));
        }
        params.load_tensors(&values).unwrap();
        let is_float = golden["x"].dtype().unwrap().is_float();
        let weights: Vec<Tensor> = params.list().iter().map(|p| values[&p.name].clone()).collect();
        let state = Tensor::from_slice(&[0u64, 0], &[2], CPU);
        let forward = || layer.forward(&golden["x"]);
        let context = match name {
            "batch_norm_eval" => Context::new(weights.clone()),
            _ => Context::training(weights.clone(), state),
        };
        let y = context.run(&params, forward);
        assert_close(&y, &golden["y"], &format!("{name}: output"));
        let loss = (&y * &golden["grad_y"]).sum(..);
        if is_float {
            assert_close(&loss.grad(&[&golden["x"]])[0], &golden["grad_x"], &format!("{name}: gradient of the input"));
        }
        let gradients = loss.grad(&weights.iter().collect::<Vec<_>>());
        for (info, gradient) in params.list().iter().zip(&gradients).filter(|(info, _)| info.name != "unused") {
            assert_close(
                gradient,
                &golden[&format!("grad/{}", info.name)],
                &format!("{name}: gradient of {}", info.name),
            );
        }
        // Running statistics, updated by a training step.
        if golden.keys().any(|key| key.starts_with("after/")) && name != "batch_norm_eval" {
            let sgd = Sgd::new(&params).lr(0.0);
            let step = sgd.compile(|b: &[Tensor]| (layer.forward(&b[0]) * &b[1]).sum(..));
            step.call(&[golden["x"].clone(), golden["grad_y"].clone()]).unwrap();
            for (key, expected) in below(&golden, "after/") {
                assert_close(&params.get(&key).unwrap(), &expected, &format!("{name}: {key}"));
            }
        }
    }
}

/// Gradients of all layers by finite differences in f64.
#[test]
fn gradients_of_layers_match_finite_differences() {
    let all = goldens("layers.safetensors", CPU);
    let generator = Generator::new(3);
    for (name, layer) in layers() {
        let golden = below(&all, &format!("{name}/"));
        let (params, layer) = declare(layer);
        let values = below(&golden, "value/");
        let wide = |t: &Tensor| if t.dtype().unwrap().is_float() { t.cast(DType::F64) } else { t.clone() };
        let zeros = Tensor::zeros(&[1], DType::F64, CPU);
        let weights: Vec<Tensor> =
            params.list().iter().map(|p| values.get(&p.name).map_or(zeros.clone(), wide)).collect();
        let (x, grad_y) = (wide(&golden["x"]), wide(&golden["grad_y"]));
        let loss = |x: &Tensor, weights: &[Tensor]| {
            let context = match name {
                "batch_norm_eval" => Context::new(weights.to_vec()),
                _ => Context::training(weights.to_vec(), Tensor::from_slice(&[0u64, 0], &[2], CPU)),
            };
            (context.run(&params, || layer.forward(x)) * &grad_y).sum(..)
        };
        let inputs: Vec<Tensor> = [x.clone()].into_iter().chain(weights.clone()).collect();
        let total = loss(&x, &weights);
        let chosen: Vec<usize> = (0..inputs.len()).filter(|&n| inputs[n].dtype().unwrap().is_float()).collect();
        let gradients = total.grad(&chosen.iter().map(|&n| &inputs[n]).collect::<Vec<_>>());
        for (&n, gradient) in chosen.iter().zip(&gradients) {
            // The derivative along a random direction.
            let shape = inputs[n].shape().unwrap();
            let direction = Tensor::randn(shape, DType::F64, &generator, CPU);
            let moved = |by: f64| {
                let mut inputs = inputs.clone();
                inputs[n] = &inputs[n] + &direction * by;
                loss(&inputs[0], &inputs[1..]).item().unwrap()
            };
            let h = 1e-6;
            let expected = (moved(h) - moved(-h)) / (2.0 * h);
            let found = (gradient * &direction).sum(..).item().unwrap();
            assert!(
                (found - expected).abs() < 1e-5 * (1.0 + expected.abs()),
                "{name}, input {n}: {found} and {expected}"
            );
        }
    }
}
