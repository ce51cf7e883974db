//! Settings of optimizers: algorithms, groups, frozen parameters, accumulation, schedules,
//! precision.

use bornite_nn::optimizer::OptimizerBuilder;
use bornite_nn::prelude::*;
use bornite_nn::{eval_mode, is_training};
use serde_json::Value;

const CPU: Device = Device::Cpu(0);

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as f32).collect()
}

/// Runs the steps of the goldens and compares the parameters with PyTorch's.
fn matches_pytorch<A>(name: &str, goldens: &Value, optimizer: impl Fn(&Params) -> OptimizerBuilder<A>) {
    let params = Params::new(CPU, 0);
    let matrix = params.parameter("matrix", &[3, 4], Init::Zeros);
    let vector = params.parameter("vector", &[5], Init::Zeros);
    let tensors = |of: &Value| {
        vec![Tensor::from_slice(&numbers(&of[0]), &[3, 4], CPU), Tensor::from_slice(&numbers(&of[1]), &[5], CPU)]
    };
    let start = tensors(&goldens["start"]);
    params.set("matrix", &start[0]).unwrap();
    params.set("vector", &start[1]).unwrap();
    let optimizer =
        optimizer(&params).lr(goldens["rate"].as_f64().unwrap()).weight_decay(goldens["decay"].as_f64().unwrap());
    // A loss whose gradients are the inputs.
    let step = optimizer.compile(|b: &[Tensor]| (matrix.value() * &b[0]).sum(..) + (vector.value() * &b[1]).sum(..));
    for gradients in goldens["slopes"].as_array().unwrap() {
        step.call(&tensors(gradients)).unwrap();
    }
    for (name_of, expected) in ["matrix", "vector"].iter().zip(goldens["found"][name].as_array().unwrap()) {
        let found = params.get(name_of).unwrap().to_vec::<f32>().unwrap();
        let off = found.iter().zip(numbers(expected)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 2e-6, "{name} is off by {off}");
    }
}

#[test]
fn optimizers_match_pytorch() {
    let goldens: Value = serde_json::from_str(include_str!("../goldens/optimisers.json")).unwrap();
    matches_pytorch("adamw", &goldens, |p| AdamW::new(p).betas(0.9, 0.95));
    matches_pytorch("adam", &goldens, Adam::new);
    matches_pytorch("sgd", &goldens, Sgd::new);
    matches_pytorch("momentum", &goldens, |p| Sgd::new(p).momentum(0.9));
    matches_pytorch("nesterov", &goldens, |p| Sgd::new(p).momentum(0.9).nesterov(true));
    matches_pytorch("rmsprop", &goldens, RmsProp::new);
    matches_pytorch("adagrad", &goldens, Adagrad::new);
    // A multiplier of 1 for one parameter and another for the rest takes another path.
    matches_pytorch("adamw", &goldens, |p| {
        AdamW::new(p).betas(0.9, 0.95).lr_multiplier("*", 2.0).lr_multiplier("*", 1.0)
    });
}

/// A model, its batch, and the loss.
fn model(seed: u64) -> (Params, Sequential, Vec<Tensor>) {
    let params = Params::new(CPU, seed);
    let net = Sequential::new()
        .add(Linear::new(&params.at("blocks.0"), 4, 8))
        .add(Tanh)
        .add(Linear::new(&params.at("blocks.1"), 8, 8))
        .add(Tanh)
        .add(Linear::new(&params.at("head"), 8, 2));
    let generator = bornite::Generator::new(9);
    let x = Tensor::randn(&[16, 4], DType::F32, &generator, CPU);
    let y = x.slice(1, 0..2).argmax(-1);
    x.realize().unwrap();
    y.realize().unwrap();
    (params, net, vec![x, y])
}

fn values(params: &Params) -> Vec<Vec<f32>> {
    params.tensors().unwrap().values().map(|tensor| tensor.to_vec::<f32>().unwrap()).collect()
}

/// Trains for some steps and returns the losses.
fn train<A>(optimizer: &OptimizerBuilder<A>, net: &Sequential, batch: &[Tensor], steps: usize) -> Vec<f64> {
    let step = optimizer.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    (0..steps).map(|_| step.call(batch).unwrap().loss().unwrap()).collect()
}

