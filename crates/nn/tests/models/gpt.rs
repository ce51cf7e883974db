//! GPTs as layers of larger models: import and export of a scope, generation during training.

use std::path::{Path, PathBuf};

use bornite_nn::generate::{GenerationOptions, Sampling, TextGenerator};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::prelude::*;
use bornite_nn::tokenizer::Tokenizer;

const CPU: Device = Device::Cpu(0);

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gpt-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn batch() -> [Tensor; 2] {
    [0, 1].map(|first| {
        let tokens: Vec<i64> = (first..first + 16).map(|n| n * n * 5 % 257).collect();
        Tensor::from_slice(&tokens, &[2, 8], CPU)
    })
}

/// Layers beside a GPT are declared before its export and after its import.
#[test]
fn scopes_are_exported_and_imported() {
    let [x, _] = batch();
    for (name, config) in [("gpt2", GptConfig::gpt2(257, 8, 2, 2, 16)), ("llama", GptConfig::llama(257, 8, 1, 2, 16))] {
        let params = Params::new(CPU, 7);
        let gpt = Gpt::new(&params, config.clone()).unwrap();
        let score = Linear::new(&params.at("score"), 257, 1);
        let out = folder(name);
        gpt.export(&out, None).unwrap();

        let other = Params::new(CPU, 7);
        let first = Linear::new(&other.at("first"), 4, 4);
        let imported = Gpt::import(&other.at("gpt"), &out).unwrap();
        let last = Linear::new(&other.at("last"), 4, 4);
        let values = |gpt: &Gpt| gpt.forward(&x).to_vec::<f32>().unwrap();
        assert_eq!(values(&imported), values(&gpt), "{name}");
        assert_eq!(score.forward(&gpt.forward(&x)).shape().unwrap(), [2, 8, 1]);

        // The initial values of the other layers do not depend on the import.
        let plain = Params::new(CPU, 7);
        let plain_first = Linear::new(&plain.at("first"), 4, 4);
        Gpt::new(&plain.at("gpt"), config).unwrap();
        let plain_last = Linear::new(&plain.at("last"), 4, 4);
        for (found, expected) in [(first, plain_first), (last, plain_last)] {
            let [found, expected] = [found, expected].map(|layer| layer.weight().value().to_vec::<f32>().unwrap());
            assert_eq!(found, expected, "{name}");
        }
    }
}

#[test]
fn a_failed_import_declares_nothing() {
    let (out, params) = (folder("failed"), Params::new(CPU, 0));
    let config = GptConfig::gpt2(32, 8, 1, 2, 16);
    Gpt::new(&Params::new(CPU, 0), config.clone()).unwrap().export(&out, None).unwrap();
    let text = std::fs::read_to_string(out.join("config.json")).unwrap();
    let wrong = text.replace("\"vocab_size\": 32", "\"vocab_size\": 33");
    assert_ne!(text, wrong);
    std::fs::write(out.join("config.json"), wrong).unwrap();
    let error = Gpt::import(&params, &out).err().unwrap().to_string();
    assert!(error.contains("has shape [32, 16]"), "{error}");
    assert!(params.list().is_empty());
    Gpt::new(&params, config).unwrap().forward(&Tensor::zeros(&[1, 8], DType::I64, CPU)).realize().unwrap();
}

/// Values loaded before the first use are those of [`Params::tensors`], and are replaced by a
/// second load.
#[test]
fn parameters_are_loaded_before_their_first_use() {
    let declare = |seed: u64| {
        let params = Params::new(CPU, seed);
        (Linear::new(&params.at("fc"), 3, 2), BatchNorm::new(&params.at("norm"), 2), params)
    };
    let text = |params: &Params| format!("{:?}", params.tensors().unwrap());
    let ((.., one), (.., two), (layer, _, params)) = (declare(1), declare(2), declare(3));
    params.load_tensors(&one.tensors().unwrap()).unwrap();
    assert_eq!(text(&params), text(&one));
    params.load_tensors(&two.tensors().unwrap()).unwrap();
    let late = Linear::new(&params.at("late"), 2, 2);
    assert_eq!(layer.weight().value().to_vec::<f32>().unwrap(), two.get("fc.weight").unwrap().to_vec::<f32>().unwrap());
    assert!(late.weight().value().to_vec::<f32>().is_ok());
    let error = params.load_tensors(&one.tensors().unwrap()).unwrap_err().to_string();
    assert!(error.contains("there is no tensor 'late.weight'"), "{error}");
}

/// A generator and an optimizer with 16-bit copies follow changes that others make.
#[test]
fn copies_follow_the_parameters() {
    let params = Params::new(CPU, 5);
    let gpt = Gpt::new(&params, GptConfig::gpt2(257, 8, 1, 2, 16)).unwrap();
    let (tokenizer, batch) = (Tokenizer::bytes(), batch());
    let loss = |b: &[Tensor]| gpt.loss(&b[0], &b[1]);
    let (sgd, adam) = (Sgd::new(&params).lr(0.5), AdamW::new(&params).precision(Precision::Bf16));
    let (sgd_step, adam_step) = (sgd.compile(loss), adam.compile(loss));
    let generator = TextGenerator::new(&gpt, Precision::Bf16, 8).unwrap();
    let sampling = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
    let options = GenerationOptions { sampling, max_tokens: 6, stops: vec![] };
    let write = |generator: &TextGenerator| {
        generator.generate_from_tokens(&tokenizer, &[1, 2], &options, &mut |_| true).unwrap().tokens
    };
    let mut losses = vec![];
    for n in 0..4 {
        let fresh = AdamW::new(&params).precision(Precision::Bf16);
        losses.push(adam_step.evaluate(&batch).unwrap());
        assert_eq!(losses[n], fresh.compile(loss).evaluate(&batch).unwrap(), "after {n} changes");
        assert_eq!(write(&generator), write(&TextGenerator::new(&gpt, Precision::Bf16, 8).unwrap()), "{n} changes");
        match n {
            0 => drop(sgd_step.call(&batch).unwrap()),
            1 => drop(adam_step.call(&batch).unwrap()),
            _ => {
                let table = params.get("token_embedding.weight").unwrap() * 3.0;
                params.set("token_embedding.weight", &table).unwrap();
            }
        }
    }
    assert!(losses.windows(2).all(|pair| pair[0] != pair[1]), "{losses:?}");
}
