//! A plain training loop: epochs over batches of labelled points with Adam, then with SGD and
//! momentum; then the accuracy on held-out points.
//!
//! `cargo run --release -p bornite-nn --example mlp_loop [epochs]`

use bornite::{DType, Device, Error, Generator, Tensor, trace};
use bornite_nn::layers::Linear;
use bornite_nn::optimizer::{Optimizer, OptimizerKind};
use bornite_nn::{Context, Init, ParameterList, Result};

const CLASSES: usize = 10;
const FEATURES: usize = 32;
const BATCH: usize = 64;
const TRAINING_POINTS: usize = 20 * BATCH;
const HELD_OUT_POINTS: usize = 512;

/// Points around two centres per class, so that classes are not linearly separable.
fn points(count: usize, centres: &Tensor, generator: &Generator, device: Device) -> Result<(Tensor, Tensor)> {
    let numbers = Tensor::rand(&[count], DType::F32, generator, device) * (2 * CLASSES) as f64;
    let which = numbers.cast(DType::I64).clamp(0i64, 2 * CLASSES as i64 - 1);
    let noise = Tensor::randn(&[count, FEATURES], DType::F32, generator, device) * 0.8;
    let (x, y) = (centres.index_select(0, &which) + noise, which.rem(CLASSES as i64));
    x.realize()?;
    y.realize()?;
    Ok((x, y))
}

fn main() -> Result<()> {
    let epochs: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(8);
    let (device, generator) = (Device::choose(None)?, Generator::new(5));
    let centres = Tensor::randn(&[2 * CLASSES, FEATURES], DType::F32, &generator, device);
    let (x, y) = points(TRAINING_POINTS, &centres, &generator, device)?;
    let (unseen, answers) = points(HELD_OUT_POINTS, &centres, &generator, device)?;
    let answers = answers.to_vec::<i64>()?;

    let adam = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 };
    let sgd = OptimizerKind::Sgd { momentum: 0.9, nesterov: false };
    for (name, kind, lr) in [("adam", adam, 3e-3), ("sgd with momentum", sgd, 5e-2)] {
        let mut parameters = ParameterList::new();
        let sizes = [FEATURES, 64, 64, CLASSES];
        let layers: Vec<Linear> = (0..3)
            .map(|n| Linear::new(&mut parameters.scope("layer").scope(n), sizes[n], sizes[n + 1], Init::Kaiming, true))
            .collect();
        let forward = |context: &Context, x: &Tensor| {
            let hidden = layers[1].forward(context, &layers[0].forward(context, x).relu()).relu();
            layers[2].forward(context, &hidden)
        };
        let weights = parameters.arena(1, device)?;
        let optimizer = Optimizer::new(kind, 1e-4, None, &parameters, &weights)?;
        let step = trace(|inputs| {
            let [x, y, scalars] = inputs else { return Err(Error::op("step", "expected x, y and step scalars")) };
            let loss = forward(&Context::new(weights.tensors()), x).cross_entropy(y);
            let step = optimizer.step(&weights, &weights.gradient(&loss), None, scalars);
            Ok((vec![loss], step.updates))
        });
        let mut steps = 0;
        for epoch in 1..=epochs {
            let mut sum = 0.0;
            for first in (0..TRAINING_POINTS).step_by(BATCH) {
                steps += 1;
                let batch = |of: &Tensor| of.slice(0, first as isize..(first + BATCH) as isize);
                let scalars = optimizer.scalars(lr, steps).tensor(device);
                sum += step.call(&[batch(&x), batch(&y), scalars])?[0].item()?;
            }
            println!("{name}: epoch {epoch}  loss {:.4}", sum / (TRAINING_POINTS / BATCH) as f64);
        }
        let predicted = forward(&Context::new(weights.tensors()), &unseen).argmax(-1).to_vec::<i64>()?;
        let correct = predicted.iter().zip(&answers).filter(|(a, b)| a == b).count();
        println!("{name}: held out {:.1} %", 100.0 * correct as f64 / HELD_OUT_POINTS as f64);
    }
    Ok(())
}