#[test]
fn every_optimizer_and_precision_learns() {
    fn learns<A>(name: &str, optimizer: impl Fn(&Params) -> OptimizerBuilder<A>) {
        for precision in [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16] {
            let (params, net, batch) = model(1);
            let losses = train(&optimizer(&params).precision(precision), &net, &batch, 40);
            assert!(losses[39] < 0.7 * losses[0], "{name}, {precision:?}: {losses:?}");
            // The parameters stay f32, and evaluation reads them.
            assert_eq!(params.get("head.weight").unwrap().dtype().unwrap(), DType::F32);
            let loss = net.forward(&batch[0]).cross_entropy(&batch[1]).item().unwrap();
            assert!((loss - losses[39]).abs() < 0.1, "{name}, {precision:?}: {loss}, {losses:?}");
        }
    }
    learns("adamw", |p| AdamW::new(p).lr(0.03).clip_norm(1.0));
    learns("adam", |p| Adam::new(p).lr(0.03));
    learns("sgd", |p| Sgd::new(p).lr(0.3).momentum(0.9).nesterov(true));
    learns("rmsprop", |p| RmsProp::new(p).lr(0.01));
    learns("adagrad", |p| Adagrad::new(p).lr(0.1));
    learns("muon", |p| Muon::new(p).lr(0.03).momentum(0.9));
    learns("muon for the head", |p| Muon::new(p).lr(0.1).orthogonalize("head.weight"));
}

#[test]
fn gradient_norms_that_are_not_finite_halve_the_scale_and_skip_the_step() {
    let (params, net, batch) = model(1);
    let adam = AdamW::new(&params).precision(Precision::F16);
    let step = adam.compile(|b: &[Tensor]| (net.forward(&b[0]) * &b[1]).sum(..));
    let before = values(&params);
    let factors = Tensor::full(10.0, &[16, 2], DType::F16, CPU);
    let result = step.call(&[batch[0].clone(), factors.clone()]).unwrap().wait().unwrap();
    assert!(!result.finite);
    assert_eq!(values(&params), before);
    // The scale is halved until a step is finite.
    let calls = (0..30).map(|_| step.call(&[batch[0].clone(), factors.clone()]).unwrap().wait().unwrap().finite);
    assert!(calls.collect::<Vec<_>>().contains(&true));
    assert_ne!(values(&params), before);
}

#[test]
fn accumulated_gradients_are_those_of_the_large_batch() {
    let steps = |accumulate: usize| {
        let (params, net, batch) = model(1);
        let sgd = Sgd::new(&params).lr(0.1).accumulate(accumulate);
        let step = sgd.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
        let part = |tensor: &Tensor, n: usize| {
            let length = 16 / accumulate;
            tensor.slice(0, (n * length) as isize..((n + 1) * length) as isize)
        };
        for _ in 0..3 {
            for n in 0..accumulate {
                let result = step.call(&[part(&batch[0], n), part(&batch[1], n)]).unwrap().wait().unwrap();
                assert_eq!(result.grad_norm.is_nan(), n + 1 < accumulate, "only the last batch makes a step");
            }
        }
        assert_eq!(sgd.steps(), 3);
        values(&params)
    };
    let (one, four) = (steps(1), steps(4));
    let off = one.iter().flatten().zip(four.iter().flatten()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 1e-6, "{off}");
}

#[test]
fn frozen_parameters_and_groups() {
    let (params, net, batch) = model(1);
    let before = params.tensors().unwrap();
    let same = |params: &Params, name: &str| {
        params.get(name).unwrap().to_vec::<f32>().unwrap() == before[name].to_vec::<f32>().unwrap()
    };
    before.values().for_each(|tensor| tensor.realize().unwrap());
    // Frozen from the beginning, although weight decay would change it.
    params.at("blocks").freeze();
    let adam = AdamW::new(&params).lr(0.01).weight_decay(0.1);
    let step = adam.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    for _ in 0..3 {
        step.call(&batch).unwrap();
    }
    assert!(same(&params, "blocks.0.weight") && same(&params, "blocks.1.bias") && !same(&params, "head.weight"));
    // Trained again, in the same compiled step; then the head is frozen, whose moments are not zero.
    params.at("blocks").unfreeze();
    step.call(&batch).unwrap();
    assert!(!same(&params, "blocks.0.weight") && !same(&params, "blocks.1.bias"));
    let head = params.get("head.weight").unwrap().to_vec::<f32>().unwrap();
    params.at("head").freeze();
    step.call(&batch).unwrap();
    assert_eq!(params.get("head.weight").unwrap().to_vec::<f32>().unwrap(), head);

    // SGD with a multiplier: the change is multiplied.
    let change = |multiplier: f64| {
        let (params, net, batch) = model(1);
        let sgd = Sgd::new(&params).lr(0.1).lr_multiplier("head.*", multiplier).lr_multiplier("blocks.0.weight", 0.0);
        train(&sgd, &net, &batch, 1);
        assert!(same(&params, "blocks.0.weight") && !same(&params, "blocks.0.bias"));
        (params.get("head.bias").unwrap() - &before["head.bias"]).to_vec::<f32>().unwrap()
    };
    let (one, three) = (change(1.0), change(3.0));
    assert!(one.iter().zip(&three).all(|(a, b)| (3.0 * a - b).abs() < 1e-6 && *a != 0.0), "{one:?} {three:?}");

    // Weight decay of one group only, at a gradient of zero.
    let (params, net, batch) = model(1);
    let adam = AdamW::new(&params).lr(0.1).weight_decay(0.0).weight_decay_of("head.*", 0.5);
    adam.compile(|b: &[Tensor]| net.forward(&b[0]).sum(..) * 0.0).call(&batch).unwrap();
    let decayed = params.get("head.bias").unwrap().to_vec::<f32>().unwrap();
    let expected = (&before["head.bias"] * 0.95).to_vec::<f32>().unwrap();
    assert!(decayed.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-7), "{decayed:?} {expected:?}");
    assert!(same(&params, "blocks.0.weight"));
}

