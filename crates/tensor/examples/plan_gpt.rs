//! Planning time of a training step of GPT-2 (124 M parameters) without a GPU: builds the graph of
//! the step, plans it as for a GPU, and compiles the distinct kernels if NVRTC is available.
//! Nothing runs.
//!
//!     cargo run --release --example plan_gpt -- [layers]

use std::collections::HashSet;
use std::time::Instant;

use bornite::{
    DType, Device, Tensor,
    fused::{AdamWStep, adamw},
    plan::gpu_kernels,
};
use bornite_codegen::cuda::{self, MathMode};

const VOCABULARY: usize = 50_304;
const WIDTH: usize = 768;
const HEADS: usize = 12;
const BATCH: usize = 64;
const CONTEXT: usize = 1024;

/// Parameters in memory, in order of creation.
struct Parameters(Vec<Tensor>);

impl Parameters {
    fn parameter(&mut self, shape: &[usize]) -> Tensor {
        let zeros = vec![0.0f32; shape.iter().product()];
        let parameter = Tensor::from_slice(&zeros, shape, Device::Interpreter);
        self.0.push(parameter.clone());
        parameter
    }

    fn linear(&mut self, x: &Tensor, to: usize) -> bornite::Result<Tensor> {
        let from = x.shape()?[x.shape()?.len() - 1];
        let (weight, bias) = (self.parameter(&[to, from]), self.parameter(&[to]));
        Ok(x.linear(&weight.cast(DType::BF16), Some(&bias.cast(DType::BF16))))
    }

    fn norm(&mut self, x: &Tensor) -> Tensor {
        let (weight, bias) = (self.parameter(&[WIDTH]), self.parameter(&[WIDTH]));
        x.layer_norm(&weight.cast(DType::BF16), &bias.cast(DType::BF16), 1e-5)
    }

    fn block(&mut self, x: &Tensor) -> bornite::Result<Tensor> {
        let normed = self.norm(x);
        let qkv = self.linear(&normed, 3 * WIDTH)?;
        let heads: Vec<Tensor> = (qkv.split(WIDTH, -1).iter())
            .map(|part| part.reshape(&[BATCH, CONTEXT, HEADS, WIDTH / HEADS]).transpose(1, 2))
            .collect();
        let mixed = Tensor::attention(&heads[0], &heads[1], &heads[2], None, true, None);
        let mixed = self.linear(&mixed.transpose(1, 2).reshape(&[BATCH, CONTEXT, WIDTH]), WIDTH)?;
        let x = x + mixed;
        let normed = self.norm(&x);
        let wide = self.linear(&normed, 4 * WIDTH)?.gelu();
        Ok(&x + self.linear(&wide, WIDTH)?)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layers = std::env::args().nth(1).map_or(Ok(12), |n| n.parse::<usize>())?;
    let ids = vec![1i64; BATCH * CONTEXT];
    let tokens = Tensor::from_slice(&ids, &[BATCH, CONTEXT], Device::Interpreter);
    let targets = Tensor::from_slice(&ids, &[BATCH * CONTEXT], Device::Interpreter);
    let mut parameters = Parameters(vec![]);
    let table = parameters.parameter(&[VOCABULARY, WIDTH]);
    let positions = parameters.parameter(&[CONTEXT, WIDTH]);

    let begun = Instant::now();
    let tied = table.cast(DType::BF16);
    let mut x = tied.embedding(&tokens) + positions.cast(DType::BF16);
    for _ in 0..layers {
        x = parameters.block(&x)?;
    }
    let logits = parameters.norm(&x).reshape(&[BATCH * CONTEXT, WIDTH]).matmul(&tied.t());
    let loss = logits.cross_entropy(&targets);
    let built = begun.elapsed();

    let begun = Instant::now();
    let gradients = loss.grad(&parameters.0.iter().collect::<Vec<_>>());
    let differentiated = begun.elapsed();

    let begun = Instant::now();
    let step = AdamWStep { beta2: 0.95, weight_decay: 0.1.into(), ..AdamWStep::new(1e-3, 1) };
    let mut results = vec![loss];
    for (parameter, gradient) in parameters.0.iter().zip(&gradients) {
        // The parameters stand in for the moments: the plan is the same.
        results.extend(adamw(&step, parameter, gradient, parameter, parameter));
    }
    let updated = begun.elapsed();

    let begun = Instant::now();
    let kernels = gpu_kernels(&results)?;
    let planned = begun.elapsed();
    // On a GPU the library computes matrix products.
    let ours: Vec<_> = kernels.iter().filter(|kernel| !kernel.name.starts_with("matmul")).collect();
    let distinct: HashSet<_> = ours.iter().copied().collect();
    println!("{layers} layers: {} launches without matrix products, {} distinct kernels", ours.len(), distinct.len());
    println!("graph {built:.1?}, gradients {differentiated:.1?}, updates {updated:.1?}, plan {planned:.1?}");
    let mut names: Vec<(usize, &str)> = (distinct.iter())
        .map(|kernel| (ours.iter().filter(|other| *other == kernel).count(), &kernel.name[..]))
        .collect();
    names.sort_unstable();
    names.iter().rev().for_each(|(count, name)| println!("{count:5}  {name}"));

    if let Err(why) = bornite_cuda::nvrtc_version() {
        println!("not compiled: {why}");
        return Ok(());
    }
    let begun = Instant::now();
    let mut slowest = (0.0, "");
    for kernel in &distinct {
        let one = Instant::now();
        bornite_cuda::compile(&kernel.name, &cuda::print_with(kernel, MathMode::Native), "sm_90a")?;
        let seconds = one.elapsed().as_secs_f64();
        slowest = if seconds > slowest.0 { (seconds, &kernel.name) } else { slowest };
    }
    println!("compiled sequentially in {:.1?}; longest {:.2} s, {}", begun.elapsed(), slowest.0, slowest.1);
    Ok(())
}
