//! Prints the launches of a GPT training step on a GPU, without needing a GPU: `plan_step
//! [--kernels] [layers or model] [vocabulary] [batch] [tokens]`, by default two layers of GPT-2 124M
//! with 64 x 1024 tokens in bf16 and a small vocabulary; a model is a name such as `gpt2-355m`. Each
//! launch with its inputs, outputs and cost; with `--kernels` also the IR of every generated kernel.

use bornite::{
    Device,
    plan::{observed, with_gpu_plans},
};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::OptimizerKind;
use bornite_nn::train::{Learner, LearnerOptions, Precision};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (flags, arguments): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|text| text == "--kernels");
    let number = |n: usize, otherwise: usize| arguments.get(n).map_or(Ok(otherwise), |text| text.parse());
    let [vocabulary, batch, tokens] = [number(1, 512)?, number(2, 64)?, number(3, 1024)?];
    let config = match number(0, 2) {
        Ok(layers) => GptConfig::gpt2(vocabulary, tokens, layers, 12, 768),
        Err(_) => GptConfig { context: tokens, ..GptConfig::named(&arguments[0], vocabulary)? },
    };
    let (optimizer, precision) = (OptimizerKind::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 }, Precision::Bf16);
    let options =
        LearnerOptions { optimizer, weight_decay: 0.1, clip_norm: Some(1.0), precision, accumulate: 1, seed: 1 };
    let gpt = Gpt::new(config)?;
    let parameters = gpt.parameters().padded_arena(options.seed, Device::Interpreter)?;
    let learner = Learner::from_parameters(gpt, options, parameters)?;
    let explain = || with_gpu_plans(|| learner.explain(batch, tokens));
    match flags.is_empty() {
        true => println!("{}", explain()?),
        false => drop(observed(|text| print!("{text}"), explain)?),
    }
    Ok(())
}
