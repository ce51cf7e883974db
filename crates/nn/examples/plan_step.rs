//! Prints the launches of a GPT training step on a GPU, without needing a GPU: `plan_step
//! [--kernels] [layers or model] [vocabulary] [batch] [tokens]`, by default two layers of GPT-2 124M
//! with 64 x 1024 tokens in bf16 and a small vocabulary; a model is a name such as `gpt2-355m`. Each
//! launch with its inputs, outputs and cost; with `--kernels` also the IR of every generated kernel.

use bornite::{
    plan::{observed, with_gpu_plans},
    trace::TensorSpec,
};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::prelude::{AdamW, DType, Device, Params, Precision, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (flags, arguments): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|text| text == "--kernels");
    let number = |n: usize, otherwise: usize| arguments.get(n).map_or(Ok(otherwise), |text| text.parse());
    let [vocabulary, batch, tokens] = [number(1, 512)?, number(2, 64)?, number(3, 1024)?];
    let config = match number(0, 2) {
        Ok(layers) => GptConfig::gpt2(vocabulary, tokens, layers, 12, 768),
        Err(_) => GptConfig { context: tokens, ..GptConfig::named(&arguments[0], vocabulary)? },
    };
    let params = Params::new(Device::Interpreter, 1).pad_on_every_device();
    let gpt = Gpt::new(&params, config)?;
    let adam = AdamW::new(&params).betas(0.9, 0.95).weight_decay(0.1).clip_norm(1.0).precision(Precision::Bf16);
    let step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
    let batch = vec![TensorSpec::new(DType::I32, &[batch, tokens], Device::Interpreter); 2];
    let explain = || with_gpu_plans(|| step.explain(&batch));
    match flags.is_empty() {
        true => println!("{}", explain()?),
        false => drop(observed(|text| print!("{text}"), explain)?),
    }
    Ok(())
}
