//! Plans of training steps: planning is repeatable, layers share kernels, and no data is copied
//! between kernels.

use bornite::{
    plan::{PlanSummary, with_gpu_kernels, with_gpu_plans},
    trace::TensorSpec,
};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::prelude::*;

fn optimizer(params: &Params, precision: Precision) -> AdamW {
    AdamW::new(params).betas(0.9, 0.95).weight_decay(0.1).clip_norm(1.0).precision(precision)
}

/// Plan of a bf16 step on 4 sequences.
fn explain(config: GptConfig, tokens: usize) -> PlanSummary {
    let params = Params::new(Device::Interpreter, 1);
    let gpt = Gpt::new(&params, config).unwrap();
    let tokens = TensorSpec::new(DType::I32, &[4, tokens], Device::Interpreter);
    let step = optimizer(&params, Precision::Bf16).compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
    step.explain(&[tokens.clone(), tokens]).unwrap()
}

#[test]
fn planning_is_repeatable() {
    let device = Device::cpu();
    let tokens = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6, 7, 8], &[1, 8], device);
    for n in 0..60 {
        let precision = if n % 2 == 0 { Precision::Bf16 } else { Precision::F32 };
        let params = Params::new(device, 1);
        let gpt = Gpt::new(&params, GptConfig::gpt2(64, 8, 12, 2, 16)).unwrap();
        let step = optimizer(&params, precision).compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
        let loss = step.call(&[tokens.clone(), tokens.clone()]).unwrap().loss().unwrap();
        assert!(loss.is_finite());
    }
}

/// Layers differ in the offsets of their parameters, which are not part of a kernel. On a GPU a
/// library computes matrix products.
#[test]
fn layers_share_their_kernels() {
    let kernels = |layers: usize| {
        let mut kernels = with_gpu_kernels(|| explain(GptConfig::gpt2(512, 64, layers, 4, 256), 64)).kernels;
        kernels.retain(|name| !name.starts_with("matmul"));
        kernels
    };
    let (few, many) = (kernels(3), kernels(12));
    assert!(many.len() <= 40, "{} kernels: {many:#?}", many.len());
    // Bytes between segments are zeros, written for groups of segments.
    assert!(many.len() <= few.len() + 2, "{few:#?} for 3 layers, {many:#?} for 12");
}

/// On a GPU a layer launches matrix products, attention, norms and column sums: nothing is copied
/// for the next kernel, and weight gradients are written to the optimizer's input.
#[test]
fn layers_copy_no_data_between_kernels() {
    let steps = |layers: usize| with_gpu_plans(|| explain(GptConfig::gpt2(512, 64, layers, 4, 256), 64));
    let (one, three) = (steps(1), steps(3));
    let moves = |what: &str| ["copy", "pad", "concat"].iter().any(|word| what.contains(word));
    let moved = |plan: &bornite::plan::PlanSummary| -> u64 {
        plan.steps.iter().filter(|step| moves(&step.description)).map(|step| step.bytes).sum()
    };
    // Of the vectors of parameters, which are small, some are put together by a kernel.
    let vectors = 2 * 2 * (2 * 4 + 3 + 4 + 2) * 256;
    assert!(moved(&three) <= moved(&one) + 2 * vectors, "{one}\n{three}");
    let handwritten = |plan: &bornite::plan::PlanSummary| {
        plan.steps.iter().filter(|step| step.description.ends_with("(handwritten)")).count()
    };
    assert_eq!((handwritten(&one), handwritten(&three)), (4, 12), "{one}");
    assert!(!three.to_string().contains(" copied"), "{three}");
}

/// Parameters of norms are read from the arena by every kernel; no layer stores copies of them,
/// however large the arena is.
#[test]
fn activations_of_a_layer_do_not_depend_on_the_vocabulary() {
    let layer_bytes = |vocabulary: usize| {
        let scratch = |layers: usize| {
            let plan = with_gpu_plans(|| explain(GptConfig::gpt2(vocabulary, 512, layers, 2, 64), 512));
            assert!(plan.steps.iter().all(|step| step.bytes < 1 << 30), "{plan}");
            plan.peak.values.iter().filter(|value| value.op != "matmul").map(|value| value.bytes).sum::<usize>()
        };
        scratch(3) - scratch(1)
    };
    let (small, large) = (layer_bytes(64), layer_bytes(12_000));
    assert!(large <= small + small / 50, "{large} bytes of activations, not {small}");
}
