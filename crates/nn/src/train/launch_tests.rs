//! Launches of compiled training steps.

use bornite::{plan::with_gpu_plans, trace, trace::TensorSpec, var::Update};

use crate::model::{Gpt, GptConfig};
use crate::networks::{batches, goldens, models};
use crate::optimizer::{Optimizer, OptimizerKind, ParameterSettings, StepGradients};
use crate::parameters::Context;
use crate::prelude::*;

const CPU: Device = Device::Cpu(0);

/// A compiled step launches the same kernels as one that is written with arenas and a trace.
#[test]
fn compiled_step_has_the_launches_of_a_handwritten_one() {
    let all = goldens("training.safetensors", CPU);
    for ((name, model), device) in models().into_iter().flat_map(|model| [CPU, Device::Interpreter].map(|d| (model, d)))
    {
        let params = Params::new(device, 0);
        let model = model(&params);
        let spec = |t: &Tensor| TensorSpec::new(t.dtype().unwrap(), t.shape().unwrap(), device);
        let specs: Vec<TensorSpec> = batches(&all, name)[0].iter().map(spec).collect();
        let adam = AdamW::new(&params).weight_decay(0.1).clip_norm(1.0);
        let step = adam.compile(|b: &[Tensor]| model.forward(&b[0]).cross_entropy(&b[1]));

        let values = params.values().unwrap();
        let (arena, buffers) = (values.parameters, values.buffers);
        let kind = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 };
        let settings = params.list().iter().map(|info| ParameterSettings::new(info, 0.1)).collect();
        let optimizer = Optimizer::new(kind, Some(1.0), settings, &arena, None).unwrap();
        let handwritten = trace(|inputs| {
            let [x, y, scalars] = inputs else { panic!("{} inputs", inputs.len()) };
            let context = Context::training(arena.tensors(), Tensor::zeros(&[2], DType::U64, device));
            let loss = context.run(&params, || model.forward(x)).cross_entropy(y);
            let gradients = StepGradients { flat: &arena.gradient(&loss), scale: None, norm: None };
            let step = optimizer.step(&arena, gradients, scalars);
            let mut updates: Vec<Update> = step.updates;
            if let Some(buffers) = &buffers {
                // As the batch norm: 0.9 of the old statistics and 0.1 of the batch's, and the number of
                // batches.
                let [weight, bias, ..] = &arena.tensors()[..] else { panic!("no convolution") };
                let options = bornite::ops::Conv2dOptions { padding: (1, 1), ..Default::default() };
                let images = x.conv2d(weight, Some(bias), options);
                let count = images.shape()?.iter().product::<usize>() as f64 / 6.0;
                let (mean, var) =
                    (images.mean(&[0, 2, 3][..]), images.var(&[0, 2, 3][..], 0) * (count / (count - 1.0)));
                let old = buffers.tensors();
                let new = [&old[0] * 0.9 + mean * 0.1, &old[1] * 0.9 + var * 0.1, &old[2] + 1.0];
                let new = new.map(|new| new.detach());
                updates.push(buffers.set(buffers.flatten(&new)));
            }
            Ok((vec![loss, step.grad_norm], updates))
        });
        let scalars = TensorSpec::new(DType::F32, &[3], device);
        let explain = || {
            let handwritten = handwritten.explain(&[&specs[..], std::slice::from_ref(&scalars)].concat()).unwrap();
            (step.explain(&specs).unwrap(), handwritten)
        };
        let (compiled, handwritten) = if device == CPU { explain() } else { with_gpu_plans(explain) };
        assert!(compiled.steps.len() <= handwritten.steps.len(), "{name}\n{compiled}\n{handwritten}");
        assert!(compiled.bytes() <= handwritten.bytes() + 64, "{name}\n{compiled}\n{handwritten}");
        println!("{name} on {device}: {} launches, handwritten {}", compiled.steps.len(), handwritten.steps.len());
    }
}

/// Without their norms, the activations of a block take less memory; the kernels are as many.
#[test]
fn recomputed_norms_are_not_saved() {
    let plan = |recompute: bool| {
        let params = Params::new(Device::Interpreter, 1);
        let gpt = Gpt::new(&params, GptConfig::gpt2(64, 64, 4, 2, 64)).unwrap().recompute_norms(recompute);
        let adam = AdamW::new(&params);
        let step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
        let tokens = TensorSpec::new(DType::I64, &[4, 64], Device::Interpreter);
        with_gpu_plans(|| step.explain(&[tokens.clone(), tokens]).unwrap())
    };
    let (saved, recomputed) = (plan(false), plan(true));
    assert!(recomputed.steps.len() <= saved.steps.len() + 8, "{saved}\n{recomputed}");
    // Two norms of each block, except the first and last of the model, which are used at once.
    let norm = 4 * 64 * 64 * 4;
    assert!(recomputed.peak.bytes + 6 * norm <= saved.peak.bytes, "{saved}\n{recomputed}");
}