#[test]
fn learning_rates_follow_the_schedule() {
    let (params, net, batch) = model(1);
    let schedule = LrSchedule { lr: 1.0, warmup: 2, decay: LrDecay::Linear, min_lr_ratio: 0.0 };
    let sgd = Sgd::new(&params).schedule(schedule, 5);
    let step = sgd.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    let mut rates = vec![];
    for _ in 0..5 {
        rates.push(sgd.current_lr());
        step.call(&batch).unwrap();
    }
    assert_eq!(rates, [0.5, 1.0, 1.0, 0.5, 0.0]);
    sgd.set_lr(0.25);
    assert_eq!(sgd.current_lr(), 0.25);
    assert_eq!(sgd.steps(), 5);
}

/// Loaded values reach the 16-bit copy of a compiled step.
#[test]
fn loaded_values_are_seen_by_compiled_steps() {
    let (params, net, batch) = model(1);
    let adam = AdamW::new(&params).lr(0.0).precision(Precision::Bf16);
    let step = adam.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    let before = step.call(&batch).unwrap().loss().unwrap();
    let (other, ..) = model(2);
    params.load_tensors(&other.tensors().unwrap()).unwrap();
    let after = step.call(&batch).unwrap().loss().unwrap();
    assert!((before - after).abs() > 1e-3, "{before} and {after}");
    assert!((step.evaluate(&batch).unwrap() - after).abs() < 1e-6);
}

#[test]
fn dropout_is_active_in_training_steps_only() {
    let params = Params::new(CPU, 5);
    let scale = params.parameter("scale", &[1], Init::Ones);
    let dropout = Dropout::new(0.5);
    let x = Tensor::ones(&[64], DType::F32, CPU);
    let sgd = Sgd::new(&params).lr(0.0);
    let mean = |b: &[Tensor]| {
        assert!(is_training() && !eval_mode(is_training));
        (dropout.forward(&b[0]) * scale.value()).mean(..)
    };
    let step = sgd.compile(mean);
    let losses: Vec<f64> = (0..6).map(|_| step.call(std::slice::from_ref(&x)).unwrap().loss().unwrap()).collect();
    assert!(losses.windows(2).any(|pair| pair[0] != pair[1]), "a new mask per step: {losses:?}");
    assert!(losses.iter().all(|loss| (0.4..1.6).contains(loss)), "{losses:?}");
    let again = Sgd::new(&params).lr(0.0).compile(mean).call(std::slice::from_ref(&x)).unwrap().loss().unwrap();
    assert_eq!(again, losses[0], "the seed determines the masks");
    assert!(!is_training());
    assert_eq!(dropout.forward(&x).mean(..).item().unwrap(), 1.0);
    let evaluated = sgd.compile(|b: &[Tensor]| (dropout.forward(&b[0]) * scale.value()).mean(..));
    assert_eq!(evaluated.evaluate(std::slice::from_ref(&x)).unwrap(), 1.0);
    let off = sgd.compile(|b: &[Tensor]| eval_mode(|| (dropout.forward(&b[0]) * scale.value()).mean(..)));
    assert_eq!(off.call(&[x]).unwrap().loss().unwrap(), 1.0);
}
