//! Vocabularies padded in memory, as on a GPU: losses, checkpoints and text are those without
//! padding.

use bornite::{
    plan::{PlanSummary, with_gpu_plans},
    trace::TensorSpec,
};

use crate::checkpoint::Tensors;
use crate::generate::{GenerationOptions, Sampling, TextGenerator};
use crate::model::{Gpt, GptConfig};
use crate::optimizer::{AnyOptimizer, OptimizerKind};
use crate::parameters::Weights;
use crate::prelude::*;
use crate::tokenizer::Tokenizer;
use crate::train::TrainStep;

const CPU: Device = Device::Cpu(0);
const VOCABULARY: usize = 257;
const LENGTH: usize = 16;

/// Parameters with a padded vocabulary, or without.
fn new_params(device: Device, seed: u64, padded: bool) -> Params {
    let params = Params::new(device, seed);
    if padded { params.pad_on_every_device() } else { params }
}

/// A model in training.
struct Training {
    params: Params,
    optimizer: AnyOptimizer,
    step: TrainStep<'static>,
}

impl Training {
    fn new(params: Params, config: &GptConfig, kind: OptimizerKind, precision: Precision) -> Training {
        let gpt = Gpt::new(&params, config.clone()).unwrap();
        let optimizer = AnyOptimizer::of_kind(&params, kind).lr(3e-3).weight_decay(0.1).clip_norm(1.0);
        let optimizer = optimizer.precision(precision);
        let step = optimizer.compile(move |b: &[Tensor]| gpt.loss(&b[0], &b[1]));
        Training { params, optimizer, step }
    }

    fn losses(&self, steps: std::ops::Range<usize>) -> Vec<f64> {
        steps.map(|n| self.step.call(&batch(n % 2)).unwrap().loss().unwrap()).collect()
    }

    /// Parameters with padding.
    fn padded(&self) -> Vec<Tensor> {
        self.params.values().unwrap().parameters.padded_tensors()
    }
}

fn batch(step: usize) -> Vec<Tensor> {
    let tokens = |first: usize| {
        let all: Vec<i32> = (0..3 * LENGTH).map(|n| ((n * n + 7 * n * step + first) % VOCABULARY) as i32).collect();
        Tensor::from_slice(&all, &[3, LENGTH], CPU)
    };
    vec![tokens(0), tokens(1)]
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
            let [padded, plain] =
                [true, false].map(|on| Training::new(new_params(CPU, 3, on), config, kind, precision));
            let table = |training: &Training| training.padded()[0].shape().unwrap()[0];
            assert_eq!([table(&padded), table(&plain)], [320, VOCABULARY]);
            let (found, expected) = (padded.losses(0..8), plain.losses(0..8));
            let bound = if precision == Precision::F32 { 1e-4 } else { 3e-2 };
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < bound, "{kind:?}, {precision:?}: {found}, not {expected}");
            }
            assert!(expected[6] < expected[0], "{kind:?} does not learn: {expected:?}");
            let all = padded.padded();
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
    let start = |padded| Training::new(new_params(CPU, 3, padded), &config, OptimizerKind::ADAMW, Precision::Bf16);
    let whole = start(true);
    let mut first = whole.losses(0..3);
    let (weights, (moments, progress)) = (whole.params.tensors().unwrap(), whole.optimizer.checkpoint().unwrap());
    let named = |tensors: &Tensors, name: &str| tensors[name].shape().unwrap().to_vec();
    assert_eq!(named(&weights, "token_embedding.weight"), [VOCABULARY, 16]);
    assert_eq!(named(&moments, "moment0.token_embedding.weight"), [VOCABULARY, 16]);
    let resume = |padded| {
        let resumed = start(padded);
        resumed.params.load_tensors(&weights).unwrap();
        resumed.optimizer.restore(&moments, progress).unwrap();
        resumed
    };
    first.extend(whole.losses(3..6));
    assert_eq!(first[3..], resume(true).losses(3..6)[..]);
    // A model without padding continues from the same checkpoint.
    for (found, expected) in resume(false).losses(3..6).iter().zip(&first[3..]) {
        assert!((found - expected).abs() < 3e-2, "{found}, not {expected}");
    }
}

#[test]
fn logits_and_text_are_those_without_padding() {
    for config in [GptConfig::gpt2(VOCABULARY, LENGTH, 1, 2, 16), GptConfig::llama(VOCABULARY, LENGTH, 1, 2, 16)] {
        let [padded, plain] = [true, false].map(|on| Gpt::new(&new_params(CPU, 5, on), config.clone()).unwrap());
        let logits = |gpt: &Gpt| {
            let weights = Weights::new(gpt.params(), DType::F32).unwrap();
            weights.run(|| gpt.forward(&batch(1)[0]))
        };
        let (found, expected) = (logits(&padded), logits(&plain));
        assert_eq!(found.shape().unwrap(), [3, LENGTH, VOCABULARY]);
        let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
        let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-5, "off by {off}");

        let tokenizer = Tokenizer::bytes();
        let options =
            GenerationOptions { sampling: Sampling { seed: 3, ..Sampling::default() }, max_tokens: 12, stops: vec![] };
        let text = |gpt| {
            let generator = TextGenerator::new(gpt, Precision::F32, LENGTH).unwrap();
            generator.generate_from_tokens(&tokenizer, &[65], &options, &mut |_| true).unwrap().text
        };
        assert_eq!(text(&padded), text(&plain));
    }
}

#[test]
fn tokens_and_targets_in_the_padding_are_errors() {
    let params = new_params(CPU, 5, true);
    let gpt = Gpt::new(&params, GptConfig::gpt2(VOCABULARY, LENGTH, 1, 2, 16)).unwrap();
    let weights = Weights::new(&params, DType::F32).unwrap();
    let tokens = |n: i32| Tensor::from_slice(&[n, 0], &[1, 2], CPU);
    for ignore in [false, true] {
        let gpt = gpt.clone().ignore_negative_targets(ignore);
        let loss = |token: i32, target: i32| weights.run(|| gpt.loss(&tokens(token), &tokens(target))).item();
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
        let params = new_params(Device::Interpreter, 1, true);
        let config = GptConfig::gpt2(vocabulary, 128, 1, 2, 64);
        let training = Training::new(params, &config, OptimizerKind::ADAMW, Precision::Bf16);
        let tokens = TensorSpec::new(DType::I32, &[4, 128], Device::Interpreter);
        with_gpu_plans(|| training.step.explain(&[tokens.clone(), tokens])).unwrap()
    };
    let (odd, even) = (plan(1001), plan(1024));
    let products = |plan: &PlanSummary| -> Vec<String> {
        let all = plan.steps.iter().map(|step| step.description.clone());
        all.filter(|text| text.starts_with("matmul")).collect()
    };
    assert_eq!(products(&odd), products(&even));
    assert_eq!(odd.scratch_bytes, even.scratch_bytes);
    assert!(odd.steps.len() <= even.steps.len() + 2, "{} and {} launches", odd.steps.len(), even.steps.len());
}
