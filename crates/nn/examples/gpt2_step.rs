//! Times the training step of a GPT: `gpt2_step [model] [batch] [tokens] [precision] [steps]
//! [profile]`, by default GPT-2 124M with 64 x 1024 tokens in bf16, as in `peers/torch_gpt2.py`.
//! Prints one JSON line, and a profile if the sixth argument is `profile`.

use std::time::Instant;

use bornite::{Device, Generator, Tensor};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::AdamW;
use bornite_nn::train::Precision;
use bornite_nn::{Module, Params};
use bornite_support::profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |n: usize, otherwise: &str| arguments.get(n).cloned().unwrap_or(otherwise.into());
    let (batch, tokens): (usize, usize) = (argument(1, "64").parse()?, argument(2, "1024").parse()?);
    let precision = match &argument(3, "bf16")[..] {
        "f32" => Precision::F32,
        "tf32" => Precision::Tf32,
        "f16" => Precision::F16,
        _ => Precision::Bf16,
    };
    let steps: usize = argument(4, "15").parse()?;
    let device = Device::auto();
    let config = GptConfig { context: tokens, ..GptConfig::named(&argument(0, "gpt2-124m"), 50304)? };
    let params = Params::new(device, 1);
    let gpt = Gpt::new(&params, config)?;
    let parameters = gpt.parameter_count();
    let adam = AdamW::new(&params).lr(3e-4).betas(0.9, 0.95).weight_decay(0.1).clip_norm(1.0).precision(precision);
    let step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
    let generator = Generator::new(2);
    let batches: Vec<[Tensor; 2]> = (0..4)
        .map(|_| {
            let numbers = Tensor::rand(&[batch, tokens + 1], bornite::DType::F32, &generator, device) * 50257.0;
            let rows = numbers.cast(bornite::DType::I64);
            let pair = [rows.slice(1, 0..tokens as isize), rows.slice(1, 1..)];
            pair.iter().try_for_each(Tensor::realize).map(|()| pair)
        })
        .collect::<bornite::Result<_>>()?;
    let started = Instant::now();
    // Each kernel is loaded once.
    let loads = || bornite_cuda::loaded_kernels().iter().map(|kernel| kernel.loads).sum::<u64>();
    let before = loads();
    let mut loss = 0.0;
    for n in 0..3 {
        loss = step.call(&batches[n % 4])?.loss()?;
    }
    device.synchronize()?;
    let warm_s = started.elapsed().as_secs_f64();
    let mut times = vec![];
    for n in 0..steps {
        let start = Instant::now();
        let pending = step.call(&batches[n % 4])?;
        let host_ms = start.elapsed().as_secs_f64() * 1e3;
        loss = pending.loss()?;
        times.push((start.elapsed().as_secs_f64() * 1e3, host_ms));
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ms, host_ms) = times[times.len() / 2];
    let (layers, width) = (gpt.config().layers, gpt.config().width);
    let flops = (6 * parameters + 6 * layers * width * tokens) as f64 * (batch * tokens) as f64;
    let peak = match device {
        Device::Cuda(n) => bornite_cuda::Device::open(n)?.pool().stats().peak_allocated,
        _ => 0,
    };
    let kernels = loads() - before;
    println!(
        "{{\"kernels\": {kernels}, \"batch\": {batch}, \"tokens\": {tokens}, \"step_ms\": {ms:.2}, \"host_ms\": {host_ms:.2}, \"tok_s\": {:.0}, \"tflops\": {:.1}, \
         \"peak_gb\": {:.2}, \"warm_s\": {warm_s:.1}, \"loss\": {loss:.4}, \"parameters\": {parameters}}}",
        (batch * tokens) as f64 / ms * 1e3,
        flops / ms / 1e9,
        peak as f64 / (1u64 << 30) as f64,
    );
    if argument(5, "") == "profile" {
        let scope = profile::scope();
        step.call(&batches[0])?.wait()?;
        println!("{}", scope.report().top(40));
    }
    Ok(())
}
