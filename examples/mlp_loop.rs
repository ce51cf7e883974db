//! A plain training loop: epochs over batches of labelled points with Adam, then with SGD and
//! momentum; then the accuracy on held-out points.
//!
//! `cargo run --release -p bornite-nn --example mlp_loop [epochs]`

use bornite::Generator;
use bornite_nn::prelude::*;

const CLASSES: usize = 10;
const FEATURES: usize = 32;
const BATCH: usize = 64;

/// Batches of points around two centres per class, so that classes are not linearly separable.
fn points(batches: usize, centres: &Tensor, generator: &Generator, device: Device) -> Result<Vec<Vec<Tensor>>> {
    let batch = |_| {
        let numbers = Tensor::rand(&[BATCH], DType::F32, generator, device) * (2 * CLASSES) as f64;
        let which = numbers.cast(DType::I64).clamp(0i64, 2 * CLASSES as i64 - 1);
        let noise = Tensor::randn(&[BATCH, FEATURES], DType::F32, generator, device) * 0.8;
        let batch = vec![centres.index_select(0, &which) + noise, which.rem(CLASSES as i64)];
        batch.iter().try_for_each(Tensor::realize)?;
        Ok(batch)
    };
    (0..batches).map(batch).collect()
}

fn mlp(params: &Params) -> Sequential {
    let layer = |n: usize, from, to| Linear::new(&params.at("layer").at(n), from, to).init(Init::Kaiming);
    Sequential::new().add(layer(0, FEATURES, 64)).add(Relu).add(layer(1, 64, 64)).add(Relu).add(layer(2, 64, CLASSES))
}

/// Trains with an optimizer and prints losses and accuracy.
fn train<A>(
    name: &str,
    optimizer: &bornite_nn::optimizer::OptimizerBuilder<A>,
    net: &Sequential,
    [training, held_out]: [&Vec<Vec<Tensor>>; 2],
    epochs: u64,
) -> Result<()> {
    let step = optimizer.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    for epoch in 1..=epochs {
        let mut sum = 0.0;
        for batch in training {
            sum += step.call(batch)?.loss()?;
        }
        println!("{name}: epoch {epoch}  loss {:.4}", sum / training.len() as f64);
    }
    println!("{name}: held out {:.1} %", 100.0 * evaluate(net, held_out, metrics::accuracy)?);
    Ok(())
}

fn main() -> Result<()> {
    let epochs: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(8);
    let (device, generator) = (Device::choose(None)?, Generator::new(5));
    let centres = Tensor::randn(&[2 * CLASSES, FEATURES], DType::F32, &generator, device);
    let training = points(20, &centres, &generator, device)?;
    let held_out = points(8, &centres, &generator, device)?;

    let params = Params::new(device, 1);
    let net = mlp(&params);
    train("adam", &Adam::new(&params).lr(3e-3).weight_decay(1e-4), &net, [&training, &held_out], epochs)?;
    let params = Params::new(device, 1);
    let net = mlp(&params);
    let sgd = Sgd::new(&params).lr(5e-2).momentum(0.9).weight_decay(1e-4);
    train("sgd with momentum", &sgd, &net, [&training, &held_out], epochs)
}
