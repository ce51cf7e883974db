//! Plans of training steps: they do not depend on the order in which maps are walked, and layers share their kernels.

use bornite::{
    Device, Tensor,
    plan::{with_gpu_kernels, with_gpu_plans},
};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::OptimizerKind;
use bornite_nn::train::{Learner, LearnerOptions, Precision};

#[test]
fn plans_can_be_made_again_and_again() {
    let device = Device::cpu();
    let tokens = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6, 7, 8], &[1, 8], device);
    for n in 0..60 {
        let precision = if n % 2 == 0 { Precision::Bf16 } else { Precision::F32 };
        let learning = LearnerOptions {
            rule: OptimizerKind::ADAMW,
            decay: 0.1,
            clip: Some(1.0),
            precision,
            accumulate: 1,
            seed: 1,
        };
        let gpt = Gpt::new(GptConfig::gpt2(64, 8, 12, 2, 16)).unwrap();
        let mut learner = Learner::new(gpt, learning, device).unwrap();
        let loss = learner.step(&[(tokens.clone(), tokens.clone())], 1e-3).unwrap().measure().unwrap().loss;
        assert!(loss.is_finite());
    }
}

/// Layers differ in where their parameters lie, which is no part of a kernel. On a GPU products are a library's.
#[test]
fn layers_share_their_kernels() {
    let kernels = |layers: usize| {
        let precision = Precision::Bf16;
        let learning = LearnerOptions {
            rule: OptimizerKind::ADAMW,
            decay: 0.1,
            clip: Some(1.0),
            precision,
            accumulate: 1,
            seed: 1,
        };
        let gpt = Gpt::new(GptConfig::gpt2(512, 64, layers, 4, 256)).unwrap();
        let learner = Learner::new(gpt, learning, Device::Interpreter).unwrap();
        let mut kernels = with_gpu_kernels(|| learner.explain(4, 64)).unwrap().kernels;
        kernels.retain(|name| !name.starts_with("matmul"));
        kernels
    };
    let (few, many) = (kernels(3), kernels(12));
    assert!(many.len() <= 40, "{} kernels: {many:#?}", many.len());
    // Bytes between segments are zeros, written for groups of segments.
    assert!(many.len() <= few.len() + 2, "{few:#?} for 3 layers, {many:#?} for 12");
}

/// On a GPU a layer launches products, attention, norms and sums of columns: nothing is moved for the next kernel to read, and
/// the gradients of weights are written where the optimiser reads them.
#[test]
fn nothing_is_moved_in_a_layer() {
    let steps = |layers: usize| {
        let precision = Precision::Bf16;
        let learning = LearnerOptions {
            rule: OptimizerKind::ADAMW,
            decay: 0.1,
            clip: Some(1.0),
            precision,
            accumulate: 1,
            seed: 1,
        };
        let gpt = Gpt::new(GptConfig::gpt2(512, 64, layers, 4, 256)).unwrap();
        let learner = Learner::new(gpt, learning, Device::Interpreter).unwrap();
        with_gpu_plans(|| learner.explain(4, 64)).unwrap()
    };
    let (one, three) = (steps(1), steps(3));
    let moves = |what: &str| ["copy", "pad", "concat"].iter().any(|word| what.contains(word));
    let moved = |plan: &bornite::plan::Explained| -> u64 {
        plan.steps.iter().filter(|step| moves(&step.what)).map(|step| step.bytes).sum()
    };
    // Of the vectors of parameters, which are small, some are put together by a kernel.
    let vectors = 2 * 2 * (2 * 4 + 3 + 4 + 2) * 256;
    assert!(moved(&three) <= moved(&one) + 2 * vectors, "{one}\n{three}");
    let by_hand =
        |plan: &bornite::plan::Explained| plan.steps.iter().filter(|step| step.what.ends_with("by hand")).count();
    assert_eq!((by_hand(&one), by_hand(&three)), (4, 12), "{one}");
    assert!(!three.to_string().contains("copied before"), "{three}");
}
