//! Gradient accumulation: gradients of several small batches, then one step, as two traces over an
//! arena. The last batch is shorter; the same trace serves it.
//! `cargo run --example accumulate [steps]`
use bornite::{DType, Device, Generator, Result, Tensor, trace, var::Arena};

const ROWS: usize = 200;

/// Parameters after `steps` steps over batches of at most `batch` rows.
fn train(batch: usize, steps: usize, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (device, generator) = (x.device()?, Generator::new(3));
    let [w1, w2] = [[2, 16], [16, 1]].map(|shape| Tensor::randn(&shape, DType::F32, &generator, device) * 0.5);
    let [b1, b2] = [16, 1].map(|n| Tensor::zeros(&[n], DType::F32, device));
    // Matrices come before vectors, so that weight decay, which is only for matrices, is one
    // comparison.
    let named = [("w1", &w1), ("b1", &b1), ("w2", &w2), ("b2", &b2)];
    let parameters = Arena::grouped(&named, |_, shape| usize::from(shape.len() == 1))?;
    let gradients = parameters.like(DType::F32, 0.0)?;
    let momentum = parameters.like(DType::F32, 0.0)?;

    let accumulate = trace(|t| {
        let [x, y, length] = t else { return Ok((vec![], vec![])) };
        let p = parameters.tensors();
        let out = (x.matmul(&p[0]) + &p[1]).tanh().matmul(&p[2]) + &p[3];
        // Rows beyond the length are padding, which is masked.
        let loss = (out - y).square().masked(0, length, 0.0).sum(..);
        let sum = gradients.get() + parameters.gradient(&loss);
        Ok((vec![loss], vec![gradients.set(sum)]))
    });
    let accumulate = accumulate.bounded(batch, &[(0, 0), (1, 0)], &[]);
    let apply = trace(|t| {
        let mean = gradients.get() / &t[0];
        // Clipped to a norm of 1: padding between parameters is zero and does not change it.
        let norm = mean.square().sum(..).sqrt();
        let velocity = momentum.get() * 0.9 + mean * (1.0 / (norm + 1e-6)).minimum(1.0);
        let decay = parameters.expand_segment_values(&[1e-4, 0.0, 1e-4, 0.0]);
        let new = parameters.get() * (1.0 - decay) - &velocity * 0.05;
        let zeros = gradients.get() * 0.0;
        Ok((vec![], vec![parameters.set(new), momentum.set(velocity), gradients.set(zeros)]))
    });

    for n in 0..steps {
        let mut loss = 0.0;
        for (x, y) in x.split(batch, 0).into_iter().zip(y.split(batch, 0)) {
            loss += accumulate.call(&[x, y])?[0].item()?;
        }
        apply.call(&[Tensor::full(ROWS as f64, &[], DType::F32, device)])?;
        if n % 50 == 0 || n + 1 == steps {
            println!("batches of {batch:3}, step {n:4}  loss {:.6}", loss / ROWS as f64);
        }
    }
    println!("traces compiled: {} and {}", accumulate.traces(), apply.traces());
    Ok(parameters.get())
}

fn main() -> Result<()> {
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200);
    let (device, generator) = (Device::choose(None)?, Generator::new(1));
    let x = Tensor::rand(&[ROWS, 2], DType::F32, &generator, device) * 2.0 - 1.0;
    let y = (x.slice(1, 0..1) * 3.0).sin() * x.slice(1, 1..2);
    let (accumulated, full_batch) = (train(48, steps, &x, &y)?, train(ROWS, steps, &x, &y)?);
    println!("parameters differ by at most {:.1e} on {device}", (accumulated - full_batch).abs().max(..).item()?);
    Ok(())
}
