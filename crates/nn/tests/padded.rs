//! Vocabularies padded in memory, as on a GPU: losses, checkpoints and text are those without
//! padding.

use bornite::{DType, Device, Tensor, plan::with_gpu_plans};
use bornite_nn::Context;
use bornite_nn::generate::{GenerationOptions, Sampling, TextGenerator};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::OptimizerKind;
use bornite_nn::tokenizer::Tokenizer;
use bornite_nn::train::{Learner, LearnerOptions, Precision};

const VOCABULARY: usize = 257;
const LENGTH: usize = 16;

fn options(optimizer: OptimizerKind, precision: Precision) -> LearnerOptions {
    LearnerOptions { optimizer, weight_decay: 0.1, clip_norm: Some(1.0), precision, accumulate: 1, seed: 3 }
}

/// A learner with a padded vocabulary, or without.
fn learner(config: &GptConfig, options: LearnerOptions, padded: bool) -> Learner {
    let gpt = Gpt::new(config.clone()).unwrap();
    let parameters = match padded {
        true => gpt.parameters().padded_arena(options.seed, Device::cpu()),
        false => gpt.parameters().arena(options.seed, Device::cpu()),
    };
    Learner::from_parameters(gpt, options, parameters.unwrap()).unwrap()
}

fn batch(step: usize) -> (Tensor, Tensor) {
    let tokens = |first: usize| {
        let all: Vec<i32> = (0..3 * LENGTH).map(|n| ((n * n + 7 * n * step + first) % VOCABULARY) as i32).collect();
        Tensor::from_slice(&all, &[3, LENGTH], Device::cpu())
    };
    (tokens(0), tokens(1))
}

fn losses(learner: &mut Learner, steps: std::ops::Range<usize>) -> Vec<f64> {
    steps.map(|n| learner.step(&[batch(n % 2)], 3e-3).unwrap().wait().unwrap().loss).collect()
}

#[test]
fn losses_agree_with_those_without_padding() {
    let (beta1, beta2, eps) = (0.9, 0.99, 1e-8);
    let optimizers = [
        OptimizerKind::AdamW { beta1, beta2, eps },
        OptimizerKind::Adam { beta1, beta2, eps },
        OptimizerKind::Sgd { momentum: 0.9, nesterov: true },
        OptimizerKind::RmsProp { alpha: 0.99, eps },
        OptimizerKind::Adagrad { eps },
        OptimizerKind::Muon { momentum: 0.95, beta1, beta2, eps },
    ];
    let tied = GptConfig::gpt2(VOCABULARY, LENGTH, 2, 2, 32);
    let untied = GptConfig::llama(VOCABULARY, LENGTH, 1, 4, 32);
    for (config, kind) in optimizers.iter().map(|kind| (&tied, *kind)).chain([(&untied, OptimizerKind::ADAMW)]) {
        for precision in [Precision::F32, Precision::Bf16] {
            let [mut padded, mut plain] = [true, false].map(|on| learner(config, options(kind, precision), on));
            let table = |learner: &Learner| learner.parameters().padded_tensors()[0].shape().unwrap()[0];
            assert_eq!([table(&padded), table(&plain)], [320, VOCABULARY]);
            let (found, expected) = (losses(&mut padded, 0..8), losses(&mut plain, 0..8));
            let bound = if precision == Precision::F32 { 1e-4 } else { 3e-2 };
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < bound, "{kind:?}, {precision:?}: {found}, not {expected}");
            }
            assert!(expected[6] < expected[0], "{kind:?} does not learn: {expected:?}");
            let all = padded.parameters().padded_tensors();
            for (padded, [rows, _]) in all.iter().filter_map(|tensor| Some((tensor, tensor.dims::<2>().ok()?))) {
                if rows == 320 {
                    let rest = padded.slice(0, VOCABULARY as isize..).to_vec::<f32>().unwrap();
                    assert!(rest.iter().all(|x| x.to_bits() == 0), "{kind:?}: padding has a value");
                }
            }
        }
    }
}

#[test]
fn checkpoints_have_no_padding_and_continue_to_the_bit() {
    let config = GptConfig::gpt2(VOCABULARY, LENGTH, 1, 2, 16);
    let options = options(OptimizerKind::ADAMW, Precision::Bf16);
    let mut whole = learner(&config, options, true);
    let mut first = losses(&mut whole, 0..3);
    let [weights, moments] = whole.tensors();
    let named =
        |tensors: &std::collections::BTreeMap<String, Tensor>, name: &str| tensors[name].shape().unwrap().to_vec();
    assert_eq!(named(&weights, "token_embedding.weight"), [VOCABULARY, 16]);
    assert_eq!(named(&moments, "moment0.token_embedding.weight"), [VOCABULARY, 16]);
    assert_eq!(whole.gpt().parameters().elements(), learner(&config, options, false).gpt().parameters().elements());
    let mut resumed = learner(&config, options, true);
    resumed.restore([&weights, &moments], 3, whole.loss_scale()).unwrap();
    first.extend(losses(&mut whole, 3..6));
    assert_eq!(first[3..], losses(&mut resumed, 3..6)[..]);
    // A model without padding continues from the same checkpoint.
    let mut plain = learner(&config, options, false);
    plain.restore([&weights, &moments], 3, whole.loss_scale()).unwrap();
    for (found, expected) in losses(&mut plain, 3..6).iter().zip(&first[3..]) {
        assert!((found - expected).abs() < 3e-2, "{found}, not {expected}");
    }
}

#[test]
fn logits_and_text_are_those_without_padding() {
    for config in [GptConfig::gpt2(VOCABULARY, LENGTH, 1, 2, 16), GptConfig::llama(VOCABULARY, LENGTH, 1, 2, 16)] {
        let gpt = Gpt::new(config).unwrap();
        let [padded, plain] =
            [gpt.parameters().padded_arena(5, Device::cpu()), gpt.parameters().arena(5, Device::cpu())];
        let (padded, plain) = (padded.unwrap(), plain.unwrap());
        let (tokens, _) = batch(1);
        let logits = |values: Vec<Tensor>| gpt.logits(&Context::new(values), &tokens);
        let (found, expected) = (logits(padded.padded_tensors()), logits(plain.tensors()));
        assert_eq!(found.shape().unwrap(), [3, LENGTH, VOCABULARY]);
        let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
        let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-5, "off by {off}");

        let tokenizer = Tokenizer::bytes();
        let options =
            GenerationOptions { sampling: Sampling { seed: 3, ..Sampling::default() }, max_tokens: 12, stops: vec![] };
        let text = |weights| {
            let generator = TextGenerator::new(&gpt, weights, Precision::F32, LENGTH).unwrap();
            generator.generate_from_tokens(&tokenizer, &[65], &options, &mut |_| true).unwrap().text
        };
        assert_eq!(text(&padded), text(&plain));
    }
}

#[test]
fn tokens_and_targets_in_the_padding_are_errors() {
    let gpt = Gpt::new(GptConfig::gpt2(VOCABULARY, LENGTH, 1, 2, 16)).unwrap();
    let weights = gpt.parameters().padded_arena(5, Device::cpu()).unwrap();
    let context = Context::new(weights.padded_tensors());
    let tokens = |n: i32| Tensor::from_slice(&[n, 0], &[1, 2], Device::cpu());
    for ignore in [false, true] {
        let gpt = gpt.clone().ignore_negative_targets(ignore);
        let loss =
            |token: i32, target: i32| gpt.loss(&context, &tokens(token), &tokens(target)).cast(DType::F32).item();
        assert!(loss(256, 256).unwrap().is_finite());
        for outside in [257, 300, 319, 320] {
            for error in [loss(outside, 0), loss(0, outside)] {
                let message = error.unwrap_err().to_string();
                assert!(message.contains(&format!("index {outside} ")) && message.contains("257"), "{message}");
            }
        }
    }
}

/// All products of a GPU's step have even sizes, and padding costs no memory for activations.
#[test]
fn an_odd_vocabulary_is_planned_like_an_even_one() {
    let plan = |vocabulary: usize| {
        let gpt = Gpt::new(GptConfig::gpt2(vocabulary, 128, 1, 2, 64)).unwrap();
        let options = options(OptimizerKind::ADAMW, Precision::Bf16);
        let parameters = gpt.parameters().padded_arena(1, Device::Interpreter).unwrap();
        let learner = Learner::from_parameters(gpt, options, parameters).unwrap();
        with_gpu_plans(|| learner.explain(4, 128)).unwrap()
    };
    let (odd, even) = (plan(1001), plan(1024));
    let products = |plan: &bornite::plan::PlanSummary| -> Vec<String> {
        let all = plan.steps.iter().map(|step| step.description.clone());
        all.filter(|text| text.starts_with("matmul")).collect()
    };
    assert_eq!(products(&odd), products(&even));
    assert_eq!(odd.scratch_bytes, even.scratch_bytes);
    assert!(odd.steps.len() <= even.steps.len() + 2, "{} and {} launches", odd.steps.len(), even.steps.len());
}
